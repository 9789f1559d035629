"""Relation of the gain and the damping of a voltage-controlled servo to its effort limit."""

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import unknown_name
from physai.sim.robots.spec import joint_actuator

Array = npt.NDArray[np.float64]


def is_servo(model: Any, actuator: int) -> bool:
    """Whether an actuator takes a position instead of an effort, independent of fitted gains."""
    return int(model.actuator_biastype[actuator]) == mujoco.mjtBias.mjBIAS_AFFINE


def _servo_of(model: Any, owner: str) -> tuple[int, int]:
    """Return a joint's actuator and degree of freedom."""
    joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, owner)
    actuator = joint_actuator(model, joint) if joint >= 0 else None
    if actuator is None:
        raise unknown_name("joint", owner, (str(model.joint(j).name) for j in range(model.njnt)))
    return actuator, int(model.jnt_dofadr[joint])


def write_saturation(model: Any, owner: str, column: Array, field: Any) -> None:
    """Set a servo's gain to its effort limit, which is written already, divided by its saturation error.

    Raises:
        UnknownNameError: there is no such joint, or it has no actuator.
    """
    actuator, _ = _servo_of(model, owner)
    gain = field("actuator_forcerange")[:, actuator, 1] / column
    field("actuator_gainprm")[:, actuator, 0] = gain
    field("actuator_biasprm")[:, actuator, 1] = -gain


def write_idle_speed(model: Any, owner: str, column: Array, field: Any) -> None:
    """Let the damping be at least that of the induced voltage: a motor at full effort reaches its idle speed at most.

    The torque of a motor with the voltage V is kt/R·V - kt²/R·v: the effort limit, and a damping of that limit divided
    by the idle speed V/kt.

    Raises:
        UnknownNameError: there is no such joint, or it has no actuator.
    """
    actuator, dof = _servo_of(model, owner)
    induced = field("actuator_forcerange")[:, actuator, 1] / column
    damping = field("dof_damping").reshape(len(column), int(model.nv), -1)
    damping[:, dof, 0] = np.maximum(damping[:, dof, 0], induced)
