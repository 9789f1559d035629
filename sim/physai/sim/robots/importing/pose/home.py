"""The home pose of an imported robot: the file's, or one from which it can move."""

import math
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.pose.posture import bent_home
from physai.sim.robots.importing.pose.stance import standing_pose
from physai.sim.robots.spec import TIP_SITE, chain_joints, has_floating_base, home_qpos, joint_ids, posed

Array = NDArray[np.float64]

MIN_ARM = 4
"""Joints from which an arm is bent; one with fewer has few poses to choose from."""
EDGE = 0.05
"""Distance of the home pose from a joint's limits, as a share of the range."""


def home_keyframe(spec: mujoco.MjSpec, model: mujoco.MjModel, decisions: Decisions) -> Any:
    """The keyframe "home"; without one the file's first, or the zero pose moved into the joints' limits."""
    by_name = {key.name: key for key in spec.keys}
    if spec.keys:
        index = next((row for row, key in enumerate(spec.keys) if key.name == "home"), 0)
        qpos = np.array(model.key_qpos[index])
        if "home" not in by_name:
            which = f"is the file's keyframe {spec.keys[0].name!r}"
            decisions.add("home", which, 'name another keyframe "home" in the file')
        if moved := _into_limits(model, qpos, margin=0.0):
            decisions.add("home", f"{', '.join(moved)} moved into the limits", "edit the keyframe home")
        home = by_name.get("home") or spec.add_key(name="home")
        home.qpos = list(qpos)
        return home
    qpos = np.array(model.qpos0)
    if has_floating_base(model):
        _bend_legs(model, qpos, decisions)
    else:
        _bend(model, qpos, decisions)
    # Not at the limit itself, where the limit would push.
    if moved := _into_limits(model, qpos, margin=1e-3):
        decisions.add("home", f"is the zero pose, but {', '.join(moved)} within the limits", "edit the keyframe home")
    return spec.add_key(name="home", qpos=list(qpos))


def _into_limits(model: mujoco.MjModel, qpos: Array, *, margin: float) -> list[str]:
    """Moves joints that are not inside of their limits by a margin [rad or m]; returns their names."""
    moved: list[str] = []
    for joint in joint_ids(model):
        column, (low, high) = model.jnt_qposadr[joint], model.jnt_range[joint]
        if model.jnt_limited[joint] and not low + margin <= qpos[column] <= high - margin:
            qpos[column] = min(max(qpos[column], low + EDGE * (high - low)), high - EDGE * (high - low))
            moved.append(str(model.joint(joint).name))
    return moved


def controls_at_home(model: mujoco.MjModel) -> list[float]:
    """Controls with which servos of joints and tendons rest at home, shape (nu,); 0 of motors.

    A servo's force is gain · control + bias_0 + bias_1 · length, in the units of its control.
    """
    data = posed(model, home_qpos(model), mujoco.mj_fwdPosition)
    controls = np.zeros(model.nu)
    for row in range(model.nu):
        gain, (offset, slope) = float(model.actuator_gainprm[row, 0]), model.actuator_biasprm[row, :2]
        servo = int(model.actuator_biastype[row]) == mujoco.mjtBias.mjBIAS_AFFINE and slope != 0.0 != gain
        if servo and int(model.actuator_gaintype[row]) == mujoco.mjtGain.mjGAIN_FIXED:
            controls[row] = -(offset + slope * data.actuator_length[row]) / gain
        if model.actuator_ctrllimited[row]:
            controls[row] = np.clip(controls[row], *model.actuator_ctrlrange[row])
    return [float(control) for control in controls]


def _bend(model: mujoco.MjModel, qpos: Array, decisions: Decisions) -> None:
    """Bends an arm whose zero pose is stretched out."""
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, TIP_SITE)
    joints = [] if site < 0 else chain_joints(model, site)
    pose = bent_home(model, joints) if len(joints) >= MIN_ARM else None
    if pose is None:
        return
    qpos[model.jnt_qposadr[joints]] = pose
    degrees = ", ".join(f"{math.degrees(angle):.0f}" for angle in pose)
    decisions.add("home", f"bent to {degrees} degrees: in its zero pose the arm is stretched out", "edit the keyframe")


def _bend_legs(model: mujoco.MjModel, qpos: Array, decisions: Decisions) -> None:
    """Bends the legs, so that the robot stands."""
    pose = standing_pose(model)
    if pose is None:
        return
    qpos[:] = pose
    names = [str(model.joint(joint).name) for joint in joint_ids(model) if pose[model.jnt_qposadr[joint]]]
    angles = ", ".join(f"{name} {math.degrees(pose[model.jnt_qposadr[model.joint(name).id]]):.0f}°" for name in names)
    decisions.add("home", f"stands: {angles}", "edit the keyframe home")
