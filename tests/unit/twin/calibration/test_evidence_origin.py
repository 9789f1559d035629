"""Where recordings come from goes through the whole chain: into the twin's hash, the gates, the verdict."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.vouching import VALIDATOR, VALIDATORS, keep_keys

from physai.sdk.cli.main import main
from physai.sdk.evidence.origin import Origin
from physai.sdk.signing.evidence import is_vouched
from physai.sim.robots import load_robot
from physai.twin.calibration.stand_in.synthetic_robot import excite, stand_in, write_columns, write_recording
from physai.twin.logs import LogError, read_log
from physai.twin.logs.readers.table import ColumnStream, Table
from physai.twin.model.twin import load_twin, nominal_twin
from physai.twin.model.twin_file import LogRecord, Logs

STAND_IN = Origin(kind="stand-in", robot="cartpole")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short recordings of a stand-in."""
    folder, robot = tmp_path_factory.mktemp("stand-in"), load_robot("cartpole")
    for number in range(3):
        recording = excite(stand_in(robot, 0), duration_s=2.0, rate_hz=250.0, seed=number)
        write_recording(recording, robot, folder / f"{number}.csv")
    write_columns(robot, folder)
    return folder


def rewritten(recordings: Path, folder: Path, change: Callable[[list[str]], list[str]]) -> Path:
    """The first recording with other lines, its column map beside it."""
    lines = (recordings / "0.csv").read_text().splitlines()
    (folder / "columns.yaml").write_text((recordings / "columns.yaml").read_text())
    (folder / "0.csv").write_text("\n".join(change(lines)) + "\n")
    return folder / "0.csv"


def test_a_stand_ins_recording_says_so_in_every_row(recordings: Path) -> None:
    assert read_log(recordings / "0.csv", load_robot("cartpole").spec).origin == STAND_IN


def test_the_mark_survives_cutting_and_a_table_without_one_says_nothing(recordings: Path, tmp_path: Path) -> None:
    robot = load_robot("cartpole").spec
    cut = rewritten(recordings, tmp_path, lambda lines: [lines[0], *lines[100:200]])
    assert read_log(cut, robot).origin == STAND_IN
    bare = rewritten(recordings, tmp_path, lambda lines: [line.rpartition(",")[0] for line in lines])
    assert read_log(bare, robot).origin == Origin()


def test_the_mark_survives_conversion_to_parquet_and_json(recordings: Path, tmp_path: Path) -> None:
    from pyarrow import csv, parquet

    table = csv.read_csv(recordings / "0.csv")
    (tmp_path / "columns.yaml").write_text((recordings / "columns.yaml").read_text())
    parquet.write_table(table, tmp_path / "0.parquet")
    (tmp_path / "0.json").write_text(json.dumps(table.to_pylist()))
    for name in ("0.parquet", "0.json"):
        assert read_log(tmp_path / name, load_robot("cartpole").spec).origin == STAND_IN


def test_rows_that_say_less_make_it_doubtful(recordings: Path, tmp_path: Path) -> None:
    robot = load_robot("cartpole").spec

    def half(lines: list[str]) -> list[str]:
        return [*lines[:100], *(line.replace("stand-in cartpole", "robot cartpole/lab-1") for line in lines[100:])]

    assert read_log(rewritten(recordings, tmp_path, half), robot).origin.kind == "stand-in"

    def elsewhere(lines: list[str]) -> list[str]:
        return [line.replace("stand-in cartpole", "my desk") for line in lines]

    with pytest.raises(LogError, match="'my desk' is no origin"):
        read_log(rewritten(recordings, tmp_path, elsewhere), robot)


def test_no_origin_hides_behind_many(recordings: Path, tmp_path: Path) -> None:
    """Of a table with 16 robots and a stand-in, the stand-in is what counts."""

    def crowd(lines: list[str]) -> list[str]:
        named = [line.replace("stand-in cartpole", f"robot cartpole/{n:02}") for n, line in enumerate(lines[1:17])]
        return [lines[0], *named, *lines[17:]]

    with pytest.raises(LogError, match="more than 16 origins"):
        read_log(rewritten(recordings, tmp_path, crowd), load_robot("cartpole").spec)


def test_a_joined_file_does_not_vouch_for_the_others() -> None:
    def said(*origins: str) -> Origin:
        streams = tuple(ColumnStream(name="a.csv", columns={}, origins=frozenset({mark} - {""})) for mark in origins)
        return Table("a.csv", (), "0" * 64, streams).origin

    assert said("", "robot cartpole/lab-1").kind == "unknown"
    assert said("", "stand-in cartpole").kind == "stand-in"
    assert said("robot cartpole/lab-1", "robot cartpole/lab-1") == Origin(kind="robot", robot="cartpole/lab-1")


def calibrated(recordings: Path, out: Path, *options: str) -> int:
    logs = [str(path) for path in sorted(recordings.glob("*.csv"))]
    return main(["sim", "calibrate", "cartpole", *logs, "-o", str(out), "--time-budget-s", "2", *options])


def test_the_twin_keeps_it_and_its_hash_covers_it(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrated(recordings, tmp_path / "twin.json") in (0, 1)
    assert "from a stand-in for cartpole" in capsys.readouterr().out
    twin = load_twin(tmp_path / "twin.json")
    assert twin.origin == STAND_IN
    text = (tmp_path / "twin.json").read_text()
    (tmp_path / "twin.json").write_text(text.replace('"stand-in"', '"robot"'))
    assert main(["sim", "validate", str(tmp_path), "--twin", str(tmp_path / "twin.json")]) == 2
    with pytest.raises(Exception, match="modified after the calibration"):
        load_twin(tmp_path / "twin.json")


def test_nobody_calls_a_stand_in_a_robot(recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrated(recordings, tmp_path / "twin.json", "--recorded-on", "cartpole/lab-1") == 2
    assert "states that it is from a stand-in for cartpole" in capsys.readouterr().err
    assert not (tmp_path / "twin.json").exists()


def test_a_robots_recordings_are_named_by_who_calibrates(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And sign their twin, with the key that they have for verdicts."""
    for number in range(3):
        lines = (recordings / f"{number}.csv").read_text().splitlines()
        (tmp_path / f"{number}.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    (tmp_path / "columns.yaml").write_text((recordings / "columns.yaml").read_text())
    assert calibrated(tmp_path, tmp_path / "twin.json", "--recorded-on", "go2/one") == 2
    assert "the robot is a cartpole; give cartpole/UNIT" in capsys.readouterr().err
    assert calibrated(tmp_path, tmp_path / "twin.json", "--recorded-on", "cartpole/lab-1") in (0, 1)
    twin = load_twin(tmp_path / "twin.json")
    assert (twin.origin, twin.signature) == (Origin(kind="robot", robot="cartpole/lab-1"), None)
    assert "by nobody: gates take its origin for unknown" in capsys.readouterr().out
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keep_keys(tmp_path / "config")
    assert calibrated(tmp_path, tmp_path / "twin.json", "--recorded-on", "cartpole/lab-1") in (0, 1)
    twin = load_twin(tmp_path / "twin.json")
    assert is_vouched("twin", twin.signed_hash, twin.signature, VALIDATORS)
    assert f"signed  by {VALIDATOR.key_id[:16]}" in capsys.readouterr().out


def test_equal_twins_of_other_origin_have_other_hashes() -> None:
    twin = nominal_twin(load_robot("cartpole"))
    records = [
        LogRecord(name="a", sha256="a" * 64, origin=Origin(kind=kind, robot="cartpole"))
        for kind in ("robot", "stand-in", "unknown")
    ]
    twins = [replace(twin, logs=Logs(train=(record,))) for record in records]
    assert len({one.hash for one in twins}) == 3
    assert len({one.values.tobytes() for one in twins}) == 1
