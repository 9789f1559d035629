"""Gate `latency`: only ticks measured on the target, with this very policy, decide."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.vouching import vouched_ticks

from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.gates.checks.latency import LatencyGate, longest_run
from physai.sdk.evidence.latency import EvidenceError, LatencyEvidence, load_evidence, save_evidence
from physai.sdk.evidence.verdict import Cause, VerdictOutcome

Find = Callable[..., Any]


def judged(bench: Any, path: Path, find: Find, evidence: Any, ticks: list[float], **changes: Any) -> Any:
    context = bench.context(path)
    file = path.parent / "ticks.json"
    file.write_text(evidence(context.subject, ticks))
    loaded = load_evidence(file)
    return find(LatencyGate(loaded.model_copy(update=changes)), context)


def test_ticks_within_the_deadline_pass(
    bench: Any, write_policy: Callable[..., Path], find: Find, evidence: Any
) -> None:
    finding = judged(bench, write_policy(), find, evidence, [0.002] * 9_990 + [0.0099] * 10)
    assert finding.outcome is VerdictOutcome.PASS
    named = {m.name: m.value for m in finding.measured}
    assert named["p50"] == 0.002
    assert named["max"] == 0.0099
    assert named["missed"] == 0.0


@pytest.mark.parametrize(
    ("ticks", "words"),
    [
        ([0.002] * 9_900 + [0.011, 0.002] * 50, "0.50% of the ticks end after the deadline of 10 ms, up to 1 in a row"),
        # The contract lets the guard repeat a command twice.
        ([0.002] * 19_000 + [0.011] * 3 + [0.002] * 1000, "up to 3 in a row"),
    ],
)
def test_misses_beyond_the_budget_fail(
    bench: Any, write_policy: Callable[..., Path], find: Find, evidence: Any, ticks: list[float], words: str
) -> None:
    finding = judged(bench, write_policy(), find, evidence, ticks)
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.TIMING)
    assert words in finding.message


def test_too_few_ticks_are_undecided(bench: Any, write_policy: Callable[..., Path], find: Find, evidence: Any) -> None:
    finding = judged(bench, write_policy(), find, evidence, [0.002] * 500)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "at least 10000 ticks" in finding.next_step


def test_what_the_runtime_writes_is_evidence(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    path = write_policy()
    context = bench.context(path)
    candidate = Candidate(
        version=1,
        slot="a",
        bundle_sha256="0" * 64,
        fingerprint=context.subject.task.contract.fingerprint,
        member=path.name,
        policy=path.read_bytes(),
        plan=None,
        state_sizes={},
        unsafe_no_verdict=True,
        recorded_on=f"robot {context.subject.task.contract.robot.name}/unit-1",
    )
    file = path.parent / "ticks.json"
    save_evidence(vouched_ticks(candidate.latency_evidence((0.002,) * 10_000, "dds")), file)
    assert find(LatencyGate(load_evidence(file)), context).outcome is VerdictOutcome.PASS


@pytest.mark.parametrize("field", ["policy_sha256", "contract_fingerprint"])
def test_evidence_of_another_policy_or_contract_decides_nothing(
    bench: Any, write_policy: Callable[..., Path], find: Find, evidence: Any, field: str
) -> None:
    finding = judged(bench, write_policy(), find, evidence, [0.002] * 20_000, **{field: "0" * 64})
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "000000000000" in finding.message


def test_without_evidence_it_is_measured_here_and_undecided(
    bench: Any, write_policy: Callable[..., Path], find: Find
) -> None:
    finding = find(LatencyGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "Nothing was measured on the target" in finding.message
    assert sum(finding.chart["counts"]) == 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "format_version must be a whole number, got none"),
        ('{"format_version": 3}', "newer than format 2"),
        ("[]", "a latency evidence is a JSON object"),
        ("{", "not JSON"),
        ('{"format_version": 2, "tick_s": []}', "tick_s"),
    ],
)
def test_malformed_evidence_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ticks.json").write_text(text)
    with pytest.raises(EvidenceError, match=message):
        load_evidence(tmp_path / "ticks.json")


def test_missing_or_impossible_evidence_is_refused(
    tmp_path: Path, bench: Any, write_policy: Callable[..., Path], evidence: Any
) -> None:
    with pytest.raises(EvidenceError, match="cannot be read"):
        load_evidence(tmp_path / "none.json")
    text = evidence(bench.subject(write_policy()), [0.001])
    for bad in ("-0.001", "0.0", "1e9", "NaN", '"0.001"'):
        (tmp_path / "ticks.json").write_text(text.replace("[0.001]", f"[{bad}]"))
        with pytest.raises(EvidenceError, match=r"tick_s|not a finite number"):
            load_evidence(tmp_path / "ticks.json")
    assert LatencyEvidence.model_validate_json(text).device == "test bench"


def test_runs_of_misses_are_counted() -> None:
    assert longest_run(np.array([False, True, True, False, True])) == 2
    assert longest_run(np.array([True] * 4)) == 4
    assert longest_run(np.array([False] * 3)) == 0


def test_evidence_that_is_saved_reads_back(tmp_path: Path) -> None:
    evidence = LatencyEvidence(
        policy_sha256="a" * 64,
        contract_fingerprint="b" * 64,
        device="this computer",
        runtime="onnxruntime",
        tick_s=(0.001, 0.002),
    )
    save_evidence(evidence, tmp_path / "ticks.json")
    assert load_evidence(tmp_path / "ticks.json") == evidence
    with pytest.raises(EvidenceError, match="cannot be written"):
        save_evidence(evidence, tmp_path / "none" / "ticks.json")
