"""What a robot asks of a verdict is asked by whoever signs it and again by the robot."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.bundle.archive import BundleError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.requirements import (
    ALL_GATES,
    DEFAULT_GATES_SHA256,
    Requirements,
    RequirementsError,
    accepting,
)
from physai.sdk.evidence.verdict import Evidence, GateResult, Verdict, VerdictOutcome
from physai.sdk.signing.sign import sign_verdict
from physai.sdk.signing.verify import Rule, VerificationError

ROBOT = Origin(kind="robot", robot="pendulum/lab-1")
THOR = "NVIDIA Jetson AGX Thor"
MEASURED = Evidence(twin=ROBOT, latency=ROBOT.model_copy(update={"machine": THOR}))

Maker = Callable[..., Verdict]


def gate(name: str) -> GateResult:
    return GateResult(gate=name, outcome=VerdictOutcome.PASS, question="?", method="none", threshold="none")


def evidence(**changes: Origin) -> Evidence:
    return MEASURED.model_copy(update=changes)


BAD: list[tuple[dict[str, Any], Rule, str]] = [
    ({"gates": (gate("whatever"),)}, Rule.GATES, "lacks the gates contract, twin"),
    ({"gates": ()}, Rule.OUTCOME, "INCONCLUSIVE"),
    ({"gates": tuple(gate(name) for name in ALL_GATES if name != "safety")}, Rule.GATES, "lacks the gates safety;"),
    ({"gates_sha256": "d" * 64}, Rule.SETTINGS, f"settings dddddddddddd, accepted are {DEFAULT_GATES_SHA256[:12]}"),
    ({"evidence": Evidence()}, Rule.EVIDENCE, "the twin comes from an unknown origin"),
    (
        {"evidence": evidence(twin=Origin(kind="stand-in", robot="pendulum"))},
        Rule.EVIDENCE,
        "the twin comes from a stand-in for pendulum, accepted is evidence of: robot",
    ),
    (
        {"evidence": evidence(latency=Origin(kind="computer", machine="laptop"))},
        Rule.EVIDENCE,
        r"the latency comes from a computer that is no robot \(laptop\)",
    ),
    (
        {"evidence": evidence(twin=Origin(kind="robot", robot="cartpole/lab-1"))},
        Rule.EVIDENCE,
        "comes from the robot cartpole/lab-1, and this robot is a pendulum",
    ),
]


@pytest.mark.parametrize(("changes", "rule", "message"), BAD)
def test_neither_signer_nor_robot_takes_it(
    workshop: Any,
    complete: bytes,
    make_verdict: Maker,
    now: datetime,
    changes: dict[str, Any],
    rule: Rule,
    message: str,
) -> None:
    values: dict[str, Any] = {"evidence": MEASURED, **changes}
    if "gates" in changes:
        values["outcome"] = VerdictOutcome.PASS if changes["gates"] else VerdictOutcome.INCONCLUSIVE
    verdict = make_verdict(complete, **values)
    if rule is not Rule.OUTCOME:
        with pytest.raises(BundleError, match=message):
            sign_verdict(read_bundle(complete), workshop.validator, verdict, now=now)
    signed = workshop.validated(complete, verdict=verdict)
    with pytest.raises(VerificationError, match=message) as caught:
        workshop.verify(signed)
    assert caught.value.rule is rule


def test_latency_counts_for_the_computer_that_measured_it(workshop: Any, complete: bytes, make_verdict: Maker) -> None:
    signed = workshop.validated(complete, verdict=make_verdict(complete, evidence=MEASURED))
    assert workshop.verify(signed, machine=THOR).verdict is not None
    assert workshop.verify(signed, robot="pendulum/lab-2", machine=THOR).verdict is not None
    with pytest.raises(VerificationError, match=f"measured on {THOR}, this robot has a Jetson AGX Orin") as caught:
        workshop.verify(signed, machine="Jetson AGX Orin")
    assert caught.value.rule is Rule.EVIDENCE


def test_the_owner_may_accept_more(workshop: Any, complete: bytes, make_verdict: Maker) -> None:
    stand_in = Evidence(twin=Origin(kind="stand-in", robot="pendulum"), latency=Origin(kind="computer", machine="x"))
    signed = workshop.validated(complete, verdict=make_verdict(complete, evidence=stand_in, gates_sha256="d" * 64))
    asked = accepting(("robot", "stand-in", "computer"))
    with pytest.raises(VerificationError, match="settings"):
        workshop.verify(signed, requirements=asked)
    asked = asked.model_copy(update={"gate_settings": ("d" * 64,)})
    assert workshop.verify(signed, requirements=asked, machine="y").verdict is not None


def test_settings_files(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"format_version": 1, "accept": ["robot", "stand-in"]}))
    assert Requirements.load(file) == accepting(("robot", "stand-in"))
    Requirements.load(file).save(tmp_path / "again.json")
    assert Requirements.load(tmp_path / "again.json") == accepting(("robot", "stand-in"))
    for text, message in (
        ('{"format_version": 1, "accept": ["anything"]}', "accept"),
        ('{"format_version": 1, "accept": ["robot", "robot"]}', "occurs twice"),
        ('{"format_version": 1, "gates": []}', "gates"),
        ('{"format_version": 1, "gate_settings": ["x"]}', "gate_settings"),
        ('{"format_version": 1, "gate": ["x"]}', "unknown field"),
        ("[]", "a robot's settings is a JSON object"),
    ):
        file.write_text(text)
        with pytest.raises(RequirementsError, match=message):
            Requirements.load(file)
    with pytest.raises(RequirementsError, match="cannot be read"):
        Requirements.load(tmp_path / "missing.json")


def test_the_gates_are_those_that_validate_runs() -> None:
    """The edge cannot import the simulator, so it repeats what this compares."""
    from physai.gates.runner import GATES
    from physai.gates.settings import GateSettings

    assert tuple(gate.name for gate in GATES) == ALL_GATES
    assert GateSettings().sha256 == DEFAULT_GATES_SHA256
