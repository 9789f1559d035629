"""A motion that a policy follows: joints and base of a robot, one frame for each control period."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sdk.base.files import read_bounded

Floats = npt.NDArray[np.float64]

MAX_BYTES = 128 << 20
MAX_FRAMES = 200_000
WIDTHS = {"joint_pos": None, "joint_vel": None, "base_pos": 3, "base_quat": 4}
"""Arrays of a file and their numbers of columns; None for that of the joints."""


@dataclass(frozen=True, kw_only=True)
class ReferenceMotion:
    """Frames of a motion."""

    joints: tuple[str, ...]
    control_dt: float
    """Time from a frame to the next [s]."""
    joint_pos: Floats
    """Positions [rad], shape (frames, joints)."""
    joint_vel: Floats
    """Velocities [rad/s], shape (frames, joints)."""
    base_pos: Floats
    """Position of the base in the world [m], shape (frames, 3)."""
    base_quat: Floats
    """Orientation of the base in the world, wxyz, shape (frames, 4)."""

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.joint_pos)

    @property
    def length_s(self) -> float:
        """Length of the motion [s]."""
        return self.frames * self.control_dt

    def encoded(self) -> bytes:
        """Return the motion as an NPZ file, the same bytes for the same motion."""
        data = io.BytesIO()
        arrays: Mapping[str, Any] = {name: getattr(self, name).astype(np.float32) for name in WIDTHS}
        np.savez(data, joints=np.array(self.joints), control_dt=np.array(self.control_dt), **arrays)
        return data.getvalue()


def load_motion(file: str | Path) -> ReferenceMotion:
    """Load a motion.

    Raises:
        TaskError: the file cannot be read or is not a motion.
    """
    path = Path(file)
    data = read_bounded(path, limit=MAX_BYTES, error=TaskError)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays: dict[str, Any] = {name: found[name] for name in ("joints", "control_dt", *WIDTHS)}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise TaskError(f"{path}: not a motion: {str(error)[:100]}") from None
    joints, period = arrays.pop("joints"), arrays.pop("control_dt")
    if joints.ndim != 1 or joints.dtype.kind != "U" or period.shape != () or not 1e-4 <= float(period) <= 1.0:
        raise TaskError(f"{path}: not a motion: joints are names, and control_dt is a number of seconds")
    frames = len(arrays["joint_pos"]) if arrays["joint_pos"].ndim == 2 else 0
    for name, array in arrays.items():
        width = WIDTHS[name] or len(joints)
        if array.shape != (frames, width) or not 2 <= frames <= MAX_FRAMES or not np.isfinite(array).all():
            raise TaskError(
                f"{path}: {name} has the shape {array.shape}, expected finite numbers for 2 or more frames "
                f"and {width} columns"
            )
    if not np.allclose(np.linalg.norm(arrays["base_quat"], axis=1), 1.0, atol=1e-3):
        raise TaskError(f"{path}: base_quat has quaternions that are no rotations")
    return ReferenceMotion(
        joints=tuple(str(name) for name in joints),
        control_dt=float(period),
        **{name: np.asarray(array, np.float64) for name, array in arrays.items()},
    )
