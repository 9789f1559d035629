"""The promise: what learned the public episodes by heart passes no exam, and a verdict says which of both it is of."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.fixtures_gates import TASK_FILE
from tests.support.memoriser import first_readings, memoriser
from tests.support.vouching import VALIDATOR, VALIDATORS

from physai.gates.checks.gate import Context
from physai.gates.checks.success import SuccessGate
from physai.gates.record import FOLDER, RecordError, rederive
from physai.sdk.base.errors import MissingExtraError
from physai.sdk.cli.main import main
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome, load_verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.ed25519 import PublicKey, SigningKey
from physai.sdk.signing.exam import Exam, ExamError, load_exam, open_exam
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, save_twin
from physai.twin.rollouts.batch import VERDICT_STREAM, seeds_of, stream_seed

Writer = Callable[..., Path]
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
NOW = datetime(2026, 11, 28, tzinfo=UTC)
EPISODES = 1000


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from physai.gates.checks import engine

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp")

    monkeypatch.setattr(engine, "load_engine", missing)


def in_exam(context: Context, exam: Exam | None) -> Context:
    return replace(context, subject=replace(context.subject, exam=exam))


def test_a_graph_that_knows_a_thousand_episodes_by_heart_is_blocked(
    bench: Any, write_policy: Writer, task: Task, find: Any, tmp_path: Path
) -> None:
    honest = bench.context(write_policy())
    seeds = seeds_of(stream_seed(VERDICT_STREAM, 0), 0, EPISODES)
    condition = (
        honest.conditions["nominal"] if "nominal" in honest.conditions else next(iter(honest.conditions.values()))
    )
    table = first_readings(honest.subject, condition, seeds)
    assert table.shape == (EPISODES, 2)
    crafted = bench.context(write_policy("crafted", data=memoriser(task, table, task_file=str(TASK_FILE))))
    # In rehearsals nothing tells the two apart.
    assert find(SuccessGate(), honest).outcome is VerdictOutcome.PASS
    assert find(SuccessGate(), crafted).outcome is VerdictOutcome.PASS
    for context, outcome in ((honest, VerdictOutcome.PASS), (crafted, VerdictOutcome.FAIL)):
        exam = open_exam(context.examined, VALIDATOR, tmp_path / "journal", now=NOW)
        assert find(SuccessGate(), in_exam(context, exam)).outcome is outcome


@pytest.fixture
def examined(
    write_policy: Writer, credible_twin: Twin, evidence: Any, bench: Any, tmp_path: Path, capsys: Any
) -> tuple[Path, Path]:
    """A policy and the report of its exam, opened and played as a user does."""
    policy, exam = write_policy(), tmp_path / "exam.json"
    save_twin(credible_twin, tmp_path / "twin.json")
    (tmp_path / "gates.yaml").write_text(GATES)
    (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
    of = [str(policy), "--task", str(TASK_FILE), "--twin", f"{tmp_path}/twin.json", "--gates", f"{tmp_path}/gates.yaml"]
    for _ in range(2):
        assert main(["sim", "exam", "open", *of, "-o", str(exam), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["number"] == 2
    played = ["--exam", str(exam), "--latency", f"{tmp_path}/ticks.json", "--report", f"{tmp_path}/report"]
    # The engine gate has no second engine here.
    assert main(["sim", "validate", *of, *played]) == 2
    assert "episodes  exam 2 of 2" in capsys.readouterr().out
    assert main(["sim", "validate", str(write_policy("other", stiffness=11.0)), *of[1:], *played]) == 2
    assert "the exam was opened for the policies policy" in capsys.readouterr().err
    return policy, tmp_path / "report"


def derived(policy: Path, report: Path, *, validators: tuple[PublicKey, ...] = VALIDATORS) -> Verdict:
    members = {name: (policy.parent / name).read_bytes() for name in (POLICY_FILE, GOLDEN_FILE)}
    return rederive(report, members, task=str(TASK_FILE), replays=1, validators=validators)


@pytest.mark.slow
def test_an_exam_is_played_and_signed(examined: tuple[Path, Path], tmp_path: Path) -> None:
    policy, report = examined
    verdict = load_verdict(report)
    exam = load_exam(tmp_path / "exam.json")
    assert verdict.exam == exam.facts
    used = {int(ranged.stream) for gate in verdict.gates for ranged in gate.seeds}
    assert exam.seed(VERDICT_STREAM) in used
    assert stream_seed(VERDICT_STREAM, 0) not in used
    assert derived(policy, report) == verdict
    # Of a stranger's exam, nobody knows how often it was opened.
    stranger = SigningKey.generate()
    with pytest.raises(RecordError, match="no validator that you trust"):
        derived(policy, report, validators=(stranger.public_key("validator"),))
    kept = report / FOLDER / "exam.json"
    other = open_exam(exam.predicate.subject, stranger, tmp_path / "journal", now=NOW)
    kept.write_bytes(other.encode())
    with pytest.raises(ExamError, match="no validator that you trust"):
        derived(policy, report)
    of_others = exam.predicate.subject.model_copy(update={"policies": {"policy": "0" * 64}})
    kept.write_bytes(open_exam(of_others, VALIDATOR, tmp_path / "journal", now=NOW).encode())
    with pytest.raises(ExamError, match="opened for the policies policy 000000000000"):
        derived(policy, report)
    # One of the same policy, but not the one that was played.
    kept.write_bytes(open_exam(exam.predicate.subject, VALIDATOR, tmp_path / "journal", now=NOW).encode())
    with pytest.raises(RecordError, match="episodes of the run are missing"):
        derived(policy, report)
    # A rehearsal is not made an exam, nor the other way round.
    kept.unlink()
    with pytest.raises(RecordError, match="episodes of the run are missing"):
        derived(policy, report)
