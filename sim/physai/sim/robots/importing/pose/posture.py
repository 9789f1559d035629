"""A home pose for arms whose zero pose is stretched out, where they cannot move in every direction."""

import itertools
import math
from collections.abc import Iterator

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sim.robots.checks.contacts import touching
from physai.sim.robots.checks.plausibility import base_plane
from physai.sim.robots.shapes import shape_corners
from physai.sim.robots.spec import TIP_SITE

Array = NDArray[np.float64]

ANGLES = tuple(math.radians(angle) for angle in (0.0, 45.0, -45.0, 90.0, -90.0))
"""Angles of a joint that are tried, those nearest to zero first [rad]."""
MAX_TRIED = 20_000
"""Poses that are tried; of an arm with more combinations the joints nearest to the hand stay at zero."""
POOR = 0.3
"""Share of the best pose's manipulability below which the zero pose is left."""
BEND_COST = 0.05
"""Manipulability that a pose must gain for each right angle by which a joint is bent, as a share of the best."""
BELOW = 0.1
"""How far the end effector may be below the first joint, as a share of the arm's length."""
SLACK_M = 1e-3
"""How far a link may be below the base, and below where it is in the zero pose [m]."""
MAX_CHECKED = 100
"""Poses whose parts are looked at for collisions, the best ones first."""


def bent_home(model: mujoco.MjModel, joints: list[int]) -> Array | None:
    """Joint positions in which an arm moves better than in its zero pose; None if that is good already.

    The measure is Yoshikawa's manipulability, the product of the singular values of the end effector's Jacobian, with
    rotations weighed by the arm's length.

    Args:
        model: compiled model with the site `ee`.
        joints: MuJoCo ids of the hinges between base and end effector.
    """
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, TIP_SITE)
    data = mujoco.MjData(model)
    columns, dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
    mujoco.mj_kinematics(model, data)
    points = [*data.xanchor[joints], data.site_xpos[site]]
    length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
    lowest = float(data.xanchor[joints[0], 2]) - BELOW * length
    # An arm that hangs in its zero pose may hang in its home pose, too.
    plane = min(base_plane(model), float(shape_corners(model, [data.qpos])[:, 2].min())) - SLACK_M
    jacobian = np.zeros((6, model.nv))
    rated: list[tuple[float, Array]] = []
    for pose in _poses(model, joints):
        data.qpos[columns] = pose
        mujoco.mj_kinematics(model, data)
        if rated and (data.site_xpos[site, 2] < lowest or float(data.xanchor[joints, 2].min()) < plane):
            continue
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
        jacobian[3:] *= length
        rated.append((float(np.prod(np.linalg.svd(jacobian[:, dofs], compute_uv=False))), pose))
    greatest = max(value for value, _ in rated)
    if rated[0][0] >= POOR * greatest:
        return None
    cost = BEND_COST * greatest / math.radians(90.0)
    rated.sort(key=lambda entry: cost * float(np.abs(entry[1]).sum()) - entry[0])
    for _, pose in rated[:MAX_CHECKED]:
        data.qpos[columns] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        if not touching(model, data) and float(shape_corners(model, [data.qpos])[:, 2].min()) >= plane:
            return pose
    return None


def _poses(model: mujoco.MjModel, joints: list[int]) -> Iterator[Array]:
    """Combinations of `ANGLES` within the limits; the first one is as near to zero as they allow."""
    choices: list[list[float]] = []
    total = 1
    for joint in joints:
        low, high = (-math.pi, math.pi)
        if model.jnt_limited[joint]:
            low, high = (float(limit) for limit in model.jnt_range[joint])
            room = 0.1 * (high - low)
            low, high = low + room, high - room
        allowed = [angle for angle in ANGLES if low <= angle <= high] or [0.5 * (low + high)]
        total *= len(allowed)
        choices.append(allowed if total <= MAX_TRIED else allowed[:1])
    for pose in itertools.product(*choices):
        yield np.array(pose)
