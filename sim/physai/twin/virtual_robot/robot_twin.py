"""A single robot's twin with the measured sensor noise and age and the measured command lag.

Unlike in `Environment`, a command takes effect in the physics step in which it arrives, not at the next control
period, so that the policy's computation time is part of the simulation.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JOINT_SENSORS
from physai.sdk.contract.terms import ObservationSpec, ObservationTerm
from physai.sdk.safety import guard_limits
from physai.sdk.transport.simulation import Entity
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Stage
from physai.sim.envs.delay import SensorPipeline, actuator_columns, draw_lags
from physai.sim.envs.rng import Stream, episode_seeds, uniform
from physai.sim.envs.start_states import start_states
from physai.sim.robots.spec import home_controls
from physai.sim.tasks.task import Task, WorldView
from physai.twin.model.conditions import Condition, task_under
from physai.twin.model.measured_task import lag_range
from physai.twin.model.twin import Twin, nominal_twin

Vector = npt.NDArray[np.float64]

PERIOD_TAIL = math.log(50.0)
"""99th percentile of the difference of two exponential delays, in units of their mean (Laplace distribution)."""

_ONE = np.ones(1, bool)


@dataclass(frozen=True)
class Jitter:
    """Wake-up delay of a robot's control loop: exponential, truncated at the longest one measured."""

    mean_s: float = 0.0
    max_s: float = 0.0

    def draw(self, rng: np.random.Generator) -> float:
        """Draws a delay [s]."""
        return min(self.max_s, float(rng.exponential(self.mean_s))) if self.mean_s > 0.0 else 0.0


def measured_jitter(twin: Twin) -> Jitter:
    """Jitter that reproduces the measured distance from the median to the 99th percentile of the period."""
    timing = twin.timing
    if timing.period_median_s is None or timing.period_p99_s is None or timing.period_max_s is None:
        return Jitter()
    excess, longest = timing.period_p99_s - timing.period_median_s, timing.period_max_s - timing.period_median_s
    return Jitter(mean_s=max(0.0, excess) / PERIOD_TAIL, max_s=max(0.0, longest))


class RobotTwin:
    """A task's robot in its calibrated twin, advanced in whole physics steps."""

    def __init__(self, task: Task, twin: Twin | None = None, *, seed: int = 0) -> None:
        """Puts the robot into the task's starting pose, with its actuators at rest.

        Args:
            task: defines robot, starting pose and operator commands.
            twin: measured parameters, lag, noise and jitter; None for the task's nominal ones.
            seed: seed of all random numbers.

        Raises:
            TaskError: the twin's robot has other joints.
            TwinError: the robot's file is missing or has changed.
        """
        robot = task.contract.robot
        if twin is not None and twin.joint_names != robot.joint_names:
            raise TaskError(
                f"the twin of {twin.robot} has joints {', '.join(twin.joint_names)}, task {task.name} has "
                f"{', '.join(robot.joint_names)}; calibrate a twin of the task's robot"
            )
        measured = twin or nominal_twin(task.robot)
        self.contract = task.contract
        self.jitter = measured_jitter(measured)
        self._task = task_of_twin(task, measured)
        timing = task.contract.timing
        self.physics_dt, self._control_dt = timing.physics_dt, timing.control_dt
        self._interval = round((task.command_interval_s or task.episode_length_s) / self._control_dt)
        self._window = (self._interval - round(task.success.window_s / self._control_dt)) % self._interval
        self._hold = max(1, round(task.success.hold_s / self._control_dt))
        self._engine = MujocoEngine(
            self._task.model, 1, num_threads=1, stage=self._task.stage, derived=self._task.derived
        )
        self._columns = actuator_columns(self._task, self._engine.model)
        # As in `Environment`: servos that no action term commands, of a gripper for instance, hold the home pose.
        self._uncommanded = home_controls(self._engine.model)
        self._sensors = SensorPipeline(self._task, self._engine, step_dt=self._control_dt, active=True)
        self._limits = guard_limits(task.contract)
        self._target: Vector = np.zeros(len(self._columns))
        # `target` is a live view: the terms see every later change of `_target`.
        target = self._target[None]
        self._view = WorldView.of(
            self._engine, self._task, control_dt=self._control_dt, target=target, previous_target=target.copy()
        )
        self.fields: dict[str, Vector] = {}
        """Latest sample of the contract's sensor and command fields, without sensors that the model lacks."""
        self.steps = 0
        """Physics steps so far."""
        self.falls = 0
        """Terminations of the task, each followed by a reset to a starting pose."""
        self.met = 0
        """How many of the `judged` commands (or episodes) ended with the goal met."""
        self.judged = 0
        self._seed, self._episode = seed, 0
        self._start = start_states(self._task, at_rest=True)
        self._begin()

    def _begin(self) -> None:
        """Resets the robot to a starting pose and draws the delays of a new episode."""
        seeds = episode_seeds(self._seed, np.zeros(1, np.int64), np.full(1, self._episode))
        self._episode += 1
        self._seeds = seeds
        start, count = self._start
        qpos, qvel = start(uniform(seeds, Stream.STATE, count))
        self._engine.reset(_ONE, qpos, qvel)
        self._sensors.reset(_ONE, seeds)
        age, delay = (one.at(self._control_dt) for one in (self._task.sensor_delay, self._task.action_delay))
        self.age_s = float(draw_lags(age, self._control_dt, seeds, column=0)[0]) * self._control_dt
        """Age of the sensor fields [s]."""
        self._periods, self._held = 0, 0
        self._draw_command()
        self.rest()
        lag = int(draw_lags(delay, self.physics_dt, seeds, column=1)[0])
        self._pending = np.tile(self._target, (lag, 1))
        self.measure()

    def restart(self, *, whole: bool) -> None:
        """Resets the robot to a starting pose.

        Args:
            whole: restart the random sequence, too; otherwise draw the next episode.
        """
        if whole:
            self._episode = 0
        self._begin()

    def entity(self, stamp_ns: int) -> Entity:
        """Pose and velocity of the robot's root link, stamped `stamp_ns`, CLOCK_REALTIME [ns]."""
        model = self._engine.model
        if self.contract.robot.base == "floating":
            # A free joint's linear velocity is in the world frame, its angular velocity in the body frame
            # (https://mujoco.readthedocs.io/en/stable/modeling.html, floating objects).
            qpos, qvel = self._engine.state("qpos")[0], self._engine.state("qvel")[0]
            place, turn, linear = qpos[0:3], qpos[3:7], qvel[0:3]
            angular = np.zeros(3)
            mujoco.mju_rotVecQuat(angular, np.asarray(qvel[3:6], np.float64), np.asarray(turn, np.float64))
        else:
            root = model.body_rootid[model.jnt_bodyid[0]]
            place, turn = model.body_pos[root], model.body_quat[root]
            linear = angular = np.zeros(3)
        return Entity(
            name=self.contract.robot.name,
            stamp_ns=stamp_ns,
            position=_triple(place),
            orientation=(float(turn[0]), *_triple(turn[1:4])),
            linear=_triple(linear),
            angular=_triple(angular),
        )

    def _draw_command(self) -> None:
        if self._task.command is None:
            return
        draw = uniform(self._seeds, Stream.COMMAND, self._task.command_draws, steps=np.full(1, self._periods))
        for name, values in self._task.command(draw).items():
            self._view.commands[name][:] = values
        self._view.shared.clear()

    def measure(self) -> None:
        """Samples all sensors and the operator's commands; call it once per control period."""
        sample: dict[str, Any] = self._sensors.measure(self._seeds, np.full(1, self._periods))
        sample.update(self._view.commands)
        self.fields = {name: np.asarray(values[0], np.float64) for name, values in sample.items()}

    def advance(self, steps: int) -> None:
        """Advances by `steps` physics steps with the current target as the newest command.

        Raises:
            PhysaiError: the physics diverged.
        """
        if steps <= 0:
            return
        # `_pending` holds the commands of the last `lag` physics steps, oldest first.
        lagged = np.concatenate([self._pending, np.tile(self._target, (steps, 1))])
        controls = np.tile(self._uncommanded, (1, steps, 1))
        controls[0, :, self._columns] = lagged[:steps].T
        self._pending = lagged[steps:]
        self._engine.drive(controls)
        self.steps += steps
        self._view.shared.clear()
        if bool(self._engine.diverged()[0]):
            raise PhysaiError(f"the twin's physics diverged after {self.steps * self.physics_dt:.3f} s")

    def end_period(self) -> None:
        """Checks success and terminations, measures, and draws the operator's next command when it is due."""
        self._periods += 1
        self._view.episode_time = np.full(1, self._periods * self._control_dt)
        if self._periods % self._interval == self._window:
            self._view.window_qpos[...] = self._view.qpos
        self._held = self._held + 1 if bool(self._task.success.condition(self._view)[0]) else 0
        failed = any(bool(term(self._view)[0]) for term in self._task.terminations.values())
        if failed or self._periods % self._interval == 0:
            self.judged += 1
            self.met += int(not failed and self._held >= self._hold)
            self._held = 0
            self._draw_command()
        self._view.previous_target[0] = self._target
        if failed:
            self.falls += 1
            self._begin()
        else:
            self.measure()

    def command(self, targets: Mapping[str, Vector]) -> None:
        """Sets joint targets by output name, in the action terms' joint order."""
        for name, part in self._limits.slices.items():
            self._target[part] = targets[name]

    def rest(self) -> None:
        """Holds the current positions of position-commanded joints and brakes effort-commanded ones."""
        self._target[:] = self._safe()

    def brake(self) -> None:
        """Updates the braking effort from the current speed; keeps the held positions."""
        self._target[:] = np.where(self._limits.holds_position, self._target, self._safe())

    def _safe(self) -> Vector:
        limits = self._limits
        position: Vector = np.asarray(self._view.joint_pos[0, limits.joints], np.float64)
        speed: Vector = np.asarray(self._view.joint_vel[0, limits.joints], np.float64)
        # Braking effort is proportional to speed: a brake, never a drive.
        safe = np.where(limits.holds_position, position, -limits.brake * speed)
        return np.minimum(np.maximum(safe, limits.hard_lower), limits.hard_upper)

    def allows(self, targets: Mapping[str, Vector]) -> bool:
        """Whether targets are finite and inside the contract's safety envelope."""
        limits = self._limits
        return all(
            bool(((limits.hard_lower[part] <= targets[name]) & (targets[name] <= limits.hard_upper[part])).all())
            for name, part in limits.slices.items()
        )


def _triple(values: Any) -> tuple[float, float, float]:
    return float(values[0]), float(values[1]), float(values[2])


def task_of_twin(task: Task, twin: Twin) -> Task:
    """The task with the twin's measured parameters, noise and lag, and a contract that reads every sensor.

    That contract differs from the task's own and must not leave this process.
    """
    lower, upper = lag_range(task, twin)
    under = task_under(task, twin, Condition(name="calibrated", lag_lower_s=lower, lag_upper_s=upper))
    model = copy.copy(task.model)
    twin.apply_commanded(model, twin.values)
    return replace(
        under,
        model=model,
        contract=_every_sensor(task.contract, model),
        stage=Stage(max(under.stage, Stage.ACCELERATION)),
        derived=tuple(dict.fromkeys((*under.derived, "sensordata", "qfrc_actuator"))),
    )


def _every_sensor(contract: PolicyContract, model: Any) -> PolicyContract:
    # `SensorPipeline` measures only what the contract's observations read.
    modelled = [
        sensor.name
        for sensor in contract.robot.sensors
        if sensor.name in JOINT_SENSORS or mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, sensor.name) >= 0
    ]
    terms = tuple(ObservationTerm(name=name, kind="sensor", source=name) for name in modelled)
    return contract.model_copy(update={"observation": ObservationSpec(terms=terms)})
