"""The promise: a policy that preferences changed passes only if it is shown to be no worse than what it came from."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.fixtures_gates import spring_policy

from physai.gates.checks.non_inferiority import NonInferiorityGate
from physai.gates.execution.subject import QUANTISED_FILE
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.process.software import running_software
from physai.sdk.evidence.preferences import (
    PREFIX,
    RUN_FILE,
    Preferences,
    StatedPreferencesError,
    entries_sha256,
)
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyError
from physai.sdk.policy.parity import SOURCE_KEY
from physai.sdk.policy.run_identity import Run, RunFacts, sign_policy, without_signature
from physai.sim.tasks.task import Task

Find = Callable[..., Any]
Writer = Callable[..., Path]


def learned(reference: Path | None, **changes: Any) -> dict[str, str]:
    """What a policy states that was fine-tuned from another one."""
    values: dict[str, Any] = {
        "database": "a" * 64,
        "raters": "b" * 64,
        "reward_model": "c" * 64,
        "reference": None if reference is None else sha256_hex(reference.read_bytes()),
        "answers": 60,
        "rater_count": 3,
        "simulated": 1,
        "held_out": 12,
    }
    return Preferences(**values | changes).entries


def signed(task: Task, stated: dict[str, str], started: dict[str, str] | None = None, **options: Any) -> bytes:
    """A policy of a run that was started with some preferences, signed with whatever the policy states."""
    key = Ed25519PrivateKey.generate()
    facts = RunFacts(
        public_key=key.public_key().public_bytes_raw().hex(),
        software=running_software(),
        seed="0",
        contract=task.contract.fingerprint,
        settings="d" * 64,
        files={RUN_FILE: entries_sha256(stated if started is None else started)},
    )
    return sign_policy(spring_policy(task, provenance={**stated, **Run.of(facts).provenance}, **options), key)


def test_as_good_as_its_reference_passes_after_three_batches(bench: Any, write_policy: Writer, find: Find) -> None:
    reference = write_policy("reference")
    path = write_policy(stiffness=12.1, provenance=learned(reference))
    finding = find(NonInferiorityGate(), bench.context(path, reference=reference))
    assert finding.outcome is VerdictOutcome.PASS
    # alpha 0.05 / 4 gates, so the mean over 7 bets b must reach 80. A concordant pair multiplies each by
    # 1 + b · 0.05 / 0.95. The greatest bet gives 1.05^128 = 515.5 and the others 39.3 together: 554.8 / 7 = 79.3 after
    # two batches of 64, which is too little; after three 1.05^192 = 11704 and 167: 11871 / 7 = 1696.
    assert finding.episodes == 2 * 192
    assert finding.p_value == pytest.approx(1.0 / 1696.0, rel=1e-3)
    values = {m.name: m for m in finding.measured}
    assert set(values) == {"drop.reference", "worse.reference", "better.reference"}
    assert (values["drop.reference"].value, values["drop.reference"].threshold) == (0.0, 0.05)
    upper = values["drop.reference"].upper
    assert upper is not None
    assert upper < 0.05
    bets = (0.95, *(2.0**-k for k in range(1, 7)))
    # The bound is the margin at which the same evidence reaches 80.
    assert np.mean([(1 + b * upper / (1 - upper)) ** 192 for b in bets]) == pytest.approx(80.0, rel=1e-6)


def test_without_its_reference_nothing_is_decided(bench: Any, write_policy: Writer, find: Find) -> None:
    reference = write_policy("elsewhere")
    stated = learned(reference)
    finding = find(NonInferiorityGate(), bench.context(write_policy(provenance=stated)))
    assert (finding.outcome, finding.episodes) == (VerdictOutcome.INCONCLUSIVE, 0)
    assert sha256_hex(reference.read_bytes()) in finding.message
    assert "--reference" in finding.next_step


def test_the_reference_in_the_run_folder_is_found(bench: Any, write_policy: Writer) -> None:
    reference = write_policy("run/reference")
    path = write_policy("run/export", provenance=learned(reference))
    assert bench.subject(path).arms["reference"] == reference.read_bytes()
    # In no other folder, and not for a policy that was fine-tuned from nothing.
    assert "reference" not in bench.subject(write_policy("run/other", provenance=learned(reference))).arms
    assert "reference" not in bench.subject(write_policy("run/export", provenance=learned(None))).arms


@pytest.mark.parametrize("stated", ["nothing", "alone", "fine-tuned"])
@pytest.mark.parametrize("given", ["none", "right", "wrong"])
def test_every_case_has_one_answer(bench: Any, write_policy: Writer, find: Find, stated: str, given: str) -> None:
    right, wrong = write_policy("right"), write_policy("wrong", stiffness=13.0)
    entries = {"nothing": {}, "alone": learned(None), "fine-tuned": learned(right)}[stated]
    path = write_policy(stiffness=12.1, provenance=entries)
    reference = {"none": None, "right": right, "wrong": wrong}[given]
    if given != "none" and (stated, given) != ("fine-tuned", "right"):
        with pytest.raises(StatedPreferencesError):
            bench.subject(path, reference=reference)
        return
    finding = find(NonInferiorityGate(), bench.context(path, reference=reference))
    undecided = (stated, given) == ("fine-tuned", "none")
    assert finding.outcome is (VerdictOutcome.INCONCLUSIVE if undecided else VerdictOutcome.PASS)
    assert (finding.episodes > 0) == (given == "right")


def test_worse_than_its_reference_fails(bench: Any, write_policy: Writer, find: Find) -> None:
    reference = write_policy("reference")
    path = write_policy(stiffness=-1.0, provenance=learned(reference))
    finding = find(NonInferiorityGate(), bench.context(path, reference=reference))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)
    assert "loses 64 that the reference graph wins" in finding.message
    assert "keep the reference" in finding.next_step


def test_a_baseline_is_no_reference(bench: Any, write_policy: Writer, find: Find) -> None:
    """Else a bad policy would pass by comparing it with a worse one."""
    reference, bad = write_policy("reference"), write_policy("bad", stiffness=-2.0)
    path = write_policy(stiffness=-1.0, provenance=learned(reference))
    assert find(NonInferiorityGate(), bench.context(path, baseline=bad)).outcome is VerdictOutcome.INCONCLUSIVE
    both = find(NonInferiorityGate(), bench.context(path, baseline=bad, reference=reference))
    assert both.outcome is VerdictOutcome.FAIL
    assert {m.name for m in both.measured} >= {"drop.policy", "drop.reference"}


def test_another_reference_is_refused_with_both_hashes(bench: Any, write_policy: Writer) -> None:
    reference, other = write_policy("reference"), write_policy("other", stiffness=1.0)
    path = write_policy(provenance=learned(reference))
    with pytest.raises(StatedPreferencesError) as raised:
        bench.subject(path, reference=other)
    for file in (reference, other):
        assert sha256_hex(file.read_bytes()) in str(raised.value)
    with pytest.raises(StatedPreferencesError, match=r"was not fine-tuned by preferences; .* `baseline`"):
        bench.subject(write_policy("plain"), reference=reference)


def test_a_file_in_the_run_folder_that_was_exchanged_is_refused(bench: Any, write_policy: Writer) -> None:
    reference = write_policy("run/reference")
    path = write_policy("run/export", provenance=learned(reference))
    shutil.copy(write_policy("bad", stiffness=-1.0), reference)
    with pytest.raises(StatedPreferencesError, match="was fine-tuned from the policy with SHA-256"):
        bench.subject(path)


def test_a_signed_policy_keeps_all_that_its_run_was_started_with(task: Task, write_policy: Writer) -> None:
    stated = learned(write_policy("reference"))
    data = signed(task, stated)
    assert Preferences.stated(check_policy(data, source="it").provenance, source="it") is not None
    for name in stated:
        # By somebody who has the run's key, so that its signature is valid.
        left_out = {key: value for key, value in stated.items() if key != name}
        with pytest.raises(PolicyError, match="entries were changed or left out"):
            check_policy(signed(task, left_out, stated), source="it")
    for changed in ({}, {**stated, f"{PREFIX}reference": "e" * 64}, {**stated, f"{PREFIX}more": "1"}):
        with pytest.raises(PolicyError, match="entries were changed or left out"):
            check_policy(signed(task, changed, stated), source="it")


def test_a_quantised_policy_states_what_its_float_policy_does(bench: Any, task: Task, write_policy: Writer) -> None:
    reference = write_policy("reference")
    stated = learned(reference)
    data = signed(task, stated)
    path = write_policy(data=data)
    kept = without_signature(check_policy(data, source="it").provenance) | {SOURCE_KEY: sha256_hex(data)}
    quantised = path.parent / QUANTISED_FILE
    quantised.write_bytes(spring_policy(task, stiffness=12.1, provenance=kept))
    assert bench.subject(quantised, reference=reference).preferences == bench.subject(path).preferences
    # Its own signature is missing, but the facts of the run that it names cover the entries.
    quantised.write_bytes(
        spring_policy(task, provenance={key: value for key, value in kept.items() if not key.startswith(PREFIX)})
    )
    with pytest.raises(PolicyError, match="entries were changed or left out"):
        check_policy(quantised.read_bytes(), source="it")
    # One that names no run is compared with its float policy.
    quantised.write_bytes(spring_policy(task, stiffness=12.1))
    with pytest.raises(StatedPreferencesError, match="its float policy"):
        bench.subject(quantised, reference=reference)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database", "A" * 64),
        ("reference", "x"),
        ("answers", "-1"),
        ("answers", "1.5"),
        ("agreement", "nan"),
        ("accuracy", "inf"),
        ("accuracy", "1.01"),
        ("held_out", "9" * 5000),
    ],
)
def test_malformed_entries_are_refused(bench: Any, write_policy: Writer, name: str, value: str) -> None:
    stated = learned(write_policy("reference")) | {PREFIX + name: value}
    with pytest.raises(StatedPreferencesError, match=rf"preferences\.{name}: .* train it again") as raised:
        bench.subject(write_policy(provenance=stated))
    assert len(str(raised.value)) < 1000
    # A run that was cut off before it knew its data.
    with pytest.raises(StatedPreferencesError, match="was cut off"):
        bench.subject(write_policy("cut", provenance={f"{PREFIX}answers": "0"}))


def test_entries_survive_their_text() -> None:
    exact = learned(None, agreement=-0.1, accuracy=2.0 / 3.0, accuracy_lower=math.ulp(0.0), accuracy_upper=1.0)
    again = Preferences.stated({**exact, "seed": "1"}, source="it")
    assert again is not None
    assert again.entries == exact
    assert Preferences.stated({"seed": "1"}, source="it") is None
