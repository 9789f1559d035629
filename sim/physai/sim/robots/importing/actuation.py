"""Gives joints position servos whose gains follow from effort limit, inertia and a stated bandwidth, or motors.

A servo with stiffness kp [N·m/rad] and damping kd [N·m·s/rad] on a joint that feels the inertia M [kg·m²] moves like an
oscillator of angular frequency sqrt(kp / M) with damping ratio kd / (2 sqrt(kp M)).
"""

import fnmatch
import math
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import ModelError
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.pose.stance import toppling_stiffness
from physai.sim.robots.importing.replaced import clear_actuators, followers, plain_actuator, tendon_pulls
from physai.sim.robots.spec import VELOCITY_LIMITS, has_floating_base, home_qpos, joint_ids, servo_gains

Array = NDArray[np.float64]

BANDWIDTH_HZ = 5.0
"""Highest frequency of a servo. Higher ones are outside what gears and links of real arms follow."""
SATURATION_RAD, SATURATION_M = 0.25, 0.02
"""Error at which a servo gives its whole effort. UR10e in NVIDIA's Deploy-Reach task: 330/1320 = 54/216 = 0.25 rad."""
FASTEST_RAD, FASTEST_M = 500.0, 50.0
"""Acceleration of the bare joint under its whole effort, from which the inertia of an unstated rotor follows
[rad/s² or m/s²]. UR10e's wrists: 54 N·m on 0.1 kg·m²."""
SPEED_RAD, SPEED_M = 2.0, 0.25
"""Speed limit assumed where a file states none [rad/s or m/s]."""
LEAST_LEVER_M = 0.1
"""A leg's joint without an effort limit can carry the whole robot at this distance [m]; its own weight says little."""
LARGEST_EFFORT = 5000.0
"""Efforts above are placeholders [N·m or N]: the strongest joint of a large industrial arm gives about 4000 N·m."""
_POSES = 64


@dataclass(frozen=True, kw_only=True)
class Servos:
    """Servos as the user wants them."""

    kp: float | None = None
    """Stiffness of all joints; None to compute it per joint."""
    kd: float | None = None
    bandwidth_hz: float = BANDWIDTH_HZ
    speed: float = SPEED_RAD
    """Speed limit of hinges of which the file states none [rad/s]."""
    keep: bool = False
    """Leave the file's actuators as they are."""
    effort: bool = False
    """Give joints motors that take an effort, instead of servos that take a position."""
    efforts: tuple[tuple[str, float], ...] = ()
    """Effort limits instead of the file's: names or patterns (`wrist_*`) of joints, and limits [N·m or N]. Later ones
    take precedence."""


@dataclass(frozen=True, kw_only=True)
class Joint:
    """Facts about one joint."""

    name: str
    slides: bool
    inertia: float
    """Inertia that its servo feels at home [kg·m² or kg]."""
    least_inertia: float
    """The smallest in any pose."""
    gravity: float
    """Greatest effort against gravity [N·m or N]."""
    weight: float
    """Effort against gravity at home [N·m or N]."""
    effort: float
    """Limit in the file; 0 if there is none."""
    limits: tuple[float, float] | None
    """Range of positions [rad or m]; None if it has none. An MJCF's own numbers may be degrees."""
    toppling: float = 0.0
    """Least stiffness with which a robot on two feet stands [N·m/rad]."""


def actuate(
    spec: mujoco.MjSpec,
    decisions: Decisions,
    servos: Servos,
    *,
    driven: set[str] | None,
    compensate: bool,
    counterbalance: bool = True,
    stated: bool = True,
) -> None:
    """Replaces the actuators of a model by one position servo per driven joint, unless they are such servos.

    Args:
        spec: the model; changed in place.
        decisions: takes what is assumed.
        servos: the user's wishes.
        driven: joints to drive; None for those that have an actuator or effort limit, or all if none has.
        compensate: let the servos carry the weight of the links, as the controllers of arms do.
        counterbalance: if they do, take weight at home beyond a stated effort limit as carried by springs.
        stated: whether the file has the model's actuators; a URDF has none.

    Raises:
        ModelError: the model does not compile, or has no joint to drive.
    """
    model = spec.compile()
    joints = _with_efforts(_joints(model), servos.efforts, decisions)
    names = _driven(model, joints, driven, decisions)
    if servos.keep and stated and driven is not None:
        raise ModelError(
            "`servo` none keeps the actuators of the file, so `drive` cannot choose its joints; leave one of them out, "
            "or give `servo` effort for motors on these joints"
        )
    if servos.keep:
        decisions.add("actuators", "the file's are kept, as asked", "leave out --servo none")
        # Of a URDF, they were made from its effort limits.
        for actuator in [one for one in spec.actuators if not stated and one.target not in names]:
            spec.delete(actuator)
    elif servos.kp is None and not servos.effort and _are_servos(model, names):
        decisions.add("actuators", "the file's position servos are kept", "--servo KP,KD")
    elif servos.effort:
        clear_actuators(spec, model, decisions, "motors", stated=stated)
        for joint in joints:
            if joint.name in names:
                _add_motor(spec, joint, decisions)
        if any(joint.actgravcomp for joint in spec.joints):
            decisions.add("gravity", "nothing carries the links' weight, which the file's servos did", "--servo auto")
            for body in spec.bodies:
                body.gravcomp = 0.0
        # Servos follow targets within a speed limit; what a motor swings is as fast as it falls.
        return
    else:
        clear_actuators(spec, model, decisions, "position servos", stated=stated)
        least = LEAST_LEVER_M * 9.81 * float(model.body_subtreemass[0]) if has_floating_base(model) else 0.1
        _add_servos(spec, [joint for joint in joints if joint.name in names], decisions, servos, least)
        if compensate:
            for body in spec.bodies:
                if body.name != "world":
                    body.gravcomp = 1.0
            decisions.add("gravity", "the servos carry the links' weight, as arms' controllers do", "--no-gravcomp")
            if counterbalance:
                _counterbalance(spec, [joint for joint in joints if joint.name in names], decisions)
    _limit_speeds(spec, model, decisions, servos.speed)


def _joints(model: mujoco.MjModel) -> list[Joint]:
    ids = joint_ids(model)
    inertias, gravities = _sampled(model, ids)
    toppling = toppling_stiffness(model, home_qpos(model))
    return [
        Joint(
            name=model.joint(joint).name,
            slides=int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE,
            inertia=float(inertias[0, row]),
            least_inertia=float(inertias[:, row].min()),
            gravity=float(gravities[:, row].max()),
            weight=float(gravities[0, row]),
            effort=stated_effort(model, joint),
            limits=(float(model.jnt_range[joint, 0]), float(model.jnt_range[joint, 1]))
            if model.jnt_limited[joint]
            else None,
            toppling=toppling.get(joint, 0.0),
        )
        for row, joint in enumerate(ids)
    ]


def _with_efforts(joints: list[Joint], given: tuple[tuple[str, float], ...], decisions: Decisions) -> list[Joint]:
    for pattern, effort in given:
        matching = {joint.name for joint in joints if fnmatch.fnmatchcase(joint.name, pattern)}
        if not matching:
            known = ", ".join(joint.name for joint in joints)
            raise ModelError(f"`effort` {pattern}={effort:g}: no joint of that name; known: {known}")
        joints = [replace(joint, effort=effort) if joint.name in matching else joint for joint in joints]
        decisions.add(", ".join(sorted(matching)), f"effort limit {effort:g}, as asked", "leave out --effort")
    return joints


def _sampled(model: mujoco.MjModel, ids: list[int]) -> tuple[Array, Array]:
    """Inertias without other joints' motion, and efforts against gravity, shape (poses, joints); home is first."""
    data, random = mujoco.MjData(model), np.random.default_rng(0)
    dofs, columns = model.jnt_dofadr[ids], model.jnt_qposadr[ids]
    limited = np.asarray(model.jnt_limited[ids], bool)
    low = np.where(limited, model.jnt_range[ids, 0], -math.pi)
    high = np.where(limited, model.jnt_range[ids, 1], math.pi)
    full = np.zeros((model.nv, model.nv))
    inertias, gravities = np.zeros((_POSES, len(ids))), np.zeros((_POSES, len(ids)))
    for pose in range(_POSES):
        data.qpos[:] = home_qpos(model)
        if pose:
            data.qpos[columns] = random.uniform(low, high)
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, full)
        inertias[pose] = np.diag(full)[dofs]
        gravities[pose] = np.abs(data.qfrc_bias[dofs])
    return inertias, gravities


def stated_effort(model: mujoco.MjModel, joint: int) -> float:
    """The effort limit of a joint in a file [N·m or N]; 0 if it has none."""
    bounds: list[float] = []
    if model.jnt_actfrclimited[joint]:
        bounds.append(float(np.abs(model.jnt_actfrcrange[joint]).max()))
    for actuator in _actuators(model, joint):
        gear = abs(float(model.actuator_gear[actuator, 0]))
        if model.actuator_forcelimited[actuator]:
            bounds.append(gear * float(np.abs(model.actuator_forcerange[actuator]).max()))
        elif model.actuator_ctrllimited[actuator] and not np.any(model.actuator_biasprm[actuator, :3]):
            gain = abs(float(model.actuator_gainprm[actuator, 0]))
            bounds.append(gear * gain * float(np.abs(model.actuator_ctrlrange[actuator]).max()))
    bounds += [pull for tendon_joint, pull in tendon_pulls(model) if tendon_joint == joint]
    bounds = [bound for bound in bounds if math.isfinite(bound) and bound > 0.0]
    return min(bounds) if bounds and min(bounds) <= LARGEST_EFFORT else 0.0


def _actuators(model: mujoco.MjModel, joint: int) -> list[int]:
    kinds = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    return [
        actuator
        for actuator in range(model.nu)
        if int(model.actuator_trntype[actuator]) in kinds and int(model.actuator_trnid[actuator, 0]) == joint
    ]


def _driven(model: mujoco.MjModel, joints: list[Joint], asked: set[str] | None, decisions: Decisions) -> set[str]:
    names = {joint.name for joint in joints}
    if asked is not None:
        if not asked:
            raise ModelError("`drive` names no joint; leave it out to let the file decide")
        unknown = sorted(asked - names)
        if unknown:
            raise ModelError(f"`drive` {unknown[0]}: no such joint; known: {', '.join(sorted(names))}")
        return asked
    follow = followers(model)
    moving = {joint.name for joint in joints if joint.name not in follow}
    pulled = {joint for joint, _ in tendon_pulls(model)}
    ids = {joint.name: int(model.joint(joint.name).id) for joint in joints}
    driven = {name for name, own in ids.items() if _actuators(model, own) or own in pulled}
    driven = (driven | {joint.name for joint in joints if joint.effort}) & moving
    if not driven:
        if not moving:
            raise ModelError(
                "no joint of the model can be driven: it has none, or they all follow others; a robot needs a hinge or "
                "slide joint"
            )
        decisions.add("actuators", "the file drives no joint; all get a servo", "--drive JOINT,…")
        return moving
    for name in sorted(moving - driven):
        decisions.add(name, "has no actuator and no effort limit, so it is passive", f"--drive {name},…")
    for name in sorted(follow & names):
        decisions.add(name, "follows another joint by a constraint, so it has no servo")
    return driven


def _are_servos(model: mujoco.MjModel, names: set[str]) -> bool:
    """Whether exactly the driven joints have position servos with effort limits, named as contracts need them."""
    found: set[str] = set()
    for actuator in range(model.nu):
        joint = int(model.actuator_trnid[actuator, 0])
        if int(model.actuator_trntype[actuator]) != mujoco.mjtTrn.mjTRN_JOINT:
            return False
        name = str(model.joint(joint).name)
        try:
            stiffness, _ = servo_gains(model, actuator)
        except ModelError:
            return False
        if not stiffness or model.actuator(actuator).name != name or not stated_effort(model, joint):
            return False
        found.add(name)
    return found == names


def _add_motor(spec: mujoco.MjSpec, joint: Joint, decisions: Decisions) -> None:
    unit = "N" if joint.slides else "N·m"
    effort = joint.effort or _estimate(joint, 0.0)
    why = "of the file" if joint.effort else "none in the file; three times its weight and an acceleration of 10"
    decisions.add(joint.name, f"motor of at most {effort:g} {unit} ({why})", "state it in the file")
    motor = plain_actuator(spec, joint.name)
    motor.set_to_motor()
    motor.ctrlrange, motor.ctrllimited = [-effort, effort], 1


def _add_servos(spec: mujoco.MjSpec, joints: list[Joint], decisions: Decisions, servos: Servos, least: float) -> None:
    by_name = {joint.name: joint for joint in spec.joints}
    for joint in joints:
        _add_servo(spec, by_name[joint.name], joint, decisions, servos, least)


def _add_servo(
    spec: mujoco.MjSpec, element: Any, joint: Joint, decisions: Decisions, servos: Servos, least: float
) -> None:
    unit, inertia_unit = ("N", "kg") if joint.slides else ("N·m", "kg·m²")
    effort = joint.effort or _estimate(joint, least)
    if not joint.effort:
        decisions.add(
            joint.name,
            f"no usable effort limit; {effort:g} {unit}, three times its weight and an acceleration of 10",
            "state it in the file",
        )
    added = max(0.0, effort / (FASTEST_M if joint.slides else FASTEST_RAD) - joint.least_inertia)
    if added > 0.1 * joint.least_inertia:
        element.armature = _first(element.armature) + added
        decisions.add(joint.name, f"rotor inertia {added:.2g} {inertia_unit} added: {effort:g} {unit} would fling it")
    else:
        added = 0.0
    inertia = joint.inertia + added
    fastest = inertia * (2.0 * math.pi * servos.bandwidth_hz) ** 2
    stiff = effort / (SATURATION_M if joint.slides else SATURATION_RAD)
    kp = servos.kp if servos.kp is not None else float(f"{max(min(stiff, fastest), joint.toppling):.3g}")
    kd = servos.kd if servos.kd is not None else float(f"{2.0 * math.sqrt(kp * inertia):.3g}")
    turn = "m" if joint.slides else "rad"
    why = (
        f"the whole effort at an error of {SATURATION_M if joint.slides else SATURATION_RAD:g} {turn}"
        if stiff <= fastest
        else f"{servos.bandwidth_hz:g} Hz"
    )
    why = "given" if servos.kp is not None else "to stand on it" if joint.toppling > min(stiff, fastest) else why
    decisions.add(
        joint.name,
        f"servo kp {kp:g} {unit}/{turn}, kd {kd:g} {unit}·s/{turn}, at most {effort:g} {unit} ({why})",
        "--servo KP,KD",
    )
    added_actuator = plain_actuator(spec, joint.name)
    added_actuator.set_to_position(kp=kp, kv=kd)
    added_actuator.forcerange, added_actuator.forcelimited = [-effort, effort], 1
    if joint.limits is not None:
        added_actuator.ctrlrange, added_actuator.ctrllimited = joint.limits, 1
    element.actfrcrange, element.actfrclimited = [-effort, effort], 1
    element.actgravcomp = 1


def _counterbalance(spec: mujoco.MjSpec, joints: list[Joint], decisions: Decisions) -> None:
    """Takes joints whose stated effort limit is less than their weight at home as relieved of it by other means.

    The real robot holds its home pose, so something besides the motor carries that weight: springs in the shoulders of
    PR2 and Baxter, counterweights in others, buoyancy at arms under water.
    """
    by_name = {joint.name: joint for joint in spec.joints}
    for joint in joints:
        if not 0.0 < joint.effort < joint.weight:
            continue
        unit = "N" if joint.slides else "N·m"
        # MuJoCo then adds the compensation to the passive forces, which no effort limit bounds.
        by_name[joint.name].actgravcomp = 0
        decisions.add(
            joint.name,
            f"its weight of {joint.weight:.3g} {unit} at home exceeds the stated effort limit of {joint.effort:g}, so "
            "springs, counterweights or buoyancy carry it, not the motor",
            "--no-counterbalance",
        )


def _first(value: Any) -> float:
    return float(np.atleast_1d(np.asarray(value, np.float64))[0])


def _estimate(joint: Joint, least: float) -> float:
    effort = 3.0 * joint.gravity + 10.0 * joint.inertia
    return float(f"{max(effort, least):.2g}")


def _limit_speeds(spec: mujoco.MjSpec, model: mujoco.MjModel, decisions: Decisions, assumed: float) -> None:
    known = next((numeric for numeric in spec.numerics if numeric.name == VELOCITY_LIMITS), None)
    ids = joint_ids(model)
    slides = [int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE for joint in ids]
    stated = [float(value) for value in known.data][: len(ids)] if known is not None else [0.0] * len(ids)
    lacking = [model.joint(joint).name for joint, speed in zip(ids, stated, strict=True) if not speed > 0.0]
    if not lacking:
        return
    speeds = [
        speed if speed > 0.0 else SPEED_M if slide else assumed for speed, slide in zip(stated, slides, strict=True)
    ]
    if known is not None:
        spec.delete(known)
    spec.add_numeric(name=VELOCITY_LIMITS, data=speeds)
    which = ", ".join(lacking) if len(lacking) < len(ids) else "all joints"
    decisions.add("speed limits", f"{which}: none stated, {assumed:g} rad/s ({SPEED_M:g} m/s) assumed", "--speed RAD_S")
