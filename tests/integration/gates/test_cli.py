"""`physai sim validate` as a user meets it: files, exit codes, and refusals in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.cli.main import main
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.verdict import load_verdict
from physai.service.cli import play as play_cli
from physai.service.cli import validate
from physai.sim.tasks.registry import load_task
from physai.twin.logs import read_log
from physai.twin.model.twin import Twin, save_twin

Writer = Callable[..., Path]

GATES = """
engine: {episodes: 8}
falsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}
"""


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from physai.gates.checks import engine

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp: pip install warp-lang mujoco-warp")

    monkeypatch.setattr(engine, "load_engine", missing)


@pytest.fixture
def arguments(tmp_path: Path, credible_twin: Twin) -> list[str]:
    """Options of a quick validation of the pusher."""
    save_twin(credible_twin, tmp_path / "twin.json")
    (tmp_path / "gates.yaml").write_text(GATES)
    task = Path(__file__).parents[2] / "support" / "pusher_task.py"
    return [
        *("--twin", str(tmp_path / "twin.json"), "--gates", str(tmp_path / "gates.yaml"), "--task", str(task)),
        *("--report", str(tmp_path / "report")),
    ]


def run(words: list[str], module: Any = validate) -> int:
    parser = Parser(prog="physai")
    module.command.add_arguments(parser)
    return module.command.run(parser.parse(words))


def test_an_honest_policy_lacks_only_what_the_machine_lacks(
    write_policy: Writer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(write_policy()), *arguments]) == 2
    output, progress = capsys.readouterr()
    assert "INCONCLUSIVE: this policy must not be flashed yet" in output
    assert "engine: " in progress
    report = tmp_path / "report"
    assert {path.name for path in report.iterdir()} == {"verdict.json", "report.html", "junit.xml", "record"}
    verdict = load_verdict(report)
    assert {gate.gate for gate in verdict.gates if gate.outcome != "PASS"} == {"engine", "latency"}
    assert ElementTree.parse(report / "junit.xml").getroot().get("errors") == "2"
    assert "Not yet" in (report / "report.html").read_text()


def test_a_bad_policy_fails_and_can_be_watched(
    write_policy: Writer, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(write_policy(stiffness=-12.0)), *arguments, "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["outcome"] == "FAIL"
    success = next(gate for gate in verdict["gates"] if gate["gate"] == "success")
    assert success["cause"] == "policy"
    number = success["counterexample"]["index"]
    assert (tmp_path / "report" / success["counterexample"]["recording"]).is_file()
    film = tmp_path / "film.mp4"
    task = arguments[arguments.index("--task") + 1]
    words = [str(tmp_path / "report"), "--counterexample", str(number), "--task", task, "--video", str(film)]
    assert run([*words, "--json"], play_cli) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["judged"], shown["succeeded"]) == (1, 0)
    assert film.stat().st_size > 1000
    assert shown["episodes"][0]["seed"] == success["counterexample"]["episode_seed"]


def test_a_report_lies_beside_the_policy_by_default(write_policy: Writer, arguments: list[str]) -> None:
    path = write_policy()
    assert run([str(path.parent), *arguments[:-2]]) == 2
    assert (path.parent / "validation" / "verdict.json").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "--seed must lie in 0"),
        (["--jobs", "0"], "--jobs must be in 1 … 256, got 0"),
        (["--twin", "nowhere.json"], "cannot read twin nowhere.json"),
        (["--gates", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--baseline", "nowhere.onnx"], "nowhere.onnx is neither a run folder nor an exported policy"),
        (["--latency", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--task", "no-such-task"], "no task named 'no-such-task'"),
        (["--report", "/proc/nowhere"], "report folder /proc/nowhere cannot be written"),
        (["--twim", "x"], "no option --twim; did you mean --twin"),
    ],
)
def test_bad_options_are_refused(write_policy: Writer, arguments: list[str], words: list[str], message: str) -> None:
    with pytest.raises(PhysaiError, match=message):
        run([str(write_policy()), *arguments, *words])


def test_policies_that_are_none_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(PhysaiError, match="contains no exported policy"):
        run([str(tmp_path), *arguments])
    (tmp_path / "policy.onnx").write_bytes(b"nothing")
    with pytest.raises(PhysaiError, match="not an ONNX model"):
        run([str(tmp_path), *arguments])


def test_a_twin_that_was_tampered_with_is_refused(write_policy: Writer, arguments: list[str], tmp_path: Path) -> None:
    text = (tmp_path / "twin.json").read_text()
    (tmp_path / "twin.json").write_text(text.replace('"value":2.1', '"value":2.2'))
    with pytest.raises(PhysaiError, match="was modified after the calibration"):
        run([str(write_policy()), *arguments])


def test_a_policy_for_another_robot_fails_its_contract(
    write_policy: Writer, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(write_policy()), *arguments[:2], "--task", "cartpole-swingup", *arguments[-2:]]
    assert run(words) == 1
    output = capsys.readouterr().out
    assert "robot.joints" in output
    assert "the twin's robot has the joints rail" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--counterexample", "9"], "has no counterexample 9; it has none"),
        (["--counterexample", "1", "--agent", "zero"], "omit --agent"),
        (["--counterexample", "1", "--record", "x.mcap"], "omit --record"),
    ],
)
def test_counterexamples_that_are_not_there_are_refused(
    write_policy: Writer, arguments: list[str], tmp_path: Path, words: list[str], message: str
) -> None:
    if not (tmp_path / "report" / "verdict.json").is_file():
        run([str(write_policy()), *arguments])
    with pytest.raises(PhysaiError, match=message):
        run([str(tmp_path / "report"), *words], play_cli)


def test_a_recording_of_the_twin_is_a_stand_ins(write_policy: Callable[..., Path], tmp_path: Path) -> None:
    """`physai play --record` writes what `physai sim calibrate` reads."""
    file, task = tmp_path / "played.mcap", str(Path(__file__).parents[2] / "support" / "pusher_task.py")
    assert main(["play", str(write_policy()), "--task", task, "--record", str(file), "--episodes", "1"]) == 0
    assert read_log(file, load_task(task).robot.spec).origin.kind == "stand-in"
