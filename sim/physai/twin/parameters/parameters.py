"""Parameters of a robot model that a calibration may change: priors, bounds and how values are written to a model.

A parameter's name is `<body>.<what>` or `<joint>.<what>`. The prior's standard deviation is the plausible error of a
careful model file. It decides what counts as identified: of parameters that the logs cannot distinguish, the one with
the tightest prior stays at it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import ModelError, unknown_name
from physai.sim import friction as friction_terms
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids, servo_gains
from physai.twin.parameters import contact, inertia
from physai.twin.parameters.parameter import Parameter
from physai.twin.parameters.servo import write_idle_speed, write_saturation

Array = npt.NDArray[np.float64]
Drive = Literal["effort", "command"]
"""Input of a replay: the measured effort or the recorded command."""

MASS_STD = 0.03
"""Relative to the mass: scales and CAD models are accurate to a few per cent."""
COM_STD = 0.10
"""Relative to the body's size."""
SPREAD_STD = 0.15
SHEAR_STD = 0.15
"""Relative to the body's mean spread."""
FRICTION_STD, FRICTION_MAX = 0.02, 0.3
"""Relative to the joint's effort limit: Coulomb friction of geared drives is a few per cent of it."""
DAMPING_STD, DAMPING_MAX = 0.002, 0.1
"""Relative to the joint's effort limit, per rad/s or m/s."""
ARMATURE_STD, ARMATURE_MAX = 0.05, 1.0
"""Relative to the inertia that the joint moves in the home pose."""
GAIN_STD = 0.02
"""Relative: motor constants are known to a few per cent."""
SERVO_STD = 0.2
"""Relative: servo gains are rarely specified in N·m/rad."""
IDLE_SPEED_STD = 0.1
"""Relative: data sheets state it at the nominal voltage."""
SATURATION_STD = 0.02
"""Relative: the duty cycle that a servo reports is exact, its position error is off by a control period."""
DELAY_STD_S, DELAY_MAX_S = 0.01, 0.08
PERIODS_STD, PERIODS_MAX = 1.0, 4.0
"""Periods of the loop in a delay: a sensor that is polled once per loop, or a command that waits for the next one."""
OFFSET_STD = 0.03
"""Of a position sensor's zero in one recording [rad or m]: a hand, a mechanical stop or hanging in friction miss it by
one or two degrees. It is a random effect of the recording, not a parameter of the robot."""
EFFORT_BIAS_STD, EFFORT_BIAS_MAX = 0.002, 0.1
"""Relative to the joint's effort limit."""

STRIBECK_SPEED_STD, STRIBECK_SPEED_MIN, STRIBECK_SPEED_MAX = 0.6, 0.05, 6.0
"""Relative to the usual Stribeck speed; of the servos that were fitted in the BAM project it is 0.3 to 2.6 rad/s."""
STRIBECK_EXPONENT_STD = 0.3
LOAD_STD, LOAD_MAX, LOAD_STRIBECK_MAX = 0.15, 0.6, 0.4
"""Friction per unit of load: 0.06 to 0.22 for the servos of the BAM project, and as much at rest. The maxima of both
together stay below 1 or at it, where a motor could never move its joint."""
QUADRATIC_STD, QUADRATIC_MAX = 0.1, 1.0
"""Friction per squared load, relative to the inverse of the joint's effort limit."""

DELAY, DELAY_PERIODS = "command.delay", "command.delay_periods"
"""From a command to its effect in the measured position: `delay` + `delay_periods` times the loop's period."""
AGE, AGE_PERIODS = "joint_pos.delay", "joint_pos.delay_periods"
"""By how much positions are older than the efforts of the same sample, in the same way."""
EFFORT_FALLBACK = 1.0
"""Effort limit assumed for a joint without one [N·m or N]; it only scales the friction prior."""


def catalogue(
    robot: Robot, drive: Drive, friction: str = "coulomb", *, saturation: float | None = None, two_rates: bool = False
) -> tuple[Parameter, ...]:
    """Return every parameter of the robot that can affect a replay with this input.

    Args:
        robot: the nominal robot.
        drive: input of the replay.
        friction: friction model of its joints, a key of `physai.sim.friction.MODELS`.
        saturation: position error at which the only servo gives its full effort, if measured [rad or m]. It takes the
            place of the gain kp, which is the effort limit divided by it.
        two_rates: whether the recordings have different rates, which tell a delay of periods from one of seconds.

    Raises:
        UnknownNameError: there is no such friction model.
    """
    if friction not in friction_terms.MODELS:
        raise unknown_name("friction model", friction, friction_terms.MODELS)
    parameters: list[Parameter] = []
    for body in fitted_bodies(robot.model):
        parameters.extend(_body_parameters(robot.model, body))
    inertias = _joint_inertias(robot.model)
    for joint, inertia_now in zip(joint_ids(robot.model), inertias, strict=True):
        parameters.extend(_joint_parameters(robot, joint, inertia_now, drive))
        parameters.extend(_friction_parameters(robot, joint, friction))
    if saturation is not None:
        parameters = [_saturation(parameter, parameters, saturation) for parameter in parameters]
        parameters += _idle_speeds(robot, parameters)
    parameters += contact.contact_parameters(robot.model)
    seconds, periods = (DELAY, DELAY_PERIODS) if drive == "command" else (AGE, AGE_PERIODS)
    delays = [(seconds, "s", DELAY_STD_S, DELAY_MAX_S)] if drive == "command" or two_rates else []
    delays += [(periods, "periods", PERIODS_STD, PERIODS_MAX)] if two_rates else []
    for name, unit, std, most in delays:
        parameters.append(Parameter(name=name, unit=unit, prior=0.0, prior_std=std, lower=0.0, upper=most))
    return tuple(parameters)


def _saturation(parameter: Parameter, parameters: Sequence[Parameter], saturation: float) -> Parameter:
    """Return the measured saturation in place of the gain of a servo that has an effort limit."""
    owner, what = parameter.name.rsplit(".", 1)
    if what != "kp" or all(other.name != f"{owner}.effort_limit" for other in parameters):
        return parameter
    return Parameter(
        name=f"{owner}.saturation_error",
        unit=parameter.unit.rsplit("/", 1)[-1],
        prior=saturation,
        prior_std=SATURATION_STD * saturation,
        lower=0.5 * saturation,
        upper=2.0 * saturation,
    )


def _idle_speeds(robot: Robot, parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the speed of each such servo without a load: it ties the voltage induced in a motor to its torque."""
    speeds = {f"{joint.name}.saturation_error": joint.velocity_limit or 0.0 for joint in robot.spec.joints}
    return [
        Parameter(
            name=f"{p.name.rsplit('.', 1)[0]}.idle_speed",
            unit=f"{p.unit}/s",
            prior=speeds[p.name],
            prior_std=IDLE_SPEED_STD * speeds[p.name],
            lower=0.5 * speeds[p.name],
            upper=2.0 * speeds[p.name],
        )
        for p in parameters
        if speeds.get(p.name, 0.0) > 0.0
    ]


def fitted_bodies(model: Any) -> list[int]:
    """Return the bodies whose inertia is a parameter: moving bodies with mass, one per rigid assembly."""
    chosen: dict[int, int] = {}
    for body in range(1, model.nbody):
        root = int(model.body_weldid[body])
        if root != 0 and model.body_mass[body] > 0.0:
            # Bodies welded to each other move as one: only their sum can be identified, so the first of them carries
            # it.
            chosen.setdefault(root, body)
    return sorted(chosen.values())


def _body_parameters(model: Any, body: int) -> list[Parameter]:
    name, values = str(model.body(body).name), inertia.numbers(model, body)
    if not name:
        return []
    spread = float(values[inertia.SPREAD].mean())
    # The prior of a centre of mass scales with the body: its own extent or the distance to the next joint.
    size = max(float(np.linalg.norm(values[inertia.COM])), 2.0 * spread, _reach(model, body))
    parameters: list[Parameter] = []
    for what, value in zip(inertia.NAMES, (float(v) for v in values), strict=True):
        if what == "mass":
            std, lower, upper, unit = MASS_STD * value, 0.5 * value, 2.0 * value, "kg"
        elif what.startswith("com"):
            std, lower, upper, unit = COM_STD * size, value - 0.5 * size, value + 0.5 * size, "m"
        elif what.startswith("spread"):
            # A model may give a thin rod no spread across its axis; the bound leaves room for some.
            std, lower, upper, unit = SPREAD_STD * spread, 0.1 * value, 3.0 * max(value, spread), "m"
        else:
            std, lower, upper, unit = SHEAR_STD * spread, value - spread, value + spread, "m"
        parameters.append(
            Parameter(name=f"{name}.{what}", unit=unit, prior=value, prior_std=std, lower=lower, upper=upper)
        )
    return parameters


def _reach(model: Any, body: int) -> float:
    """Return the maximum distance of a child's origin from the body's own [m]."""
    children = [child for child in range(1, model.nbody) if int(model.body_parentid[child]) == body]
    return max((float(np.linalg.norm(model.body_pos[child])) for child in children), default=0.0)


def _joint_inertias(model: Any) -> list[float]:
    """Return the diagonal of the mass matrix in the home pose, one entry per joint [kg·m² or kg]."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    # The diagonal in the home pose is a scale for the priors only; it need not be exact.
    mujoco.mj_fullM(model, data, full)
    return [float(full[d, d]) for d in (int(model.jnt_dofadr[j]) for j in joint_ids(model))]


def _joint_parameters(robot: Robot, joint: int, moved: float, drive: Drive) -> list[Parameter]:
    model, name = robot.model, str(robot.model.joint(joint).name)
    dof = int(model.jnt_dofadr[joint])
    slide = int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE
    effort_unit, position_unit = ("N", "m") if slide else ("N·m", "rad")
    effort = robot.spec.joints[robot.spec.joint_names.index(name)].effort_limit or EFFORT_FALLBACK
    friction, damping = float(model.dof_frictionloss[dof]), float(np.atleast_1d(model.dof_damping[dof])[0])
    armature = float(model.dof_armature[dof])

    damping_unit, inertia_unit = f"{effort_unit}·s/{position_unit}", "kg" if slide else "kg·m²"

    def make(what: str, unit: str, prior: float, std: float, lower: float, upper: float) -> Parameter:
        return Parameter(name=f"{name}.{what}", unit=unit, prior=prior, prior_std=std, lower=lower, upper=upper)

    def positive(
        what: str, unit: str, prior: float, relative: float, least: float, factor: float, most: float
    ) -> Parameter:
        # Many model files leave these at 0: what does not scale with the prior lets the fit move them nevertheless.
        return make(what, unit, prior, max(relative * prior, least), 0.0, max(factor * prior, most))

    parameters = [
        positive("friction", effort_unit, friction, 0.5, FRICTION_STD * effort, 5.0, FRICTION_MAX * effort),
        positive("damping", damping_unit, damping, 0.5, DAMPING_STD * effort, 10.0, DAMPING_MAX * effort),
        positive("armature", inertia_unit, armature, 0.3, ARMATURE_STD * moved, 5.0, ARMATURE_MAX * moved),
    ]
    actuator = joint_actuator(model, joint)
    if actuator is None:
        return parameters
    kp, kd = servo_gains(model, actuator)
    if kp == 0.0:
        gain = float(model.actuator_gainprm[actuator, 0])
        parameters.append(make("effort_gain", "", gain, GAIN_STD * gain, 0.5 * gain, 1.5 * gain))
        if drive == "effort":
            limit = EFFORT_BIAS_MAX * effort
            parameters.append(make("effort_bias", effort_unit, 0.0, EFFORT_BIAS_STD * effort, -limit, limit))
        return parameters
    parameters += [
        make("kp", f"{effort_unit}/{position_unit}", kp, SERVO_STD * kp, 0.2 * kp, 5.0 * kp),
        make("kd", f"{effort_unit}·s/{position_unit}", kd, max(0.5 * kd, 0.02 * kp), 0.0, max(5.0 * kd, kp)),
    ]
    if model.actuator_forcelimited[actuator]:
        limit = float(np.abs(model.actuator_forcerange[actuator]).max())
        parameters.append(make("effort_limit", effort_unit, limit, SERVO_STD * limit, 0.3 * limit, 3.0 * limit))
    return parameters


def _friction_parameters(robot: Robot, joint: int, model: str) -> list[Parameter]:
    """Return the terms of a friction model; all of them at their priors are Coulomb and viscous friction."""
    name = str(robot.model.joint(joint).name)
    slide = int(robot.model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE
    effort = robot.spec.joints[robot.spec.joint_names.index(name)].effort_limit or EFFORT_FALLBACK
    unit, speed_unit = ("N", "m/s") if slide else ("N·m", "rad/s")
    speed = friction_terms.STRIBECK_SPEED[mujoco.mjtJoint(int(robot.model.jnt_type[joint]))]
    low, high = STRIBECK_SPEED_MIN * speed, STRIBECK_SPEED_MAX * speed
    kinds: dict[str, tuple[str, float, float, float, float]] = {
        "stribeck_friction": (unit, 0.0, FRICTION_STD * effort, 0.0, FRICTION_MAX * effort),
        "stribeck_speed": (speed_unit, speed, STRIBECK_SPEED_STD * speed, low, high),
        "stribeck_exponent": ("", friction_terms.STRIBECK_EXPONENT, STRIBECK_EXPONENT_STD, 0.5, 2.0),
        "load_friction": ("", 0.0, LOAD_STD, 0.0, LOAD_MAX),
        "load_stribeck": ("", 0.0, LOAD_STD, 0.0, LOAD_STRIBECK_MAX),
        "quadratic": (f"1/({unit})", 0.0, QUADRATIC_STD / effort, 0.0, QUADRATIC_MAX / effort),
    }
    found: list[Parameter] = []
    for term in friction_terms.MODELS[model]:
        unit_of, prior, std, lower, upper = kinds[term.removesuffix("_motor").removesuffix("_external")]
        found.append(
            Parameter(name=f"{name}.{term}", unit=unit_of, prior=prior, prior_std=std, lower=lower, upper=upper)
        )
    return found


@dataclass(frozen=True)
class LogChannel:
    """Delay and effort sensor biases between the robot and its log; n sets of values, J joints."""

    delay_s: Array
    """From the input to its effect in the measured positions, shape (n,)."""
    effort_bias: Array
    """True minus measured effort [N·m or N], shape (n, J)."""
    delay_periods: Array
    """What is added to the delay, in periods of the recording, shape (n,)."""

    def part(self, chosen: slice) -> "LogChannel":
        """Return some of the sets of values."""
        return LogChannel(self.delay_s[chosen], self.effort_bias[chosen], self.delay_periods[chosen])


def channel(joint_names: Sequence[str], names: Sequence[str], values: Array) -> LogChannel:
    """Return the channel for parameter values, shape (n, P); parameters not named are 0."""
    columns = {name: column for column, name in enumerate(names)}

    def pick(name: str) -> Array:
        return values[:, columns[name]] if name in columns else np.zeros(len(values))

    def per_joint(what: str) -> Array:
        columns = [pick(f"{joint}.{what}") for joint in joint_names]
        return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))

    return LogChannel(
        delay_s=pick(DELAY) + pick(AGE),
        effort_bias=per_joint("effort_bias"),
        delay_periods=pick(DELAY_PERIODS) + pick(AGE_PERIODS),
    )


CHANNEL_WHATS = frozenset({"delay", "delay_periods", "pos_bias", "effort_bias"})
"""Parameters that `model_fields` leaves out; files of before offsets belonged to recordings have a `pos_bias`."""


TIED_WHATS = frozenset({"saturation_error", "idle_speed"})
"""Parameters that are written last, because their fields depend on the effort limit, too."""


def model_fields(model: Any, names: Sequence[str], values: Array) -> dict[str, Array]:
    """Convert parameter values to model fields.

    Args:
        model: compiled model of the robot.
        names: the parameters, P of them.
        values: shape (n, P).

    Returns:
        The affected fields by name, shape (n, …) each.

    Raises:
        UnknownNameError: the model has no such body, joint or kind of parameter.
        ModelError: the model has no room for friction terms; see `physai.sim.friction.reserve`.
    """
    fields: dict[str, Array] = {}

    def field(name: str) -> Array:
        if name not in fields:
            fields[name] = np.repeat(np.array(getattr(model, name), dtype=np.float64)[None], len(values), axis=0)
        return fields[name]

    bodies: dict[int, list[tuple[int, Array]]] = {}
    touches: list[tuple[int, str, Array]] = []
    for name, column in zip(names, values.T, strict=True):
        owner, what = name.rsplit(".", 1)
        if what in inertia.NAMES:
            bodies.setdefault(_body_id(model, owner), []).append((inertia.NAMES.index(what), column))
        elif what in contact.WHATS:
            touches.append((_body_id(model, owner), what, column))
        elif what not in CHANNEL_WHATS and what not in TIED_WHATS:
            _write_joint(model, owner, what, column, field)
    for name, column in zip(names, values.T, strict=True):
        if name.endswith(".saturation_error"):
            write_saturation(model, name.rsplit(".", 1)[0], column, field)
        elif name.endswith(".idle_speed"):
            write_idle_speed(model, name.rsplit(".", 1)[0], column, field)
    if touches:
        contact.write_contact(model, touches, field)
    for body, changes in bodies.items():
        ten = np.repeat(inertia.numbers(model, body)[None], len(values), axis=0)
        for index, column in changes:
            ten[:, index] = column
        written = ("body_mass", "body_ipos", "body_inertia", "body_iquat")
        for name, part in zip(written, inertia.fields(ten), strict=True):
            field(name)[:, body] = part
    return fields


def _body_id(model: Any, name: str) -> int:
    body = int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name))
    if body < 0:
        raise unknown_name("body", name, (str(model.body(b).name) for b in range(model.nbody)))
    return body


def _write_joint(model: Any, owner: str, what: str, column: Array, field: Any) -> None:
    joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, owner)
    if joint < 0:
        raise unknown_name("joint", owner, (str(model.joint(j).name) for j in range(model.njnt)))
    dof = int(model.jnt_dofadr[joint])
    simple = {"friction": "dof_frictionloss", "damping": "dof_damping", "armature": "dof_armature"}
    if what in simple:
        field(simple[what])[:, dof] = column
        return
    if what in friction_terms.TERMS or what in friction_terms.BOTH:
        if joint not in friction_terms.friction_joints(model):
            raise ModelError(f"joint {owner} has no room for the parameter {what}; load its model with load_robot")
        field(friction_terms.FIELD)[:, joint, friction_terms.column(what)] = column[:, None]
        return
    actuator = joint_actuator(model, joint)
    if actuator is None or what not in ("effort_gain", "kp", "kd", "effort_limit"):
        raise unknown_name("parameter", f"{owner}.{what}", [f"{owner}.{known}" for known in simple])
    # A position servo's effort is kp·ctrl - kp·pos - kd·vel: kp is the gain and, negated, a bias.
    if what in ("effort_gain", "kp"):
        field("actuator_gainprm")[:, actuator, 0] = column
    if what == "kp":
        field("actuator_biasprm")[:, actuator, 1] = -column
    elif what == "kd":
        field("actuator_biasprm")[:, actuator, 2] = -column
    elif what == "effort_limit":
        field("actuator_forcerange")[:, actuator, 0] = -column
        field("actuator_forcerange")[:, actuator, 1] = column
