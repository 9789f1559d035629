"""`physai sim closed-loop` from recordings, policy and twin on disk to the record, the page and the exit code."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.closed_loop_runs import HiddenRobot, recorded_runs_of
from tests.support.fixtures_gates import TASK_FILE, spring_policy
from tests.support.vouching import VALIDATORS, keep_keys, vouched_twin

from physai.sdk.cli.main import main
from physai.sdk.signing.evidence import is_vouched
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.twin.calibration.stand_in.synthetic_robot import SyntheticRecording, write_columns, write_recording
from physai.twin.model.twin import Twin, load_twin, moved_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import FittedParameter, SensorNoise, Timing

TASK = load_task(str(TASK_FILE))
TRUTH = HiddenRobot(values={"cart.mass": 2.1, "rail.friction": 1.0})


def twin(mass: float) -> Twin:
    fitted = [("cart.mass", "kg", mass, 0.02), ("rail.friction", "N", 1.0, 0.02)]
    return replace(
        nominal_twin(TASK.robot),
        parameters=tuple(
            FittedParameter(
                name=name,
                unit=unit,
                prior=1.0,
                prior_std=1.0,
                lower=0.0,
                upper=9.0,
                value=value,
                std=std,
                identified=True,
            )
            for name, unit, value, std in fitted
        ),
        covariance=np.diag([0.02**2, 0.02**2]),
        noise=SensorNoise(joint_pos_std=(0.002,), joint_vel_std=(0.02,)),
        timing=Timing(command_lag_mean_s=0.015, command_lag_p99_s=0.02),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy, six recordings of it, and another policy."""
    folder = tmp_path_factory.mktemp("closed_loop")
    data = spring_policy(TASK, stiffness=40.0, damping=4.0)
    (folder / "policy.onnx").write_bytes(data)
    (folder / "other.onnx").write_bytes(spring_policy(TASK, stiffness=30.0, damping=4.0))
    for number, log in enumerate(recorded_runs_of(TASK, OnnxPolicy(data, source="p"), TRUTH, 6, seed=2)):
        assert log.joint_vel is not None
        recording = SyntheticRecording(
            time=log.time,
            command=log.command,
            joint_pos=log.joint_pos,
            joint_vel=log.joint_vel,
            joint_effort=log.command,
        )
        write_recording(recording, TASK.robot, folder / f"run{number}.csv")
    write_columns(TASK.robot, folder)
    return folder


def run(folder: Path, twin_file: Path, *more: str, policy: str = "policy.onnx") -> int:
    logs = [str(path) for path in sorted(folder.glob("run*.csv"))]
    options = ["--task", str(TASK_FILE), "--draws", "90", *more]
    return main(["sim", "closed-loop", str(twin_file), str(folder / policy), *logs, *options])


@pytest.mark.parametrize("signed", [True, False])
def test_a_test_vouches_for_no_twin_of_unknown_origin(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signed: bool
) -> None:
    """Else who edits a twin lets the validator test it, and has it signed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keep_keys(tmp_path / "config")
    (tmp_path / "out").mkdir()
    made = moved_twin(twin(2.1), tmp_path)
    save_twin(vouched_twin(made) if signed else made, tmp_path / "twin.json")
    run(folder, tmp_path / "twin.json", "-o", str(tmp_path / "out" / "twin.json"))
    tested = load_twin(tmp_path / "out" / "twin.json")
    assert len(tested.closed_loop) == 1
    assert is_vouched("twin", tested.signed_hash, tested.signature, VALIDATORS) is signed
    assert ("not signed: no validator that you trust signed this twin" in capsys.readouterr().err) is not signed


def test_a_right_twin_gets_a_record_and_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "twin.json"
    save_twin(twin(2.1), file)
    before = load_twin(file).hash
    assert run(folder, file, "--report", str(tmp_path / "report"), "--json") == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "reproduced"
    assert [test["name"] for test in printed["tests"]][:3] == ["success", "time", "trajectories"]
    tested = load_twin(file)
    assert tested.hash == printed["hash"] != before == tested.open_loop_hash
    assert tested.evidence_kinds == ("closed loop",)
    assert {log.origin.kind for log in tested.closed_loop[0].logs} == {"stand-in"}
    page = (tmp_path / "report" / "closed-loop.html").read_text()
    assert "Reproduced" in page
    assert len(re.findall("<svg", page)) == 3
    assert "<script" not in page
    # 6 recorded runs and 30 of the twin's in one plot.
    assert page.count("<polyline") == 36


def test_a_wrong_twin_is_contradicted_in_another_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "twin.json", tmp_path / "tested.json"
    save_twin(twin(1.3 * 2.1), file)
    assert run(folder, file, "-o", str(output)) == 1
    printed = capsys.readouterr().out
    assert "contradicted" in printed
    assert "in brackets: for information" in printed
    assert load_twin(file).closed_loop == ()
    assert "contradicted" in load_twin(output).credible().reasons[0]


def test_another_policy_writes_nothing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twin.json"
    save_twin(twin(2.1), file)
    assert run(folder, file, policy="other.onnx") == 2
    assert "is not what drove the robot in these recordings" in capsys.readouterr().err
    assert load_twin(file).closed_loop == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--draws", "10"), "the number of draws must be 90 to 10000, got 10"),
        (("--length-s", "nan"), "expected a finite number"),
        (("--length-s", "0.001"), "longer than a control period"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_bad_options_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "twin.json"
    save_twin(twin(2.1), file)
    assert run(folder, file, *options) == 2
    assert message in capsys.readouterr().err


def test_a_fitted_recording_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from physai.twin.logs import read_log
    from physai.twin.model.twin_file import LogRecord, Logs

    log = read_log(folder / "run0.csv", TASK.robot.spec)
    file = tmp_path / "twin.json"
    save_twin(replace(twin(2.1), logs=Logs(train=(LogRecord(name="mine", sha256=log.sha256),))), file)
    assert run(folder, file) == 2
    assert "log run0 was fitted (as mine)" in capsys.readouterr().err
