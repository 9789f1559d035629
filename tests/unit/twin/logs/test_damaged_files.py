"""Bytes that are no recording, or were one: a LogError, whatever they are."""

import gzip
import json
import os
import signal
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.writer import Writer as McapWriter

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log

COLUMN_MAP = "time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q, command: u}}\n"
TIME = np.arange(20) * 0.01
ROWS = {"t": TIME, "q": np.sin(TIME), "u": np.cos(TIME)}


def csv() -> bytes:
    rows = zip(*ROWS.values(), strict=True)
    return "\n".join(["t,q,u", *(",".join(map(repr, map(float, row))) for row in rows)]).encode()


def records() -> bytes:
    return json.dumps({"rows": [{key: float(values[i]) for key, values in ROWS.items()} for i in range(20)]}).encode()


def parquet() -> bytes:
    buffer = BytesIO()
    pq.write_table(pa.table(ROWS), buffer)
    return buffer.getvalue()


def mcap() -> bytes:
    buffer = BytesIO()
    writer = McapWriter(buffer)
    writer.start()
    schema = writer.register_schema("sensor_msgs/JointState", "jsonschema", b"{}")
    for topic in ("/joint_states", "/targets/x"):
        channel = writer.register_channel(topic, "json", schema)
        for i in range(20):
            message = {"name": ["hinge"], "position": [float(TIME[i])]}
            writer.add_message(channel, i * 10**7, json.dumps(message).encode(), i * 10**7)
    writer.finish()
    return buffer.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "log.csv": csv,
    "log.csv.gz": lambda: gzip.compress(csv()),
    "log.json": records,
    "log.jsonl": lambda: b"\n".join(json.dumps({key: float(ROWS[key][i]) for key in ROWS}).encode() for i in range(20)),
    "log.parquet": parquet,
    "log.mcap": mcap,
}


def require_refused_or_read(folder: Path, name: str, content: bytes, robot: RobotSpec) -> None:
    (folder / name).write_bytes(content)
    try:
        log = read_log(folder / name, robot)
    except LogError:
        return
    assert np.isfinite(log.joint_pos).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged")
    for name in FORMATS:
        if name != "log.mcap":
            (path / f"{name}.columns.yaml").write_text(COLUMN_MAP)
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_file_is_read(folder: Path, hinge: RobotSpec, name: str) -> None:
    (folder / name).write_bytes(FORMATS[name]())
    assert len(read_log(folder / name, hinge).time) == 20


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_never_ends_in_a_traceback(folder: Path, hinge: RobotSpec, name: str, data: st.DataObject) -> None:
    content = bytearray(FORMATS[name]())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    require_refused_or_read(folder, name, bytes(content[:cut]), hinge)


@pytest.mark.parametrize("name", FORMATS)
def test_a_pipe_is_not_waited_for(tmp_path: Path, hinge: RobotSpec, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"{name}.columns.yaml").write_text(COLUMN_MAP)
    assert ends_in_time(lambda: read_log(tmp_path / name, hinge), LogError)


def ends_in_time(call: Callable[[], object], error: type[Exception]) -> bool:
    """Whether a call raises that error, instead of waiting for ever."""

    def give_up(number: int, frame: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        call()
    except error:
        return True
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return False


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_other_bytes_never_end_in_a_traceback(folder: Path, hinge: RobotSpec, name: str, content: bytes) -> None:
    require_refused_or_read(folder, name, content, hinge)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_no_column_map_ends_in_a_traceback(folder: Path, hinge: RobotSpec, text: str) -> None:
    (folder / "log.csv").write_bytes(csv())
    other = folder / "other.yaml"
    other.write_bytes(text.encode())
    with pytest.raises(LogError):
        read_log(folder / "log.csv", hinge, column_map=other)
