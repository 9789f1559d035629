"""The gate `twin` asks for closed-loop evidence where recordings of it exist, and says which kinds the twin has."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from physai.gates.checks.twin import TwinGate
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.twin.model.closed_loop_evidence import ClosedLoop, ClosedLoopTest, ClosedLoopVerdict
from physai.twin.model.twin_file import LogRecord

Writer = Callable[..., Path]


def result(verdict: ClosedLoopVerdict) -> ClosedLoopTest:
    return ClosedLoopTest(
        name="success",
        real=1.0,
        twin=0.6,
        difference=-0.4,
        p_value=0.001 if verdict == "contradicted" else 0.5,
        margin=0.0,
        detectable=None if verdict == "undecided" else 0.3,
        needed=0.5,
    )


def checked(bench: Any, write_policy: Writer, *verdicts: ClosedLoopVerdict) -> Any:
    of = Origin(kind="robot", robot=bench.twin.origin.robot)
    records = tuple(
        ClosedLoop(
            twin_sha256=bench.twin.open_loop_hash,
            policy_sha256=f"{number:064x}",
            contract_fingerprint="f" * 64,
            task="pusher",
            logs=tuple(LogRecord(name=str(log), sha256=f"{log:064x}", origin=of) for log in range(8)),
            command_agreement=1.0,
            length_s=2.4,
            real_successes=8,
            twin_successes=480,
            twin_runs=800,
            draws=100,
            compared="succeeded",
            compared_runs=8,
            tests=(result(verdict),),
        )
        for number, verdict in enumerate(verdicts)
    )
    bench.twin = replace(bench.twin, closed_loop=records)
    return TwinGate().check(bench.context(write_policy()))


def test_without_recorded_runs_the_replay_decides(bench: Any, write_policy: Writer) -> None:
    finding = checked(bench, write_policy)
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.message.startswith("evidence: effort replay; ")


def test_a_reproduced_policy_is_named_as_evidence(bench: Any, write_policy: Writer) -> None:
    finding = checked(bench, write_policy, "reproduced", "undecided")
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.message.startswith("evidence: effort replay, closed loop; ")
    measured = {measurement.name: measurement for measurement in finding.measured}
    assert measured["closed_loop1.robot"].value == 1.0
    # Clopper-Pearson for 8 of 8: 0.025^(1/8).
    assert measured["closed_loop1.robot"].lower == pytest.approx(0.025 ** (1 / 8))
    assert measured["closed_loop1.twin"].value == pytest.approx(0.6)


def test_a_contradiction_blocks_whatever_else_was_reproduced(bench: Any, write_policy: Writer) -> None:
    finding = checked(bench, write_policy, "reproduced", "contradicted")
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert finding.cause is Cause.TWIN
    assert "success 8 of 8 on the robot, 60% in the twin" in finding.message
    assert "physai sim closed-loop" in finding.next_step


def test_recorded_runs_that_decide_nothing_ask_for_more(bench: Any, write_policy: Writer) -> None:
    finding = checked(bench, write_policy, "undecided")
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert finding.next_step.startswith("record more runs of the policy on the robot")


def test_a_twin_whose_comparisons_were_deleted_is_no_evidence(bench: Any, write_policy: Writer) -> None:
    assert bench.twin.credible().holds
    bench.twin = replace(bench.twin, residuals=bench.twin.residuals.model_copy(update={"alternatives": ()}))
    assert bench.twin.credible().holds
    finding = checked(bench, write_policy)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert finding.cause is Cause.TWIN
    assert "the first of them with all masses x 0.909; calibrate again" in finding.message
