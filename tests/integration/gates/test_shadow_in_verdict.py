"""`physai sim validate --shadow-evidence`: shadow runs stand in verdict and report as facts, bound to the record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.shadow_runs import shadow_of
from tests.support.vouching import VALIDATORS

from physai.gates.record import FOLDER, RecordError, rederive
from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.cli.main import main
from physai.sdk.evidence.shadow import save_shadow_evidence
from physai.sdk.evidence.verdict import Verdict, load_verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.service.client.remote_validation import validate
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, save_twin

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
Writer = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from physai.gates.checks import engine

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp")

    monkeypatch.setattr(engine, "load_engine", missing)


def outcomes(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(gate.gate, gate.outcome.value, gate.message) for gate in verdict.gates]


def test_shadow_runs_are_in_verdict_report_and_record_and_the_outcome_stays(
    write_policy: Writer,
    task: Task,
    credible_twin: Twin,
    bench: Any,
    evidence: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = write_policy()
    (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
    save_twin(credible_twin, tmp_path / "twin.json")
    (tmp_path / "gates.yaml").write_text(GATES)
    save_shadow_evidence(shadow_of(policy, task), tmp_path / "one.json")
    save_shadow_evidence(shadow_of(policy, task, run="2" * 32), tmp_path / "two.json")
    words = ["sim", "validate", str(policy), "--task", TASK, "--twin", str(tmp_path / "twin.json")]
    words += ["--gates", str(tmp_path / "gates.yaml"), "--latency", str(tmp_path / "ticks.json")]
    shadows = [str(tmp_path / "one.json"), str(tmp_path / "two.json")]
    code = main([*words, "--report", str(tmp_path / "report"), "--shadow-evidence", *shadows])
    line = (
        "2000 ticks after 4 starts; joint_effort_target up to 6.25 from what was sent; the guard would have changed 14 "
        "and stopped 2; 1 inputs beyond what was judged"
    )
    assert f"shadow    {line}" in capsys.readouterr().out
    assert f"shadow: {line}" in (tmp_path / "report" / "report.html").read_text()
    verdict = load_verdict(tmp_path / "report")
    assert main([*words, "--report", str(tmp_path / "without")]) == code
    assert outcomes(verdict) == outcomes(load_verdict(tmp_path / "without"))
    members = {POLICY_FILE: policy.read_bytes(), GOLDEN_FILE: (policy.parent / GOLDEN_FILE).read_bytes()}
    assert rederive(tmp_path / "report", members, task=TASK, replays=1, validators=VALIDATORS) == verdict
    recorded = tmp_path / "report" / FOLDER / f"shadow-{'2' * 32}.json"
    better = json.loads(recorded.read_text())
    better["stops"] = 0
    recorded.write_text(json.dumps(better))
    with pytest.raises(RecordError, match="differ in gate safety"):
        rederive(tmp_path / "report", members, task=TASK, replays=1, validators=VALIDATORS)


def test_evidence_of_other_bytes_is_refused_before_any_episode(
    write_policy: Writer, task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write_policy()
    save_shadow_evidence(shadow_of(policy, task, policy_sha256="5" * 64), tmp_path / "one.json")
    words = ["sim", "validate", str(policy), "--task", TASK, "--report", str(tmp_path / "report")]
    assert main([*words, "--shadow-evidence", str(tmp_path / "one.json")]) == 2
    assert f"is of the policy with SHA-256 {'5' * 64}, validated is" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_service_takes_no_shadow_evidence(write_policy: Writer, task: Task, tmp_path: Path) -> None:
    policy = write_policy()
    with pytest.raises(PhysaiError, match="`shadow` works without `server` only"):
        validate(policy, server="http://localhost:1", options=ValidationOptions(shadow=(shadow_of(policy, task),)))
