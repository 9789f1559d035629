"""Robots with known differences from their twins, for `python -m benchmarks drift`: an independent simulation.

Motions are commanded open loop and simulated in one rollout. Nothing here is shared with `physai.drift`.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco import rollout

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_columns, joint_ids
from physai.sim.solver import use_right_solver
from physai.twin.logs import BasePose, RobotLog

Array = npt.NDArray[np.float64]

POSITION_NOISE, SPEED_NOISE, EFFORT_NOISE = 1e-4, 5e-3, 0.005
"""Standard deviations: position [rad], speed [rad/s], effort relative to the joint's limit."""
POSE_NOISE_M, POSE_NOISE_RAD = 1e-4, 5e-4
RATES_HZ = {"double_pendulum": 500, "ur10e": 250, "go2": 200}
SETTLE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Plant:
    """One change of a robot."""

    kind: str
    owner: str
    factor: float = 1.0
    shift: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.owner or 'command'}.{self.kind}"


@dataclass(frozen=True, kw_only=True)
class RealRobot:
    """A simulated robot."""

    robot: Robot
    model: Any
    delay_s: float
    zero: Array
    """Measured minus true position of each joint [rad], shape (J,)."""
    driver: Array
    """Measured effort per commanded effort of each motor, shape (J,)."""

    def changed(self, plant: Plant) -> "RealRobot":
        """Return the robot with a change."""
        model, zero, delay_s, driver = copy.copy(self.model), self.zero.copy(), self.delay_s, self.driver.copy()
        if plant.kind == "mass":
            body = int(model.body(plant.owner).id)
            model.body_mass[body] *= plant.factor
            model.body_inertia[body] *= plant.factor
            # A controller does not carry a weight that it does not know of.
            model.body_gravcomp[body] /= plant.factor
        elif plant.kind == "friction":
            dof = int(model.jnt_dofadr[model.joint(plant.owner).id])
            model.dof_frictionloss[dof] *= plant.factor
            model.dof_damping[dof] *= plant.factor
        elif plant.kind == "gain" and self.robot.spec.joints[0].stiffness == 0.0:
            driver[self.robot.spec.joint_names.index(plant.owner)] *= plant.factor
        elif plant.kind in ("gain", "torque gain"):
            actuator = joint_actuator(model, int(model.joint(plant.owner).id))
            model.actuator_gainprm[actuator, 0] *= plant.factor
            model.actuator_biasprm[actuator, 1:3] *= plant.factor
        elif plant.kind == "lag":
            delay_s += plant.shift
        elif plant.kind == "zero":
            zero[self.robot.spec.joint_names.index(plant.owner)] += plant.shift
        mujoco.mj_setConst(model, mujoco.MjData(model))
        return replace(self, model=model, zero=zero, delay_s=delay_s, driver=driver)


def real_robot(robot: Robot, model: Any, delay_s: float) -> RealRobot:
    """Return a robot with the dynamics of a model."""
    count = len(robot.spec.joints)
    return RealRobot(
        robot=robot, model=use_right_solver(model), delay_s=delay_s, zero=np.zeros(count), driver=np.ones(count)
    )


def record(real: RealRobot, seconds: float, seed: int, *, command: Array | None = None) -> RobotLog:
    """Simulate a motion, by default one of the robot's work, and record its sensors."""
    robot, model = real.robot, real.model
    rng = np.random.default_rng([seed, len(robot.spec.joints)])
    step = float(model.opt.timestep)
    every = max(1, round(1.0 / RATES_HZ.get(robot.name, 250) / step))
    count = int((seconds + SETTLE_S) / (every * step))
    time = np.arange(count, dtype=np.float64) * (every * step)
    if command is None:
        command = work(robot, time, rng)
    truth = _simulate(real, command[:count], every)
    first = int(SETTLE_S / (every * step))
    return _measured(
        real, time[first:] - time[first], command[first:count], [part[first:] for part in truth], rng, seed
    )


def _simulate(real: RealRobot, command: Array, every: int) -> list[Array]:
    """Return positions and velocities of the model and efforts of the joints at the samples."""
    robot, model = real.robot, real.model
    joints = joint_ids(model)
    positions, _ = joint_columns(model, robot.spec)
    lag, part = divmod(real.delay_s / float(model.opt.timestep), 1.0)
    steps = np.arange(len(command) * every)
    # A step in which the command changes gets the mean of both.
    first, second = (command[np.maximum(0, (steps - int(late)) // every)] for late in (lag, lag + 1.0))
    sent = (1.0 - part) * first + part * second
    servo = np.array([joint.stiffness > 0.0 for joint in robot.spec.joints])
    control = np.zeros((len(steps), model.nu))
    for number, joint in enumerate(joints):
        actuator = joint_actuator(model, joint)
        if actuator is not None:
            # A servo follows its encoder.
            asked = sent[:, number]
            control[:, actuator] = asked - real.zero[number] if servo[number] else real.driver[number] * asked
    data: Any = mujoco.MjData(model)
    data.qpos[positions] = [joint.default_pos for joint in robot.spec.joints]
    if robot.spec.base == "floating":
        data.qpos[2] = 0.3
    full = mujoco.mjtState.mjSTATE_FULLPHYSICS
    state = np.zeros(mujoco.mj_stateSize(model, full))
    mujoco.mj_getState(model, data, state, full)
    states, _ = rollout.rollout(model, data, state[None], control[None])
    before = np.vstack([state, states[0, :-1]])[::every]
    qpos, qvel = before[:, 1 : 1 + model.nq], before[:, 1 + model.nq : 1 + model.nq + model.nv]
    # Motors are measured just before a sample.
    applied = np.zeros((len(command), len(joints)))
    for number, joint in enumerate(joints):
        actuator = joint_actuator(model, joint)
        if actuator is not None and not servo[number]:
            last = control[np.maximum(0, np.arange(len(command)) * every - 1), actuator]
            applied[:, number] = last
    return [qpos, qvel, applied]


def _measured(
    real: RealRobot, time: Array, command: Array, truth: list[Array], rng: np.random.Generator, seed: int
) -> RobotLog:
    robot, model = real.robot, real.model
    positions, speeds = joint_columns(model, robot.spec)
    qpos, qvel, applied = truth
    count, joints = len(time), len(robot.spec.joints)
    servo = any(joint.stiffness > 0.0 for joint in robot.spec.joints)
    limits = np.array([joint.effort_limit or 1.0 for joint in robot.spec.joints])
    base = None
    if robot.spec.base == "floating":
        turn = np.hstack([np.ones((count, 1)), 0.5 * POSE_NOISE_RAD * rng.standard_normal((count, 3))])
        quat = np.array([_product(q, d) for q, d in zip(qpos[:, 3:7], turn, strict=True)])
        quat /= np.linalg.norm(quat, axis=1, keepdims=True)
        base = BasePose(position=qpos[:, :3] + POSE_NOISE_M * rng.standard_normal((count, 3)), quat=quat)
    return RobotLog(
        name=f"run{seed}",
        joint_names=robot.spec.joint_names,
        time=time,
        joint_pos=qpos[:, positions] + real.zero + POSITION_NOISE * rng.standard_normal((count, joints)),
        joint_vel=qvel[:, speeds] + SPEED_NOISE * rng.standard_normal((count, joints)),
        joint_effort=None if servo else applied + EFFORT_NOISE * limits * rng.standard_normal((count, joints)),
        command=command,
        command_kind="joint_pos" if servo else "joint_effort",
        source=f"run{seed}",
        sha256=f"{seed:064x}",
        base=base,
    )


def _product(p: Array, q: Array) -> Array:
    out = np.zeros(4)
    mujoco.mju_mulQuat(out, p, q)
    return out


def work(robot: Robot, time: Array, rng: np.random.Generator) -> Array:
    """Return commands of the robot's work: swinging, moves between poses, or a trot, shape (n, J)."""
    return {"double_pendulum": swings, "go2": trot}.get(robot.name, moves)(robot, time, rng)


def swings(robot: Robot, time: Array, rng: np.random.Generator) -> Array:
    """Return efforts that swing a pendulum, with the small steps of a controller."""
    command = np.zeros((len(time), len(robot.spec.joints)))
    for number, joint in enumerate(robot.spec.joints):
        wave = sum(
            rng.uniform(0.5, 1.0) * np.sin(2.0 * np.pi * rng.uniform(0.2, 1.5) * time + rng.uniform(0.0, 6.28))
            for _ in range(5)
        )
        edges = np.cumsum(rng.uniform(0.03, 0.15, size=int(time[-1] / 0.03) + 2))
        levels = rng.integers(-1, 2, size=len(edges) + 1)
        command[:, number] = joint.effort_limit * (
            0.04 * np.asarray(wave) + 0.03 * levels[np.searchsorted(edges, time)]
        )
    return command


def moves(robot: Robot, time: Array, rng: np.random.Generator) -> Array:
    """Return targets that go from pose to pose along smooth curves, with pauses."""
    home = np.array([joint.default_pos for joint in robot.spec.joints])
    command = np.tile(home, (len(time), 1))
    at, pose = SETTLE_S, home
    while at < time[-1]:
        there = home + rng.uniform(-0.6, 0.6, size=len(home))
        takes, rests = float(rng.uniform(0.8, 1.8)), float(rng.choice([0.0, 0.1, 0.5]))
        share = np.clip((time - at) / takes, 0.0, 1.0)[:, None]
        smooth = share**3 * (10.0 - 15.0 * share + 6.0 * share**2)
        begun = time >= at
        command[begun] = (pose + smooth * (there - pose))[begun]
        at, pose = at + takes + rests, there
    return command


def trot(robot: Robot, time: Array, rng: np.random.Generator) -> Array:
    """Return targets of a trot on the spot whose height, pitch and roll change slowly."""
    names = robot.spec.joint_names
    command = np.tile([joint.default_pos for joint in robot.spec.joints], (len(time), 1))
    ramp = np.minimum(1.0, time)

    def slow(size: float) -> Array:
        parts = [np.sin(2.0 * np.pi * rng.uniform(0.1, 0.5) * time + rng.uniform(0.0, 6.28)) for _ in range(3)]
        return size / 3.0 * ramp * np.sum(parts, axis=0)

    height, pitch, roll, lift = slow(0.15), slow(0.08), slow(0.06), 0.6 * (1.0 + slow(0.4))
    for leg in ("FL", "FR", "RL", "RR"):
        phase = 2.0 * np.pi * 2.2 * time + (0.0 if leg in ("FL", "RR") else np.pi)
        swing = ramp * lift * np.clip(np.sin(phase), 0.0, None)
        bend = height + (pitch if leg[0] == "F" else -pitch)
        hip, thigh, calf = (names.index(f"{leg}_{part}_joint") for part in ("hip", "thigh", "calf"))
        command[:, hip] += roll + slow(0.03)
        command[:, thigh] += 0.55 * swing + 0.5 * bend
        command[:, calf] -= swing + bend
    return command


def pushed(real: RealRobot, seconds: float, seed: int) -> RobotLog:
    """Record a robot that holds a pose while somebody pushes its last link, or its base, every few seconds."""
    robot, model = real.robot, real.model
    rng = np.random.default_rng([seed, 77])
    every = max(1, round(1.0 / RATES_HZ.get(robot.name, 250) / float(model.opt.timestep)))
    step = every * float(model.opt.timestep)
    count = int(seconds / step)
    joints, (positions, speeds) = joint_ids(model), joint_columns(model, robot.spec)
    servo = np.array([joint.stiffness > 0.0 for joint in robot.spec.joints])
    pose = np.array([joint.default_pos for joint in robot.spec.joints]) + np.where(servo, 0.0, 0.6)
    limits = np.array([joint.effort_limit or 1.0 for joint in robot.spec.joints])
    data: Any = mujoco.MjData(model)
    data.qpos[positions] = pose
    if robot.spec.base == "floating":
        data.qpos[2] = 0.3
    body = 1 if robot.spec.base == "floating" else int(model.nbody) - 1
    while float(model.body_mass[body]) == 0.0:
        body += 1 if robot.spec.base == "floating" else -1
    weight = 9.81 * float(model.body_subtreemass[1])
    until, force, command = 0.0, np.zeros(3), np.tile(pose, (count, 1))
    rows = np.zeros((3, count, len(joints)))
    base = np.zeros((count, 7))
    for sample in range(count):
        time = sample * step
        if time >= until:
            push = rng.random() < 0.3
            until = time + float(rng.uniform(0.1, 1.0) if push else rng.uniform(1.0, 6.0))
            force = 0.3 * weight * rng.standard_normal(3) if push else np.zeros(3)
        data.xfrc_applied[body, :3] = force
        place, speed = data.qpos[positions], data.qvel[speeds]
        held = np.clip(0.5 * limits * (pose - place) - 0.05 * limits * speed, -limits, limits)
        command[sample] = np.where(servo, pose, held)
        base[sample] = data.qpos[:7] if robot.spec.base == "floating" else 0.0
        rows[:, sample] = place, speed, np.where(servo, 0.0, command[sample])
        for number, joint in enumerate(joints):
            actuator = joint_actuator(model, joint)
            if actuator is not None:
                data.ctrl[actuator] = command[sample, number]
        mujoco.mj_step(model, data, every)
    qpos = np.tile(np.array(model.qpos0), (count, 1))
    qvel = np.zeros((count, model.nv))
    qpos[:, positions], qvel[:, speeds] = rows[0], rows[1]
    if robot.spec.base == "floating":
        qpos[:, :7] = base
    return _measured(real, np.arange(count, dtype=np.float64) * step, command, [qpos, qvel, rows[2]], rng, seed)
