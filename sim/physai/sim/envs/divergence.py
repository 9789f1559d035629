"""Dumps of worlds whose physics diverged, so that they can be seen again (`physai.sim.envs.divergence_replay`)."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sim.engines.protocol import Array, Snapshot

DUMP_FORMAT = 1
MAX_DUMPS = 64
"""Most dumps one environment writes; a twin that diverges all the time would fill the disk."""
MAX_DUMP_BYTES = 1 << 26
"""Greatest size of a dump, unpacked; one world of the Go2 takes some 60 kB."""

_ABOUT, _TARGETS = "about", "targets"


@dataclass(frozen=True)
class DivergedEpisode:
    """A world that diverged, or that got a command that is not finite, with what it takes to see it again."""

    world: int
    episode_seed: int
    """Seed to reset an environment of one world with."""
    step: int
    """Step of the episode in which it broke."""
    target: tuple[float, ...]
    """Last joint commands of that step [rad, m, N·m or N]."""
    file: Path | None = None
    """Dump that `physai.sim.envs.divergence_replay.replay_diverged` plays; None where none was asked for."""


@dataclass(frozen=True)
class Dump:
    """Contents of a dump."""

    about: dict[str, Any]
    """Task, contract fingerprint, seed and options of the environment, all JSON values."""
    targets: Array
    """Joint commands of the step that broke, shape (control periods, joints)."""
    state: Snapshot
    """Snapshot of the one world before that step, first axis of length 1."""


class DivergenceRecorder:
    """Keeps the state of all worlds before the running step, and dumps that of a world that breaks."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Dumps into `folder`, made when first needed; `about` says what environment it is."""
        self._folder, self._about = folder, dict(about)
        self._before: Snapshot = {}
        self._targets: Array = np.zeros(0)
        self._written = 0

    def note(self, before: Snapshot, targets: Sequence[Array]) -> None:
        """Takes the snapshot before a step and its commands, one array (num_worlds, joints) per control period."""
        self._before, self._targets = before, np.stack(targets)

    def dump(self, episode: DivergedEpisode, parameters: Snapshot) -> DivergedEpisode:
        """Writes what is known of a diverged world.

        Args:
            episode: the record.
            parameters: arrays, first axis the world, to add to the snapshot: the model fields that differ.

        Returns:
            The record with its file, unchanged once MAX_DUMPS files are written.

        Raises:
            TaskError: the file cannot be written.
        """
        # Not an error: a training must not end because its twin diverges often.
        if self._written >= MAX_DUMPS:
            return episode
        world = episode.world
        about = {
            **self._about,
            "format": DUMP_FORMAT,
            "world": world,
            # As text: JSON readers round integers beyond 2^53.
            "episode_seed": str(episode.episode_seed),
            "step": episode.step,
        }
        arrays = {name: array[world : world + 1] for name, array in {**parameters, **self._before}.items()}
        arrays[_TARGETS] = self._targets[:, world]
        arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        path = self._folder / f"diverged-{episode.episode_seed:016x}-{episode.step}.npz"
        with oserror_as(TaskError, f"{path}: cannot be written"):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, buffer.getvalue())
        self._written += 1
        return replace(episode, file=path)


def read_dump(path: Path) -> Dump:
    """The contents of a dump.

    Raises:
        TaskError: the file is missing, too big, or no dump of this format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if not size <= MAX_DUMP_BYTES:
            raise TaskError(f"{path}: {size} bytes unpacked, a dump has at most {MAX_DUMP_BYTES}")
        with np.load(path, allow_pickle=False) as data:
            arrays: Snapshot = {name: data[name] for name in data.files}
        about = json.loads(bytes(arrays.pop(_ABOUT)))
        if about["format"] != DUMP_FORMAT:
            raise TaskError(f"{path}: dump of format {about['format']}, this physai reads {DUMP_FORMAT}")
        return Dump(about, arrays.pop(_TARGETS), arrays)
    except TaskError:
        raise
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # zipfile and numpy raise a dozen types between them for damaged bytes
        raise TaskError(f"{path} is not the dump of a diverged episode: {error}") from error
