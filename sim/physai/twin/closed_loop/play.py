"""Play a policy in a twin from the start states of recordings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task, Uniforms, WorldView
from physai.twin.calibration.replay.states import StateEstimate
from physai.twin.closed_loop.offsets import RunOffsets
from physai.twin.closed_loop.runs import Judge, Runs, commanded_joints, kept_steps
from physai.twin.logs import RobotLog
from physai.twin.model.conditions import Condition, conditions
from physai.twin.model.credibility import lag_doubt
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Batch, seeds_of, stream_seed
from physai.twin.rollouts.rollout import RolloutTick, play_batch

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

CLOSED_LOOP_STREAM = 0x5EED_C105ED10
"""Seeds of these episodes; verdicts, training and search never use them."""
LAG_STRATA = 6
"""Parts of the range of a lag that is not tested."""
WORLDS_AT_ONCE = 500
"""Greatest number of worlds per batch."""


@dataclass(frozen=True)
class Starts:
    """Measured start states of L recordings with J joints, and their standard deviations, shape (L, J) each."""

    position: Array
    speed: Array
    position_std: Array
    speed_std: Array

    @classmethod
    def of(cls, logs: Sequence[RobotLog]) -> "Starts":
        """Estimate them from the first samples."""
        estimates = [StateEstimate(log) for log in logs]
        states = [estimate.at(np.zeros(1, np.int64)) for estimate in estimates]
        errors = [estimate.errors() for estimate in estimates]
        return cls(
            np.concatenate([state[0] for state in states]),
            np.concatenate([state[1] for state in states]),
            np.stack([error[0] for error in errors]),
            np.stack([error[1] for error in errors]),
        )

    def drawn(self, draws: int, seed: int) -> tuple[Array, Array]:
        """Return states within their errors, shape (draws · L, J) each, all recordings of a draw one after another."""
        rng = np.random.default_rng([seed, CLOSED_LOOP_STREAM])
        noise = rng.standard_normal((2, draws, *self.position.shape))
        joints = self.position.shape[1]
        return (
            (self.position + noise[0] * self.position_std).reshape(-1, joints),
            (self.speed + noise[1] * self.speed_std).reshape(-1, joints),
        )


def simulated_runs(
    policy: OnnxPolicy,
    task: Task,
    twin: Twin,
    starts: Starts,
    *,
    offsets: RunOffsets | None = None,
    length_s: float,
    draws: int,
    seed: int,
    tell: Callable[[float], None] = lambda share: None,
) -> Runs:
    """Play the policy from every start in every draw of the twin's parameters.

    Delay, sensor noise and overruns are those of the gates' condition `calibrated`; each run draws its own. It
    starts at the recorded position less the offset of its encoders, which its readings then have.

    Args:
        policy: plays with the guard of its contract, as on the robot.
        task: gives contract, success condition and terminations.
        twin: the twin.
        starts: of L recordings.
        offsets: of their encoders; None for starts at the recorded positions and offsets as in any episode.
        length_s: length of a complete run [s].
        draws: number of draws.
        seed: seed of draws, start states and episodes.
        tell: called with the share that is done, from 0 to 1.

    Returns:
        draws · L runs, all recordings of a draw one after another.
    """
    count = len(starts.position)
    values = np.repeat(twin.draw(draws, seed), count, axis=0)
    position, speed = starts.drawn(draws, seed)
    offset = None if offsets is None else offsets.drawn(seed)
    if offset is not None:
        position = position - offset
    parts: list[Runs] = []
    for condition, rows in batches(task, twin, draws, count):
        first, worlds = rows.start, rows.stop - rows.start
        batch = Batch(
            condition=condition,
            seeds=seeds_of(stream_seed(CLOSED_LOOP_STREAM, seed), first, worlds),
            values=_nested(values[rows]),
            joint_pos_offset=None if offset is None else _nested(offset[rows]),
        )
        from_start = replace(
            task, reset=_from_states(position[rows], speed[rows]), reset_draws=1, episode_length_s=length_s
        )
        recorder = _Recorder(from_start, worlds, None if offset is None else offset[rows])

        def note(
            env: Environment,
            tick: RolloutTick,
            recorder: _Recorder = recorder,
            first: int = first,
            worlds: int = worlds,
        ) -> None:
            recorder.note(env, tick)
            tell((first + worlds * min(1.0, (tick.step + 1) * recorder.step_s / length_s)) / (draws * count))

        play_batch(policy, from_start, twin, batch, observer=note)
        parts.append(recorder.runs())
    names = ("position", "speed", "command", "held", "ended")
    return replace(parts[0], **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def batches(task: Task, twin: Twin, draws: int, count: int) -> Iterator[tuple[Condition, slice]]:
    """Yield the rows of each batch, whole draws of `count` runs, and their condition.

    A lag that is not tested is that of a robot, not of a run: each of `LAG_STRATA` equal parts of the draws has its
    part of the range. Lags that were measured vary from run to run.
    """
    whole = conditions(task, twin)["calibrated"]
    strata = 1 if lag_doubt(twin) == (0.0, 0.0) else LAG_STRATA
    ends = [round(draws * number / strata) for number in range(strata + 1)]
    lags = np.linspace(whole.lag_lower_s, whole.lag_upper_s, strata + 1).tolist()
    # The result does not depend on the number of draws per batch.
    chunk = max(1, WORLDS_AT_ONCE // count)
    for number, (begin, end) in enumerate(pairwise(ends)):
        condition = replace(whole, lag_lower_s=lags[number], lag_upper_s=lags[number + 1])
        for first in range(begin, end, chunk):
            yield condition, slice(first * count, min(first + chunk, end) * count)


def _nested(rows: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in rows.tolist())


def _from_states(position: Array, speed: Array) -> Callable[[Uniforms], tuple[Array, Array]]:
    def reset(draws: Uniforms) -> tuple[Array, Array]:
        """All worlds begin at once; what ends early begins anew anywhere, which is not recorded."""
        return position[: len(draws)].copy(), speed[: len(draws)].copy()

    return reset


class _Recorder:
    """Records runs from the ticks of a batch."""

    def __init__(self, task: Task, worlds: int, offset: Array | None) -> None:
        contract = task.contract
        self.step_s = contract.timing.control_dt
        """Control period [s]."""
        self._task = task
        steps = round(task.episode_length_s / self.step_s)
        self._keep = kept_steps(steps)
        self._place = {int(step): place for place, step in enumerate(self._keep)}
        shape = (worlds, len(self._keep))
        joints = len(contract.robot.joints)
        self._position = np.full((*shape, joints), np.nan, np.float32)
        self._speed = np.full((*shape, joints), np.nan, np.float32)
        self._command = np.full((*shape, len(commanded_joints(contract))), np.nan, np.float32)
        self._held = np.zeros((worlds, steps), bool)
        self._ended = np.full(worlds, steps)
        self._running = np.ones(worlds, bool)
        self._before: Bools = np.zeros(worlds, bool)
        self._offset = offset
        self._judge = None if offset is None else Judge(task, worlds)

    def note(self, env: Environment, tick: RolloutTick) -> None:
        """Record the state before a control period, as the policy measures it, its command, and what came of it."""
        running, contract = self._running, self._task.contract
        place = self._place.get(tick.step)
        if place is not None:
            sensors = tick.before.sensors
            self._position[running, place] = sensors.get("joint_pos", tick.qpos)[running]
            self._speed[running, place] = sensors.get("joint_vel", tick.qvel)[running]
            sent = [tick.guarded.targets[term.target_name] for term in contract.action.terms]
            self._command[running, place] = np.concatenate(sent, axis=1)[running]
        ended = running & tick.after.done
        # Where an episode ended, the view already shows the next one.
        self._before = np.where(ended, self._before, self._holds(env.view))
        self._held[running, tick.step] = self._before[running]
        self._ended[ended] = tick.step + 1
        self._running = running & ~ended

    def _holds(self, view: WorldView) -> Bools:
        """Whether the success condition holds as the encoders show it: recorded runs can be judged by them only."""
        if self._judge is None or self._offset is None:
            return np.asarray(self._task.success.condition(view), bool)
        return self._judge(view.qpos + self._offset, view.qvel)

    def runs(self) -> Runs:
        """Return the runs, after the last tick."""
        return Runs(
            control_dt=self.step_s,
            time=np.asarray(self._keep * self.step_s, np.float64),
            position=self._position.astype(np.float64),
            speed=self._speed.astype(np.float64),
            command=self._command.astype(np.float64),
            held=self._held,
            ended=self._ended,
        )
