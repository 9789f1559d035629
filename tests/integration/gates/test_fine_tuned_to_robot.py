"""The promise: a policy that preferences changed gets onto a robot with all ten gates, and with what changed it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.evidence.preferences import Preferences
from physai.sdk.evidence.verdict import VerdictOutcome, load_verdict
from physai.twin.model.twin import Twin, save_twin

TASK = Path(__file__).parents[2] / "support" / "pusher_task.py"
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
Writer = Callable[..., Path]

pytestmark = pytest.mark.slow


def test_it_is_accepted_with_its_reference_only(
    write_policy: Writer, bench: Any, evidence: Any, credible_twin: Twin, tmp_path: Path, capsys: Any
) -> None:
    pytest.importorskip("mujoco_warp")
    reference = write_policy("tuned/reference")
    stated = Preferences(
        database="a" * 64,
        raters="b" * 64,
        reward_model="c" * 64,
        reference=sha256_hex(reference.read_bytes()),
        answers=60,
        rater_count=3,
        simulated=0,
        held_out=12,
    )
    policy = write_policy("tuned/export", stiffness=12.1, provenance=stated.entries)
    save_twin(credible_twin, tmp_path / "twin.json")
    (tmp_path / "gates.yaml").write_text(GATES)
    (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))

    def physai(*words: str | Path, code: int = 0) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        return capsys.readouterr().out

    validate = ("sim", "validate", policy, "--task", TASK, "--twin", tmp_path / "twin.json")
    validate = (*validate, "--gates", tmp_path / "gates.yaml", "--latency", tmp_path / "ticks.json")
    shown = physai(*validate, "--report", tmp_path / "report")
    assert "PASS" in shown
    verdict = load_verdict(tmp_path / "report")
    assert (verdict.outcome, len(verdict.gates), verdict.preferences) == (VerdictOutcome.PASS, 10, stated)
    physai("keys", "init", tmp_path / "keys")
    keys = ("--key", tmp_path / "keys/publisher.key", "--validator-key", tmp_path / "keys/validator.key")
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"format_version": 1, "gate_settings": [verdict.gates_sha256]}))
    bundle = tmp_path / "tuned.physai"
    signed = ("--sign", *keys, "--verdict", tmp_path / "report", "--settings", settings, "--replay", "2")
    physai("bundle", "pack", policy.parent, "-o", bundle, *signed, "--task", TASK)
    trust = ("--trust", tmp_path / "keys/trust.json", "--settings", settings)
    accepted = physai("bundle", "verify", bundle, *trust)
    assert "ACCEPTED" in accepted
    assert stated.reference is not None
    assert f"from the preferences {16 * 'a'}, fine-tuned from {stated.reference[:16]}\n" in accepted
    assert read_bundle(bundle).preferences == stated
    card = physai("bundle", "inspect", bundle, "--card")
    assert "| outcome | PASS |" in card
    assert r"drop.reference 0 \(" in card
    # A card is written from a verdict that its record gives, or not at all.
    text = (tmp_path / "report" / "verdict.json").read_text()
    (tmp_path / "report" / "verdict.json").write_text(text.replace("a" * 64, "f" * 64))
    physai("bundle", "pack", policy.parent, "-o", tmp_path / "no.physai", *signed, "--task", TASK, code=2)
    assert not (tmp_path / "no.physai").exists()
    # Validated where the reference is not: everything passes but the one gate.
    (reference.parent / "policy.onnx").rename(tmp_path / "hidden.onnx")
    physai(*validate, "--report", tmp_path / "without", code=2)
    without = load_verdict(tmp_path / "without")
    assert {g.gate for g in without.gates if g.outcome is not VerdictOutcome.PASS} == {"non-inferiority"}
    physai(*validate, "--report", tmp_path / "again", "--reference", tmp_path / "hidden.onnx")
