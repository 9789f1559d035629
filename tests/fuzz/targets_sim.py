"""The parsers of `physai.sim` and `physai.train`."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from tests.fuzz.target import Target
from tests.fuzz.targets_sdk import FOLDER, from_file
from tests.harness.fixtures.sample import sample_contract

from physai.deploy_jetson.telemetry.flight.file import flight_file
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing, FlightView
from physai.deploy_jetson.telemetry.flight.segment_file import SegmentFile
from physai.gates.settings import GateSettings, load_gates
from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sdk.transport.protocol import empty_sample
from physai.sim.envs.divergence import read_dump
from physai.sim.playback.player import Player
from physai.sim.playback.recordings.recording_reader import read_recording
from physai.sim.playback.recordings.recording_writer import RecordingWriter
from physai.sim.policies.saved_task import keep_task, kept_task
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runs.run_config import RunTaskSource, load_config, save_config
from physai.train.runs.summary import load_outcome
from physai.train.settings.config import TrainConfig, read_settings, with_settings
from physai.twin.logs import read_log
from physai.twin.logs.readers.column_map import load_column_map
from physai.twin.model.twin import load_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import FittedParameter

HINGE = RobotSpec(
    name="arm",
    base="fixed",
    joints=(JointSpec(name="hinge", kind="continuous", velocity_limit=20.0, effort_limit=12.0),),
    sensors=(SensorField(name="joint_pos", size=1, unit="rad"),),
)
COLUMNS = b"time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q, command: u}}\n"
ROS_COLUMNS = b"command_kind: joint_effort\nros: {command: {topic: /commands, joints: [hinge]}}\n"
TIME = np.arange(20) * 0.01
ROWS = {"t": TIME, "q": np.sin(TIME), "u": np.cos(TIME)}

MJCF = b"""<mujoco model="hinge"><compiler angle="radian"/><option timestep="0.002"/>
<default><joint damping="0.1"/></default>
<worldbody><body name="link" pos="0 0 1"><joint name="hinge" type="hinge" axis="0 1 0" range="-2 2" limited="true"/>
<inertial pos="0 0 0.1" mass="0.5" diaginertia="0.01 0.01 0.01"/>
<geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.2"/></body></worldbody>
<actuator><motor joint="hinge" ctrlrange="-1 1" forcerange="-1 1"/></actuator>
<sensor><jointpos name="joint_pos" joint="hinge"/></sensor>
<keyframe><key name="home" qpos="0"/></keyframe></mujoco>
"""
URDF = b"""<robot name="hinge"><link name="base"/><link name="arm"><inertial><origin xyz="0 0 0.1"/><mass value="0.5"/>
<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><geometry><mesh filename="package://none/arm.stl"/></geometry></visual>
<collision><geometry><cylinder radius="0.02" length="0.2"/></geometry></collision></link>
<joint name="hinge" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
<limit lower="-2" upper="2" effort="5" velocity="10"/><dynamics damping="0.1"/></joint></robot>
"""


def _recording(name: str, columns: bytes = COLUMNS) -> Callable[[bytes], object]:
    """A recording of that name, with a sound column map."""

    def parse(data: bytes) -> object:
        (FOLDER / "logs").mkdir(exist_ok=True)
        (FOLDER / "logs" / "columns.yaml").write_bytes(columns)
        (FOLDER / "logs" / name).write_bytes(data)
        return read_log(FOLDER / "logs" / name, HINGE)

    return parse


def _csv() -> bytes:
    return "\n".join(
        ["t,q,u", *(",".join(map(repr, map(float, row))) for row in zip(*ROWS.values(), strict=True))]
    ).encode()


def _records() -> bytes:
    return json.dumps({"rate": 100, "rows": [{key: float(ROWS[key][i]) for key in ROWS} for i in range(20)]}).encode()


def _parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({**ROWS, "vector": [[1.0, 2.0]] * 20, "episode_index": [0] * 20}), buffer)
    return buffer.getvalue()


def _open_mcap(buffer: io.BytesIO) -> McapWriter:
    """A writer of files without checksums and compression, so that damage gets to what parses the messages."""
    writer = McapWriter(buffer, compression=CompressionType.NONE, enable_crcs=False, enable_data_crcs=False)
    writer.start()
    return writer


def _mcap() -> bytes:
    buffer = io.BytesIO()
    writer = _open_mcap(buffer)
    schema = writer.register_schema("sensor_msgs/JointState", "jsonschema", b"{}")
    for topic in ("/joint_states", "/targets/x"):
        channel = writer.register_channel(topic, "json", schema)
        for i in range(20):
            message = {"name": ["hinge"], "position": [float(TIME[i])]}
            writer.add_message(channel, i * 10**7, json.dumps(message).encode(), i * 10**7)
    writer.finish()
    return buffer.getvalue()


def _cdr_bag(storage: StoragePlugin) -> Path:
    """A ROS 2 bag with what `hinge` did."""
    ros: Any = get_typestore(Stores.ROS2_HUMBLE)
    kinds: Any = ros.types
    folder = Path(tempfile.mkdtemp(dir=FOLDER)) / "run"
    with Writer(folder, version=9, storage_plugin=storage) as writer:
        topic = writer.add_connection("/joint_states", "sensor_msgs/msg/JointState", typestore=ros)
        order = writer.add_connection("/commands", "std_msgs/msg/Float64MultiArray", typestore=ros)
        layout = kinds["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
        for i in range(8):
            command = kinds["std_msgs/msg/Float64MultiArray"](layout, np.array([0.5 * i]))
            data = ros.serialize_cdr(command, "std_msgs/msg/Float64MultiArray")
            writer.write(order, 10**9 + i * 10**7, data)
            stamp = kinds["builtin_interfaces/msg/Time"](sec=1, nanosec=i * 10**7)
            header = kinds["std_msgs/msg/Header"](stamp=stamp, frame_id="")
            position = np.array([float(TIME[i])])
            message = kinds["sensor_msgs/msg/JointState"](header, ["hinge"], position, np.zeros(0), np.zeros(0))
            data = ros.serialize_cdr(message, "sensor_msgs/msg/JointState")
            writer.write(topic, 10**9 + i * 10**7, data)
    return folder


@cache
def _sqlite_bag() -> Path:
    return _cdr_bag(StoragePlugin.SQLITE3)


def _bag_part(pattern: str, data: bytes) -> object:
    """The SQLite bag with one of its files replaced."""
    folder = _sqlite_bag()
    file = next(folder.glob(pattern))
    sound = file.read_bytes()
    file.write_bytes(data)
    try:
        (folder.parent / "columns.yaml").write_bytes(ROS_COLUMNS)
        return read_log(folder, HINGE)
    finally:
        file.write_bytes(sound)


def _bag_file(pattern: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [next(_sqlite_bag().glob(pattern)).read_bytes()]


def _played() -> bytes:
    task = replace(load_task("cartpole-swingup"), episode_length_s=0.1)
    path = FOLDER / "played.mcap"
    with RecordingWriter(path, task, origin={"seed": "0"}) as writer:
        for moment in Player(ScriptedPolicy(task.contract, "random"), task, episodes=2):
            writer.add(moment)
    return _plain(path.read_bytes())


def _flight(*, blocks: bool = False) -> bytes:
    """Five ticks of a cart-pole as a flight recorder writes them, for an incident or as a scheduled segment."""
    contract = load_task("cartpole-swingup").contract
    sample = empty_sample(contract)
    for values in sample.fields.values():
        values[:] = 0.25
    ring = FlightRing(contract, sample, 8)
    for tick in range(5):
        due = (tick + 1) * 20_000_000
        record = (tick, due, due, due, 1, 1, 1, 1, 1, 0, 0, False, False)
        ring.push(record, {"joint_effort_target": np.array([[1.0]])})
    flight = FlightView(ring.descriptor, contract, 8).last(8)
    ring.close()
    if not blocks:
        return _plain(flight_file(contract, flight, wall_minus_monotonic_ns=0, origin={"version": "1"}))
    segment = SegmentFile(contract, 0, {})
    segment.add(flight)
    return _plain(segment.finish({"version": "1"}))


def _read_flight(path: Path) -> object:
    return read_log(path, load_robot("cartpole").spec)


def _plain(data: bytes) -> bytes:
    """An MCAP file without checksums and compression."""
    reader = make_reader(io.BytesIO(data))
    buffer = io.BytesIO()
    plain = _open_mcap(buffer)
    for record in reader.iter_metadata():
        plain.add_metadata(record.name, record.metadata)
    known: dict[str, int] = {}
    for schema, channel, message in reader.iter_messages():
        if channel.topic not in known:
            number = plain.register_schema(schema.name if schema else "", "jsonschema", b"{}")
            known[channel.topic] = plain.register_channel(channel.topic, channel.message_encoding, number)
        plain.add_message(known[channel.topic], message.log_time, message.data, message.publish_time)
    plain.finish()
    return buffer.getvalue()


def _twin() -> bytes:
    parameter = FittedParameter(
        name="pole.mass", unit="kg", prior=1.0, prior_std=0.1, lower=0.5, upper=2.0, value=1.1, std=0.05,
        identified=True,
    )  # fmt: skip
    twin = replace(nominal_twin(load_robot("cartpole")), parameters=(parameter,), covariance=np.eye(1))
    save_twin(twin, FOLDER / "made.twin.json")
    return (FOLDER / "made.twin.json").read_bytes()


def _dump() -> bytes:
    buffer = io.BytesIO()
    about = np.frombuffer(json.dumps({"format": 1, "task": "x", "step": 3}).encode(), np.uint8)
    np.savez(buffer, about=about, targets=np.zeros((2, 1)), qpos=np.zeros((1, 2)))
    return buffer.getvalue()


def _checkpoint() -> bytes:
    buffer = io.BytesIO()
    torch.save({"format_version": 1, "contract": "{}", "graph": {"w": torch.zeros(2)}, "n": 3}, buffer)
    return buffer.getvalue()


def _restored(data: bytes) -> bytes:
    """A zip file whose members have their checksums."""
    try:
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer, "w") as made:
            for info in archive.infolist():
                with archive.open(info) as member:
                    member._expected_crc = None  # pyright: ignore
                    made.writestr(info.filename, member.read(1 << 16))
    except Exception:
        return data
    return buffer.getvalue()


def _config() -> bytes:
    save_config(FOLDER / "run", RunTaskSource(task="cartpole-swingup"), TrainConfig(), sample_contract())
    return (FOLDER / "run" / "config.json").read_bytes()


def _parse_config(data: bytes) -> object:
    (FOLDER / "run").mkdir(exist_ok=True)
    (FOLDER / "run" / "config.json").write_bytes(data)
    source, _, _ = load_config(FOLDER / "run")
    return None if source.task.endswith(".py") else source.load()


def _kept_task() -> bytes:
    keep_task(FOLDER / "kept", load_task("cartpole-swingup"), task="cartpole-swingup", robot="ur10e")
    return (FOLDER / "kept" / "task" / "task.json").read_bytes()


def _parse_kept_task(data: bytes) -> object:
    (FOLDER / "kept" / "task").mkdir(parents=True, exist_ok=True)
    (FOLDER / "kept" / "task" / "task.json").write_bytes(data)
    kept = kept_task(FOLDER / "kept")
    return None if kept is None or kept.source is not None else (kept.robot(), kept.twin(), kept.file_to_run())


def _settings(path: Path) -> TrainConfig:
    return with_settings(TrainConfig(), read_settings(path), source=str(path))


def _task_name(data: bytes) -> object:
    name = data.decode("utf-8", "surrogateescape")
    return load_task(name.removesuffix(".py"), robot=name or None)


def _gates() -> bytes:
    return json.dumps(GateSettings().model_dump(mode="json")).encode()


def _mcap_of_ros() -> bytes:
    return next(_cdr_bag(StoragePlugin.MCAP).glob("*.mcap")).read_bytes()


def _checkpoint_of(data: bytes) -> object:
    # A folder of its own: a checkpoint is compared with the configuration in its folder.
    (FOLDER / "checkpoint").mkdir(exist_ok=True)
    (FOLDER / "checkpoint" / "checkpoint.pt").write_bytes(data)
    return read_checkpoint(FOLDER / "checkpoint")


SETTINGS = b"hidden: [32, 16]\nlearning_rate: 3e-4\nstop_at_success: null\noverlap: false\nactor: gru\n"
OUTCOME = (
    b'{"format_version": 1, "reason": "all iterations done", "interrupted": false, "iterations": 2, "env_steps": 80,'
    b' "seconds": 1.5, "success": 0.75}'
)

TARGETS = (
    Target("mjcf", from_file("robot.xml", load_robot), lambda: [MJCF], weight=0.5),
    Target("urdf", from_file("robot.urdf", load_robot), lambda: [URDF], weight=0.5),
    Target(
        "task-file",
        from_file("fuzzed_task.py", lambda path: load_task(str(path))),
        lambda: [b"def make_task(preset=None):\n    return preset\n", b"make_task = dict\n"],
        weight=0.5,
    ),
    Target("task-name", _task_name, lambda: [b"cartpole-swingup", b"tasks/mine.xml"], weight=0.3),
    Target("twin", from_file("twin.json", load_twin), lambda: [_twin()]),
    Target("gates", from_file("gates.yaml", load_gates), lambda: [_gates()], weight=0.1, max_s=5.0),
    Target("column-map", from_file("columns.yaml", load_column_map), lambda: [COLUMNS], weight=0.1, max_s=5.0),
    Target("csv", _recording("log.csv"), lambda: [_csv()], weight=0.5),
    Target("json", _recording("log.json"), lambda: [_records()]),
    Target("parquet", _recording("log.parquet"), lambda: [_parquet()], weight=0.3),
    Target("mcap", _recording("log.mcap", b"joints: {}\n"), lambda: [_mcap()], weight=0.3),
    Target("mcap-cdr", _recording("log.mcap", ROS_COLUMNS), lambda: [_mcap_of_ros()], weight=0.3),
    Target("sqlite", partial(_bag_part, "*.db3"), _bag_file("*.db3"), weight=0.2),
    Target("bag-metadata", partial(_bag_part, "metadata.yaml"), _bag_file("metadata.yaml"), weight=0.1, max_s=5.0),
    Target(
        "flight",
        from_file("flights/flight.mcap", _read_flight),
        lambda: [_flight(), _flight(blocks=True)],
        weight=0.3,
    ),
    Target("recording", from_file("play.mcap", read_recording), lambda: [_played()], weight=0.3),
    Target("dump", from_file("broken.npz", read_dump), lambda: [_dump()], finish=_restored),
    Target("checkpoint", _checkpoint_of, lambda: [_checkpoint()], finish=_restored, weight=0.3),
    Target("config", _parse_config, lambda: [_config()]),
    Target("kept-task", _parse_kept_task, lambda: [_kept_task()], weight=0.3),
    Target("settings", from_file("settings.yaml", _settings), lambda: [SETTINGS], weight=0.1, max_s=5.0),
    Target(
        "outcome", from_file("run/outcome.json", lambda path: load_outcome(path.parent)), lambda: [OUTCOME], weight=0.1
    ),
)
