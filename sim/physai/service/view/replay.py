"""Recordings of policies, shown side by side on the same clock."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import mujoco
import numpy as np
import numpy.typing as npt
from pydantic import Field

from physai.sdk.base.errors import PhysaiError
from physai.service.jobs.kinds import MOTION
from physai.service.jobs.queue import JobQueue
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore
from physai.service.sessions.session_routes import StrictBody
from physai.sim.playback.recordings.recording_reader import Recording, read_recording
from physai.sim.tasks.registry import load_task

PAUSE_S = 1.0
"""How long the end stands still before it begins again [s]."""


class OpenReplay(StrictBody):
    """An open replay and its view."""

    jobs: Annotated[list[Annotated[str, Field(max_length=32)]], Field(min_length=1, max_length=4)]
    """Jobs of kind `play` that have succeeded, all of one task."""


class ReplayedMotions:
    """Motions of one model, each drawn as a world."""

    def __init__(self, model: mujoco.MjModel, labels: Sequence[str], recordings: Sequence[Recording]) -> None:
        """Shows the recordings from their beginning, which is now."""
        self.model = model
        self.labels = labels
        self.outcomes: list[list[dict[str, Any]]] = [
            [episode.outcome for episode in recording.episodes if episode.outcome] for recording in recordings
        ]
        self._motions = [_joined(recording) for recording in recordings]
        self._length_s = PAUSE_S + max(float(times[-1]) for times, _ in self._motions)
        self._start = time.monotonic()

    def alive(self) -> bool:
        """It goes on for as long as somebody looks."""
        return True

    def positions(self) -> npt.NDArray[np.float64]:
        """Positions of all worlds now; the shorter motions wait for the longest."""
        return self.at((time.monotonic() - self._start) % self._length_s)

    def at(self, seconds: float) -> npt.NDArray[np.float64]:
        """Positions of all worlds at a time since the beginning [s], shape (worlds, nq)."""
        rows = [qpos[max(0, np.searchsorted(times, seconds, "right") - 1)] for times, qpos in self._motions]
        return np.array(rows)


def _joined(recording: Recording) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Times [s] and positions of all episodes, one after the other."""
    times: list[npt.NDArray[np.float64]] = []
    end = 0.0
    for episode in recording.episodes:
        times.append(end + episode.time_s)
        end = float(times[-1][-1])
    return np.concatenate(times), np.concatenate([episode.qpos for episode in recording.episodes])


def load_replay(identifiers: Sequence[str], jobs: JobQueue, blobs: BlobStore) -> ReplayedMotions:
    """Reads what jobs recorded.

    Raises:
        ProblemError: a job is of another kind or has not succeeded, or the recordings are of different tasks.
    """
    recordings: list[Recording] = []
    for identifier in identifiers:
        job = jobs.get(identifier)
        found = [artefact for artefact in job["artefacts"] if artefact["name"] == MOTION]
        if job["kind"] != "play" or job["state"] != "succeeded" or not found:
            state = f"job {identifier} is a {job['kind']} job that is {job['state']}"
            raise ProblemError(409, "nothing-recorded", f"{state}; a replay needs play jobs that have succeeded")
        try:
            recordings.append(read_recording(blobs.path(found[0]["sha256"])))
        except PhysaiError as error:
            raise ProblemError(422, "invalid", f"the recording of job {identifier} cannot be read: {error}") from error
    names = {recording.metadata.get("task", "") for recording in recordings}
    if len(names) != 1 or not all(recording.episodes for recording in recordings):
        raise ProblemError(409, "different-tasks", f"the recordings are of tasks {sorted(names)}; choose one task")
    model = load_task(names.pop()).model
    if any(episode.qpos.shape[1] != model.nq for recording in recordings for episode in recording.episodes):
        raise ProblemError(409, "different-robots", "the recordings are of another robot than the task's")
    labels = [f"{chr(ord('A') + index)}" for index in range(len(recordings))]
    return ReplayedMotions(model, labels, recordings)
