"""Checks a model's `<option>` for sense: MuJoCo takes a time step of -1 s and a gravity of 1e300 m/s² as they are."""

from typing import Any

import numpy as np

from physai.sdk.base.errors import ModelError

RANGES: dict[str, tuple[float, float, str]] = {
    "timestep": (1e-5, 0.1, " s"),
    "gravity": (-100.0, 100.0, " m/s²"),
    "wind": (-200.0, 200.0, " m/s"),
    "magnetic": (-100.0, 100.0, ""),
    "density": (0.0, 2e4, " kg/m³"),
    "viscosity": (0.0, 1e3, " Pa·s"),
    "impratio": (1e-3, 1e6, ""),
    "tolerance": (0.0, 1.0, ""),
    "ls_tolerance": (0.0, 1.0, ""),
    "noslip_tolerance": (0.0, 1.0, ""),
    "ccd_tolerance": (0.0, 1.0, ""),
    "o_margin": (0.0, 10.0, " m"),
    "o_solref": (-1e9, 1e9, ""),
    "o_solimp": (0.0, 1e3, ""),
    "o_friction": (0.0, 1e3, ""),
}
"""Least and greatest value of each option, and its unit; the Sun's gravity is 274 m/s², mercury has 13 534 kg/m³."""


def check_physics_options(source: object, option: Any) -> None:
    """Checks the options of a `MjSpec` or `MjModel`; `source` is named in messages.

    Raises:
        ModelError: one is not finite, or outside of its range.
    """
    for name, (least, greatest, unit) in RANGES.items():
        for value in np.atleast_1d(np.asarray(getattr(option, name), np.float64)):
            if not least <= value <= greatest:
                raise ModelError(
                    f"{source}: <option> {name} is {value:g}{unit}, it must lie in {least:g} … {greatest:g}{unit}; "
                    "correct it, or leave it out for MuJoCo's own"
                )
