"""Checks a model's `<option>` and `<visual>` for sense: MuJoCo takes a time step of -1 s as it is."""

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
    "sleep_tolerance": (0.0, 1e3, ""),
    **dict.fromkeys(("iterations", "ls_iterations", "noslip_iterations", "ccd_iterations"), (0.0, 1e4, "")),
    **dict.fromkeys(("sdf_iterations", "sdf_initpoints"), (0.0, 1e3, "")),
}
"""Least and greatest value of each option, and its unit; the Sun's gravity is 274 m/s², mercury has 13 534 kg/m³."""
SECTIONS = ("global_", "quality", "map", "scale")
"""Sections of `<visual>` with numbers."""
PICTURES: dict[str, tuple[float, float, str]] = {
    "offwidth": (1.0, 8192.0, " pixels"),
    "offheight": (1.0, 8192.0, " pixels"),
    "shadowsize": (0.0, 16384.0, " pixels"),
    "offsamples": (0.0, 64.0, ""),
    "numslices": (3.0, 512.0, ""),
    "numstacks": (2.0, 512.0, ""),
    "numquads": (1.0, 512.0, ""),
    "fovy": (0.0, 180.0, "°"),
    "znear": (1e-9, 1e3, ""),
    "zfar": (1e-6, 1e6, ""),
}
"""The same of what a renderer takes memory for; every other number of `<visual>` lies in ±1e6."""


def check_options(source: object, spec: Any) -> None:
    """Checks the options of a `MjSpec`; `source` is named in messages.

    Raises:
        ModelError: a number of `<option>` or `<visual>` is not finite, or outside of its range.
    """
    check_physics_options(source, spec.option)
    for section in SECTIONS:
        part = getattr(spec.visual, section)
        for name in (name for name in dir(part) if not name.startswith("_")):
            where = f"<visual> {section.rstrip('_')} {name}"
            _require(source, where, getattr(part, name), PICTURES.get(name, (-1e6, 1e6, "")))


def check_physics_options(source: object, option: Any) -> None:
    """Checks the `<option>` of a `MjSpec` or `MjModel`; see `check_options`."""
    for name, bounds in RANGES.items():
        _require(source, f"<option> {name}", getattr(option, name), bounds)


def _require(source: object, where: str, values: Any, bounds: tuple[float, float, str]) -> None:
    least, greatest, unit = bounds
    for value in np.atleast_1d(np.asarray(values, np.float64)):
        if not least <= value <= greatest:
            raise ModelError(
                f"{source}: {where} is {value:g}{unit}, it must lie in {least:g} … {greatest:g}{unit}; "
                "correct it, or leave it out for MuJoCo's own"
            )
