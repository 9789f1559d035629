"""Recordings of column blocks: read as messages are, and refused if they are damaged."""

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mcap.writer import Writer as McapWriter
from tests.harness.fixtures.sample import sample_contract

from physai.deploy_jetson.telemetry.flight.file import flight_file
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing, FlightView
from physai.deploy_jetson.telemetry.flight.segment_file import SegmentFile
from physai.sdk.base.formats.column_blocks import encode_block
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.evidence.recording_channels import (
    COLUMNS_ENCODING,
    JOINT_STATE,
    JOINTS_TOPIC,
    TARGET_TOPIC,
    ChannelWriter,
)
from physai.sdk.transport.protocol import empty_sample
from physai.twin.logs import LogError, read_log
from physai.twin.logs.readers.bags import bag_messages

EPOCH_NS = 1_790_000_000 * 10**9
COUNT = 200

Columns = dict[str, npt.NDArray[Any]]


def block(names: tuple[str, ...] = ("shoulder", "elbow"), *, fields: tuple[str, ...] = ("position",)) -> Columns:
    times = EPOCH_NS + 2_000_000 * np.arange(COUNT)
    columns: Columns = {"log_ns": times, "delay_ns": np.full(COUNT, -1_000_000)}
    for number, name in enumerate(names):
        for field in fields:
            columns[f"{field}.{name}"] = 0.5 * np.sin(np.arange(COUNT) * 0.02 + number)
    return columns


def recording(path: Path, states: bytes, targets: Columns | None = None) -> Path:
    with path.open("wb") as stream:
        writer = ChannelWriter(stream)
        writer.add_block(JOINTS_TOPIC, JOINT_STATE, EPOCH_NS, states)
        encoded = encode_block(targets or block(fields=("effort",)))
        writer.add_block(f"{TARGET_TOPIC}joint_effort_target", JOINT_STATE, EPOCH_NS, encoded)
        writer.finish()
    return path


def test_blocks_are_read_as_messages_are(tmp_path: Path, arm: RobotSpec) -> None:
    columns = block(("elbow", "shoulder"), fields=("position", "velocity"))
    log = read_log(recording(tmp_path / "run.mcap", encode_block(columns)), arm)
    assert log.joint_names == ("shoulder", "elbow")
    assert log.time == pytest.approx(0.002 * np.arange(COUNT), abs=1e-9)
    assert (log.joint_pos[:, 1] == columns["position.elbow"].astype(np.float32)).all()
    assert log.joint_vel is not None
    assert (log.joint_vel[:, 0] == columns["velocity.shoulder"].astype(np.float32)).all()
    assert log.command_kind == "joint_effort"


def test_a_segment_is_the_recording_of_the_same_ticks(tmp_path: Path) -> None:
    """What `read_log` makes of a segment and of the JSON messages of an incident, which the runtime wrote."""
    contract = sample_contract()
    sample = empty_sample(contract)
    ring = FlightRing(contract, sample, 300)
    view = FlightView(os.dup(ring.descriptor), contract, 300)
    ring.close()
    for number in range(300):
        due = number * 10_000_000
        sample.fields["joint_pos"][:] = np.sin(0.05 * number)
        sample.stamp_ns = EPOCH_NS + due - 400_000 - 1000 * (number % 7)
        record = (number, due + 9_000_000, due, sample.stamp_ns, 1, 1, 1, 1, 500_000, 0, 0, False, False)
        ring.push(record, {"joint_effort_target": np.array([[0.5 * np.cos(0.05 * number)]])})
    origin = {"version": "1", "recorded_on": "robot pendulum/one"}
    plain, packed = tmp_path / "plain.mcap", tmp_path / "packed.mcap"
    plain.write_bytes(flight_file(contract, view.last(300), wall_minus_monotonic_ns=EPOCH_NS, origin=origin))
    segment = SegmentFile(contract, EPOCH_NS, {"joint_pos": 1e-4})
    for first in range(0, 300, 70):
        segment.add(view.between(first, min(first + 70, 300)))
    packed.write_bytes(segment.finish(origin))
    one, other = (read_log(path, contract.robot) for path in (plain, packed))
    # The first sample came before the first command.
    assert len(one.time) == len(other.time) == 299
    assert np.abs(one.time - other.time).max() <= 1.2e-5
    assert np.abs(one.joint_pos - other.joint_pos).max() <= 0.5e-4 + 1e-12
    assert np.abs(one.command - other.command).max() <= 1e-7
    assert (other.origin, other.command_kind) == (one.origin, one.command_kind)
    assert packed.stat().st_size < 0.5 * plain.stat().st_size


POSITION = block()["position.elbow"]
NO_TIME = r"a block of joint states without whole log_ns and delay_ns"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"log_ns": None}, NO_TIME),
        ({"log_ns": np.linspace(0.0, 1.0, COUNT)}, NO_TIME),
        ({"torque.elbow": POSITION}, r"column 'torque.elbow' is no part of a joint state"),
        (
            {"velocity.elbow": POSITION},
            r"joint 'shoulder' has \['position'\], other joints \['position', 'velocity'\]",
        ),
    ],
)
def test_a_block_that_is_none_of_joint_states(
    tmp_path: Path, arm: RobotSpec, change: dict[str, npt.NDArray[Any] | None], said: str
) -> None:
    columns = {name: values for name, values in (block() | change).items() if values is not None}
    with pytest.raises(LogError, match=f"run.mcap: topic /joint_states: {said}"):
        read_log(recording(tmp_path / "run.mcap", encode_block(columns)), arm)


@pytest.mark.parametrize(
    ("rows", "names", "said"),
    [
        (0, ("shoulder",), "0 joint states of 1 joints"),
        (0, (), "0 joint states of 0"),
        (COUNT, (), "200 joint states of 0"),
    ],
)
def test_a_block_without_values_is_refused(
    tmp_path: Path, arm: RobotSpec, rows: int, names: tuple[str, ...], said: str
) -> None:
    """Millions of them fit into a small file."""
    columns = {name: values[:rows] for name, values in block(names).items()}
    with pytest.raises(LogError, match=f"run.mcap: topic /joint_states: a block of {said}.* is empty"):
        read_log(recording(tmp_path / "run.mcap", encode_block(columns)), arm)


def test_a_damaged_block_is_refused_with_both_values(tmp_path: Path, arm: RobotSpec) -> None:
    whole = encode_block(block())
    path = recording(tmp_path / "run.mcap", whole[:-5])
    with pytest.raises(LogError, match=f"/joint_states: a column block of {len(whole) - 5} bytes states {len(whole)}"):
        read_log(path, arm)


def test_values_are_bounded_though_constant_ones_take_no_bytes(
    tmp_path: Path, arm: RobotSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag_messages, "MAX_CELLS", 300)
    with pytest.raises(LogError, match=r"run.mcap: more than 300 values; split the recording"):
        read_log(recording(tmp_path / "run.mcap", encode_block(block())), arm)


def test_an_unknown_encoding_is_named_still(tmp_path: Path, arm: RobotSpec) -> None:
    stream = BytesIO()
    writer = McapWriter(stream)
    writer.start()
    schema = writer.register_schema("sensor_msgs/JointState", "jsonschema", json.dumps({}).encode())
    channel = writer.register_channel(JOINTS_TOPIC, COLUMNS_ENCODING + "2", schema)
    writer.add_message(channel, EPOCH_NS, b"", EPOCH_NS)
    writer.finish()
    (tmp_path / "run.mcap").write_bytes(stream.getvalue())
    with pytest.raises(LogError, match=r"JointState has encoding 'physai\.columns2'; supported are cdr, json and"):
        read_log(tmp_path / "run.mcap", arm)
