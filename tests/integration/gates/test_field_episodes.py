"""`physai sim validate --field`: the robot's rate is in verdict and report, and decides nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.vouching import VALIDATORS

from physai.gates.record import FOLDER, RecordError, rederive
from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.field_episodes import FieldEpisode, FieldEpisodes, save_field_episodes
from physai.sdk.evidence.verdict import Verdict, load_verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.stats.prediction_powered import prediction_powered_interval
from physai.service.cli import validate
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, save_twin

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
MOST = 320
"""Episodes of the gate `success` by default."""
Writer = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from physai.gates.checks import engine

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp")

    monkeypatch.setattr(engine, "load_engine", missing)


def field_of(policy: Path, task: Task, *, failures: int, **changes: Any) -> FieldEpisodes:
    """50 episodes of a policy of which the first ones fail, on the robot and in their replays but for one of each."""
    robot = np.arange(50) >= failures
    replay = np.roll(robot, 1)
    usual: dict[str, Any] = {
        "policy_sha256": sha256_hex(policy.read_bytes()),
        "contract_fingerprint": task.contract.fingerprint,
        "robot": "pusher/cell-3",
    }
    episodes = tuple(
        FieldEpisode(
            episode=f"e{number}",
            segment="scheduled",
            success=bool(robot[number]),
            replay_success=bool(replay[number]),
            recording_sha256=f"{number:064x}",
        )
        for number in range(50)
    )
    return FieldEpisodes(**{**usual, **changes}, episodes=episodes)


@pytest.fixture
def run(tmp_path: Path, credible_twin: Twin, evidence: Any, bench: Any) -> Callable[..., tuple[int, Verdict]]:
    """Validates a policy with field episodes, or without, into `report` or another folder."""

    def run(policy: Path, field: FieldEpisodes | None = None, report: str = "report") -> tuple[int, Verdict]:
        save_twin(credible_twin, tmp_path / "twin.json")
        (tmp_path / "gates.yaml").write_text(GATES)
        words = [str(policy), "--task", TASK, "--twin", str(tmp_path / "twin.json"), "--report", str(tmp_path / report)]
        (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
        words += ["--gates", str(tmp_path / "gates.yaml"), "--latency", str(tmp_path / "ticks.json")]
        if field is not None:
            save_field_episodes(field, tmp_path / "field.json")
            words += ["--field", str(tmp_path / "field.json")]
        parser = Parser(prog="physai")
        validate.command.add_arguments(parser)
        code = validate.command.run(parser.parse(words))
        return code, load_verdict(tmp_path / report)

    return run


def outcomes(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(gate.gate, gate.outcome.value, gate.message) for gate in verdict.gates]


def test_the_rate_is_in_verdict_and_report_and_the_outcome_stays(
    write_policy: Writer, task: Task, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write_policy()
    code, verdict = run(policy, field := field_of(policy, task, failures=3))
    output = capsys.readouterr().out
    success = next(gate for gate in verdict.gates if gate.gate == "success")
    named = {one.name: one for one in success.measured}
    twin = np.arange(MOST) < round(named["success_rate.twin"].value * MOST)
    pairs = np.array([(one.success, one.replay_success) for one in field.episodes])
    found = prediction_powered_interval(pairs[:, 0], pairs[:, 1], twin)
    assert success.measured[0].name == "success_rate"
    rate = named["success_rate.field"]
    assert (rate.value, rate.lower, rate.upper) == pytest.approx((found.rate, *found.interval))
    assert named["field_correlation"].value == found.correlation.value
    assert (success.episodes, success.seeds[0].count) == (MOST, MOST)
    assert f"Field episodes of pusher/cell-3, SHA-256 {field.sha256}, inform only." in success.method
    line = f"47 of 50, replays agree ρ = {found.correlation.value:.2f} ["
    assert f"field     {line}" in output
    assert f"field: {line}" in (tmp_path / "report" / "report.html").read_text()
    without_code, without = run(policy, report="without")
    assert (code, outcomes(verdict)) == (without_code, outcomes(without))
    members = {POLICY_FILE: policy.read_bytes(), GOLDEN_FILE: (policy.parent / GOLDEN_FILE).read_bytes()}
    assert rederive(tmp_path / "report", members, task=TASK, replays=1, validators=VALIDATORS) == verdict
    recorded = tmp_path / "report" / FOLDER / "field.json"
    better = json.loads(recorded.read_text())
    better["episodes"][0]["success"] = True
    recorded.write_text(json.dumps(better))
    with pytest.raises(RecordError, match="differ in gate success"):
        rederive(tmp_path / "report", members, task=TASK, replays=1, validators=VALIDATORS)


def test_a_policy_that_fails_in_its_twin_does_not_pass_by_field_episodes(
    write_policy: Writer, task: Task, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write_policy(stiffness=-12.0)
    code, verdict = run(policy, field_of(policy, task, failures=0))
    assert code == 1
    assert next(gate for gate in verdict.gates if gate.gate == "success").outcome == "FAIL"
    assert (
        "field     50 of 50, ρ unknown: robot or replays always did the same, rate 1.00 [0.93, 1.00] from the robot"
        in (capsys.readouterr().out)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy_sha256": "5" * 64}, f"with SHA-256 {'5' * 64}, validated is [0-9a-f]{{64}}"),
        ({"contract_fingerprint": "6" * 64}, f"under the contract {'6' * 64}, the policy has [0-9a-f]{{64}}"),
        ({"robot": "ur10e/cell-3"}, "of the robot ur10e/cell-3, the policy is for pusher"),
    ],
)
def test_episodes_of_something_else_are_refused_before_any_is_played(
    write_policy: Writer, task: Task, run: Any, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    policy = write_policy()
    with pytest.raises(PhysaiError, match=words):
        run(policy, field_of(policy, task, failures=3, **changes))
    assert {path.name for path in (tmp_path / "report").iterdir()} == {".state"}
    assert not list((tmp_path / "report" / ".state").glob("*.npz"))


def test_a_service_takes_no_field_episodes(write_policy: Writer, task: Task, tmp_path: Path) -> None:
    policy = write_policy()
    save_field_episodes(field_of(policy, task, failures=3), tmp_path / "field.json")
    parser = Parser(prog="physai")
    validate.command.add_arguments(parser)
    words = [str(policy), "--server", "http://localhost:1", "--field", str(tmp_path / "field.json")]
    with pytest.raises(PhysaiError, match="--field works without --server only"):
        validate.command.run(parser.parse(words))
