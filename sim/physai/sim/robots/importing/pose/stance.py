"""A home pose in which a legged robot stands: a URDF's zero pose is often one with straight legs."""

import itertools
from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from physai.sim.robots.checks.feet import Foot, find_feet
from physai.sim.robots.spec import posed

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
TOPPLING = 2.0
"""Stiffness of the joints of two legs, in stiffnesses of gravity: an upright robot of mass m with its centre of mass at
a height h above a joint is tipped over by m g h per radian."""
SHIFTS = 3
"""Times that the feet are moved below the centre of mass, which moves with them."""


def standing_pose(model: mujoco.MjModel) -> Array | None:
    """Bends the legs so that the robot stands; None if there are no legs or no such pose.

    Robots with two feet keep them as flat as in the zero pose, and below the centre of mass. All others have each foot
    below its hip, as far to the side of it as in the zero pose.

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
    height = (STRAIGHT if flat else BENT) * _reach(model, feet[0])
    ahead = 0.0
    for _ in range(SHIFTS if flat else 1):
        for foot in feet:
            solved = _solved(model, foot, height=height, ahead=ahead, flat=flat)
            if solved is None:
                return None
            qpos[model.jnt_qposadr[list(foot.joints)]] = solved
        ahead += _off_balance(model, qpos, feet)
    return qpos


def toppling_stiffness(model: mujoco.MjModel, qpos: Array) -> dict[int, float]:
    """Stiffness that each joint of two legs needs to carry the robot like a pole on its foot [N·m/rad].

    m g h (1 - a_z²) for each of the two legs, times `TOPPLING`, with the height h of the centre of mass above the joint
    and its axis a; a vertical axis carries nothing.

    Args:
        model: compiled model.
        qpos: pose in which it stands, shape (nq,).

    Returns:
        By MuJoCo's id of the joint; empty unless the robot has two feet. More feet need no stiffness to stand.
    """
    feet = find_feet(model, qpos)
    if len(feet) != 2:
        return {}
    data = posed(model, qpos)
    mujoco.mj_comPos(model, data)
    weight, centre = 9.81 * float(model.body_subtreemass[0]), float(data.subtree_com[0, 2])
    stiffness: dict[int, float] = {}
    for joint in {joint for foot in feet for joint in foot.joints}:
        lever = max(0.0, centre - float(data.xanchor[joint, 2]))
        stiffness[joint] = TOPPLING / len(feet) * weight * lever * (1.0 - float(data.xaxis[joint, 2]) ** 2)
    return stiffness


def _off_balance(model: mujoco.MjModel, qpos: Array, feet: tuple[Foot, ...]) -> float:
    """Distance by which the feet have to move forward, so that the robot settles over their middle [m].

    Ankles that are s times as stiff as gravity let a lever d of the centre of mass grow to d s / (s - 1).
    """
    data = posed(model, qpos)
    mujoco.mj_comPos(model, data)
    ankle = float(np.mean([data.xanchor[foot.joints[-1], 0] for foot in feet]))
    middle = float(np.mean([_point(data, foot)[0] for foot in feet]))
    lever = (middle - ankle) * (TOPPLING - 1.0) / TOPPLING
    return float(data.subtree_com[0, 0]) - (ankle + lever)


def _solved(model: mujoco.MjModel, foot: Foot, *, height: float, ahead: float, flat: bool) -> Array | None:
    """Positions of a leg's joints; None if its foot does not get to its place, so far `ahead` of the hip [m]."""
    joints = list(foot.joints)
    data, columns = posed(model, model.qpos0), model.jnt_qposadr[joints]
    lower, upper = _limits(model, joints)
    hip = np.array(data.xanchor[joints[0]])
    rest, level = np.clip(data.qpos[columns], lower, upper), np.array(data.xmat[foot.body])
    place = np.array([hip[0] + ahead, _point(data, foot)[1], hip[2] - height])

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
    """Contact point of a foot with the floor, or the centre of a spherical one, in the world frame [m]."""
    return data.xpos[foot.body] + data.xmat[foot.body].reshape(3, 3) @ np.array(foot.point) - [0, 0, foot.radius]
