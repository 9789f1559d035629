"""The promise: who has every file and no key raises neither a twin's credibility nor any evidence's origin."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.vouching import VALIDATORS, vouched_ticks

from physai.gates.checks.gate import Context, GateFinding
from physai.gates.checks.latency import LatencyGate
from physai.gates.checks.twin import TwinGate
from physai.sdk.evidence.latency import LatencyEvidence, load_evidence, save_evidence
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.signing.ed25519 import SigningKey
from physai.twin.model.twin import Twin, load_twin, moved_twin, save_twin, signed_twin

Writer = Callable[..., Path]
Find = Callable[..., GateFinding]


def stored(twin: Twin, file: Path) -> Twin:
    """The twin as a file with a right hash gives it, which anybody can write."""
    save_twin(twin, file)
    return load_twin(file)


def asked(bench: Any, policy: Path, twin: Twin, find: Find, **changes: Any) -> tuple[Context, GateFinding]:
    context = bench.context(policy)
    context = replace(context, subject=replace(context.subject, twin=twin), **changes)
    return context, find(TwinGate(), context)


def from_stand_in(twin: Twin) -> Twin:
    of = Origin(kind="stand-in", robot=twin.origin.robot)
    logs = twin.logs.model_copy(
        update={
            name: tuple(log.model_copy(update={"origin": of}) for log in getattr(twin.logs, name))
            for name in ("train", "held_out")
        }
    )
    return replace(twin, logs=logs)


def longer(twin: Twin) -> Twin:
    held = tuple(log.model_copy(update={"duration_s": 30.0}) for log in twin.logs.held_out)
    return replace(twin, logs=twin.logs.model_copy(update={"held_out": held}))


def with_windows_of_another(twin: Twin) -> Twin:
    assert twin.sample is not None
    return replace(twin, sample=twin.sample.model_copy(update={"target": twin.sample.target[::-1]}))


def surer(twin: Twin) -> Twin:
    """Less uncertain, so that falsification searches a smaller range."""
    parameters = tuple(one.model_copy(update={"std": 0.1 * one.std}) for one in twin.parameters)
    return replace(twin, parameters=parameters, covariance=0.01 * twin.covariance)


def test_what_a_validator_fitted_is_evidence_wherever_its_file_lies(
    bench: Any, write_policy: Writer, find: Find, credible_twin: Twin, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    moved = moved_twin(credible_twin, tmp_path / "other")
    assert moved.robot != credible_twin.robot
    for twin in (credible_twin, stored(moved, tmp_path / "other" / "twin.json")):
        context, finding = asked(bench, write_policy(), twin, find)
        assert (finding.outcome, context.twin_origin.kind) == (VerdictOutcome.PASS, "robot")


@pytest.mark.parametrize("edit", [longer, with_windows_of_another, surer])
def test_an_edited_twin_with_a_right_hash_is_of_unknown_origin(
    bench: Any, write_policy: Writer, find: Find, credible_twin: Twin, tmp_path: Path, edit: Callable[[Twin], Twin]
) -> None:
    context, finding = asked(bench, write_policy(), stored(edit(credible_twin), tmp_path / "twin.json"), find)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert context.twin_origin == Origin(kind="unknown", robot=credible_twin.origin.robot)


def test_a_stand_ins_twin_does_not_become_a_robots(
    bench: Any, write_policy: Writer, find: Find, credible_twin: Twin, tmp_path: Path
) -> None:
    """A signed twin of a stand-in, of which only the origin is edited: before, it passed under `--accept robot`."""
    honest = signed_twin(from_stand_in(credible_twin), SigningKey.generate())
    edited = stored(replace(credible_twin, signature=honest.signature), tmp_path / "twin.json")
    context, finding = asked(bench, write_policy(), edited, find)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "states that it is from the robot" in finding.message
    assert "physai sim calibrate … --key FILE" in finding.next_step
    assert context.twin_origin == Origin(kind="unknown", robot=credible_twin.origin.robot)


@pytest.mark.parametrize("signer", ["nobody", "stranger", "publisher"])
def test_who_may_vouch_for_a_twin(
    bench: Any, write_policy: Writer, find: Find, credible_twin: Twin, signer: str
) -> None:
    stranger = SigningKey.generate()
    twin = replace(credible_twin, signature=None) if signer == "nobody" else signed_twin(credible_twin, stranger)
    known = (*VALIDATORS, stranger.public_key("publisher")) if signer == "publisher" else VALIDATORS
    _, finding = asked(bench, write_policy(), twin, find, validators=known)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "no validator of the trust file signed it" in finding.message


def test_a_stand_in_needs_no_signature(bench: Any, write_policy: Writer, find: Find, credible_twin: Twin) -> None:
    """As in the demo, which accepts it by name."""
    twin = replace(from_stand_in(credible_twin), signature=None)
    _, finding = asked(bench, write_policy(), twin, find, accept=("robot", "stand-in"), validators=())
    assert finding.outcome is VerdictOutcome.PASS


@pytest.mark.parametrize("edit", ["none", "ticks", "origin", "unsigned"])
def test_tick_times_count_as_measured_on_a_robot_only_with_a_signature(
    bench: Any, write_policy: Writer, find: Find, tmp_path: Path, edit: str
) -> None:
    context = bench.context(write_policy())
    robot = Origin(kind="robot", robot=context.subject.task.contract.robot.name, machine="bench")
    evidence = vouched_ticks(
        LatencyEvidence(
            policy_sha256=context.subject.policy_sha256,
            contract_fingerprint=context.subject.task.contract.fingerprint,
            origin=robot if edit != "origin" else Origin(kind="computer"),
            device="bench",
            runtime="none",
            tick_s=(0.002,) * 10_000,
        )
    )
    changes: dict[str, dict[str, Any]] = {
        "none": {},
        "ticks": {"tick_s": (0.001,) * 10_000},
        "origin": {"origin": robot},
        "unsigned": {"signature": None},
    }
    save_evidence(evidence.model_copy(update=changes[edit]), tmp_path / "ticks.json")
    ticks = load_evidence(tmp_path / "ticks.json")
    finding = find(LatencyGate(ticks), context)
    if edit == "none":
        assert (finding.outcome, context.latency_origin(ticks)) == (VerdictOutcome.PASS, robot)
        return
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "physai keys ticks FILE" in finding.next_step
    assert context.latency_origin(ticks).kind == "unknown"
