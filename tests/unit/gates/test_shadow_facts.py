"""Facts of shadow runs in a verdict: their numbers by hand, and runs of something else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.shadow_runs import OUTPUT, shadow_of

from physai.gates.checks.safety import SafetyGate
from physai.gates.execution.shadow_facts import MAX_FACTS, MAX_RUNS, read_shadows, require_shadows_of, shadow_facts
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.shadow import ShadowEvidenceError, save_shadow_evidence
from physai.sim.tasks.task import Task

Writer = Callable[..., Path]


def test_counts_are_summed_and_the_greatest_difference_stands(write_policy: Writer, task: Task) -> None:
    policy = write_policy()
    runs = (
        shadow_of(policy, task),
        shadow_of(policy, task, run="2" * 32, ticks=500, command_share=0.75, interventions={"command_rate": 1}),
    )
    facts = {one.name: one.value for one in shadow_facts(runs)}
    assert facts == {
        "shadow.ticks": 1500.0,
        "shadow.starts": 4.0,
        "shadow.unanswered": 10.0,
        "shadow.late": 6.0,
        "shadow.stops": 2.0,
        "shadow.command_share": 0.75,
        f"shadow.rms.{OUTPUT}": 2.5,
        f"shadow.greatest.{OUTPUT}": 6.25,
        "shadow.intervention.command_rate": 5.0,
        "shadow.intervention.effort_limit": 3.0,
        "shadow.beyond.joint_pos.0": 18.0,
    }
    assert all(one.threshold is None for one in shadow_facts(runs))
    assert shadow_facts(()) == []


def test_facts_never_exceed_what_a_gate_has_room_for(write_policy: Writer, task: Task) -> None:
    policy = write_policy()
    runs = [
        shadow_of(policy, task, run=f"{k:032x}", ticks=2**53 - 1, interventions={f"c{k}_{j}": 1 for j in range(60)})
        for k in range(10)
    ]
    facts = shadow_facts(runs)
    assert len(facts) == MAX_FACTS
    assert facts[0].value == 1e9


def test_no_outcome_depends_on_a_shadow(write_policy: Writer, task: Task, bench: Any, find: Any) -> None:
    for stiffness in (12.0, 12000.0):
        policy = write_policy(f"s{stiffness}", stiffness=stiffness)
        context = bench.context(policy)
        without, given = (
            find(SafetyGate(), one) for one in (context, replace(context, shadows=(shadow_of(policy, task),)))
        )
        assert (given.outcome, given.message, given.p_value) == (without.outcome, without.message, without.p_value)
        assert given.measured[: len(without.measured)] == without.measured
        assert len(given.measured) == len(without.measured) + 11


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy_sha256": "5" * 64}, f"of the policy with SHA-256 {'5' * 64}, validated is [0-9a-f]{{64}}"),
        ({"contract_fingerprint": "6" * 64}, f"under the contract {'6' * 64}, the policy has [0-9a-f]{{64}}"),
        ({"robot": "ur10e/cell-3"}, "of the robot ur10e/cell-3, the policy is for pusher"),
        ({"origin": Origin(kind="stand-in", robot="pusher")}, "a stand-in for pusher, which is no evidence of a robot"),
    ],
)
def test_a_run_of_something_else_is_refused(
    write_policy: Writer, task: Task, bench: Any, changes: dict[str, Any], words: str
) -> None:
    policy = write_policy()
    subject = bench.subject(policy)
    require_shadows_of([shadow_of(policy, task)], subject, ("robot",))
    with pytest.raises(ShadowEvidenceError, match=words):
        require_shadows_of([shadow_of(policy, task, **changes)], subject, ("robot",))


def test_of_copies_of_a_run_the_newest_counts(write_policy: Writer, task: Task, tmp_path: Path) -> None:
    policy = write_policy()
    early, late = shadow_of(policy, task, ticks=10), shadow_of(policy, task, ticks=20)
    save_shadow_evidence(early, tmp_path / "early.json")
    save_shadow_evidence(late, tmp_path / "late.json")
    assert read_shadows([tmp_path / "late.json", tmp_path / "early.json"]) == (late,)
    with pytest.raises(ShadowEvidenceError, match=f"65 files of shadow evidence; at most {MAX_RUNS}"):
        read_shadows([tmp_path / "late.json"] * 65)
    with pytest.raises(ShadowEvidenceError, match=r"nowhere\.json: cannot be read"):
        read_shadows([tmp_path / "nowhere.json"])
