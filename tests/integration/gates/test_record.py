"""The promise: what a validator signs was derived from episodes that were played, with the bytes that are signed."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import hanging_policy
from tests.support.vouching import VALIDATORS

from physai.gates.execution.subject import QUANTISED_FILE
from physai.gates.record import FOLDER, RecordError
from physai.gates.record import rederive as rederive_for
from physai.sdk.base.errors import MissingExtraError, TaskError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.process.isolation import ApartError
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.preferences import StatedPreferencesError
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome, load_verdict, save_verdict
from physai.sdk.onnx import trial as onnx_trial
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.ed25519 import SigningKey
from physai.service.cli import validate
from physai.twin.model.twin import Twin, save_twin
from physai.twin.rollouts.batch import BatchResult

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 16}\n"
Writer = Callable[..., Path]
rederive = partial(rederive_for, validators=VALIDATORS)


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from physai.gates.checks import engine

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp")

    monkeypatch.setattr(engine, "load_engine", missing)


def members_of(policy: Path) -> dict[str, bytes]:
    return {POLICY_FILE: policy.read_bytes(), GOLDEN_FILE: (policy.parent / GOLDEN_FILE).read_bytes()}


@pytest.fixture(scope="module")
def reports() -> dict[str, Path]:
    """Report folders by the SHA-256 of their policy: each is validated once."""
    return {}


@pytest.fixture
def run(
    tmp_path: Path, credible_twin: Twin, evidence: Any, bench: Any, reports: dict[str, Path]
) -> Callable[[Path], Path]:
    """Validates a policy as a user does; returns a report folder to tamper with."""

    def run(policy: Path) -> Path:
        key = sha256_hex(policy.read_bytes())
        if key not in reports:
            save_twin(credible_twin, tmp_path / "twin.json")
            (tmp_path / "gates.yaml").write_text(GATES)
            (tmp_path / "ticks.json").write_text(evidence(bench.subject(policy), [0.001] * 10_000))
            parser = Parser(prog="physai")
            validate.command.add_arguments(parser)
            options = ["--twin", "twin.json", "--gates", "gates.yaml", "--latency", "ticks.json", "--report", "kept"]
            words = [word if word.startswith("--") else str(tmp_path / word) for word in options]
            validate.command.run(parser.parse([str(policy), "--task", TASK, *words]))
            reports[key] = tmp_path / "kept"
        shutil.copytree(reports[key], tmp_path / "report")
        return tmp_path / "report"

    return run


def test_an_untouched_record_bears_its_verdict_out(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    policy = write_policy()
    report = run(policy)
    assert rederive(report, members_of(policy), task=TASK, replays=None) == load_verdict(report)


def test_a_record_that_took_the_lag_for_tested_bears_no_pass_out(
    write_policy: Writer, run: Callable[[Path], Path]
) -> None:
    """As versions wrote it that did not play other lags; an edited one, too."""
    policy = write_policy()
    report = run(policy)
    stated = load_verdict(report)
    # Of this computer's gates, the one without a second engine does not pass.
    gates = tuple(gate.model_copy(update={"outcome": VerdictOutcome.PASS, "cause": None}) for gate in stated.gates)
    passed = stated.model_copy(update={"outcome": VerdictOutcome.PASS, "gates": gates})
    save_verdict(passed, report / "verdict.json")
    inputs = report / FOLDER / "inputs.json"
    older = json.loads(inputs.read_text())
    assert older.pop("doubts_lags") is True
    inputs.write_text(json.dumps(older))
    with pytest.raises(RecordError, match="no held-out recording tests it; validate again"):
        rederive(report, members_of(policy), task=TASK, replays=1)


def test_who_signs_knows_who_vouched_for_the_evidence(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    policy = write_policy()
    report = run(policy)
    assert (load_verdict(report).evidence.twin.kind, load_verdict(report).evidence.latency.kind) == ("robot", "robot")
    for strangers in ((), (SigningKey.generate().public_key("validator"),)):
        with pytest.raises(RecordError, match="the twin is from the robot pusher, but no validator that you trust"):
            rederive_for(report, members_of(policy), task=TASK, replays=1, validators=strangers)


def test_a_graph_quantised_after_the_run_leaves_its_verdict_as_it_is(
    write_policy: Writer, run: Callable[[Path], Path]
) -> None:
    """Quantised after `sim validate`, the bundle has another graph, which no robot runs on this verdict."""
    policy = write_policy()
    report = run(policy)
    later = {**members_of(policy), QUANTISED_FILE: write_policy("later", stiffness=12.1).read_bytes()}
    assert later[QUANTISED_FILE] != later[POLICY_FILE]
    assert rederive(report, later, task=TASK, replays=1) == load_verdict(report)
    inputs = report / FOLDER / "inputs.json"
    inputs.write_text(json.dumps(json.loads(inputs.read_text()) | {"arms": 3}))
    with pytest.raises(RecordError, match="arms is malformed"):
        rederive(report, later, task=TASK)


@pytest.mark.slow
def test_the_record_holds_the_reference(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    reference = write_policy("tuned/reference")
    stated = {
        **{f"preferences.{name}": digit * 64 for name, digit in (("database", "a"), ("raters", "b"))},
        **{f"preferences.{name}": "1" for name in ("answers", "rater_count", "simulated", "held_out")},
        "preferences.reward_model": "c" * 64,
        "preferences.reference": sha256_hex(reference.read_bytes()),
    }
    policy = write_policy("tuned/export", stiffness=12.1, provenance=stated)
    report = run(policy)
    verdict = load_verdict(report)
    assert verdict.preferences is not None
    assert verdict.preferences.entries == stated
    gate = next(gate for gate in verdict.gates if gate.gate == "non-inferiority")
    assert (gate.outcome, gate.measured[0].name) == ("PASS", "drop.reference")
    assert rederive(report, members_of(policy), task=TASK, replays=None) == verdict
    # What a verdict states is derived again, too.
    save_verdict(verdict.model_copy(update={"preferences": None}), report / "verdict.json")
    with pytest.raises(RecordError, match="states preferences None"):
        rederive(report, members_of(policy), task=TASK, replays=1)
    save_verdict(verdict, report / "verdict.json")
    recorded = report / FOLDER / "reference.onnx"
    assert recorded.read_bytes() == reference.read_bytes()
    # An easier one.
    recorded.write_bytes(write_policy("worse", stiffness=3.0).read_bytes())
    with pytest.raises(StatedPreferencesError, match="was fine-tuned from the policy with SHA-256"):
        rederive(report, members_of(policy), task=TASK, replays=1)
    recorded.unlink()
    with pytest.raises(RecordError, match="differ in gate non-inferiority"):
        rederive(report, members_of(policy), task=TASK, replays=1)


def test_a_verdict_alone_is_not_believed(write_policy: Writer, run: Callable[[Path], Path], tmp_path: Path) -> None:
    policy = write_policy()
    report = run(policy)
    (tmp_path / "alone").mkdir()
    save_verdict(load_verdict(report), tmp_path / "alone" / "verdict.json")
    with pytest.raises(RecordError, match="no record of the run; sign on the computer that validated"):
        rederive(tmp_path / "alone", members_of(policy), task=TASK)


@pytest.mark.parametrize("change", ["number", "outcome", "gate", "twin", "evidence"])
def test_a_verdict_that_was_edited_is_refused(write_policy: Writer, run: Callable[[Path], Path], change: str) -> None:
    policy = write_policy()
    report = run(policy)
    document = json.loads((report / "verdict.json").read_text())
    engine = next(gate for gate in document["gates"] if gate["gate"] == "engine")
    if change == "number":
        document["gates"][3]["measured"][0]["value"] = 0.9999
    elif change == "outcome":
        engine.update(outcome="PASS", cause=None, message="", next_step="")
        document["outcome"] = "PASS"
    elif change == "gate":
        document["gates"].remove(engine)
        document["outcome"] = "PASS"
    elif change == "twin":
        document["twin_hash"] = "0" * 64
    else:
        document["evidence"]["twin"]["robot"] = "pusher/elsewhere"
    save_verdict(Verdict.model_validate_json(json.dumps(document)), report / "verdict.json")
    with pytest.raises(RecordError, match="validate again on this computer"):
        rederive(report, members_of(policy), task=TASK)


def test_episodes_that_were_edited_are_played_again(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    """A policy that fails gets the episodes of one that does not, hashes and all."""
    good, bad = write_policy("good"), write_policy("bad", stiffness=3.0)
    report = run(good)
    verdict = load_verdict(report)
    members = members_of(bad)
    forged = verdict.model_copy(update={"policy_sha256": sha256_hex(members[POLICY_FILE])})
    save_verdict(forged, report / "verdict.json")
    with pytest.raises(RecordError):
        rederive(report, members, task=TASK, replays=None)


def test_one_edited_batch_is_found(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    policy = write_policy()
    report = run(policy)
    for path in sorted((report / FOLDER).glob("*.npz")):
        played = BatchResult.from_bytes(path.read_bytes().partition(b"\n")[2])
        # Nothing that any gate decides by: only playing it again shows it.
        changed = BatchResult(**{**vars(played), "held": np.minimum(1.0, played.held + 1e-12)})
        if (changed.held == played.held).all():
            continue
        data = changed.to_bytes()
        path.write_bytes(sha256_hex(data).encode() + b"\n" + data)
    with pytest.raises(RecordError, match=r"differs in held when replayed"):
        rederive(report, members_of(policy), task=TASK, replays=None)


@pytest.mark.parametrize("forged", ["more episodes", "numbers for yes"])
def test_a_batch_holds_the_episodes_that_were_asked_for(
    write_policy: Writer, run: Callable[[Path], Path], forged: str
) -> None:
    """Else one forged batch, which is seldom drawn, could outvote all that were played."""
    policy = write_policy()
    report = run(policy)
    path = next((report / FOLDER).glob("*.npz"))
    arrays: dict[str, Any] = vars(BatchResult.from_bytes(path.read_bytes().partition(b"\n")[2]))
    if forged == "more episodes":
        arrays = {name: value if name == "visits" else np.repeat(value, 100, axis=0) for name, value in arrays.items()}
    else:
        arrays = {**arrays, "success": 1000 * arrays["success"].astype(int)}
    data = BatchResult(**arrays).to_bytes()
    path.write_bytes(sha256_hex(data).encode() + b"\n" + data)
    with pytest.raises(RecordError, match="episodes of the run are missing or were modified"):
        rederive(report, members_of(policy), task=TASK)


def test_no_graph_of_a_record_is_loaded_here_before_it_was_tried(
    write_policy: Writer, run: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing would otherwise hang, or take all memory, by a graph that nobody has signed."""
    policy = write_policy()
    report = run(policy)
    hangs = hanging_policy.policy(hanging_policy.contract("joint_effort"), chain=500, width=2048, folded=True)[
        POLICY_FILE
    ]
    (report / FOLDER / "baseline.onnx").write_bytes(hangs)
    monkeypatch.setattr(onnx_trial, "TRIAL_S", 2.0)
    with pytest.raises(ApartError, match=r"the first inference of .* hung"):
        rederive(report, members_of(policy), task=TASK)


def test_no_episode_may_be_missing(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    policy = write_policy()
    report = run(policy)
    next((report / FOLDER).glob("*.npz")).unlink()
    with pytest.raises(RecordError, match="episodes of the run are missing"):
        rederive(report, members_of(policy), task=TASK)


def test_the_record_names_no_code_to_run(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    policy = write_policy()
    report = run(policy)
    with pytest.raises(TaskError, match="--task"):
        rederive(report, members_of(policy))


def test_another_bundles_policy_has_another_verdict(write_policy: Writer, run: Callable[[Path], Path]) -> None:
    report = run(write_policy())
    with pytest.raises(RecordError, match="which is not in the bundle"):
        rederive(report, members_of(write_policy("other", stiffness=11.0)), task=TASK)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"seed": true}', '{"seed": 1, "accept": [], "gates": {}}', "[" * 100_000, "\x00"]
)
def test_damaged_records_are_refused(write_policy: Writer, run: Callable[[Path], Path], text: str) -> None:
    policy = write_policy()
    report = run(policy)
    (report / FOLDER / "inputs.json").write_text(text)
    with pytest.raises(RecordError, match=r"inputs\.json"):
        rederive(report, members_of(policy), task=TASK)
