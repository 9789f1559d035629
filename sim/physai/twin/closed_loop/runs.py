"""Runs of a policy, recorded or simulated, on a common grid of control periods."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.tasks.task import Task, WorldView
from physai.twin.logs import LogError, RobotLog

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

MAX_POINTS = 400
"""Greatest number of moments at which states and commands are kept."""
COMPLETE = 0.99
"""Share of the length from which on a run is complete."""
PERIOD_TOLERANCE = 0.1
"""Greatest relative difference between a recording's period and the policy's."""
_WORLDS = 500
"""States judged at once."""


@dataclass(frozen=True)
class Runs:
    """R runs of S control periods at most, with J joints and C commanded ones; NaN after a run's end."""

    control_dt: float
    time: Array
    """Moments of the kept states [s], shape (M,)."""
    position: Array
    """Measured positions [rad or m], shape (R, M, J)."""
    speed: Array
    """Measured speeds [rad/s or m/s], shape (R, M, J)."""
    command: Array
    """Commands [rad, m, N·m or N], shape (R, M, C)."""
    held: Bools
    """Where the success condition held, shape (R, S); False after a run's end."""
    ended: Index
    """Number of control periods of each run, shape (R,)."""

    def __len__(self) -> int:
        return len(self.ended)

    def subset(self, chosen: Bools | Index) -> "Runs":
        """Return some of the runs, by mask or by index."""
        names = ("position", "speed", "command", "held", "ended")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @property
    def length_s(self) -> Array:
        """Length of each run [s], shape (R,)."""
        return np.asarray(self.ended * self.control_dt, np.float64)

    @property
    def settled_s(self) -> Array:
        """Time since which the success condition held until the end [s]; the run's length if it did not."""
        count: Index = np.arange(self.held.shape[1], dtype=np.int64)
        missed: Bools = ~self.held & (count < self.ended[:, None])
        last = self.held.shape[1] - np.argmax(missed[:, ::-1], axis=1)
        return np.asarray(np.where(missed.any(axis=1), last, 0) * self.control_dt, np.float64)

    def succeeded(self, hold_s: float) -> Bools:
        """Whether each run was complete and the success condition held for the last `hold_s`, shape (R,)."""
        complete = self.ended >= COMPLETE * self.held.shape[1]
        # Half a period for rounding.
        return complete & (self.length_s - self.settled_s >= max(hold_s, self.control_dt) - 0.5 * self.control_dt)


def kept_steps(steps: int) -> Index:
    """Return the control periods whose states are kept, at most `MAX_POINTS`."""
    return np.arange(0, steps, -(-steps // MAX_POINTS))


def commanded_joints(contract: PolicyContract) -> list[int]:
    """Return the robot's joints in the order of the commands."""
    return [int(j) for term in contract.action.terms for j in contract.robot.joint_index(term.joints)]


def samples_of(log: RobotLog, control_dt: float) -> Index:
    """Return the sample nearest to each control period of a recording.

    Raises:
        LogError: the recording has another period.
    """
    period = float(np.median(np.diff(log.time)))
    if not abs(period / control_dt - 1.0) <= PERIOD_TOLERANCE:
        raise LogError(
            f"log {log.name} has a sample every {1e3 * period:.3g} ms, the policy commands every "
            f"{1e3 * control_dt:.3g} ms: give recordings with one sample per control period of this policy"
        )
    count = int(log.duration_s / control_dt + 0.5) + 1
    # A loop whose periods vary keeps its own clock; every sample is used once or, where the loop was late, twice.
    moments = np.arange(count) * control_dt
    after = np.clip(np.searchsorted(log.time, moments), 1, len(log.time) - 1)
    earlier = moments - log.time[after - 1] <= log.time[after] - moments
    return np.where(earlier, after - 1, after).astype(np.int64)


def recorded_runs(task: Task, logs: Sequence[RobotLog], length_s: float) -> Runs:
    """Put recordings on the grid of the task's control periods.

    Args:
        task: gives control period, joints and success condition.
        logs: recordings in the robot's joint order.
        length_s: length of a complete run [s]; longer recordings are cut.

    Raises:
        LogError: a recording has another period.
    """
    dt = task.contract.timing.control_dt
    steps = round(length_s / dt)
    keep, joints = kept_steps(steps), commanded_joints(task.contract)
    shape = (len(logs), len(keep))
    position, speed = (
        np.full((*shape, len(logs[0].joint_names)), np.nan),
        np.full((*shape, len(logs[0].joint_names)), np.nan),
    )
    command = np.full((*shape, len(joints)), np.nan)
    held, ended = np.zeros((len(logs), steps), bool), np.zeros(len(logs), np.int64)
    for run, log in enumerate(logs):
        samples = samples_of(log, dt)[:steps]
        ended[run] = len(samples)
        held[run, : len(samples)] = holds(task, log, samples)
        inside = keep[keep < len(samples)]
        rows = samples[inside]
        position[run, : len(inside)] = log.joint_pos[rows]
        speed[run, : len(inside)] = speeds_of(log)[rows]
        command[run, : len(inside)] = log.command[rows][:, joints]
    return Runs(dt, np.asarray(keep * dt, np.float64), position, speed, command, held, ended)


def speeds_of(log: RobotLog) -> Array:
    """Return measured speeds, or the slopes of the positions where none were measured, shape (n, J)."""
    return log.joint_vel if log.joint_vel is not None else np.gradient(log.joint_pos, log.time, axis=0)


class Judge:
    """Judges measured states by a task's success condition, some at once."""

    def __init__(self, task: Task, worlds: int) -> None:
        """Prepare for `worlds` states at once."""
        self._condition = task.success.condition
        self._engine = MujocoEngine(task.model, worlds, stage=task.stage, derived=task.derived)
        nothing = np.zeros((worlds, len(commanded_joints(task.contract))))
        self._view = WorldView.of(
            self._engine, task, control_dt=task.contract.timing.control_dt, target=nothing, previous_target=nothing
        )
        self._all = np.ones(worlds, bool)

    def __call__(self, position: Array, speed: Array) -> Bools:
        """Return whether the condition holds in each state, given by positions and speeds, shape (worlds, J) each."""
        self._engine.reset(self._all, position, speed)
        self._view.shared.clear()
        return np.asarray(self._condition(self._view), bool)


def holds(task: Task, log: RobotLog, samples: Index) -> Bools:
    """Return whether the task's success condition holds in measured states, shape (len(samples),).

    Raises:
        LogError: the task's state is more than the joints'.
    """
    model: Any = task.model
    joints = len(log.joint_names)
    if not int(model.nq) == int(model.nv) == joints:
        raise LogError(
            f"task {task.name} has {int(model.nq)} positions and {int(model.nv)} velocities, recordings those of "
            f"{joints} joints only: only tasks of a robot with a fixed base and no objects can be compared"
        )
    worlds = min(_WORLDS, len(samples))
    judge = Judge(task, worlds)
    speeds, parts = speeds_of(log), np.zeros(len(samples), bool)
    for start in range(0, len(samples), worlds):
        rows = samples[start : start + worlds]
        # The last states are fewer than the worlds; repeating one fills them.
        rows = np.concatenate([rows, np.full(worlds - len(rows), rows[-1], np.int64)])
        part = judge(log.joint_pos[rows], speeds[rows])
        parts[start : start + worlds] = part[: len(parts) - start]
    return parts
