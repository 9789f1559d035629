"""Files of scheduled segments: the rows of a recording, in columns."""

import json
import math
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from tests.support.segments import CONTRACT, EPOCH_NS, PERIOD_NS, PlainRun, plain_run, read

from physai.deploy_jetson.telemetry.flight import segment_file
from physai.deploy_jetson.telemetry.flight.file import TICK_TOPIC, flight_file
from physai.deploy_jetson.telemetry.flight.flight_ring import Flight, RowLayout
from physai.deploy_jetson.telemetry.flight.segment_file import BLOCK_ROWS, SegmentFile
from physai.sdk.base.formats.column_blocks import decode_block
from physai.sdk.contract.terms import CommandField, CommandSpec


def test_an_incident_says_that_it_is_one() -> None:
    data = flight_file(CONTRACT, plain_run(5).view.last(5), wall_minus_monotonic_ns=EPOCH_NS, origin={})
    (metadata,) = make_reader(BytesIO(data)).iter_metadata()
    assert metadata.metadata["segment"] == "incident"


NUMBERS = st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf, -math.inf])


@settings(max_examples=40)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS | st.none(), st.booleans(), st.integers(0, 10**7)), min_size=1, max_size=30),
    st.sampled_from([{}, {"joint_pos": 0.001, "joint_effort_target": 0.01}]),
    st.integers(1, 30),
)
def test_a_segment_says_what_a_recording_of_the_same_ticks_says(
    ticks: list[tuple[float, float | None, bool, int]], steps: dict[str, float], cut: int
) -> None:
    """The same rows as the JSON messages of an incident, however they were cut into blocks."""
    run = PlainRun()
    for position, target, new, late_ns in ticks:
        run.push(position, target, new=new, late_ns=late_ns)
    segment = SegmentFile(CONTRACT, EPOCH_NS, steps)
    for first in range(0, len(ticks), cut):
        segment.add(run.view.between(first, min(first + cut, len(ticks))))
    found = read_by_block(segment.finish({}))
    flight = flight_file(CONTRACT, run.view.last(100), wall_minus_monotonic_ns=EPOCH_NS, origin={})
    said: dict[str, list[Any]] = {}
    for _, channel, message in make_reader(BytesIO(flight)).iter_messages():
        said.setdefault(channel.topic, []).append(json.loads(message.data))
    for topic, field, name in (
        ("/joint_states", "position", "joint_pos"),
        ("/targets/joint_effort_target", "effort", "joint_effort_target"),
    ):
        expected = [
            (stamp_ns(one), [math.nan if value is None else value for value in one[field]] or [math.nan])
            for one in said.get(topic, [])
        ]
        values = found.get(topic, [])
        # A message without any number is no row of a block.
        expected = [one for one in expected if not math.isnan(one[1][0]) or any(one[0] == row[0] for row in values)]
        tolerance = max(steps.get(name, 0.0) / 2.0, 1e-4) + 1e-9
        finite = [row for row in values if math.isfinite(row[1])]
        wanted = [(stamp, one[0]) for stamp, one in expected if math.isfinite(one[0])]
        assert len(finite) == len(wanted)
        for (stamp, value), (wanted_ns, number) in zip(finite, wanted, strict=True):
            assert abs(stamp - wanted_ns) <= 5500
            assert abs(value - number) <= tolerance


def stamp_ns(message: dict[str, Any]) -> int:
    stamp = message["header"]["stamp"]
    return stamp["sec"] * 10**9 + stamp["nanosec"]


def read_by_block(data: bytes) -> dict[str, list[tuple[int, float]]]:
    """Stamps and values of the pivot."""
    found: dict[str, list[tuple[int, float]]] = {}
    for _, channel, message in make_reader(BytesIO(data)).iter_messages():
        columns = decode_block(message.data).columns
        name = next((name for name in columns if name.endswith(".pivot")), None)
        if name is not None:
            stamps = (columns["log_ns"] + columns["delay_ns"]).tolist()
            found.setdefault(channel.topic, []).extend(zip(stamps, columns[name].tolist(), strict=True))
    return found


def test_a_sensor_with_many_numbers_gets_shorter_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows of 502 numbers and the 13 fields of a tick.
    monkeypatch.setattr(segment_file, "MAX_BLOCK_NUMBERS", 10 * 515 + 514)
    robot = CONTRACT.robot
    wide = robot.sensors[0].model_copy(update={"name": "scan", "size": 500, "unit": "m"})
    contract = CONTRACT.model_copy(update={"robot": robot.model_copy(update={"sensors": (*robot.sensors, wide)})})
    ticks = np.tile(plain_run(1).view.last(1).ticks, 25)
    ticks["sample_stamp_ns"] += np.arange(25)
    segment = SegmentFile(contract, EPOCH_NS, {})
    segment.add(Flight(ticks, np.ones((25, 502)), 0))
    reader = make_reader(BytesIO(segment.finish({})))
    rows = [decode_block(message.data).rows for _, _, message in reader.iter_messages(["/sensors/scan"])]
    assert rows == [10, 10, 5]


def test_commands_are_there_at_the_begin_and_when_they_change() -> None:
    field = CommandField(name="speed", size=2, unit="m/s", lower=(-1.0, -1.0), upper=(1.0, 1.0))
    contract = CONTRACT.model_copy(update={"command": CommandSpec(fields=(field,))})
    part = RowLayout.of(contract).fields["speed"]
    given = [(0.0, 0.5), (0.0, 0.5), (0.25, 0.5), (math.nan, 0.5), (math.nan, 0.5), (0.25, 0.5)]
    ticks = plain_run(12).view.last(12).ticks
    rows = np.zeros((12, 4))
    rows[:, part] = given * 2
    segment = SegmentFile(contract, EPOCH_NS, {})
    for first in range(0, 12, 4):
        segment.add(Flight(ticks[first : first + 4], rows[first : first + 4], first))
    found = read(segment.finish({})).columns["/commands/speed"]
    expected = [given[row] for row in (0, 2, 3, 5, 0, 2, 3, 5)]
    assert np.array_equal(np.stack([found["value.0"], found["value.1"]], axis=1), expected, equal_nan=True)
    due = [EPOCH_NS + row * PERIOD_NS for row in (0, 2, 3, 5, 6, 8, 9, 11)]
    assert found["log_ns"].tolist() == due


def test_steps_are_stated_in_the_file() -> None:
    segment = SegmentFile(CONTRACT, EPOCH_NS, {"joint_pos": 0.001})
    run = PlainRun()
    noise = np.random.default_rng(0).normal(size=50)
    for value in noise:
        run.push(float(value), float(value))
    segment.add(run.view.last(50))
    steps = read(segment.finish({})).steps
    assert steps["/joint_states"] == {"log_ns": 1000.0, "delay_ns": 10_000.0, "position.pivot": 0.001}
    assert steps["/targets/joint_effort_target"]["effort.pivot"] is None


def test_many_ticks_are_several_blocks() -> None:
    segment = SegmentFile(CONTRACT, EPOCH_NS, {})
    run = plain_run(100)
    flight = run.view.last(100)
    many = Flight(np.tile(flight.ticks, 50), np.tile(flight.rows, (50, 1)), 0)
    segment.add(many)
    data = segment.finish({})
    rows = [
        len(decode_block(m.data).columns["tick"]) for _, _, m in make_reader(BytesIO(data)).iter_messages([TICK_TOPIC])
    ]
    assert (sum(rows), max(rows)) == (5000, BLOCK_ROWS)
