"""Grid of commands in the twin: a robot that only stands ignores all of them, and the verb prints them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.foreign.test_import import write

from physai.foreign import import_policy
from physai.gates import validate
from physai.gates.execution import command_grid as grid
from physai.gates.execution.command_grid import HEADINGS, commands_of, played_grid
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.main import main
from physai.sim import load_task
from physai.sim.policies.scripted import ScriptedPolicy


def test_a_robot_that_stands_ignores_every_direction_at_any_heading() -> None:
    task = load_task("velocity")
    found = played_grid(ScriptedPolicy(task.contract, "zero"), task, Path("policy.onnx"))
    assert [cell.command for cell in found.cells] == commands_of(task.contract)
    assert all(cell.falls == 0 and cell.episodes == HEADINGS for cell in found.cells)
    for cell in found.cells:
        assert cell.achieved is not None
        np.testing.assert_allclose(cell.achieved, 0.0, atol=0.02)
    assert [line for line in found.dead_zones if "at all" in line] == [
        "does not walk forwards at all, up to 1 m/s",
        "does not walk backwards at all, up to 1 m/s",
        "does not walk to the left at all, up to 0.5 m/s",
        "does not walk to the right at all, up to 0.5 m/s",
        "does not turn left at all, up to 1 rad/s",
        "does not turn right at all, up to 1 rad/s",
    ]


class Topples(ScriptedPolicy):
    """Stands if it is told to, and folds its legs otherwise; keeps the commands that it was shown."""

    def __call__(self, sensors: Any, commands: Any) -> Any:
        self.shown = commands["velocity_command"]
        targets = super().__call__(sensors, commands)
        moving = np.abs(self.shown).max(axis=1, keepdims=True) > 0.0
        return {name: np.where(moving, 3.0 * value, value).astype(np.float32) for name, value in targets.items()}


def test_a_robot_that_falls_when_it_is_commanded_is_told_so() -> None:
    task = load_task("velocity")
    policy = Topples(task.contract, "zero")
    found = played_grid(policy, task, Path("policy.onnx"))
    assert not found.cells[0].falls
    assert all(cell.falls == HEADINGS and cell.achieved is None for cell in found.cells[1:])
    assert found.dead_zones[0] == "falls when it is to walk forwards at 0.1, 0.25, 0.5, 0.75, 1 m/s"


@pytest.mark.slow
def test_the_verb_prints_every_command_and_what_is_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "LEVELS", (1.0,))
    run = import_policy(write(tmp_path / "policy", gain=0.0), model="go2", out=tmp_path / "run").folder
    assert main(["sim", "commands", str(run), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["cells"]) == 1 + 6 + 8
    assert record["dead_zones"]
    assert main(["sim", "commands", str(run)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\n".join(record["dead_zones"]) + "\n")
    assert "  1.00    0.00    0.00" in shown


@pytest.mark.slow
def test_the_report_of_a_validation_has_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "LEVELS", (1.0,))
    run = import_policy(write(tmp_path / "policy", gain=0.0), model="go2", out=tmp_path / "run").folder
    verdict = validate(run, report=tmp_path / "report")
    record = json.loads((tmp_path / "report" / "commands.json").read_text())
    assert record["fingerprint"] == verdict.contract_fingerprint
    assert len(record["cells"]) == 1 + 6 + 8
    assert f"<h2>Commands</h2><p>{record['dead_zones'][0]}" in (tmp_path / "report" / "report.html").read_text()


def test_a_policy_without_a_velocity_is_refused() -> None:
    task = load_task("track")
    with pytest.raises(PhysaiError, match="the task track has no command velocity_command of 3 numbers"):
        played_grid(ScriptedPolicy(task.contract, "zero"), task, Path("policy.onnx"))
