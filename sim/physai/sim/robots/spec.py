"""Derives a contract's robot specification from the compiled model, the single source of joint data."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from physai.sdk.base.errors import ModelError
from physai.sdk.contract.robot import ChainSegment, JointSpec, KinematicChain, RobotSpec, SensorField

VELOCITY_LIMITS = "joint_velocity_limit"
"""Name of the MJCF `<numeric>` with one speed limit per joint, 0 for none: MJCF has no field for it."""

IMU_SENSORS: dict[str, tuple[int, int, str, str]] = {
    "imu_quat": (mujoco.mjtSensor.mjSENS_FRAMEQUAT, 4, "", "w"),
    "imu_ang_vel_b": (mujoco.mjtSensor.mjSENS_GYRO, 3, "rad/s", "b"),
    "imu_lin_acc_b": (mujoco.mjtSensor.mjSENS_ACCELEROMETER, 3, "m/s^2", "b"),
}
"""MJCF sensors supported by contracts: sensor type, size, unit, frame."""

FREE_BODY_SENSORS = (
    SensorField(name="base_pos", size=3, unit="m", frame="w"),
    SensorField(name="base_quat", size=4, unit="", frame="w"),
)
"""What cameras measure of a body without joints: its position, and its orientation as wxyz."""

TIP_SITE = "ee"
"""Name of the site that marks a tip frame; further tips are `ee_<something>`."""

Array = NDArray[np.float64]


def robot_spec(model: mujoco.MjModel, *, name: str) -> RobotSpec:
    """Joints, sensors and chains of a compiled model.

    Joints are in the model's order, without the free joint. Default positions are those of the keyframe "home" or,
    without one, zero clamped to the position limits. A free body without joints has the sensors `FREE_BODY_SENSORS`.

    Raises:
        ModelError: a contract cannot express a joint or actuator, or a required limit is missing.
    """
    joints = tuple(joint_ids(model))
    if not joints and not has_floating_base(model):
        raise ModelError(f"robot {name}: the model has no hinge or slide joint, so there is nothing to command")
    try:
        return RobotSpec(
            name=name,
            base="floating" if has_floating_base(model) else "fixed",
            joints=tuple(_joint_spec(model, j, i, len(joints)) for i, j in enumerate(joints)),
            sensors=_sensors(model, len(joints)),
            chains=tuple(kinematic_chain(model, site) for site in _tip_sites(model)),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise ModelError(f"robot {name}: {where + ': ' if where else ''}{reason}") from error


def joint_ids(model: mujoco.MjModel) -> list[int]:
    """MuJoCo ids of the robot's joints in the order of every joint vector.

    Raises:
        ModelError: there is a ball joint, a second free joint, or a joint without a name.
    """
    joints: list[int] = []
    for j in range(model.njnt):
        kind, body = int(model.jnt_type[j]), int(model.jnt_bodyid[j])
        label = model.joint(j).name or f"number {j}, on body {model.body(body).name!r},"
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            if j > 0:
                raise ModelError(
                    f"joint {label} is a second free joint; a robot file must contain one robot only: delete the body "
                    f"{model.body(body).name!r} or its joint"
                )
        elif kind == mujoco.mjtJoint.mjJNT_BALL:
            raise ModelError(f"joint {label} is a ball joint; write it as three hinges")
        elif not model.joint(j).name:
            raise ModelError(f"joint {label} has no name; joints are matched by name between computers")
        else:
            joints.append(j)
    return joints


def joint_columns(model: mujoco.MjModel, robot: RobotSpec) -> tuple[slice, slice]:
    """Columns of a robot's joints in `qpos` and `qvel` of its model; the objects of a scene come after them."""
    first = int(robot.base == "floating")
    count = len(robot.joints)
    if not count:  # a free body
        return slice(7, 7), slice(6, 6)
    position, velocity = int(model.jnt_qposadr[first]), int(model.jnt_dofadr[first])
    return slice(position, position + count), slice(velocity, velocity + count)


def has_floating_base(model: mujoco.MjModel) -> bool:
    """Whether the robot's base has a free joint."""
    return model.njnt > 0 and int(model.jnt_type[0]) == mujoco.mjtJoint.mjJNT_FREE


def joint_actuator(model: mujoco.MjModel, joint: int) -> int | None:
    """MuJoCo id of a joint's actuator, None for a passive joint.

    Raises:
        ModelError: the joint has two actuators.
    """
    actuators = [a for a in range(model.nu) if _drives_joint(model, a) and int(model.actuator_trnid[a, 0]) == joint]
    if len(actuators) > 1:
        names = " and ".join(repr(model.actuator(a).name) for a in actuators)
        raise ModelError(f"joint {model.joint(joint).name}: two actuators, {names}; a contract commands a joint once")
    return actuators[0] if actuators else None


def _drives_joint(model: mujoco.MjModel, actuator: int) -> bool:
    if int(model.actuator_trntype[actuator]) != mujoco.mjtTrn.mjTRN_JOINT:
        raise ModelError(
            f"actuator {model.actuator(actuator).name!r} does not drive a joint; contracts command joints only"
        )
    return True


def _joint_spec(model: mujoco.MjModel, joint: int, index: int, count: int) -> JointSpec:
    lower: float | None = None
    upper: float | None = None
    if model.jnt_limited[joint]:
        lower, upper = (float(x) for x in model.jnt_range[joint])
    actuator = joint_actuator(model, joint)
    stiffness, damping = (0.0, 0.0) if actuator is None else servo_gains(model, actuator)
    return JointSpec(
        name=model.joint(joint).name,
        kind=_kind(model, joint),
        position_lower=lower,
        position_upper=upper,
        velocity_limit=_velocity_limit(model, index, count),
        effort_limit=0.0 if actuator is None else _effort_limit(model, joint, actuator),
        stiffness=stiffness,
        damping=damping,
        default_pos=_default_pos(model, joint, lower, upper),
    )


def _kind(model: mujoco.MjModel, joint: int) -> Literal["revolute", "continuous", "prismatic"]:
    if int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE:
        return "prismatic"
    return "revolute" if model.jnt_limited[joint] else "continuous"


def servo_gains(model: mujoco.MjModel, actuator: int) -> tuple[float, float]:
    """Gains kp [N·m/rad] and kd [N·m·s/rad] of a position servo, (0, 0) for a motor.

    Raises:
        ModelError: the control signal is neither a joint position nor a joint effort.
    """
    name = model.actuator(actuator).name
    gear = float(model.actuator_gear[actuator, 0])
    gain, bias = model.actuator_gainprm[actuator], model.actuator_biasprm[actuator]
    fixed_gain = int(model.actuator_gaintype[actuator]) == mujoco.mjtGain.mjGAIN_FIXED
    bias_type = int(model.actuator_biastype[actuator])
    if fixed_gain and bias_type == mujoco.mjtBias.mjBIAS_NONE:
        if gear * float(gain[0]) != 1.0:
            raise ModelError(
                f"actuator {name!r}: gear {gear:g} times gain {gain[0]:g} makes its control something other than the "
                "joint's effort; give it gear 1, gain 1 and a ctrlrange in N·m (N for a slide joint)"
            )
        return 0.0, 0.0
    if fixed_gain and bias_type == mujoco.mjtBias.mjBIAS_AFFINE and bias[0] == 0.0 and bias[1] == -gain[0] != 0.0:
        if gear != 1.0:
            raise ModelError(f"actuator {name!r}: gear {gear:g}; a position servo must have gear 1")
        return float(gain[0]), -float(bias[2])
    raise ModelError(f"actuator {name!r} is neither a <motor> nor a <position> servo; contracts command only these")


def _effort_limit(model: mujoco.MjModel, joint: int, actuator: int) -> float:
    """Greatest magnitude of effort within the limits of actuator and joint [N·m or N]."""
    bounds: list[float] = []
    if model.actuator_forcelimited[actuator]:
        bounds.append(float(np.abs(model.actuator_forcerange[actuator]).max()))
    if model.jnt_actfrclimited[joint]:
        bounds.append(float(np.abs(model.jnt_actfrcrange[joint]).max()))
    is_motor = servo_gains(model, actuator) == (0.0, 0.0)
    if is_motor and model.actuator_ctrllimited[actuator]:
        bounds.append(float(np.abs(model.actuator_ctrlrange[actuator]).max()))
    if not bounds:
        raise ModelError(
            f"actuator {model.actuator(actuator).name!r} of joint {model.joint(joint).name} has no effort limit; "
            "give it a forcerange (in OpenUSD: physics:maxForce of the drive) from the manufacturer's data sheet"
        )
    return min(bounds)


def _velocity_limit(model: mujoco.MjModel, index: int, count: int) -> float | None:
    numeric = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, VELOCITY_LIMITS)
    if numeric < 0:
        return None
    start, size = int(model.numeric_adr[numeric]), int(model.numeric_size[numeric])
    if size != count:
        raise ModelError(f"numeric {VELOCITY_LIMITS!r} has {size} values for {count} joints; give one each, 0 for none")
    return float(model.numeric_data[start + index]) or None


def home_qpos(model: mujoco.MjModel) -> Array:
    """Generalised positions of the keyframe "home", or of the zero pose, shape (nq,)."""
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "home")
    return np.array(model.key_qpos[key] if key >= 0 else model.qpos0, dtype=np.float64)


def posed(model: mujoco.MjModel, qpos: Any, update: Callable[..., None] = mujoco.mj_kinematics) -> Any:
    """State (MjData) of a model in a pose.

    Args:
        model: compiled model.
        qpos: generalised positions, shape (nq,).
        update: function of MuJoCo that computes what follows from the pose.
    """
    data: Any = mujoco.MjData(model)
    data.qpos[:] = qpos
    update(model, data)
    return data


def ancestors(model: mujoco.MjModel, body: int) -> Iterator[int]:
    """A body, its parent and so on, without the world."""
    while body:
        yield body
        body = int(model.body_parentid[body])


def home_controls(model: mujoco.MjModel) -> Array:
    """Controls with which the position servos hold the home pose, 0 for motors, shape (nu,)."""
    controls, home = np.zeros(model.nu), home_qpos(model)
    for actuator in range(model.nu):
        # Not `servo_gains`: a twin's motors have the gains that were fitted.
        if _drives_joint(model, actuator) and model.actuator_biasprm[actuator, 1] < 0.0:
            controls[actuator] = home[model.jnt_qposadr[model.actuator_trnid[actuator, 0]]]
    return controls


def _default_pos(model: mujoco.MjModel, joint: int, lower: float | None, upper: float | None) -> float:
    value = float(home_qpos(model)[model.jnt_qposadr[joint]])
    has_home = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "home") >= 0
    # Without a home pose the zero pose may lie outside the limits.
    if has_home or lower is None or upper is None:
        return value
    return min(max(value, lower), upper)


def _sensors(model: mujoco.MjModel, count: int) -> tuple[SensorField, ...]:
    units = {
        "joint_pos": _unit(model, "rad", "m"),
        "joint_vel": _unit(model, "rad/s", "m/s"),
        "joint_effort": _unit(model, "N*m", "N"),
    }
    fields = [SensorField(name=name, size=count, unit=unit) for name, unit in units.items() if count]
    fields += [] if count else FREE_BODY_SENSORS
    for name, (kind, size, unit, frame) in IMU_SENSORS.items():
        sensor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
        if sensor < 0:
            continue
        if int(model.sensor_type[sensor]) != kind:
            raise ModelError(f"sensor {name!r} must be a {mujoco.mjtSensor(kind).name.removeprefix('mjSENS_').lower()}")
        fields.append(SensorField(name=name, size=size, unit=unit, frame=frame))
    return tuple(fields)


def _unit(model: mujoco.MjModel, hinge: str, slide: str) -> str:
    """Unit of a joint vector; both units if the robot has both kinds of joint."""
    kinds = {int(model.jnt_type[j]) for j in joint_ids(model)}
    if kinds == {int(mujoco.mjtJoint.mjJNT_HINGE)}:
        return hinge
    return slide if kinds == {int(mujoco.mjtJoint.mjJNT_SLIDE)} else f"{hinge} or {slide}"


def _tip_sites(model: mujoco.MjModel) -> list[str]:
    names = [str(model.site(i).name) for i in range(model.nsite)]
    return [name for name in names if name == TIP_SITE or name.startswith(TIP_SITE + "_")]


def kinematic_chain(model: mujoco.MjModel, site_name: str) -> KinematicChain:
    """Forward kinematics from the robot's base frame to a site.

    The base frame is that of the root body if it is welded to the world or has a free joint, otherwise the world.

    Raises:
        ModelError: there is no such site, or the chain contains a slide or ball joint.
    """
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site_name)
    if site < 0:
        raise ModelError(f"the model has no site named {site_name!r}; mark the tip frame with one")
    segments: list[ChainSegment] = []
    position, quat = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
    for body in _bodies_from_base(model, int(model.site_bodyid[site])):
        position, quat = _compose(position, quat, model.body_pos[body], model.body_quat[body])
        first = int(model.body_jntadr[body])
        for joint in range(first, first + int(model.body_jntnum[body])):
            anchor, axis = np.array(model.jnt_pos[joint]), np.array(model.jnt_axis[joint])
            if int(model.jnt_type[joint]) != mujoco.mjtJoint.mjJNT_HINGE:
                raise ModelError(
                    f"chain {site_name!r} passes joint {model.joint(joint).name}, which is not a hinge; "
                    f"rename the site to load the robot without this chain"
                )
            # A hinge through point p rotates its body by T(p)·R(axis, q - q0)·T(-p) (MuJoCo docs, "Kinematics").
            reference = float(model.qpos0[model.jnt_qposadr[joint]])
            zero = np.array([math.cos(reference / 2), *(-math.sin(reference / 2) * axis)])
            position, quat = _compose(position, quat, anchor, zero)
            segments.append(_segment(position, quat, model.joint(joint).name, axis))
            # Back from the hinge's point to the body's origin.
            position, quat = -anchor, np.array([1.0, 0.0, 0.0, 0.0])
    position, quat = _compose(position, quat, model.site_pos[site], model.site_quat[site])
    return KinematicChain(name=site_name, segments=(*segments, _segment(position, quat)))


def chain_joints(model: mujoco.MjModel, site: int) -> list[int]:
    """MuJoCo ids of the hinges between base and site, from the base on."""
    joints: list[int] = []
    for body in ancestors(model, int(model.site_bodyid[site])):
        first = int(model.body_jntadr[body])
        joints += [j for j in range(first, first + int(model.body_jntnum[body])) if model.jnt_type[j] != 0]
    return sorted(joints)


def _bodies_from_base(model: mujoco.MjModel, tip: int) -> list[int]:
    """Bodies from the base (excluded) to the tip's body, in order."""
    path = list(ancestors(model, tip))[::-1]
    root = path[0] if path else 0
    joint = int(model.body_jntadr[root])
    moves = joint >= 0 and int(model.jnt_type[joint]) != mujoco.mjtJoint.mjJNT_FREE
    return path if moves else path[1:]


def _compose(position: Array, quat: Array, child_position: Any, child_quat: Any) -> tuple[Array, Array]:
    """Composes two poses: the child's is relative to the frame at `position` and `quat`."""
    offset, rotation = np.zeros(3), np.zeros(4)
    mujoco.mju_rotVecQuat(offset, np.asarray(child_position, dtype=np.float64), quat)
    mujoco.mju_mulQuat(rotation, quat, np.asarray(child_quat, dtype=np.float64))
    return position + offset, rotation


def _segment(position: Array, quat: Array, joint: str | None = None, axis: Array | None = None) -> ChainSegment:
    x, y, z = (float(v) for v in position)
    unit = quat / np.linalg.norm(quat)
    qw, qx, qy, qz = (float(v) for v in unit)
    ax, ay, az = (0.0, 0.0, 1.0) if axis is None else (float(v) for v in axis / np.linalg.norm(axis))
    return ChainSegment(translation=(x, y, z), quat=(qw, qx, qy, qz), joint=joint, axis=(ax, ay, az))
