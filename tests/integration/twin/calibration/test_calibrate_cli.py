"""`physai sim calibrate` and `physai sim replay` as a user meets them: bad input, Ctrl-C, the report."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.chromium import chromium, needs_chromium

from physai.sdk.cli.main import main
from physai.sim.robots import Robot
from physai.twin.logs import RobotLog
from physai.twin.model.twin import load_twin

Array = NDArray[np.float64]
Recorder = Callable[..., RobotLog]

COLUMNS = """\
time: t
command_kind: joint_effort
joints:
  hinge: {joint_pos: q, joint_vel: v, joint_effort: e, command: u}
"""
TRUTH = {"hinge.friction": 0.35, "hinge.damping": 0.2, "arm.com_z": -0.46}


def write(log: RobotLog, file: Path, **changes: Array) -> Path:
    assert log.joint_vel is not None
    assert log.joint_effort is not None
    columns = {"t": log.time, "q": log.joint_pos[:, 0], "v": log.joint_vel[:, 0]}
    columns |= {"e": log.joint_effort[:, 0], "u": log.command[:, 0]} | changes
    np.savetxt(file, np.stack(list(columns.values()), axis=1), delimiter=",", header=",".join(columns), comments="")
    return file


class Bench:
    """A folder with a robot, its column map and recordings of it."""

    def __init__(self, robot: Robot, record: Recorder, folder: Path) -> None:
        self.robot, self.folder = str(robot.path), folder
        (folder / "columns.yaml").write_text(COLUMNS)
        self.log = record(robot, TRUTH, seed=1, seconds=6.0)
        self.files = [str(write(self.log, folder / "0.csv"))]
        for number in (1, 2, 3):
            made = record(robot, TRUTH, seed=1 + number, seconds=6.0, name=f"log{number}")
            self.files.append(str(write(made, folder / f"{number}.csv")))

    def calibrate(self, *arguments: str) -> int:
        return main(["sim", "calibrate", self.robot, *arguments, "-o", str(self.folder / "twin.json")])


@pytest.fixture(scope="module")
def bench(pendulum: Robot, record: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(pendulum, record, tmp_path_factory.mktemp("bench"))


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def test_a_twin_from_start_to_end(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.calibrate(*bench.files, "--report", str(bench.folder / "report"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["credible"]
    assert set(found["held_out"]["rmse"]) == {"hinge"}
    assert found["held_out"]["rmse"]["hinge"]["value"] < found["held_out_nominal"]["rmse"]["hinge"]["value"]
    for name, value in TRUTH.items():
        fitted = found["parameters"][name]
        assert abs(fitted["value"] - value) < 4.0 * fitted["std"], name
    twin = bench.folder / "twin.json"
    assert load_twin(twin).hash == found["hash"]
    page = (bench.folder / "report" / "report.html").read_text()
    assert "Is this twin credible?" in page
    assert "http" not in page.replace("http-equiv", ""), "nothing to load"

    assert main(["sim", "replay", str(twin), bench.files[0], "--against", bench.robot, "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["rmse.hinge"]["lo"] < scored["rmse.hinge"]["value"] < scored["rmse.hinge"]["hi"]
    assert scored["against"]["excess.hinge"]["lo"] > 0.0
    assert scored["against"]["apart.hinge"] is True
    assert main(["sim", "replay", str(twin), bench.files[0], "--against", bench.robot]) == 0
    assert "apart" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_on_ray_it_is_the_same_twin(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    found: list[dict[str, Any]] = []
    for options in ([], ["--ray", "local"]):
        bench.calibrate(*bench.files, "--budget-steps", "100000", "--json", *options)
        capsys.readouterr()
        found.append(json.loads((bench.folder / "twin.json").read_text()))
    assert len(found[0]["residuals"]["alternatives"]) > 2
    assert found[0] == found[1]


@pytest.mark.slow
def test_what_it_says_while_it_fits_and_at_its_end(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.calibrate(*bench.files) == 0
    said = capsys.readouterr()
    assert re.search(r"^fitting \d+ parameters to short windows$", said.err, re.MULTILINE)
    assert re.search(r"^fitting \d+ parameters to whole windows$", said.err, re.MULTILINE)
    known, total = (int(count) for count in re.findall(r"^(\d+) of (\d+) parameters", said.out, re.MULTILINE)[0])
    assert f"the other {total - known} keep their nominal values; --report DIR lists them" in said.out
    # A tenth of how far the hinge moves, in the last column.
    bound = next(line for line in said.out.splitlines() if line.lstrip().startswith("held out, 2 logs")).split()[-1]
    assert float(bound) > 0.01
    last = said.out.splitlines()[-1]
    assert last.startswith("credible: every joint's held-out replay error is within its bound; command lag"), last


@pytest.mark.slow
@needs_chromium
def test_the_report_fits_a_phone(bench: Bench, tmp_path: Path) -> None:
    """Nothing is cut off: what lies beyond the edge of a chart would read as a chart that shows nothing."""
    bench.calibrate(*bench.files, "--budget-steps", "100000", "--report", str(tmp_path))
    with chromium() as browser:
        narrow = {"width": 420, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        browser.get((tmp_path / "report.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") == 420
        charts = browser.execute_script(
            "return [...document.querySelectorAll('svg')].map((one) => one.getBoundingClientRect().right)"
        )
        assert len(charts) > 4
        assert max(charts) <= 420


def damaged(bench: Bench, tmp_path: Path, **changes: Callable[[Array], Array]) -> str:
    (tmp_path / "columns.yaml").write_text(COLUMNS)
    log = bench.log
    assert log.joint_vel is not None
    plain = {"t": log.time.copy(), "q": log.joint_pos[:, 0].copy(), "v": log.joint_vel[:, 0].copy()}
    return str(write(log, tmp_path / "damaged.csv", **{name: change(plain[name]) for name, change in changes.items()}))


def with_nan(column: Array) -> Array:
    column[77] = np.nan
    return column


def unsorted(column: Array) -> Array:
    column[[100, 101]] = column[[101, 100]]
    return column


def still(column: Array) -> Array:
    """Within 3 mrad."""
    return 0.003 * column / np.abs(column).max()


BAD: dict[str, tuple[dict[str, Callable[[Array], Array]], str]] = {
    "a value that is not a number": ({"q": with_nan}, "sample 77"),
    "unsorted time": ({"t": unsorted}, "time"),
    "no motion": ({"q": still, "v": still}, "nothing moves"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_recording_is_refused_in_one_line(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    changes, word = BAD[name]
    assert bench.calibrate(damaged(bench, tmp_path, **changes)) == 2
    assert word in only_line(capsys).lower()


def test_a_missing_column_is_named(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(damaged(bench, tmp_path))
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0].replace(",e,", ",other,"), *lines[1:]]))
    assert bench.calibrate(str(file)) == 2
    assert "'e'" in only_line(capsys)


def test_degrees_are_noticed_by_the_limits(
    pendulum: Robot, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = tmp_path / "limited.xml"
    text = pendulum.path.read_text()
    limited.write_text(text.replace('type="hinge"', 'type="hinge" range="-180 180"'))
    file = damaged(bench, tmp_path, q=np.degrees)
    assert main(["sim", "calibrate", str(limited), file, "-o", str(tmp_path / "twin.json")]) == 2
    assert "degree" in only_line(capsys)


@pytest.mark.slow
def test_an_unfit_recording_is_left_out_and_the_others_are_used(
    pendulum: Robot, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = tmp_path / "limited.xml"
    limited.write_text(pendulum.path.read_text().replace('type="hinge"', 'type="hinge" range="-180 180"'))
    in_degrees = damaged(bench, tmp_path, q=np.degrees)
    words = ["-o", str(tmp_path / "twin.json"), "--time-budget-s", "5", "--json"]
    assert main(["sim", "calibrate", str(limited), in_degrees, *bench.files[:2], *words]) in (0, 1)
    captured = capsys.readouterr()
    assert captured.err.startswith(f"left out: {in_degrees}: ")
    assert "degree" in captured.err
    assert load_twin(tmp_path / "twin.json").robot


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--window-s", "9"), "--window-s must lie in"),
        (("--window-s", "nan"), "argument --window-s: expected a finite number, got 'nan'"),
        (("--seed", "-1"), "--seed"),
        (("--num-threads", "-1"), "--num-threads must lie in 0 … 4096, got -1"),
        (("--budget-steps", "0"), "physics steps, got 0"),
        (("--budget-steps", "many"), "argument --budget-steps"),
        (("--time-budget-s", "0"), "time budget"),
        (("--time-budget-s", "nan"), "argument --time-budget-s: expected a finite number, got 'nan'"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    bench: Bench, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], word: str
) -> None:
    assert bench.calibrate(*bench.files, *arguments) == 2
    assert word in only_line(capsys)


def test_a_recording_shorter_than_a_window_is_refused(
    bench: Bench, pendulum: Robot, record: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "columns.yaml").write_text(COLUMNS)
    file = write(record(pendulum, TRUTH, seed=1, seconds=3.0), tmp_path / "short.csv")
    assert bench.calibrate(str(file), "--window-s", "4") == 2
    assert "no window of 4 s" in only_line(capsys)


def test_a_held_out_recording_must_be_new(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.calibrate(bench.files[0], "--held-out", bench.files[0]) == 2
    assert "the same recording" in only_line(capsys)


def test_no_folder_and_no_twin(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "calibrate", bench.robot, *bench.files, "-o", str(tmp_path / "no" / "twin.json")]) == 2
    assert "does not exist" in only_line(capsys)
    corrupted = tmp_path / "twin.json"
    corrupted.write_text('{"format_version": 1}')
    assert main(["sim", "replay", str(corrupted), bench.files[0]]) == 2
    assert str(corrupted) in only_line(capsys)
    assert main(["sim", "replay", bench.robot, bench.files[0], "--seed", "-3"]) == 2
    assert "--seed" in only_line(capsys)


def test_recordings_of_another_robot_are_refused(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "replay", "cartpole", bench.files[0]]) == 2
    only_line(capsys)


@pytest.mark.slow
def test_interrupted_it_keeps_the_best_so_far(pendulum: Robot, record: Recorder, tmp_path: Path) -> None:
    """A real process, a real SIGINT while it fits."""
    (tmp_path / "columns.yaml").write_text(COLUMNS)
    files = [
        str(write(record(pendulum, TRUTH, seed=9 + n, seconds=20.0, every=1), tmp_path / f"{n}.csv")) for n in (0, 1)
    ]
    twin, marker = tmp_path / "twin.json", tmp_path / "fitting"
    script = (
        "import signal, sys, time; from physai.twin.calibration.fit import fit; from physai.sdk.cli.main import main\n"
        # A shell's background jobs, and a test run in one, are born ignoring SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "call = fit._Monitor.__call__\n"
        "def told(self, evaluation):\n"
        f"    open({str(marker)!r}, 'w').close(); call(self, evaluation)\n"
        # The fit must not be over before the signal has come; of its evaluations, 18, the fifth is in the midst.
        "    while self.evaluations == 5: time.sleep(0.02)\n"
        "fit._Monitor.__call__ = told\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["sim", "calibrate", str(pendulum.path), *files, "-o", str(twin), "--budget-steps", "1000000000"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while process.poll() is None and not marker.exists():
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=600.0)
    finally:
        process.kill()
    assert process.returncode in (0, 1), err
    assert "it was interrupted" in out
    assert any("interrupted" in note for note in load_twin(twin).notes)
    assert "Traceback" not in err
