"""`physai demo` from end to end, every verb in a process of its own."""

import json
from pathlib import Path

import pytest

from physai.sdk.bundle import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.contract_io import load_contract


@pytest.mark.slow
def test_the_demo_leaves_a_policy_a_curve_and_a_film(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo", "--task", "cartpole-swingup", "--time-budget-s", "5", "--episodes", "8", "--json"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    printed = capfd.readouterr()
    summary = json.loads(printed.out)
    policy = Path(summary["policy"])
    assert policy == tmp_path / "cartpole-swingup" / "export" / "policy.onnx"
    assert summary["fingerprint"] == load_contract(policy).fingerprint
    assert summary["task"] == "cartpole-swingup"
    assert summary["judged"] == 8
    assert summary["success"] == summary["succeeded"] / 8
    lower, upper = summary["success_interval_95"]
    assert 0.0 <= lower <= summary["success"] <= upper <= 1.0
    assert Path(summary["learning_curve"]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert summary["verdict"] in ("PASS", "FAIL", "INCONCLUSIVE")
    assert summary["gates"]["twin"] == "PASS", "the twin of the stand-in is credible"
    assert Path(summary["report"]).is_file()
    assert read_bundle(Path(summary["bundle"])).manifest.task == "cartpole-swingup"
    # A policy of five seconds is no good, and the robot gets none that has not passed.
    assert summary["robot"].startswith("took it" if summary["verdict"] == "PASS" else "refuses it")
    if summary["film"] is None:
        assert "no film: " in printed.err, "a machine without OpenGL says why there is no film"
    else:
        assert Path(summary["film"]).read_bytes()[4:8] == b"ftyp", "an MP4 file"


@pytest.mark.parametrize("budget", ["0", "-5", "nan"])
def test_a_budget_that_is_no_time(budget: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--time-budget-s", budget, "--out", str(tmp_path)]) == 2
    assert "--time-budget-s must be a positive number of seconds" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
