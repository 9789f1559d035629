"""Poses that an arm's end effector can reach, found by trying joint positions."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import TaskError
from physai.sim.robots.spec import ancestors, chain_joints, has_floating_base, home_qpos

Array = NDArray[np.float64]

POSES = 4096
"""Poses in a workspace."""
SPREAD = 0.6
"""Greatest distance of a joint from home in them, as far as its limits allow [rad]."""
MARGIN = 0.05
"""Distance from its limits that a joint keeps, as a share of its range."""
CLEARANCE_M = 0.02
"""Least height above the floor of the base that the end effector keeps [m]."""
_LEAST_SHARE = 0.02


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Poses of the end effector in the base frame."""

    poses: Array
    """Position [m] and quaternion (wxyz, w >= 0), shape (POSES, 7)."""
    lower: tuple[float, float, float]
    """Smallest position [m]."""
    upper: tuple[float, float, float]


def sampled_workspace(model: Any, site_name: str, *, spread: float = SPREAD, seed: int = 0) -> Workspace:
    """Samples joint positions near home; keeps poses above the floor in which no parts of the robot collide.

    Args:
        model: compiled MjModel of an arm with a fixed base.
        site_name: site at the end effector.
        spread: greatest distance of a joint from home [rad].
        seed: fixes the samples.

    Raises:
        TaskError: there is no such site, the base is not fixed, or hardly any pose is free.
    """
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site_name)
    if site < 0:
        raise TaskError(
            f"the model has no site named {site_name!r}, which marks the end effector; make one with: physai robots "
            "import FILE --ee LINK"
        )
    if has_floating_base(model):
        raise TaskError("a reach task needs a robot with a fixed base; import it with --fixed-base")
    joints = chain_joints(model, site)
    columns, home = model.jnt_qposadr[joints], home_qpos(model)
    lower, upper = _ranges(model, joints, home[columns], spread)
    random, data = np.random.default_rng(seed), mujoco.MjData(model)
    base = base_body(model, site)
    data.qpos[:] = home
    mujoco.mj_kinematics(model, data)
    height = float(data.xpos[base, 2])
    # What touches at home is drawn so, like a shoulder that reaches into its base.
    ignored = _touching(model, data, site)
    poses: list[Array] = []
    for tried in range(1, 50 * POSES + 1):
        data.qpos[columns] = random.uniform(lower, upper)
        mujoco.mj_kinematics(model, data)
        if data.site_xpos[site, 2] > height + CLEARANCE_M and _touching(model, data, site) <= ignored:
            poses.append(_pose(data, base, site))
        if len(poses) == POSES:
            break
        if tried == POSES and len(poses) < _LEAST_SHARE * tried:
            raise TaskError(
                f"only {len(poses)} of {tried} poses within {spread:g} rad of home are above the floor and free of "
                "collisions; give the model a keyframe named home in the middle of its work"
            )
    found = np.array(poses)
    low, high = found[:, :3].min(axis=0), found[:, :3].max(axis=0)
    return Workspace(poses=found, lower=(low[0], low[1], low[2]), upper=(high[0], high[1], high[2]))


def _ranges(model: Any, joints: list[int], home: Array, spread: float) -> tuple[Array, Array]:
    lower, upper = home - spread, home + spread
    limited = np.asarray(model.jnt_limited[joints], bool)
    low, high = model.jnt_range[joints, 0], model.jnt_range[joints, 1]
    room = MARGIN * (high - low)
    lower = np.where(limited, np.maximum(lower, low + room), lower)
    upper = np.where(limited, np.minimum(upper, high - room), upper)
    # A home pose at a limit leaves one side only.
    return np.minimum(lower, upper), np.maximum(lower, upper)


def base_body(model: Any, site: int) -> int:
    """The body whose frame is the base frame of a contract's chain; see `kinematic_chain`."""
    body = [0, *ancestors(model, int(model.site_bodyid[site]))][-1]
    return 0 if int(model.body_jntnum[body]) else body


def _touching(model: Any, data: Any, site: int) -> set[tuple[int, int]]:
    """Pairs of geoms that overlap, of which at least one moves with the arm that has the site."""
    mujoco.mj_collision(model, data)
    arm = model.body_rootid[model.site_bodyid[site]]

    def moves(geom: int) -> bool:
        body = model.geom_bodyid[geom]
        return bool(model.body_rootid[body] == arm and model.body_weldid[body])

    touching = (contact.geom for contact in data.contact[: data.ncon] if contact.dist < 0.0)
    pairs = [(int(first), int(second)) for first, second in touching]
    return {pair for pair in pairs if moves(pair[0]) or moves(pair[1])}


def _pose(data: Any, base: int, site: int) -> Array:
    rotation = np.array(data.xmat[base]).reshape(3, 3)
    position = rotation.T @ (data.site_xpos[site] - data.xpos[base])
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, (rotation.T @ np.array(data.site_xmat[site]).reshape(3, 3)).ravel())
    return np.concatenate([position, quat if quat[0] >= 0.0 else -quat])
