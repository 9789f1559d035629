"""Recordings in CSV."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log
from physai.twin.logs.readers import table as table_module
from physai.twin.logs.readers.csv_file import read_csv

Motion = dict[str, NDArray[np.float64]]
CsvWriter = Callable[..., Path]


def test_every_value_comes_back_exactly(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion)
    log = read_log(path, arm)
    assert log.joint_names == ("shoulder", "elbow")
    assert log.command_kind == "joint_effort"
    assert (log.time == motion["t"]).all()
    for j, number in enumerate("12"):
        assert (log.joint_pos[:, j] == motion[f"q{number}"]).all()
        assert log.joint_vel is not None
        assert (log.joint_vel[:, j] == motion[f"v{number}"]).all()
        assert log.joint_effort is not None
        assert (log.joint_effort[:, j] == motion[f"e{number}"]).all()
        assert (log.command[:, j] == motion[f"u{number}"]).all()
    assert log.source == str(path)
    assert log.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_gzip_is_read_and_hashed_as_it_lies_there(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    plain = write(motion)
    packed = plain.with_name("log.csv.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    log = read_log(packed, arm)
    assert (log.joint_pos == read_log(plain, arm).joint_pos).all()
    assert log.sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()


def test_joints_come_in_the_robots_order_whatever_the_files(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    backwards = dict(reversed(motion.items()))
    assert (read_log(write(backwards), arm).joint_pos[:, 0] == motion["q1"]).all()


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_found(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"t{separator}q\n0{separator}1.5\n1{separator}2.5\n")
    assert read_csv(path).streams[0].columns["q"].tolist() == [1.5, 2.5]


def test_windows_lines_quotes_spaces_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b'\xef\xbb\xbf"t", "q [rad]"\r\n0, 1.5\r\n1, -2e-3\r\n')
    columns = read_csv(path).streams[0].columns
    assert list(columns) == ["t", "q [rad]"]
    assert columns["q [rad]"].tolist() == [1.5, -0.002]


def test_empty_cells_are_missing_and_text_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t,q,mode,on,none\n0,,auto,true,\n1,2,manual,false,\n2,nan,manual,true,\n")
    stream = read_csv(path).streams[0]
    assert np.isnan(stream.columns["q"][[0, 2]]).all()
    assert stream.columns["q"][1] == 2.0
    assert stream.columns["on"].tolist() == [1.0, 0.0, 1.0]
    assert np.isnan(stream.columns["none"]).all()
    assert stream.text == {"mode"}


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_numbers_survive_text(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.getbasetemp() / "law.csv"
    path.write_text("t,q\n" + "".join(f"{i},{value!r}\n" for i, value in enumerate(values)))
    assert read_csv(path).streams[0].columns["q"].tolist() == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("t,q\n", "0 rows"),
        ("t,q\n0,1\n", "1 rows, at least 2 are needed"),
        ("t,q\n0,1\n1,2,3\n", "not a table of 2 columns: .*[Ee]xpected 2 columns, got 3"),
        ("0,1\n1,2\n2,3\n", "the first line contains numbers"),
        ("t,q,q\n0,1,2\n1,2,3\n", "two columns 'q'"),
        ("t,,q\n0,1,2\n1,2,3\n", "column 2 of the header has no name"),
    ],
)
def test_malformed_tables_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(LogError, match=message):
        read_csv(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xff\xfe\x00\x01" * 100)
    with pytest.raises(LogError, match="not text"):
        read_csv(path)


def test_broken_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"t,q\n0,1\n1,2\n" * 1000)[:-20])
    with pytest.raises(LogError, match="not a complete gzip file"):
        read_csv(path)
    path.write_bytes(b"t,q\n0,1\n")
    with pytest.raises(LogError, match="not a complete gzip file"):
        read_csv(path)


def test_what_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_FILE_BYTES", 1000)
    large, bomb = tmp_path / "log.csv", tmp_path / "bomb.csv.gz"
    large.write_text("t,q\n" + "0,1\n" * 500)
    bomb.write_bytes(gzip.compress(b"0" * 100_000))
    assert bomb.stat().st_size < 1000
    with pytest.raises(LogError, match="more than 1000 bytes, the maximum for a recording"):
        read_csv(large)
    with pytest.raises(LogError, match="more than 1000 bytes when decompressed"):
        read_csv(bomb)


def test_too_many_rows_or_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text("t,q\n" + "0,1\n" * 500)
    monkeypatch.setattr(table_module, "MAX_ROWS", 499)
    with pytest.raises(LogError, match="500 rows and 2 columns; at most 499 rows"):
        read_csv(path)
    path.write_text(",".join(f"c{i}" for i in range(1025)) + "\n")
    with pytest.raises(LogError, match="1025 columns, at most 1024"):
        read_csv(path)


def test_decimal_commas_between_commas_are_named(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("t,q\n0,001,0,5\n0,002,0,6\n")
    with pytest.raises(LogError, match=r"numbers seem to have decimal commas, .* with semicolons between the columns"):
        read_csv(tmp_path / "r.csv")
    (tmp_path / "r.csv").write_text("t;q\n0,001;0,5\n0,002;0,6\n")
    assert read_csv(tmp_path / "r.csv").streams[0].columns["q"].tolist() == [0.5, 0.6]
    (tmp_path / "r.csv").write_text("t,q\n0.001,0.5,1\n")
    with pytest.raises(LogError, match="not a table of 2 columns") as caught:
        read_csv(tmp_path / "r.csv")
    assert "decimal commas" not in str(caught.value)
