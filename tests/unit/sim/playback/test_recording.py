"""Recordings."""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import Writer

from physai.sdk.base.errors import ContractError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sim.envs.environment import Environment
from physai.sim.playback.moment import EpisodeOutcome, EpisodeVerdict, Moment
from physai.sim.playback.player import Player
from physai.sim.playback.recordings import recording_format as form
from physai.sim.playback.recordings.recording_format import RecordingError
from physai.sim.playback.recordings.recording_reader import MAGIC, RecordedEpisode, read_recording
from physai.sim.playback.recordings.recording_writer import RecordingWriter
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task


@pytest.fixture(scope="module")
def reach() -> Task:
    return replace(load_task("ur10e-reach"), episode_length_s=0.32, command_interval_s=0.16)


@pytest.fixture(scope="module")
def recorded(reach: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Moment]]:
    """Two episodes of ten control periods."""
    path = tmp_path_factory.mktemp("recording") / "a.mcap"
    player = Player(ScriptedPolicy(reach.contract, "random"), reach, episodes=2)
    moments = list(player)
    with RecordingWriter(path, reach, origin={"seed": "0"}) as writer:
        for moment in moments:
            writer.add(moment)
    return path, moments


def messages(path: Path) -> Iterator[tuple[Any, str, int, dict[str, Any]]]:
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            yield schema, channel.topic, message.log_time, json.loads(message.data)


def of_episode(moments: list[Moment], episode: int) -> list[Moment]:
    return [moment for moment in moments if moment.episode == episode]


def test_everything_comes_back_exactly(recorded: tuple[Path, list[Moment]], reach: Task) -> None:
    path, moments = recorded
    recording = read_recording(path)
    assert recording.contract == reach.contract
    assert recording.metadata["fingerprint"] == reach.contract.fingerprint
    assert (recording.metadata["task"], recording.metadata["seed"]) == ("ur10e-reach", "0")
    assert [episode.episode for episode in recording.episodes] == [0, 1]
    for episode in recording.episodes:
        own = of_episode(moments, episode.episode)
        assert episode.seed == own[0].seed
        assert episode.outcome == own[-1].outcome.as_json() if own[-1].outcome else False
        np.testing.assert_allclose(episode.time_s, [moment.time_s for moment in own], atol=1e-9)
        assert (episode.qpos == [moment.qpos for moment in own]).all()
        assert (episode.qvel == [moment.qvel for moment in own]).all()
        assert episode.reward.tolist() == [moment.reward for moment in own[1:]]
        for found, name in ((episode.sensors, "sensors"), (episode.commands, "commands"), (episode.targets, "targets")):
            assert found.keys() == getattr(own[0], name).keys()
            for field, values in found.items():
                assert (values == [getattr(moment, name)[field] for moment in own[:-1]]).all()


def test_seed_and_commands_replay_the_episode_bit_for_bit(recorded: tuple[Path, list[Moment]], reach: Task) -> None:
    for episode in read_recording(recorded[0]).episodes:
        env = Environment(replace(reach, episode_length_s=10.0), 1)
        env.reset(np.array([episode.seed], np.uint64))
        for period in range(len(episode.reward)):
            assert (env.view.qpos[0] == episode.qpos[period]).all()
            result = env.step({name: values[period : period + 1] for name, values in episode.targets.items()})
            assert result.reward[0] == np.float32(episode.reward[period])
        assert (env.view.qpos[0] == episode.qpos[-1]).all()
        assert (env.view.qvel[0] == episode.qvel[-1]).all()


def test_other_tools_can_read_it(recorded: tuple[Path, list[Moment]], reach: Task) -> None:
    """Every message keeps its channel's schema; times are those of the simulation, one period between episodes."""
    path, moments = recorded
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for schema, topic, time, message in messages(path):
        jsonschema.validate(message, json.loads(schema.data))
        found.setdefault(topic, []).append((time, message))
    assert set(found) == {
        "/joint_states",
        "/sensors/joint_pos",
        "/sensors/joint_vel",
        "/commands/ee_pose_target",
        "/poses/ee_pose_target",
        "/targets/joint_pos_target",
        "/physai/state",
        "/physai/reward",
        "/physai/episode",
    }
    assert [time for time, _ in found["/joint_states"]] == [32_000_000 * period for period in range(22)]
    state = found["/joint_states"][3][1]
    assert tuple(state["name"]) == reach.contract.robot.joint_names
    assert state["position"] == moments[3].qpos.tolist()
    assert state["velocity"] == moments[3].qvel.tolist()
    assert state["header"]["stamp"] == {"sec": 0, "nanosec": 96_000_000}
    x, y, z, qw, qx, qy, qz = moments[0].commands["ee_pose_target"].tolist()
    pose = found["/poses/ee_pose_target"][0][1]["pose"]
    assert pose == {"position": {"x": x, "y": y, "z": z}, "orientation": {"x": qx, "y": qy, "z": qz, "w": qw}}
    events = [message["event"] for _, message in found["/physai/episode"]]
    assert events == ["start", "judged", "judged", "end"] * 2


numbers = st.floats(width=64)
floats = st.floats(width=32)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), periods=st.integers(1, 4), seed=st.integers(0, 2**64 - 1))
def test_any_numbers_come_back(reach: Task, tmp_path: Path, data: st.DataObject, periods: int, seed: int) -> None:
    """Only what is not finite is lost: it comes back as NaN."""

    def vector(size: int, elements: Any, dtype: Any) -> Any:
        return np.array(data.draw(st.lists(elements, min_size=size, max_size=size)), dtype)

    def moment(period: int, last: bool) -> Moment:
        verdict = EpisodeVerdict(True, {"error_m": data.draw(numbers)}) if last else None
        outcome = (
            EpisodeOutcome(0, seed, "time", period * 0.032, data.draw(numbers), 1, 1, {"error_m": 0.5})
            if last
            else None
        )
        return Moment(
            episode=0,
            seed=seed,
            start_s=0.0,
            time_s=period * 0.032,
            qpos=vector(6, numbers, np.float64),
            qvel=vector(6, numbers, np.float64),
            sensors={} if last else {"joint_pos": vector(6, floats, np.float32)},
            commands={"ee_pose_target": vector(7, floats, np.float32)},
            targets={} if last else {"joint_pos_target": vector(6, floats, np.float32)},
            reward=data.draw(numbers) if period else None,
            verdict=verdict,
            outcome=outcome,
        )

    moments = [moment(period, period == periods) for period in range(periods + 1)]
    with RecordingWriter(tmp_path / "a.mcap", reach) as writer:
        for one in moments:
            writer.add(one)
    (episode,) = read_recording(tmp_path / "a.mcap").episodes
    assert episode.seed == seed
    assert_rows(episode.qpos, [one.qpos for one in moments])
    assert_rows(episode.qvel, [one.qvel for one in moments])
    assert_rows(episode.reward, [one.reward for one in moments[1:]])
    assert_rows(episode.targets["joint_pos_target"], [one.targets["joint_pos_target"] for one in moments[:-1]])
    assert_rows(episode.commands["ee_pose_target"], [one.commands["ee_pose_target"] for one in moments[:-1]])


def assert_rows(found: Any, written: Any) -> None:
    expected = np.array(written, float)
    expected[~np.isfinite(expected)] = np.nan
    np.testing.assert_array_equal(found.astype(float), expected)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
def test_a_cut_off_file_says_so(recorded: tuple[Path, list[Moment]], tmp_path: Path, share: float) -> None:
    data = recorded[0].read_bytes()
    (tmp_path / "cut.mcap").write_bytes(data[: int(share * len(data))])
    with pytest.raises(RecordingError, match=r"cut off after|not an MCAP recording"):
        read_recording(tmp_path / "cut.mcap")


def same(a: RecordedEpisode, b: RecordedEpisode) -> bool:
    return a.seed == b.seed and a.qpos.tolist() == b.qpos.tolist() and a.outcome == b.outcome


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0.0, 1.0, exclude_max=True), value=st.integers(0, 255))
def test_a_damaged_byte_is_noticed_or_does_no_harm(
    recorded: tuple[Path, list[Moment]], tmp_path: Path, position: float, value: int
) -> None:
    data = bytearray(recorded[0].read_bytes())
    data[int(position * len(data))] = value
    (tmp_path / "bad.mcap").write_bytes(data)
    try:
        recording = read_recording(tmp_path / "bad.mcap")
    except (RecordingError, ContractError):
        return
    whole = read_recording(recorded[0])
    assert all(same(a, b) for a, b in zip(recording.episodes, whole.episodes, strict=True))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=400))
def test_rubbish_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "bad.mcap").write_bytes(MAGIC + body + MAGIC)
    with pytest.raises(RecordingError, match=r"bad\.mcap"):
        read_recording(tmp_path / "bad.mcap")


def chunk(data: bytes, claimed: int, compression: bytes = b"zstd") -> bytes:
    """An MCAP file with one chunk (opcode 6: times, size, checksum, compression, data)."""
    body = struct.pack("<QQQII", 0, 0, claimed, zlib.crc32(data), len(compression)) + compression
    body += struct.pack("<Q", len(data)) + data
    header = struct.pack("<BQII", 1, 8, 0, 0)
    end = struct.pack("<BQI", 15, 4, 0) + struct.pack("<BQQQI", 2, 20, 0, 0, 0)
    return MAGIC + header + struct.pack("<BQ", 6, len(body)) + body + end + MAGIC


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (chunk(zstandard.compress(bytes(form.MAX_CHUNK_BYTES + 1)), form.MAX_CHUNK_BYTES + 1), "at most"),
        (chunk(zstandard.compress(bytes(1000)), 10), "1000 bytes once decompressed says it has 10"),
        (chunk(b"x" * 20, 20, b"lz4"), "compressed with 'lz4'"),
    ],
    ids=["bomb", "lie", "lz4"],
)
def test_chunks_are_bounded_before_they_are_opened(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "bad.mcap").write_bytes(data)
    with pytest.raises(RecordingError, match=message):
        read_recording(tmp_path / "bad.mcap")


def written_by_hand(
    path: Path, task: Task, *, metadata: dict[str, str], events: list[tuple[str, dict[str, Any]]]
) -> None:
    buffer = BytesIO()
    writer = Writer(buffer)
    writer.start()
    head = {
        "format": "1",
        "contract": canonical_json(task.contract).decode(),
        "fingerprint": task.contract.fingerprint,
    }
    writer.add_metadata(form.METADATA, {**head, **metadata})
    schema = writer.register_schema("any", "jsonschema", b"{}")
    channels = {topic: writer.register_channel(topic, "json", schema) for topic in dict(events)}
    for topic, content in events:
        writer.add_message(channels[topic], log_time=0, publish_time=0, data=json.dumps(content).encode())
    writer.finish()
    path.write_bytes(buffer.getvalue())


START = ("/physai/episode", {"event": "start", "episode": 0, "seed": "7"})
STATE = ("/physai/state", {"qpos": [0.0] * 6, "qvel": [0.0] * 6})
END = ("/physai/episode", {"event": "end", "episode": 0, "seed": "7"})


@pytest.mark.parametrize(
    ("metadata", "events", "message"),
    [
        ({"format": "2"}, [START, STATE], "recording format '2', this physai reads '1'"),
        ({"fingerprint": "0" * 64}, [START, STATE], "fingerprint is not the contract's"),
        ({"contract": "{}"}, [START, STATE], "format_version must be a whole number"),
        ({}, [START, STATE, STATE], r"reward has shape \(0,\) in an episode of 1 control periods"),
        ({}, [START, END], "-1 control periods"),
        ({}, [START, STATE, ("/physai/state", {"qpos": [0.0], "qvel": [0.0] * 6})], "damaged recording"),
        ({}, [START, ("/physai/state", {"qpos": [0.0] * 6})], "damaged recording: KeyError"),
        ({}, [("/physai/episode", {"event": "start", "episode": 0, "seed": "x"})], "damaged recording: ValueError"),
        ({}, [START, STATE, ("/targets/joint_pos_target", {"position": [0.0], "effort": []})], "the contract's are"),
    ],
)
def test_inconsistent_content_is_refused(
    reach: Task, tmp_path: Path, metadata: dict[str, str], events: list[Any], message: str
) -> None:
    path = tmp_path / "hand.mcap"
    written_by_hand(path, reach, metadata=metadata, events=events)
    with pytest.raises((RecordingError, ContractError), match=message):
        read_recording(path)


def test_an_episode_whose_writer_failed_is_kept(reach: Task, tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    moments = iter(Player(ScriptedPolicy(reach.contract, "zero"), reach))
    with RecordingWriter(path, reach) as writer:
        for _ in range(3):
            writer.add(next(moments))
    (episode,) = read_recording(path).episodes
    assert episode.outcome is None
    assert (len(episode.qpos), len(episode.reward), len(episode.targets["joint_pos_target"])) == (3, 2, 3)


def test_files_that_cannot_be_opened_are_one_line(reach: Task, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot write the recording: No such file"):
        RecordingWriter(tmp_path / "nowhere" / "a.mcap", reach)
    with pytest.raises(RecordingError, match="cannot be read: No such file"):
        read_recording(tmp_path / "missing.mcap")
    (tmp_path / "film.mp4").write_bytes(b"\x00\x00\x00 ftyp")
    with pytest.raises(RecordingError, match="not an MCAP recording"):
        read_recording(tmp_path / "film.mp4")


def record_into(path: str, task: Task) -> None:
    with RecordingWriter(path, task) as writer:
        for moment in Player(ScriptedPolicy(task.contract, "zero"), task, episodes=1):
            writer.add(moment)


def test_a_full_disk_is_one_line(reach: Task) -> None:
    with pytest.raises(RecordingError, match="/dev/full: cannot write the recording: No space left"):
        record_into("/dev/full", reach)
