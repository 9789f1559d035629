"""Curves of a replay: what was measured, and what the twin did from each window's start."""

import numpy as np
import numpy.typing as npt

from physai.twin.calibration.replay.pose import COORDINATES, ROTATION
from physai.twin.calibration.replay.replay import ReplayScore
from physai.twin.logs.signals.rotation import from_vector, multiply, relative
from physai.twin.model.twin_file import BASE_ERRORS

Array = npt.NDArray[np.float64]

_HEIGHT = 2
"""Coordinate of a base that is its height."""


def curves(score: ReplayScore, number: int, channel: int) -> tuple[Array, Array, Array]:
    """Return one scored quantity of a recording with n samples, at the starts of all W windows, and in the replay.

    Args:
        score: the replay.
        number: index of the recording.
        channel: index of the scored error. That of a base's position gives its height [m], that of its rotation the
            angle to the recording's first pose [rad], and the others a joint's position.

    Returns:
        Shapes (n,), (W,) and (W, M); only windows of this recording have a meaning.
    """
    windows, log = score.windows, score.windows.logs[number]
    if windows.base is None or log.base is None:
        return log.joint_pos[:, channel], windows.joint_pos[:, channel], score.positions[..., channel]
    if channel == BASE_ERRORS.index("base.position"):
        return log.base.position[:, _HEIGHT], windows.joint_pos[:, _HEIGHT], score.positions[..., _HEIGHT]
    if channel == BASE_ERRORS.index("base.rotation"):
        first = log.base.quat[0]
        off = score.positions[..., ROTATION] - windows.target[..., ROTATION]
        simulated = multiply(windows.base.quat, from_vector(off))
        return _angle(first, log.base.quat), _angle(first, windows.base.start), _angle(first, simulated)
    joint = channel - len(BASE_ERRORS)
    column = COORDINATES + joint
    return log.joint_pos[:, joint], windows.joint_pos[:, column], score.positions[..., column]


def _angle(first: Array, quat: Array) -> Array:
    return np.linalg.norm(relative(np.broadcast_to(first, quat.shape), quat), axis=-1)
