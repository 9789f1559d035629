"""Reads untrusted recordings: limits their size, then decompresses, parses and cross-checks them."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import ContractError
from physai.sdk.base.files import oserror_as, read_plain
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence import recording_channels as channels
from physai.sim.playback.recordings import recording_format as form
from physai.sim.playback.recordings.recording_format import RecordingError

MAGIC = b"\x89MCAP0\r\n"
"""First and last bytes of every MCAP file."""


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of T control periods."""

    episode: int
    """Number of the episode, from 0."""
    seed: int
    """Seed that replays it."""
    time_s: npt.NDArray[np.float64]
    """Time in the episode [s], shape (T + 1,)."""
    qpos: npt.NDArray[np.float64]
    """MuJoCo's generalised positions, shape (T + 1, nq)."""
    qvel: npt.NDArray[np.float64]
    """MuJoCo's generalised velocities, shape (T + 1, nv)."""
    reward: npt.NDArray[np.float64]
    """Reward of each period, shape (T,)."""
    sensors: dict[str, npt.NDArray[np.float32]]
    """The policy's sensor inputs, shape (T, size)."""
    commands: dict[str, npt.NDArray[np.float32]]
    """The policy's command inputs, shape (T, size)."""
    targets: dict[str, npt.NDArray[np.float32]]
    """The policy's joint commands [rad, m, N·m or N], shape (T, joints of the term)."""
    outcome: dict[str, Any] | None
    """The result as in `physai.sim.playback.player.EpisodeOutcome.as_json`; None if the writer failed before the end of
    the episode, in which case sensors, commands and targets may have one more row."""


@dataclass(frozen=True)
class Recording:
    """The content of a recording."""

    contract: PolicyContract
    metadata: dict[str, str]
    """Where it came from: task, policy, seed, versions."""
    episodes: tuple[RecordedEpisode, ...]


def read_recording(path: str | Path) -> Recording:
    """Reads a recording written by `physai play --record`.

    Raises:
        RecordingError: the file is missing, too large, cut off, damaged, of another format or inconsistent.
    """
    data = _bounded_bytes(Path(path))
    try:
        return _Assembly(str(path)).read(data)
    except (RecordingError, ContractError):
        raise
    except _parser_errors() as error:
        raise RecordingError(f"{path}: damaged recording: {type(error).__name__}: {error}") from error


def _parser_errors() -> tuple[type[Exception], ...]:
    """Exceptions that MCAP, zstandard, JSON and numpy raise for malformed data."""
    from mcap.exceptions import McapError
    from zstandard import ZstdError

    return (McapError, ZstdError, struct.error, ValueError, KeyError, TypeError, OverflowError, RecursionError)


def _bounded_bytes(path: Path) -> bytes:
    with oserror_as(RecordingError, f"{path}: cannot be read"):
        data = read_plain(path, limit=form.MAX_RECORDING_BYTES)
    if not len(data) <= form.MAX_RECORDING_BYTES:
        raise RecordingError(f"{path}: more than {form.MAX_RECORDING_BYTES} bytes, the most a recording may have")
    if not data.startswith(MAGIC):
        raise RecordingError(f"{path}: not an MCAP recording; its first bytes are {data[: len(MAGIC)]!r}")
    if len(data) < 2 * len(MAGIC) or not data.endswith(MAGIC):
        raise RecordingError(f"{path}: the recording is cut off after {len(data)} bytes; record or copy it again")
    return data


@dataclass
class _Open:
    """An episode while its messages are read."""

    episode: int
    seed: int
    start_ns: int
    times: list[int] = field(default_factory=list[int])
    rows: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    outcome: dict[str, Any] | None = None

    def add(self, topic: str, row: Any) -> None:
        self.rows.setdefault(topic, []).append(row)


class _Assembly:
    """Assembles messages into episodes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._metadata: dict[str, str] = {}
        self._episodes: list[_Open] = []

    def read(self, data: bytes) -> Recording:
        for topic, log_time, message in self._messages(data):
            self._take(topic, log_time, message)
        contract = parse_contract(self._require_metadata("contract"), source=self._source)
        if self._metadata.get("fingerprint") != contract.fingerprint:
            raise self._error("the fingerprint is not the contract's; one of the two was changed")
        episodes = tuple(self._finish(episode, contract) for episode in self._episodes)
        return Recording(contract, {k: v for k, v in self._metadata.items() if k != "contract"}, episodes)

    def _messages(self, data: bytes) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """JSON messages in file order: topic, time [ns], content."""
        from mcap.records import Channel, Chunk, Message, Metadata
        from mcap.stream_reader import StreamReader, breakup_chunk

        topics: dict[int, str] = {}
        total = 0
        reader = StreamReader(BytesIO(data), emit_chunks=True, validate_crcs=True, record_size_limit=len(data))
        for record in reader.records:
            if isinstance(record, Metadata) and record.name == form.METADATA:
                self._take_metadata(record.metadata)
            if not isinstance(record, Chunk):
                continue
            # Each chunk is bounded on its own, too; this bounds their sum.
            total += self._bounded_size(record)
            if not total <= form.MAX_TOTAL_BYTES:
                raise self._error(f"more than {form.MAX_TOTAL_BYTES} bytes once decompressed")
            for part in breakup_chunk(record, validate_crc=True):
                if isinstance(part, Channel) and part.message_encoding == "json":
                    topics[part.id] = part.topic
                elif isinstance(part, Message) and part.channel_id in topics:
                    yield topics[part.channel_id], part.log_time, json.loads(part.data)

    def _bounded_size(self, chunk: Any) -> int:
        """Decompressed size of a chunk, checked before decompressing against decompression bombs."""
        from zstandard import frame_content_size

        if chunk.compression not in ("", "zstd"):
            raise self._error(f"compressed with {chunk.compression!r}, this physai reads 'zstd'")
        size = len(chunk.data) if not chunk.compression else frame_content_size(chunk.data)
        if not (size == chunk.uncompressed_size and size <= form.MAX_CHUNK_BYTES):
            raise self._error(
                f"a chunk of {size} bytes once decompressed says it has {chunk.uncompressed_size}; "
                f"at most {form.MAX_CHUNK_BYTES} are allowed"
            )
        return size

    def _take_metadata(self, metadata: dict[str, str]) -> None:
        length = sum(len(key) + len(value) for key, value in metadata.items())
        if not length <= form.MAX_METADATA_CHARS:
            raise self._error(f"{length} characters of metadata, at most {form.MAX_METADATA_CHARS} are allowed")
        self._metadata = dict(metadata)
        version = self._require_metadata("format")
        if version != form.FORMAT_VERSION:
            raise self._error(f"recording format {version[:20]!r}, this physai reads {form.FORMAT_VERSION!r}")

    def _error(self, problem: str) -> RecordingError:
        return RecordingError(f"{self._source}: {problem}")

    def _require_metadata(self, key: str) -> str:
        if key not in self._metadata:
            raise self._error(f"no metadata {form.METADATA} with {key!r}; not a physai recording")
        return self._metadata[key]

    def _take(self, topic: str, log_time: int, message: dict[str, Any]) -> None:
        if topic == form.EPISODE_TOPIC and message["event"] == "start":
            if not len(self._episodes) < form.MAX_EPISODES:
                raise self._error(f"more than {form.MAX_EPISODES} episodes")
            self._episodes.append(_Open(int(message["episode"]), int(message["seed"]), log_time))
        if not self._episodes:
            return
        episode = self._episodes[-1]
        if topic == form.EPISODE_TOPIC and message["event"] == "end":
            episode.outcome = {k: v for k, v in message.items() if k not in ("timestamp", "event")}
        elif topic == form.STATE_TOPIC:
            episode.times.append(log_time)
            episode.add("qpos", message["qpos"])
            episode.add("qvel", message["qvel"])
        elif topic == form.REWARD_TOPIC:
            episode.add("reward", message["reward"])
        elif topic.startswith((channels.SENSOR_TOPIC, channels.COMMAND_TOPIC)):
            episode.add(topic, message["value"])
        elif topic.startswith(channels.TARGET_TOPIC):
            episode.add(topic, message["position"] or message["effort"])

    def _finish(self, episode: _Open, contract: PolicyContract) -> RecordedEpisode:
        periods = len(episode.times) - 1
        # A writer that failed may have written a decision whose result is missing.
        decisions = {periods} if episode.outcome else {periods, periods + 1}
        rows = {name: np.array(values, np.float64) for name, values in episode.rows.items()}
        rows.setdefault("reward", np.zeros(0))
        for name, values in rows.items():
            expected = {periods + 1} if name in ("qpos", "qvel") else {periods} if name == "reward" else decisions
            if periods < 0 or len(values) not in expected or values.ndim != (1 if name == "reward" else 2):
                raise self._error(
                    f"episode {episode.episode}: {name} has shape {values.shape} in an episode of "
                    f"{periods} control periods"
                )
        targets = _under(rows, channels.TARGET_TOPIC)
        self._check_targets(episode, targets, contract)
        return RecordedEpisode(
            episode=episode.episode,
            seed=episode.seed,
            time_s=(np.array(episode.times, np.int64) - episode.start_ns) / channels.NANOSECONDS,
            qpos=rows["qpos"],
            qvel=rows["qvel"],
            reward=rows["reward"],
            sensors=_under(rows, channels.SENSOR_TOPIC),
            commands=_under(rows, channels.COMMAND_TOPIC),
            targets=targets,
            outcome=episode.outcome,
        )

    def _check_targets(self, episode: _Open, targets: dict[str, Any], contract: PolicyContract) -> None:
        expected = {term.target_name: len(term.joints) for term in contract.action.terms}
        found = {name: values.shape[1] for name, values in targets.items()}
        if targets and found != expected:
            raise self._error(f"episode {episode.episode}: commands of sizes {found}, the contract's are {expected}")


def _under(rows: dict[str, npt.NDArray[np.float64]], topic: str) -> dict[str, npt.NDArray[np.float32]]:
    """Vectors of the topics with a prefix, by the rest of the topic."""
    return {name.removeprefix(topic): rows[name].astype(np.float32) for name in rows if name.startswith(topic)}
