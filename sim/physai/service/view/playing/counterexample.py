"""Replays the recording of a verdict's counterexample, without simulating it again."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.evidence.verdict import Counterexample, load_verdict
from physai.sim.engines.protocol import Array
from physai.sim.playback.moment import EpisodeOutcome, EpisodeVerdict, Moment
from physai.sim.playback.recordings.recording_format import RecordingError
from physai.sim.playback.recordings.recording_reader import RecordedEpisode, Recording, read_recording
from physai.sim.policies.resolve import choose_task_source, run_folder_of
from physai.sim.policies.saved_task import kept_task
from physai.sim.tasks.task import Task


def find_counterexample(folder: Path, number: int) -> tuple[Counterexample, Path]:
    """A counterexample of the verdict in a report folder, and its recording.

    Raises:
        VerdictError: the folder holds no verdict.
        PhysaiError: the verdict has no such counterexample, or it was not recorded.
    """
    verdict = load_verdict(folder)
    found = {gate.counterexample.index: gate.counterexample for gate in verdict.gates if gate.counterexample}
    if number not in found:
        known = ", ".join(str(index) for index in sorted(found)) or "none"
        raise PhysaiError(f"the verdict in {folder} has no counterexample {number}; it has {known}")
    case = found[number]
    if case.recording is None:
        raise PhysaiError(f"counterexample {number} was not recorded: {case.description}")
    return case, (folder if folder.is_dir() else folder.parent) / case.recording


def recorded_task(recording: Recording, *, task: str | None, robot: str | None, run: Path | None = None) -> Task:
    """The task a recording was made with.

    Args:
        recording: what was read.
        task: name, Python file or run folder; None to use the recorded name if it is a built-in task.
        robot: name or file of the recorded robot; None for the run's, or else the task's own.
        run: run folder that the recording lies in, if it keeps its task.

    Raises:
        TaskError: the task cannot be loaded, or is neither given nor built in.
        ContractMismatchError: the recording was made with another contract.
    """
    kept = None if run is None else kept_task(run)
    recorded = {"task": recording.metadata.get("task", ""), "preset": recording.metadata.get("preset")}
    names = recorded if kept is None else kept.names
    origin = choose_task_source(names, source="the recording", task=task, robot=robot, run=run)
    loaded = origin.load()
    if origin.robot is None and recording.contract.robot.name != loaded.contract.robot.name:
        raise TaskError(
            f"the recording is of the robot {recording.contract.robot.name}, task {loaded.name} has "
            f"{loaded.contract.robot.name}; name the recorded one's file with `model` FILE"
        )
    require_same(recording.contract, loaded.contract, left="the recording", right=f"the task {loaded.name}")
    return loaded


class RecordedPlayer:
    """Iterates over the moments of recorded episodes; a drop-in replacement for `Player`."""

    def __init__(self, path: Path, *, task: str | None = None, robot: str | None = None) -> None:
        """Reads the recording.

        Args:
            path: the recording.
            task: name or Python file of its task, if it is not built in.
            robot: name or file of its robot, if it is not the task's own.

        Raises:
            RecordingError: it cannot be read, or contains no complete episode.
            TaskError: see `recorded_task`.
        """
        recording = read_recording(path)
        self.episodes = tuple(episode for episode in recording.episodes if episode.outcome is not None)
        if not self.episodes:
            raise RecordingError(f"{path}: no whole episode in it; validate the policy again")
        # Reports keep recordings in a folder of their own.
        self.task = recorded_task(recording, task=task, robot=robot, run=run_folder_of(path.parent.parent))
        self.outcomes: list[EpisodeOutcome] = []
        self.forces: Array = np.zeros((self.task.model.nbody, 6))
        """Ignored; only live players apply external forces."""
        self._stopped = False

    def stop(self) -> None:
        """Stops at the next moment."""
        self._stopped = True

    def __iter__(self) -> Iterator[Moment]:
        """The moments of all episodes."""
        start_s = 0.0
        for episode in self.episodes:
            yield from self._moments(episode, start_s)
            start_s += float(episode.time_s[-1])

    def _moments(self, episode: RecordedEpisode, start_s: float) -> Iterator[Moment]:
        outcome = _outcome(episode.outcome or {})
        last = len(episode.time_s) - 1
        for step in range(last + 1):
            ended = step == last or self._stopped
            if ended:
                self.outcomes.append(outcome)
            yield Moment(
                episode=episode.episode,
                seed=episode.seed,
                start_s=start_s,
                time_s=float(episode.time_s[step]),
                qpos=episode.qpos[step],
                qvel=episode.qvel[step],
                sensors={} if ended else _row(episode.sensors, step),
                # The final state has no command of its own; it shows the last one.
                commands=_row(episode.commands, min(step, last - 1)),
                targets={} if ended else _row(episode.targets, step),
                reward=float(episode.reward[step - 1]) if step else None,
                verdict=EpisodeVerdict(outcome.succeeded == outcome.judged, outcome.metrics) if step == last else None,
                outcome=outcome if ended else None,
            )
            if ended:
                return


def _row(fields: Mapping[str, Array], step: int) -> dict[str, Array]:
    return {name: values[step] for name, values in fields.items()}


def _outcome(record: Mapping[str, Any]) -> EpisodeOutcome:
    """The inverse of `EpisodeOutcome.as_json`.

    Raises:
        RecordingError: a field is missing or of another type.
    """
    try:
        return EpisodeOutcome(
            episode=int(record["episode"]),
            seed=int(record["seed"]),
            ended=record["ended"],
            length_s=float(record["length_s"]),
            total_reward=float(record["return"] if record["return"] is not None else np.nan),
            judged=int(record["judged"]),
            succeeded=int(record["succeeded"]),
            metrics={str(k): np.nan if v is None else float(v) for k, v in dict(record["metrics"]).items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"damaged recording: how the episode ended: {error}") from error
