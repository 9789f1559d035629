"""Tries whether a robot's model can be simulated: holds it still, moves each joint, and says what is wrong."""

import copy
import math
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sim.robots.checks.contacts import overlaps
from physai.sim.robots.checks.findings import Finding
from physai.sim.robots.checks.held import held_by
from physai.sim.robots.checks.plausibility import (
    FAST_RAD_S,
    MOST_RAD,
    STRONGEST,
    degrees_in,
    implausible_bodies,
    links_below,
    strongest_effort,
)
from physai.sim.robots.checks.standing import STANDING, sinking, stature
from physai.sim.robots.loader import Robot
from physai.sim.robots.spec import has_floating_base, home_qpos, joint_actuator, servo_gains
from physai.sim.solver import use_right_solver

Array = NDArray[np.float64]

HOLD_S, MOVE_S, SAMPLE_S = 5.0, 1.0, 0.02
"""Time to hold the home pose, to move one joint, and between two looks [s]."""
STILL = 0.05
"""Speed below which a held joint is still [rad/s or m/s]."""
SAG, STEP = 0.05, 0.2
"""Distance from its target that is worth a note, and by which each joint is moved [rad or m]."""
FASTEST = 50.0
"""Speed of a joint that has exploded, if the file states no limit [rad/s or m/s]."""
LOST = 0.5
"""Distance from its target by which a joint has gone elsewhere, as a share of `STEP` or of a shorter step."""
DEGREES = (40.0, 80.0)
"""Ratio of a servo's range to its joint's that hints at degrees; a radian has 57.3."""
STIFFEST = 0.5
"""Greatest product of a servo's angular frequency and the physics step. An explicit step is unstable from 2 on, and
the inertia that a joint feels varies by a factor of ten with the pose."""
LARGE_M = 50.0
"""Size from which lengths are probably in millimetres [m]; few robots are larger than an excavator."""


@dataclass
class RobotCheck:
    """Findings of a check."""

    robot: str
    findings: list[Finding] = field(default_factory=list[Finding])
    floating: bool = False
    """Whether it was tried hung up, because nobody balances it."""
    joints: int = 0
    servos: int = 0
    """Joints that have a position servo."""
    moved: int = 0
    """Joints that followed a command."""
    unmoved: list[str] = field(default_factory=list[str])
    """Joints that have a servo and did not follow a command."""
    stands: bool | None = None
    """Whether a robot with a floating base keeps its height while its joints are held; None with a fixed base."""
    largest_speed: float = 0.0
    """Of any joint while all were held [rad/s or m/s]."""

    @property
    def stable(self) -> bool:
        """Whether nothing severe was found."""
        return not any(finding.severe for finding in self.findings)

    def add(self, about: str, text: str, next_step: str = "", *, severe: bool = True) -> None:
        """Notes a finding."""
        self.findings.append(Finding(severe=severe, about=about, text=text, next_step=next_step))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        findings = [asdict(finding) for finding in self.findings]
        names = ("robot", "stable", "floating", "stands", "joints", "servos", "moved", "unmoved", "largest_speed")
        own = {name: getattr(self, name) for name in names}
        return {**own, "findings": findings}


class _Bench:
    """One robot, its joints and their servos."""

    def __init__(self, robot: Robot, model: mujoco.MjModel | None = None) -> None:
        self.model = use_right_solver(copy.copy(robot.model if model is None else model))
        self.data = mujoco.MjData(self.model)
        # By name: the model of a task may hold objects with joints of their own.
        self.names = [joint.name for joint in robot.spec.joints]
        self.ids = [int(self.model.joint(name).id) for name in self.names]
        self.columns, self.dofs = self.model.jnt_qposadr[self.ids], self.model.jnt_dofadr[self.ids]
        self.home = home_qpos(self.model)
        self.limits = np.array([joint.velocity_limit or math.inf for joint in robot.spec.joints])
        self.servos: dict[int, int] = {}
        """Servo by place of its joint."""
        self.motors: list[str] = []
        for place, joint in enumerate(self.ids):
            actuator = joint_actuator(self.model, joint)
            if actuator is None:
                continue
            if servo_gains(self.model, actuator)[0] > 0.0:
                self.servos[place] = actuator
            else:
                self.motors.append(self.names[place])

    def reset(self) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self.home
        for place, actuator in self.servos.items():
            self.data.ctrl[actuator] = self.home[self.columns[place]]
        mujoco.mj_forward(self.model, self.data)

    def play(self, duration_s: float) -> tuple[Array, Array]:
        """Positions and velocities of the joints after each sample, shape (samples, joints); ends if not finite."""
        steps = max(1, round(SAMPLE_S / self.model.opt.timestep))
        positions, velocities = [self.data.qpos[self.columns].copy()], [self.data.qvel[self.dofs].copy()]
        for _ in range(round(duration_s / SAMPLE_S)):
            mujoco.mj_step(self.model, self.data, nstep=steps)
            positions.append(self.data.qpos[self.columns].copy())
            velocities.append(self.data.qvel[self.dofs].copy())
            # MuJoCo resets a simulation that diverges, and counts that.
            if self.data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number or not np.isfinite(velocities[-1]).all():
                velocities[-1] = np.full(len(self.ids), np.inf)
                break
        return np.array(positions), np.array(velocities)


def check_robot(robot: Robot) -> RobotCheck:
    """Holds a robot at home for `HOLD_S`, then moves each joint that has a servo.

    A robot with a floating base is dropped first, with its joints held: one that sinks is not stable. Its joints are
    tried hung up, without gravity and contacts.
    """
    bench = _Bench(robot)
    floating = has_floating_base(bench.model)
    found = RobotCheck(robot=robot.name, floating=floating, joints=len(bench.ids), servos=len(bench.servos))
    if bench.motors:
        found.add(
            ", ".join(bench.motors),
            "commanded by effort, so nothing holds the pose; a task that commands positions refuses it",
            "give it position servos: physai robots import FILE --servo auto",
            severe=False,
        )
    extent = float(bench.model.stat.extent)
    if extent > LARGE_M:
        way_out = 'scale="0.001 0.001 0.001" at meshes in millimetres, and lengths in metres'
        found.add("size", f"it is {extent:.3g} m large; lengths are in metres", way_out, severe=False)
    _judge_stiffness(bench, found)
    _judge_weight(bench, found)
    _judge_efforts(bench, found)
    for name, text, severe in implausible_bodies(bench.model):
        found.add(name, text, "the units kg, m and kg·m² in the file", severe=severe)
    _judge_limits(bench, found)
    _judge_ranges(bench, found)
    _judge_contacts(bench, found)
    sinks = _judge_drop(bench, found) if floating else None
    if not floating:
        _judge_height(bench, found)
    if not bench.ids:  # a free body
        return found
    with _hung_up(bench.model) if floating else nullcontext():
        bench.reset()
        _judge_hold(bench, found)
        if found.stable:
            for place in bench.servos:
                _judge_move(bench, found, place)
    found.findings += [] if sinks is None else [sinks]
    return found


def unstable_servos(robot: Robot, model: mujoco.MjModel) -> list[Finding]:
    """Servos that move although they are held, in the model of a task, whose physics step may be longer than the
    robot's own.
    """
    bench = _Bench(robot, model)
    found = RobotCheck(robot=robot.name, joints=len(bench.ids))
    if not bench.servos:
        return []
    with _hung_up(bench.model) if has_floating_base(bench.model) else nullcontext():
        bench.reset()
        _judge_hold(bench, found)
    return [finding for finding in found.findings if finding.severe]


@contextmanager
def _hung_up(model: mujoco.MjModel) -> Generator[None]:
    """Without gravity and contacts, so that what moves are the servos alone."""
    gravity, flags = model.opt.gravity.copy(), model.opt.disableflags
    model.opt.gravity[:] = 0.0
    model.opt.disableflags = flags | mujoco.mjtDisableBit.mjDSBL_CONTACT
    try:
        yield
    finally:
        model.opt.gravity[:], model.opt.disableflags = gravity, flags


def _judge_stiffness(bench: _Bench, found: RobotCheck) -> None:
    bench.reset()
    full = np.zeros((bench.model.nv, bench.model.nv))
    mujoco.mj_fullM(bench.model, bench.data, full)
    step = float(bench.model.opt.timestep)
    for place, actuator in bench.servos.items():
        stiffness, _ = servo_gains(bench.model, actuator)
        dof = bench.dofs[place]
        frequency = math.sqrt(stiffness / max(float(full[dof, dof]), 1e-12))
        if frequency * step > STIFFEST:
            found.add(
                bench.names[place],
                f"kp {stiffness:g} on {full[dof, dof]:.2g} kg·m² is too stiff for a physics step of {step:g} s",
                f"a timestep of at most {STIFFEST / frequency:.2g} s, a smaller kp, or armature",
            )


def _judge_weight(bench: _Bench, found: RobotCheck) -> None:
    if has_floating_base(bench.model):
        return
    bench.reset()
    for place, actuator in bench.servos.items():
        dof = bench.dofs[place]
        weight = abs(float(bench.data.qfrc_bias[dof]))
        # Springs, and compensation of gravity that is not the motor's, carry a part.
        needed = abs(float(bench.data.qfrc_bias[dof] - bench.data.qfrc_passive[dof]))
        given = float(np.abs(bench.model.actuator_forcerange[actuator]).max())
        if not bench.model.actuator_forcelimited[actuator] or max(weight, needed) <= given:
            continue
        if needed > given:
            found.add(
                bench.names[place],
                f"its weight needs {needed:.3g} N·m at home, its effort limit is {given:g}",
                "a home pose that needs less, or the effort limit of the data sheet",
            )
        else:
            found.add(
                bench.names[place],
                f"its weight needs {weight:.3g} N·m at home, its effort limit is {given:g}: the model lets springs or "
                "the like carry it, so the robot must have them",
                severe=False,
            )


def _judge_efforts(bench: _Bench, found: RobotCheck) -> None:
    """Files have placeholders, as effort="1000", from which servos and rotors follow that no such robot has."""
    placeholders: dict[tuple[float, str, float], list[str]] = {}
    for place, actuator in bench.servos.items():
        slides = int(bench.model.jnt_type[bench.ids[place]]) == mujoco.mjtJoint.mjJNT_SLIDE
        most = strongest_effort(bench.model, slides=slides)
        given = float(np.abs(bench.model.actuator_forcerange[actuator]).max())
        if bench.model.actuator_forcelimited[actuator] and given > most > 0.0:
            placeholders.setdefault((given, "N" if slides else "N·m", most), []).append(bench.names[place])
    for (given, unit, most), names in placeholders.items():
        found.add(
            _first(names),
            f"an effort limit of {given:g} {unit} is implausible: {most:.2g} {unit} hold {STRONGEST:g} such robots",
            f"physai robots import FILE --effort {names[0]}=…, with that of the data sheet",
        )


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _judge_height(bench: _Bench, found: RobotCheck) -> None:
    below = links_below(bench.model, bench.home)
    if below:
        found.add(
            _first(list(below)),
            f"up to {next(iter(below.values())):.2g} m below the base at home",
            "another home pose (edit the keyframe home), unless the base stands on an edge or hangs",
            severe=False,
        )


def _judge_limits(bench: _Bench, found: RobotCheck) -> None:
    """Hinges of +-90 rad, or as fast as 180 rad/s, have their limits in degrees."""
    for place, joint in enumerate(bench.ids):
        if int(bench.model.jnt_type[joint]) != mujoco.mjtJoint.mjJNT_HINGE:
            continue
        low, high = (float(limit) for limit in bench.model.jnt_range[joint])
        if bench.model.jnt_limited[joint] and degrees_in((low, high), MOST_RAD):
            way_out = f"{math.radians(low):.4g} and {math.radians(high):.4g}, if they are"
            text = f"limits of {low:g} and {high:g} rad look like degrees"
            found.add(bench.names[place], text, way_out, severe=False)
        speed = float(bench.limits[place])
        if math.isfinite(speed) and degrees_in((speed,), FAST_RAD_S):
            text = f"a velocity limit of {speed:g} rad/s looks like degrees"
            found.add(bench.names[place], text, f"{math.radians(speed):.4g}, if it is", severe=False)


def _judge_ranges(bench: _Bench, found: RobotCheck) -> None:
    """A servo takes targets where its joint can be: MuJoCo reads angles of joints in degrees, those of servos never."""
    for place, actuator in bench.servos.items():
        if not bench.model.actuator_ctrllimited[actuator]:
            continue
        low, high = (float(bound) for bound in bench.model.actuator_ctrlrange[actuator])
        home, joint = float(bench.home[bench.columns[place]]), bench.ids[place]
        takes = f"its servo takes targets from {low:.4g} to {high:.4g}"
        if not low - SAG <= home <= high + SAG:
            found.add(bench.names[place], f"{takes}, and home is {home:.3g}", "ctrlrange in radians or metres")
        elif bench.model.jnt_limited[joint]:
            lower, upper = (float(bound) for bound in bench.model.jnt_range[joint])
            if DEGREES[0] < (high - low) / max(upper - lower, 1e-9) < DEGREES[1]:
                found.add(
                    bench.names[place],
                    f"{takes}, and the joint moves from {lower:.3g} to {upper:.3g} rad",
                    "ctrlrange in radians; degrees are for joints only",
                )


def _judge_contacts(bench: _Bench, found: RobotCheck) -> None:
    for first, second in sorted(overlaps(bench.model)):
        found.add(f"{first}, {second}", "collide with each other at home", '<exclude body1="…" body2="…"> in the model')


def _judge_hold(bench: _Bench, found: RobotCheck) -> None:
    positions, velocities = bench.play(HOLD_S)
    found.largest_speed = float(np.abs(velocities).max())
    allowed = np.where(np.isfinite(bench.limits), 10.0 * bench.limits, FASTEST)
    for place in np.flatnonzero(~(np.abs(velocities).max(axis=0) <= allowed)):
        speed = float(np.abs(velocities[:, place]).max())
        found.add(bench.names[place], f"reaches {speed:.3g} rad/s while held: unstable", "smaller gains or timestep")
    if not found.stable:
        return
    last = velocities[-round(1.0 / SAMPLE_S) :]
    drift = np.abs(velocities[1:].sum(axis=0) * SAMPLE_S - (positions[-1] - positions[0]))
    for place in bench.servos:
        name, off = bench.names[place], float(positions[-1, place] - positions[0, place])
        if np.abs(last[:, place]).max() > STILL:
            found.add(name, f"does not come to rest: {np.abs(last[:, place]).max():.2g} rad/s", "more damping")
        elif drift[place] > SAG:
            found.add(
                name, f"its velocity adds up to {drift[place]:.2g} rad more than it moves: it trembles", "less kp"
            )
        if abs(off) > SAG:
            severe = not abs(off) < STEP
            found.add(name, f"held at home it moves by {off:.2g} rad", "more kp, or gravcomp", severe=severe)


def _judge_drop(bench: _Bench, found: RobotCheck) -> Finding | None:
    """Drop a robot that is held in its home pose; what is returned if it sinks is said after its joints are tried."""
    bench.reset()
    before = stature(bench.model, bench.data)
    _, velocities = bench.play(HOLD_S)
    if not np.isfinite(velocities).all():
        found.add("base", "the simulation diverges when the robot falls", "a smaller timestep, or simpler shapes")
        return None
    after = stature(bench.model, bench.data)
    found.stands = after >= STANDING * before
    if float(bench.data.qpos[2]) < -1.0:
        found.add("base", "falls through the floor: no collision shape of the robot meets it", "add <collision>")
        return None
    return None if found.stands or not bench.servos else sinking(before, after)


def _judge_move(bench: _Bench, found: RobotCheck, place: int) -> None:
    bench.reset()
    actuator, joint = bench.servos[place], bench.ids[place]
    start = float(bench.home[bench.columns[place]])
    step = STEP
    if bench.model.jnt_limited[joint]:
        low, high = (float(limit) for limit in bench.model.jnt_range[joint])
        step = min(STEP, 0.25 * (high - low)) * (1.0 if start < 0.5 * (low + high) else -1.0)
    bench.data.ctrl[actuator] = start + step
    positions, velocities = bench.play(MOVE_S)
    name, told = bench.names[place], f"when told to move by {step:.2g} rad"
    if not np.isfinite(velocities).all():
        found.unmoved.append(name)
        found.add(name, f"explodes {told}", "smaller gains or timestep")
        return
    for other in bench.servos:
        off = float(positions[-1, other] - positions[0, other])
        if other != place and abs(off) > LOST * STEP:
            found.add(bench.names[other], f"moves by {off:.2g} when {name} is told to move", severe=False)
    share = (float(positions[-1, place]) - start) / step
    if LOST <= share <= 1.0 + LOST:
        found.moved += 1
        return
    found.unmoved.append(name)
    if 0.0 <= share < LOST:
        why, way_out = held_by(bench.model, bench.data, bench.ids[place], actuator)
        found.add(name, f"moves by {share * step:.2g} {told}{why}", way_out, severe=False)
    else:
        found.add(name, f"ends {share * step:.2g} from where it was {told}", "the servo's range and gains")
