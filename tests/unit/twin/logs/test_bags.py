"""MCAP files and ROS 2 bags, written with the libraries that robots use."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin
from tests.support.bags import (
    EPOCH_NS,
    ROS,
    Sent,
    bag,
    by_time,
    commands,
    joint_state,
    numbers,
    states,
    swing,
    trajectory,
)

from physai.sdk.contract.robot import RobotSpec
from physai.sim.playback.player import Player
from physai.sim.playback.recordings.recording_writer import RecordingWriter
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.tasks.registry import load_task
from physai.twin.logs import LogError, RobotLog, read_log, read_logs
from physai.twin.logs.readers.bags import bag_messages as bag_messages_module

MAP = "command_kind: joint_effort\nros: {command: {topic: /effort/commands, joints: [elbow, shoulder]}}\n"


@pytest.fixture
def read(tmp_path: Path, arm: RobotSpec) -> Callable[..., RobotLog]:
    def reader(sent: Sent, column_map: str | None = MAP, storage: StoragePlugin = StoragePlugin.MCAP) -> RobotLog:
        if column_map is not None:
            (tmp_path / "columns.yaml").write_text(column_map)
        return read_log(bag(tmp_path / "run", sent, storage), arm)

    return reader


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_a_bag_folder_comes_back(read: Callable[..., RobotLog], storage: StoragePlugin) -> None:
    log = read(by_time(states(["elbow", "shoulder"]), commands()), storage=storage)
    time, pos, vel = swing()
    assert log.time == pytest.approx(time, abs=1e-9)
    assert log.joint_names == ("shoulder", "elbow")
    # The messages name the elbow first; the robot has the shoulder first.
    assert (log.joint_pos == pos[:, ::-1]).all()
    assert log.joint_vel is not None
    assert (log.joint_vel == vel[:, ::-1]).all()
    assert log.joint_effort is not None
    assert (log.joint_effort == 0.1 * pos[:, ::-1]).all()
    assert log.command_kind == "joint_effort"
    assert log.command[10] == pytest.approx([-1.0, 1.0])


def test_one_mcap_file_alone_is_read(tmp_path: Path, arm: RobotSpec) -> None:
    folder = bag(tmp_path / "run", by_time(states(["shoulder", "elbow"]), commands()))
    (file,) = folder.glob("*.mcap")
    (folder / "columns.yaml").write_text(MAP)
    assert (read_log(file, arm).joint_pos == swing()[1]).all()
    file.rename(folder / "moved.mcap")
    with pytest.raises(LogError, match=r"metadata.yaml names run.mcap, which is missing"):
        read_log(folder, arm, column_map=folder / "columns.yaml")


def test_a_command_counts_from_when_it_was_sent(read: Callable[..., RobotLog]) -> None:
    log = read(by_time(states(["shoulder", "elbow"]), commands(late_ns=4_000_000)))
    # The state at 0 ms came before the first command at 4 ms; that at 10 ms belongs to it.
    assert len(log.time) == 59
    assert log.command[0] == pytest.approx([0.0, 0.0])
    assert log.command[5] == pytest.approx([-0.5, 0.5])


def test_the_sensors_own_stamps_are_taken_where_all_messages_have_them(read: Callable[..., RobotLog]) -> None:
    _, pos, _ = swing()
    names = ["shoulder", "elbow"]
    sent = states(names, jitter_ns=0)
    late = [(topic, ns + (3_000_000 if i % 2 else 0), message) for i, (topic, ns, message) in enumerate(sent)]
    targets = [
        ("/joint_command", EPOCH_NS + i * 10**7, joint_state(EPOCH_NS + i * 10**7, names, position=pos[i] + 0.1))
        for i in range(60)
    ]
    log = read(by_time(late, targets), column_map=None)
    assert log.command_kind == "joint_pos"
    assert np.diff(log.time) == pytest.approx(0.01, abs=1e-9)
    assert log.command == pytest.approx(pos + 0.1)


def test_the_times_of_recording_are_taken_where_a_topic_has_no_stamps(read: Callable[..., RobotLog]) -> None:
    log = read(by_time(states(["shoulder", "elbow"], jitter_ns=2_000_000), commands()))
    # Recorded 2 ms after their stamps, so 2 ms after the commands; both clocks would put the states first.
    assert len(log.time) == 60
    assert log.command[3] == pytest.approx([-0.3, 0.3])


def test_trajectories_of_one_point_and_of_many(read: Callable[..., RobotLog]) -> None:
    names = ["elbow", "shoulder"]
    first = trajectory(EPOCH_NS, names, [(0.1, [1.0, 2.0]), (0.2, [3.0, 4.0]), (0.5, [9.0, 9.0])])
    second = trajectory(EPOCH_NS + 300_000_000, names, [(0.05, [5.0, 6.0])])
    plan = [("/plan", EPOCH_NS, first), ("/plan", EPOCH_NS + 300_000_000, second)]
    log = read(by_time(states(["shoulder", "elbow"]), plan), column_map=None)
    assert log.command_kind == "joint_pos"
    # Points count from 0.1 and 0.2 s; what is left of the plan gives way at 0.3 s to a single point, sent at once.
    at = {round(0.1 + t, 2): row.tolist() for t, row in zip(log.time, log.command, strict=True)}
    assert (at[0.1], at[0.19], at[0.2], at[0.29]) == ([2, 1], [2, 1], [4, 3], [4, 3])
    assert (at[0.3], at[0.55]) == ([6, 5], [6, 5])


def test_joints_that_the_robot_has_not_are_left_out(read: Callable[..., RobotLog]) -> None:
    sent = states(["shoulder", "elbow"])
    grip = [("/joint_states", ns + 10, joint_state(ns, ["gripper"], [0.04])) for _, ns, _ in sent]
    assert (read(by_time(sent, grip, commands())).joint_pos == swing()[1]).all()


def test_physais_own_recordings_hold_one_log_per_episode(tmp_path: Path) -> None:
    task = replace(load_task("ur10e-reach"), episode_length_s=0.32)
    path = tmp_path / "play.mcap"
    moments = list(Player(ScriptedPolicy(task.contract, "random"), task, episodes=2))
    with RecordingWriter(path, task) as writer:
        for moment in moments:
            writer.add(moment)
    logs = read_logs([path], task.contract.robot)
    assert [log.name for log in logs] == ["play#0", "play#1"]
    for episode, log in enumerate(logs):
        own = [moment for moment in moments if moment.episode == episode]
        assert log.joint_names == task.contract.robot.joint_names
        assert log.joint_pos == pytest.approx(np.array([moment.qpos for moment in own]), abs=1e-12)
        assert log.command_kind == "joint_pos"
        assert log.command[0] == pytest.approx(own[0].targets["joint_pos_target"])
    with pytest.raises(LogError, match="no episode 2; it contains 2, counted from 0"):
        read_log(f"{path}#2", task.contract.robot)


NAMES = ["shoulder", "elbow"]


@pytest.mark.parametrize(
    ("sent", "column_map", "message"),
    [
        (commands(), MAP, "no topic of sensor_msgs/JointState with positions; topics: /effort/commands"),
        (states(NAMES), None, "no command topic besides the joint states"),
        (
            by_time(states(NAMES), commands()),
            None,
            "2 numbers without names, the column map names 0 joints; write them",
        ),
        (
            by_time(states(NAMES), commands()),
            MAP.replace("[elbow, shoulder]", "[elbow]"),
            "2 numbers without names, the column map names 1 joints",
        ),
        (
            by_time(states(NAMES), commands(), [("/other", EPOCH_NS, numbers([1.0]))]),
            None,
            r"2 topics may contain the commands \(/effort/commands, /other\)",
        ),
        (by_time(states(NAMES), commands()), MAP.replace("/effort/c", "/C"), "no commands on topic /Commands, only on"),
        (by_time(states(["a", "b"]), commands()), MAP, "no columns for the robot's joint shoulder, elbow"),
        (by_time(states(NAMES), commands()), MAP + "clock: header\n", "clock: unknown entry"),
        (by_time(states(NAMES), commands()), MAP.replace("ros: {", "ros: {clock: header, "), "without a stamp"),
        (
            by_time(states(NAMES), [("/both", EPOCH_NS, joint_state(EPOCH_NS, NAMES, [0, 0], [1, 1]))] * 2),
            None,
            "the commands on /both set position, velocity, so their kind is ambiguous",
        ),
        (
            by_time(states(NAMES)[:30], [("/joint_states", EPOCH_NS, joint_state(EPOCH_NS, NAMES, [1, 2, 3]))]),
            MAP,
            "a JointState with 2 names and 3 numbers in position",
        ),
    ],
)
def test_what_a_bag_does_not_say_is_an_error(
    read: Callable[..., RobotLog], sent: Sent, column_map: str | None, message: str
) -> None:
    with pytest.raises(LogError, match=message):
        read(sent, column_map=column_map)


def test_two_publishers_of_one_joint_are_refused(read: Callable[..., RobotLog]) -> None:
    other = [("/joint_states", EPOCH_NS + 5, joint_state(EPOCH_NS + 5, ["elbow", "wrist"], [0.0, 0.0]))] * 2
    with pytest.raises(LogError, match="has joint elbow in messages with different sets of joints: two nodes"):
        read(by_time(states(NAMES), other, commands()))


def json_mcap(path: Path, compression: CompressionType) -> Path:
    """Twenty states and commands of the joint `hinge`."""
    with path.open("wb") as file:
        writer = McapWriter(file, compression=compression, chunk_size=500)
        writer.start()
        schema = writer.register_schema("sensor_msgs/JointState", "jsonschema", b"{}")
        channels = [writer.register_channel(topic, "json", schema) for topic in ("/joint_states", "/targets/x")]
        for i in range(20):
            body = {"name": ["hinge"], "position": [0.1 * i], "velocity": [], "effort": []}
            for channel in channels:
                writer.add_message(channel, i * 10**7, json.dumps(body).encode(), i * 10**7)
        writer.finish()
    return path


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_json_messages_and_every_compression(tmp_path: Path, hinge: RobotSpec, compression: CompressionType) -> None:
    log = read_log(json_mcap(tmp_path / "log.mcap", compression), hinge)
    assert log.joint_pos[:, 0] == pytest.approx(0.1 * np.arange(20))
    assert log.joint_vel is None
    assert (log.command == log.joint_pos).all()


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_flipped_bits_are_refused(tmp_path: Path, hinge: RobotSpec, compression: CompressionType) -> None:
    path = json_mcap(tmp_path / "log.mcap", compression)
    data = bytearray(path.read_bytes())
    data[250] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(LogError, match="damaged"):
        read_log(path, hinge)


def test_files_that_end_early_or_are_something_else_are_refused(tmp_path: Path, arm: RobotSpec) -> None:
    (file,) = bag(tmp_path / "run", by_time(states(NAMES), commands())).glob("*.mcap")
    (tmp_path / "columns.yaml").write_text(MAP)
    data = file.read_bytes()
    cut, other = tmp_path / "cut.mcap", tmp_path / "other.mcap"
    cut.write_bytes(data[: len(data) // 2])
    other.write_bytes(b"PK\x03\x04" + data)
    for path, message in ((cut, "damaged or truncated"), (other, "not an MCAP file")):
        with pytest.raises(LogError, match=message):
            read_log(path, arm)


def test_a_damaged_sqlite_bag_is_refused(tmp_path: Path, arm: RobotSpec) -> None:
    folder = bag(tmp_path / "run", by_time(states(NAMES), commands()), StoragePlugin.SQLITE3)
    (tmp_path / "columns.yaml").write_text(MAP)
    (file,) = folder.glob("*.db3")
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(LogError, match="not a readable"):
        read_log(folder, arm)


ENDLESS = "WITH RECURSIVE endless(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM endless) SELECT * FROM endless"


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW more AS {ENDLESS}",
        "ALTER TABLE messages ADD COLUMN huge AS (zeroblob(1000000000))",
        "CREATE VIRTUAL TABLE words USING fts5(word)",
    ],
)
def test_an_sqlite_bag_that_computes_is_refused(tmp_path: Path, arm: RobotSpec, statement: str) -> None:
    """A bag of a few kB whose rows never end, or have gigabytes."""
    (file,) = bag(tmp_path / "run", by_time(states(NAMES), commands()), StoragePlugin.SQLITE3).glob("*.db3")
    (tmp_path / "columns.yaml").write_text(MAP)
    read_log(file.parent, arm)
    with closing(sqlite3.connect(file)) as database:
        database.execute(statement)
        database.commit()
    with pytest.raises(LogError, match="is computed; a bag consists of plain tables"):
        read_log(file.parent, arm)


def test_a_pipe_is_no_bag(tmp_path: Path, arm: RobotSpec) -> None:
    os.mkfifo(tmp_path / "pipe.db3")
    with pytest.raises(LogError, match="not a regular file"):
        read_log(tmp_path / "pipe.db3", arm)


def test_a_chunk_that_says_it_is_huge_is_refused_before_it_is_decompressed(
    tmp_path: Path, arm: RobotSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = bag(tmp_path / "run", by_time(states(NAMES), commands())).glob("*.mcap")
    monkeypatch.setattr(bag_messages_module, "_MAX_CHUNK_BYTES", 1000)
    with pytest.raises(LogError, match="when decompressed, at most 1000 are read"):
        read_log(file, arm)


def test_folders_that_are_no_bags_are_refused(tmp_path: Path, arm: RobotSpec) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(LogError, match=r"not a ROS 2 bag, as it has no readable metadata.yaml"):
        read_log(tmp_path / "run", arm)
    for text, message in (
        ("a: [", "not YAML, as metadata of a ROS 2 bag is"),
        ("a: 1", "not the metadata of a ROS 2 bag"),
        (
            "rosbag2_bagfile_information: {storage_identifier: mcap, relative_file_paths: [" + "a" * 300 + "]}",
            "which is missing",
        ),
        (
            "rosbag2_bagfile_information: {storage_identifier: zfs, relative_file_paths: []}",
            "unsupported storage 'zfs'",
        ),
        (
            "rosbag2_bagfile_information: {storage_identifier: mcap, relative_file_paths: [a], compression_mode: FILE}",
            "compressed by rosbag2",
        ),
    ):
        (tmp_path / "run" / "metadata.yaml").write_text(text)
        with pytest.raises(LogError, match=message):
            read_log(tmp_path / "run", arm)


def test_message_definitions_in_the_file_are_not_used(tmp_path: Path, hinge: RobotSpec) -> None:
    """A definition of one's own for a known type must not decide how bytes are read, nor run as code."""
    buffer = BytesIO()
    writer = McapWriter(buffer)
    writer.start(profile="ros2")
    schema = writer.register_schema("sensor_msgs/msg/JointState", "ros2msg", b"uint8 evil\n")
    for topic in ("/joint_states", "/targets/x"):
        channel = writer.register_channel(topic, "cdr", schema)
        for i in range(10):
            message = joint_state(EPOCH_NS + i * 10**7, ["hinge"], [0.1 * i])
            writer.add_message(channel, i, bytes(ROS.serialize_cdr(message, message.__msgtype__)), i)
    writer.finish()
    path = tmp_path / "log.mcap"
    path.write_bytes(buffer.getvalue())
    assert read_log(path, hinge).joint_pos[:, 0] == pytest.approx(0.1 * np.arange(10))
