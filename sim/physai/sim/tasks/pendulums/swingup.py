"""Swing-up of any pole: a cart-pole, a pendulum with one link or several, with motors at some of its joints."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.common import envelope, once, timing
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.pendulums.poles import Poles, find_poles
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import Delay, Push, Randomise, RewardTerm, SensorModel, Success, Task, Uniforms, WorldView

EPISODE_S, HOLD_S, UPRIGHT_RAD = 10.0, 2.0, 0.2
STEPS_PER_PERIOD = 60
"""Control steps in a small oscillation, as far as 2 to 20 ms allow."""
CONTROL_DT_RANGE = (0.002, 0.02)
RISE_PERIODS = 1.0 / 6.0
"""Time in which an effort rises from 0 to its limit, in periods: what a policy tries out at random then lasts long
enough to swing something."""
FROZEN_S = 0.1
"""Time for which a sensor may repeat its value."""
HANGING_SHARE, WILD_SHARE = 0.3, 0.35
"""Fractions of the training episodes that start hanging and anywhere; the others start near upright."""
SHORT_S = 2.5
"""Length of training episodes that do not start hanging [s]; their informative part is at the start."""


class _Swing:
    """Quantities of the state that the task's functions read."""

    def __init__(self, robot: Robot, poles: Poles, driven: Sequence[int]) -> None:
        model = robot.model
        joints = len(robot.spec.joints)
        self._poles = Constant(list(poles.joints))
        self._upright = Constant(poles.upright[list(poles.joints)])
        self._speed = Constant(1.0 / poles.top_speed)
        self._effort = Constant([1.0 / robot.spec.joints[joint].effort_limit for joint in driven])
        # Potential energy is minus mass times gravity times place, here in units of that from hanging to upright.
        weight = -np.asarray(model.body_mass)[:, None] * np.asarray(model.opt.gravity) / poles.energy
        self._weight = Constant(weight.ravel())
        self._highest = poles.highest / poles.energy
        slide_lower, slide_upper = np.full(joints, -np.inf), np.full(joints, np.inf)
        middle, width = np.zeros(joints), np.full(joints, np.inf)
        for joint in poles.slides:
            low, high = robot.spec.joints[joint].position_lower, robot.spec.joints[joint].position_upper
            middle[joint], width[joint] = robot.spec.joints[joint].default_pos, 1.0
            if low is not None and high is not None:
                slide_lower[joint], slide_upper[joint] = 0.98 * low + 0.02 * high, 0.02 * low + 0.98 * high
                width[joint] = 0.5 * (high - low)
        self._lower, self._upper = Constant(slide_lower), Constant(slide_upper)
        self._middle, self._width = Constant(middle), Constant(1.0 / width)

    def height(self, view: WorldView) -> Array:
        """Potential energy, 0 hanging, 1 upright."""
        return once(view, "height", self._height)

    def _height(self, view: WorldView) -> Array:
        places = view.xp.reshape(view.derived["xipos"], (view.qpos.shape[0], -1))
        return 1.0 - self._highest + places @ self._weight.like(places)

    def centred_and_up(self, view: WorldView) -> Array:
        """Height, times 1 with slides in their middles falling to exp(-1) where they end."""
        off = (view.joint_pos - self._middle.like(view.joint_pos)) * self._width.like(view.joint_pos)
        return self.height(view) * view.xp.exp(-view.xp.vecdot(off, off))

    def standing(self, view: WorldView) -> Array:
        """1 upright, smoothly less below: exp(-((1 - height) / 0.2)²)."""
        gap = (1.0 - self.height(view)) / 0.2
        return view.xp.exp(-gap * gap)

    def cosines(self, view: WorldView) -> Array:
        """Cosines of the poles' angles from upright, shape (num_worlds, poles)."""
        angles = view.xp.take(view.joint_pos, self._poles.like(view.joint_pos), axis=1)
        return view.xp.cos(angles - self._upright.like(angles))

    def balanced(self, view: WorldView) -> Array:
        """1 for poles at rest upright, falling with angle and speed: exp(-Σ(angle / 0.3)² - Σ(4 speed / top)²)."""
        speed = 4.0 * view.joint_vel * self._speed.like(view.joint_vel)
        # 2 (1 - cos a) equals a² for small angles, and is periodic.
        off = (2.0 * (1.0 - self.cosines(view))).sum(axis=1)
        return view.xp.exp(-off / 0.09 - view.xp.vecdot(speed, speed))

    def is_upright(self, view: WorldView) -> Array:
        """True where each pole is within `UPRIGHT_RAD` of upright."""
        return view.xp.all(self.cosines(view) > math.cos(UPRIGHT_RAD), axis=1)

    def efforts(self, view: WorldView) -> Array:
        """Σ (effort / limit)²."""
        share = view.target * self._effort.like(view.target)
        return view.xp.vecdot(share, share)

    def speeds(self, view: WorldView) -> Array:
        """Σ (speed / that of a fall)²."""
        share = view.joint_vel * self._speed.like(view.joint_vel)
        return view.xp.vecdot(share, share)

    def at_an_end(self, view: WorldView) -> Array:
        """True where a slide is in the last 2 % of its range."""
        beyond = (view.joint_pos < self._lower.like(view.joint_pos)) | (
            view.joint_pos > self._upper.like(view.joint_pos)
        )
        return view.xp.any(beyond, axis=1)

    def critic(self, view: WorldView) -> Array:
        """Places of slides, sines and cosines of joints, scaled velocities and commands, and the height."""
        xp, place = view.xp, view.joint_pos
        off = (place - self._middle.like(place)) * self._width.like(place)
        speed = 2.0 * view.joint_vel * self._speed.like(place)
        commands = view.target * self._effort.like(view.target)
        return xp.concatenate([off, xp.sin(place), xp.cos(place), speed, commands, self.height(view)[:, None]], axis=1)


class _Starts:
    """Distribution of the starts of episodes."""

    def __init__(self, robot: Robot, poles: Poles) -> None:
        joints = robot.spec.joints
        self.joints = len(joints)
        low, high = poles.hanging - math.pi, poles.hanging + math.pi
        spread = np.full(len(joints), 0.05)
        for number, joint in enumerate(joints):
            if joint.position_lower is not None and joint.position_upper is not None:
                low[number], high[number] = joint.position_lower, joint.position_upper
        for slide in poles.slides:
            half = min(1.0, 0.5 * (high[slide] - low[slide]))
            spread[slide] = 0.25 * half
            low[slide], high[slide] = poles.hanging[slide] - 0.5 * half, poles.hanging[slide] + 0.5 * half
        self._low, self._wide = Constant(low), Constant(high - low)
        self._limits = Constant(low), Constant(high)
        self._hanging, self._upright, self._spread = (Constant(x) for x in (poles.hanging, poles.upright, spread))
        self._speed = Constant(poles.top_speed)

    def hanging(self, draw: Uniforms) -> tuple[Array, Array]:
        """Hanging within 0.05 rad, slides within a quarter of their way from home, nearly at rest."""
        centre = 2.0 * draw[:, : self.joints] - 1.0
        speed = 2.0 * draw[:, self.joints : 2 * self.joints] - 1.0
        low, high = (bound.like(draw) for bound in self._limits)
        xp = array_namespace(draw)
        place = self._hanging.like(draw) + centre * self._spread.like(draw)
        return xp.clip(place, low, high), 0.01 * speed * self._speed.like(draw)

    def anywhere(self, draw: Uniforms) -> tuple[Array, Array]:
        """Hanging, anywhere with up to half the speed of the fall, or near upright."""
        xp = array_namespace(draw)
        qpos, qvel = self.hanging(draw)
        share, speed = draw[:, : self.joints], 2.0 * draw[:, self.joints : 2 * self.joints] - 1.0
        kind = draw[:, 2 * self.joints :]
        low, high = (bound.like(draw) for bound in self._limits)
        wild = self._low.like(draw) + self._wide.like(draw) * share
        top = xp.clip(self._upright.like(draw) + 0.6 * (share - 0.5), low, high)
        rest, moving = kind < HANGING_SHARE, kind < HANGING_SHARE + WILD_SHARE
        fast = speed * self._speed.like(draw)
        return (
            xp.where(rest, qpos, xp.where(moving, wild, top)),
            xp.where(rest, qvel, xp.where(moving, 0.5, 0.1) * fast),
        )

    def age(self, draw: Uniforms) -> Array:
        """Initial episode time [s], such that all training episodes but the hanging ones last SHORT_S."""
        return (EPISODE_S - SHORT_S) * array_namespace(draw).astype(draw[:, -1] >= HANGING_SHARE, draw.dtype)


def _motors(robot: Robot) -> list[int]:
    """Joints with a motor that takes an effort."""
    servos = [joint.name for joint in robot.spec.joints if joint.stiffness > 0.0]
    driven = [number for number, joint in enumerate(robot.spec.joints) if joint.effort_limit > 0.0]
    if servos:
        raise TaskError(
            f"joint {servos[0]!r} of {robot.name} has a position servo; swingup commands efforts, so give it a motor: "
            f"physai robots import {robot.path} --servo effort -o OTHER"
        )
    if not driven:
        raise TaskError(
            f"{robot.name} has no motor with an effort limit; give it one: physai robots import {robot.path} "
            "--servo effort --drive JOINT -o OTHER"
        )
    return driven


def _fastest(robot: Robot, poles: Poles, driven: Sequence[int]) -> list[float]:
    """Speeds no joint exceeds [rad/s or m/s]: all energy of a fall and of the motors, working once along their way."""
    work = poles.energy
    for number in driven:
        joint = robot.spec.joints[number]
        low, high = joint.position_lower, joint.position_upper
        way = 2.0 * math.pi if low is None or high is None else high - low
        work += joint.effort_limit * way
    return [round(float(speed), 3) for speed in np.sqrt(2.0 * work / poles.inertia)]


def _contract(robot: Robot, poles: Poles, driven: Sequence[int], physics_dt: float, decimation: int) -> PolicyContract:
    spec, control_dt = robot.spec, physics_dt * decimation
    names = spec.joint_names
    rest = tuple(name for number, name in enumerate(names) if number not in poles.joints)
    limits = tuple(spec.joints[number].effort_limit for number in driven)
    straight = (ObservationTerm(name="joint_pos", kind="sensor", source="joint_pos", joints=rest),) if rest else ()
    terms = (
        *straight,
        ObservationTerm(name="pole_angle", kind="sin_cos", joints=tuple(names[pole] for pole in poles.joints)),
        ObservationTerm(
            name="joint_vel", kind="sensor", source="joint_vel", scale=round(2.0 / float(poles.top_speed.max()), 4)
        ),
        ObservationTerm(name="effort", kind="last_target", scale=round(1.0 / max(limits), 6)),
    )
    share = control_dt / (RISE_PERIODS * poles.period_s)
    action = ActionTerm(
        kind="joint_effort_incremental",
        joints=tuple(names[number] for number in driven),
        scale=tuple(round(min(1.0, share) * limit, 6) for limit in limits),
        offset=(0.0,) * len(limits),
        lower=tuple(-limit for limit in limits),
        upper=limits,
    )
    fastest = _fastest(robot, poles, driven)
    return PolicyContract(
        task="swingup",
        robot=spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(terms=(action,)),
        command=CommandSpec(),
        timing=timing(physics_dt, decimation, max_observation_age=3.0),
        safety=envelope(
            spec,
            parity_tolerance=0.05 * min(limits),
            velocity_mismatch=[round(control_dt * speed, 4) for speed in fastest],
            frozen_samples=max(5, round(FROZEN_S / control_dt)),
            sensor_ranges=plausible_ranges(spec, speeds=fastest),
        ),
    )


def _randomisation(robot: Robot) -> tuple[Randomise, ...]:
    always = (
        Randomise(field="body_mass", operation="scale", lower=0.9, upper=1.1, together=("body_inertia",)),
        Randomise(field="actuator_gainprm", columns=(0,), operation="scale", lower=0.95, upper=1.05),
    )
    losses = (
        Randomise(field="dof_damping", operation="scale", lower=0.5, upper=2.0),
        Randomise(field="dof_frictionloss", operation="scale", lower=0.5, upper=1.5),
    )
    return always + tuple(rule for rule in losses if np.any(getattr(robot.model, rule.field)))


def swingup(robot: Robot | None = None) -> Task:
    """Swing all poles of a robot up from hanging and balance them; 10 s episodes.

    Poles are the hinges that gravity turns. What is down and what is up follows from the potential energy.

    Args:
        robot: a robot with a fixed base, hinges and level slides, and motors that take an effort.

    Raises:
        TaskError: the robot has no pole, no motor, position servos, or a joint that the task does not know.
    """
    robot = robot or load_robot("cartpole")
    driven, poles = _motors(robot), find_poles(robot)
    swing, starts = _Swing(robot, poles, driven), _Starts(robot, poles)
    physics_dt = float(robot.model.opt.timestep)
    wanted = min(max(poles.period_s / STEPS_PER_PERIOD, CONTROL_DT_RANGE[0]), CONTROL_DT_RANGE[1])
    decimation = max(1, round(wanted / physics_dt))
    joints = len(robot.spec.joints)
    quick = 0.005 * float(poles.top_speed.max())
    return Task(
        name="swingup",
        summary="swing a pole up from hanging and balance it: any robot with motors and hinges that gravity turns",
        robot=robot,
        model=robot.model,
        contract=_contract(robot, poles, driven, physics_dt, decimation),
        episode_length_s=EPISODE_S,
        reset=starts.hanging,
        training_reset=starts.anywhere,
        training_age=starts.age,
        reset_draws=2 * joints + 1,
        rewards={
            "upright": RewardTerm(term=swing.centred_and_up, weight=0.2),
            "standing": RewardTerm(term=swing.standing, weight=0.6),
            "balanced": RewardTerm(term=swing.balanced, weight=0.4),
            "effort": RewardTerm(term=swing.efforts, weight=-0.02),
            "speed": RewardTerm(term=swing.speeds, weight=-0.01),
        },
        terminations={"at_an_end": swing.at_an_end} if poles.slides else {},
        success=Success(
            condition=swing.is_upright, hold_s=HOLD_S, text="all poles within 0.2 rad of upright for the last 2 of 10 s"
        ),
        critic=swing.critic,
        critic_size=4 * joints + len(driven) + 1,
        stage=Stage.POSITION,
        derived=("xipos",),
        sensors={"joint_pos": SensorModel(noise_std=1e-3), "joint_vel": SensorModel(noise_std=round(quick, 5))},
        action_delay=Delay(lower_s=0.0, upper_s=physics_dt),
        randomisation=_randomisation(robot),
        push=Push(interval_s=4.0, velocity=tuple(0.04 * float(speed) for speed in poles.top_speed)),
        training=_training(physics_dt * decimation),
    )


def _training(control_dt: float) -> dict[str, Any]:
    return {
        "num_envs": 512,
        "horizon": 48,
        "epochs": 4,
        "minibatches": 8,
        "hidden": (64, 64),
        "activation": "tanh",
        "action_repeat": max(1, round(0.01 / control_dt)),
        "discount_s": 2.0,
        "gae_lambda": 0.98,
        "desired_kl": 0.03,
        "initial_std": 0.4,
        "entropy_weight": 0.004,
        "max_learning_rate": 8e-3,
        "stop_at_success": 0.97,
    }
