"""Recordings in JSON."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log
from physai.twin.logs.readers.json_file import read_json
from physai.twin.logs.readers.table import Table


def read(tmp_path: Path, content: Any, **options: Any) -> Table:
    path = tmp_path / "log.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_json(path, **options)


def test_records_become_columns_and_the_rest_constants(tmp_path: Path) -> None:
    table = read(tmp_path, {"kp": 100, "motor": "xl330", "entries": [{"t": 0, "q": 1.5}, {"t": 1, "q": -2}]})
    assert table.streams[0].columns["q"].tolist() == [1.5, -2.0]
    assert table.constants == {"kp": 100.0}


def test_a_list_of_records_alone(tmp_path: Path) -> None:
    assert read(tmp_path, [{"t": 0}, {"t": 2}]).streams[0].columns["t"].tolist() == [0.0, 2.0]


def test_json_lines_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"t": 0}\n\n{"t": 3}\n'))
    assert read_json(path).streams[0].columns["t"].tolist() == [0.0, 3.0]


def test_nested_values_are_named_by_their_path(tmp_path: Path) -> None:
    row = {"state": {"q": [1, 2]}, "on": True, "mode": "auto", "deep": {"a": {"b": {"c": {"d": {"e": 1}}}}}}
    stream = read(tmp_path, [row, row]).streams[0]
    assert {name: values[0] for name, values in stream.columns.items()} == {"state.q.0": 1, "state.q.1": 2, "on": 1}
    assert stream.text == {"mode"}


def test_what_a_record_lacks_is_missing(tmp_path: Path) -> None:
    columns = read(tmp_path, [{"t": 0, "q": None}, {"t": 1}, {"t": 2, "q": 3}]).streams[0].columns
    assert np.isnan(columns["q"][:2]).all()
    assert columns["q"][2] == 3.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "contains int, expected a list of records"),
        ({"kp": 1}, "0 lists of records .none., expected one"),
        ({"a": [{"t": 0}], "b": [{"t": 0}]}, "2 lists of records .a, b., expected one; name it"),
        ([{"t": 0}, 3], "record 1 is int, expected an object"),
        ([{"t": 0}], "1 rows"),
        ([{"m": "a"}, {"m": "b"}], "its 2 records contain no numbers"),
        ([{"t": 0}, {"t": 10**400}], "record 1: t is out of range"),
        ({"kp": 10**400, "rows": [{"t": 0}, {"t": 1}]}, "constant kp is out of range"),
    ],
)
def test_malformed_records_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(LogError, match=message):
        read(tmp_path, content)


def test_the_column_map_may_name_the_records(tmp_path: Path, hinge: RobotSpec) -> None:
    steps = [{"t": 0.01 * i, "q": 0.1 * i, "u": 0.5} for i in range(20)]
    (tmp_path / "log.json").write_text(json.dumps({"steps": steps, "events": [{"at": 1}], "gain": 7}))
    (tmp_path / "columns.yaml").write_text(
        "records: steps\ntime: t\ncommand_kind: joint_pos\n"
        "joints: {hinge: {joint_pos: q, command: u}}\nnotes: {kp: gain, load: 0.5}\n"
    )
    log = read_log(tmp_path / "log.json", hinge)
    assert log.joint_pos[:, 0] == pytest.approx(0.1 * np.arange(20))
    assert (log.joint_vel, log.joint_effort) == (None, None)
    assert log.notes == {"kp": 7.0, "load": 0.5}
    with pytest.raises(LogError, match="no list named 'rows', only steps, events, gain"):
        read_json(tmp_path / "log.json", records="rows")
