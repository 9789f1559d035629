"""Replay a failing episode on its own and record it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from physai.gates.checks.gate import FailedEpisode
from physai.gates.execution.subject import ValidationSubject
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.playback.moment import EpisodeOutcome, Moment, first_row, step_verdict
from physai.sim.playback.recordings.recording_writer import RecordingWriter
from physai.twin.rollouts.batch import BatchResult
from physai.twin.rollouts.rollout import RolloutTick, play_batch

FOLDER = "counterexamples"
"""Folder inside a report folder."""
MAX_TRIES = 4
"""Maximum number of failing episodes to replay until one fails on its own."""


def record_smallest(
    subject: ValidationSubject, cases: Sequence[FailedEpisode], path: Path, *, gate: str
) -> FailedEpisode | None:
    """Record the least perturbed case that also fails when it is played on its own.

    Args:
        subject: the subject of the validation.
        cases: failing episodes, least perturbed first.
        path: MCAP file to write.
        gate: name of the gate they failed.

    Returns:
        The recorded case; None if none of the first `MAX_TRIES` fails on its own.

    Raises:
        RecordingError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A graph rounds differently at different batch sizes, which a chaotic robot amplifies: not every episode that fails
    # in a batch fails on its own, and only those can be reproduced.
    for case in cases[:MAX_TRIES]:
        batch = case.alone
        origin = {
            "played_by": str(subject.path),
            "gate": gate,
            "seed": str(case.seed),
            "condition": json.dumps(case.batch.condition.as_json()),
            "parameters": json.dumps(case.parameters),
            **({} if subject.origin.preset is None else {"preset": subject.origin.preset}),
        }
        with RecordingWriter(path, subject.task, origin=origin) as writer:
            observer = CounterexampleRecorder(writer, case.seed)
            played = play_batch(subject.policy(batch.arm), subject.task, subject.twin, batch, observer=observer)
            observer.finish(played)
        if not played.success[0] or played.violated[0]:
            return case
    path.unlink(missing_ok=True)
    return None


class CounterexampleRecorder:
    """Observer of a rollout that records its first world."""

    def __init__(self, writer: RecordingWriter, seed: int) -> None:
        """Write to `writer`; `seed` of the episode."""
        self._writer, self._seed = writer, seed
        self._last: RolloutTick | None = None
        self._end: tuple[Array, Array] | None = None
        self._dt = 0.0

    def __call__(self, env: Environment, tick: RolloutTick) -> None:
        """Record one control period; periods after the end of the episode are ignored."""
        if self._end is not None:
            return
        self._dt = env.step_dt
        self._writer.add(self._moment(tick.step, tick.qpos[0], tick.qvel[0], tick))
        self._last = tick
        if tick.after.done[0]:
            # The environment has already reset the world; only the engine still knows how the episode ended.
            engine = env.engine
            self._end = np.array(getattr(engine, "last_qpos")[0]), np.array(getattr(engine, "last_qvel")[0])  # noqa: B009

    def finish(self, played: BatchResult) -> None:
        """Write the final state and the outcome."""
        last = self._last
        if last is None or self._end is None:
            return
        judged, failed = last.after.judged[0], last.after.terminated[0]
        outcome = EpisodeOutcome(
            episode=0,
            seed=self._seed,
            ended="diverged" if played.diverged[0] else "failure" if failed else "time",
            length_s=float(played.length_s[0]),
            total_reward=0.0,
            judged=int(bool(judged)),
            succeeded=int(bool(played.success[0])),
            metrics={},
        )
        moment = self._moment(last.step + 1, *self._end, None)
        self._writer.add(replace(moment, commands=first_row(last.before.commands), outcome=outcome))

    def _moment(self, step: int, qpos: Array, qvel: Array, tick: RolloutTick | None) -> Moment:
        before = self._last
        return Moment(
            episode=0,
            seed=self._seed,
            start_s=0.0,
            time_s=step * self._dt,
            qpos=np.array(qpos, np.float64),
            qvel=np.array(qvel, np.float64),
            sensors={} if tick is None else first_row(tick.before.sensors),
            commands={} if tick is None else first_row(tick.before.commands),
            targets={} if tick is None else first_row(tick.guarded.targets),
            reward=None if before is None else float(before.after.reward[0]),
            verdict=None if before is None else step_verdict(before.after),
            outcome=None,
        )
