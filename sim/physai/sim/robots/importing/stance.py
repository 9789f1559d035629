"""A home pose in which a legged robot stands: a URDF's zero pose is often one with straight legs."""

import itertools
from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from physai.sim.robots.feet import Foot, find_feet

Array = NDArray[np.float64]

BENT, STRAIGHT = 0.72, 0.95
"""Height of the hips above the feet, as a share of the leg's reach: of robots with small feet and with flat ones."""
PLACE, LEVEL, REST = 10.0, 3.0, 0.1
"""Weights of a foot's place [1/m], its orientation, and the joints' distance from the zero pose [1/rad]."""
INSET = 0.05
"""Distance from its limits that a joint keeps, as a share of its range."""
STARTS = (0.0, 0.8, -0.8)
"""Values of each joint from which solutions are sought [rad]."""
MAX_STARTS = 27
MISSED_M = 0.02
"""Distance between a foot and its place from which there is no stance."""


def standing_pose(model: mujoco.MjModel) -> Array | None:
    """Bends the legs so that each foot stands below its hip; None if there are no legs or no such pose.

    Robots with two feet keep them as flat as in the zero pose. All others keep their feet as far to the side of their
    hips as there.

    Args:
        model: compiled model with a floating base, upright at its zero pose.

    Returns:
        The pose, shape (nq,), with the base where it is at zero.
    """
    qpos = np.array(model.qpos0)
    feet = find_feet(model, qpos)
    if not feet:
        return None
    flat = len(feet) == 2
    reach = _reach(model, feet[0])
    for foot in feet:
        solved = _solved(model, foot, height=(STRAIGHT if flat else BENT) * reach, flat=flat)
        if solved is None:
            return None
        qpos[model.jnt_qposadr[list(foot.joints)]] = solved
    return qpos


def _solved(model: mujoco.MjModel, foot: Foot, *, height: float, flat: bool) -> Array | None:
    """Positions of a leg's joints; None if its foot does not get to its place."""
    joints = list(foot.joints)
    data, columns = mujoco.MjData(model), model.jnt_qposadr[joints]
    lower, upper = _limits(model, joints)
    data.qpos[:] = model.qpos0
    mujoco.mj_kinematics(model, data)
    hip = np.array(data.xanchor[joints[0]])
    rest, level = np.clip(data.qpos[columns], lower, upper), np.array(data.xmat[foot.body])
    place = np.array([hip[0], _point(data, foot)[1], hip[2] - height])

    def gap(angles: Array) -> Array:
        data.qpos[columns] = angles
        mujoco.mj_kinematics(model, data)
        parts = [PLACE * (_point(data, foot) - place), REST * (angles - rest)]
        if flat:
            parts.append(LEVEL * (np.array(data.xmat[foot.body]) - level))
        return np.concatenate(parts)

    best: tuple[float, Array] | None = None
    for start in itertools.islice(itertools.product(STARTS, repeat=len(joints)), MAX_STARTS):
        # The joints nearest to the foot vary first: they are knees and ankles.
        first = np.clip(rest + np.array(start), lower + 1e-6, upper - 1e-6)
        found = least_squares(gap, first, bounds=(lower, upper), max_nfev=60)
        gap(found.x)
        missed = float(np.linalg.norm(_point(data, foot) - place))
        # A clear gain only: legs that could bend either way all take the way that is tried first.
        if missed < MISSED_M and (best is None or found.cost < 0.9 * best[0]):
            best = (float(found.cost), np.array(found.x))
    return None if best is None else best[1]


def _reach(model: mujoco.MjModel, foot: Foot) -> float:
    """Greatest height of the hip above the foot over poses of the leg [m]."""
    joints = list(foot.joints)
    data, columns = mujoco.MjData(model), model.jnt_qposadr[joints]
    lower, upper = _limits(model, joints)
    random = np.random.default_rng(0)
    greatest = 0.0
    for share in [0.5 * np.ones(len(joints)), *random.uniform(size=(500, len(joints)))]:
        data.qpos[:] = model.qpos0
        data.qpos[columns] = lower + share * (upper - lower)
        mujoco.mj_kinematics(model, data)
        greatest = max(greatest, float(data.xanchor[joints[0], 2] - _point(data, foot)[2]))
    data.qpos[columns] = np.clip(model.qpos0[columns], lower, upper)
    mujoco.mj_kinematics(model, data)
    return max(greatest, float(data.xanchor[joints[0], 2] - _point(data, foot)[2]))


def _limits(model: mujoco.MjModel, joints: Sequence[int]) -> tuple[Array, Array]:
    """Limits of the joints, inset; a turn either way for joints without [rad]."""
    ranges = [model.jnt_range[j] if model.jnt_limited[j] else (-np.pi, np.pi) for j in joints]
    lower, upper = np.array(ranges, dtype=np.float64).T
    return lower + INSET * (upper - lower), upper - INSET * (upper - lower)


def _point(data: mujoco.MjData, foot: Foot) -> Array:
    """Where the foot touches the floor, or the centre of a spherical one, in the world frame [m]."""
    return data.xpos[foot.body] + data.xmat[foot.body].reshape(3, 3) @ np.array(foot.point) - [0, 0, foot.radius]
