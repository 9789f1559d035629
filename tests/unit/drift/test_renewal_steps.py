"""Steps of a renewal that are done, and the recordings and policies that one begins with."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.gates.test_report import gate, verdict

from physai.drift import DriftError, renew
from physai.drift.monitor.recordings import DatedLog, read_recordings
from physai.drift.renewal.renew import since_change
from physai.drift.renewal.stages import require_judged
from physai.drift.renewal.steps import STEPS_FILE, RenewalSteps, file_sha256, log_hash, option_hashes
from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome
from physai.sdk.signing.attestation import is_signed_by
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.files.rederivation import VerdictTerms
from physai.sim.robots import load_robot
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, nominal_twin, save_twin

WriteLog = Callable[..., Path]


def test_a_step_is_done_while_its_inputs_and_its_output_are_the_same(tmp_path: Path) -> None:
    output, of = tmp_path / "twin.json", {"budget": 5, "logs": ["a", "b"]}
    steps = RenewalSteps(tmp_path)
    assert not steps.is_done("twin", of, output)
    output.write_text("fitted")
    steps.keep("twin", of, output)
    again = RenewalSteps(tmp_path)
    assert again.is_done("twin", of, output)
    assert not again.is_done("verdict", of, output)
    assert not again.is_done("twin", {**of, "budget": 6}, output)
    output.write_text("changed")
    assert not again.is_done("twin", of, output)
    output.unlink()
    assert not again.is_done("twin", of, output)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        "{",
        "[" * 60_000,
        '{"twin": 3}',
        "x" * 100_000,
        '{"done": {}}',
        '{"done": 3, "signature": ""}',
        '{"done": [1], "signature": ""}',
    ],
)
def test_a_damaged_file_of_steps_means_that_none_is_done(tmp_path: Path, content: str) -> None:
    (tmp_path / STEPS_FILE).write_text(content)
    (tmp_path / "twin.json").write_text("fitted")
    assert not RenewalSteps(tmp_path).is_done("twin", {}, tmp_path / "twin.json")


def test_with_a_key_only_steps_that_it_signed_are_done(tmp_path: Path) -> None:
    output, file, key = tmp_path / "verdict.json", tmp_path / STEPS_FILE, SigningKey.generate()
    output.write_text("PASS")
    RenewalSteps(tmp_path, key).keep("verdict", {}, output)
    assert RenewalSteps(tmp_path, key).is_done("verdict", {}, output)
    assert not RenewalSteps(tmp_path, SigningKey.generate()).is_done("verdict", {}, output)
    assert not RenewalSteps(tmp_path).is_done("verdict", {}, output)
    # Somebody without the key edits the output, and the file of steps with it.
    mine = json.loads(file.read_text())
    output.write_text("FAIL")
    forged = [mine["done"]["verdict"][0], file_sha256(output)]
    for document in (
        {"done": {"verdict": forged}, "signature": mine["signature"]},
        {"done": {"verdict": forged}, "signature": ""},
        {"done": {"verdict": forged}},
        {"verdict": forged},
    ):
        file.write_text(json.dumps(document))
        assert not RenewalSteps(tmp_path, key).is_done("verdict", {}, output)
    RenewalSteps(tmp_path).keep("verdict", {}, output)
    assert RenewalSteps(tmp_path).is_done("verdict", {}, output)
    assert not RenewalSteps(tmp_path, key).is_done("verdict", {}, output)


def test_a_signature_of_steps_counts_nowhere_else(tmp_path: Path) -> None:
    key, output = SigningKey.generate(), tmp_path / "twin.json"
    output.write_text("fitted")
    RenewalSteps(tmp_path, key).keep("twin", {}, output)
    kept = json.loads((tmp_path / STEPS_FILE).read_text())
    payload, signature = json.dumps(kept["done"], sort_keys=True).encode(), bytes.fromhex(kept["signature"])
    assert is_signed_by(key.public, signature, payload, "application/vnd.physai.renewal+json")
    assert not is_signed_by(key.public, signature, payload)


def test_a_recording_is_another_one_if_its_column_map_reads_other_values(write_log: WriteLog) -> None:
    path = write_log("one")
    before = read_log(path)
    assert log_hash(read_log(path)) == log_hash(before)
    columns = path.with_name("columns.yaml")
    columns.write_text(columns.read_text().replace("joint_vel: joint1.joint_vel", "joint_vel: joint2.joint_vel"))
    after = read_log(path)
    assert after.sha256 == before.sha256
    assert log_hash(after) != log_hash(before)
    assert log_hash(replace(before, origin=Origin(kind="robot", robot="double_pendulum/b"))) != log_hash(before)


def read_log(path: Path) -> RobotLog:
    ((given,), _) = read_recordings(
        [path], load_robot("double_pendulum"), nominal_twin(load_robot("double_pendulum")), None
    )
    return given.log


def test_terms_of_a_signature_count_by_the_content_of_their_files(tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text("mass = 1")
    terms = VerdictTerms(robot="a/b", task=str(task))
    first = option_hashes(terms)
    assert first == option_hashes(replace(terms, say=print))
    for changes in ({"device": "cuda"}, {"model": task}, {"requirements": Requirements(exam=True)}, {"days": 1.0}):
        assert first != option_hashes(replace(terms, **changes))
    task.write_text("mass = 2")
    assert first != option_hashes(terms)


def test_options_count_by_the_content_of_their_files(tmp_path: Path) -> None:
    file = tmp_path / "ticks.json"
    file.write_text("1")
    first = option_hashes(ValidationOptions(latency=file))
    assert first == option_hashes(ValidationOptions(latency=file, jobs=7))
    assert first != option_hashes(ValidationOptions(latency=file, seed=1))
    file.write_text("2")
    assert first != option_hashes(ValidationOptions(latency=file))


def dated(log: RobotLog, count: int) -> list[DatedLog]:
    return [DatedLog(log=replace(log, name=f"log{k}", sha256=f"{k:064x}"), start_s=None) for k in range(count)]


def moment(number: int, time_s: float) -> dict[str, Any]:
    return {"recording": f"log{number}", "sha256": f"{number:064x}", "time_s": time_s}


def test_recordings_since_a_change_begin_after_it(still_log: RobotLog) -> None:
    given = dated(still_log, 8)
    at_its_start = since_change(given, moment(2, 7.5))
    assert [log.name for log in at_its_start] == [f"log{k}" for k in range(2, 8)]
    within = since_change(given, moment(2, 12.5))
    assert [log.name for log in within] == [f"log{k}" for k in range(3, 8)]
    with pytest.raises(DriftError, match="4 of 8 recordings were begun since then; a new twin needs at least 5"):
        since_change(given, moment(4, 0.0))


def test_the_recording_of_a_change_is_found_under_another_name(still_log: RobotLog) -> None:
    given = [replace(one, log=replace(one.log, name=f"renamed-{one.log.name}")) for one in dated(still_log, 8)]
    assert since_change(given, moment(2, 7.5))[0].name == "renamed-log2"
    # Another recording has the old name.
    given[7] = replace(given[7], log=replace(given[7].log, name="log2"))
    assert len(since_change(given, moment(2, 7.5))) == 6


def test_a_report_folder_that_is_a_file_and_a_validity_of_no_days_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PhysaiError, match=r"`report` .*file is a file; name a folder"):
        renew(["a.csv"], twin="twin.json", policy="a.physai", report=tmp_path / "file")
    with pytest.raises(PhysaiError, match="`days` must lie in"):
        renew(["a.csv"], twin="twin.json", policy="a.physai", report=tmp_path, days=float("nan"))


def test_an_input_that_the_renewal_would_replace_is_refused(
    tmp_path: Path, pendulum_twin: Twin, write_log: WriteLog
) -> None:
    folder, policy, recording = tmp_path / "renewed", tmp_path / "policy.onnx", write_log("one")
    folder.mkdir()
    policy.write_bytes(b"a policy")
    twin = folder / "twin.json"
    save_twin(pendulum_twin, twin)
    kept = twin.read_bytes()
    with pytest.raises(PhysaiError, match=r"`twin` .*twin\.json would be replaced by the renewal's .*; give another"):
        renew([recording], twin=twin, policy=policy, report=folder)
    # The same file by other ways.
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(PhysaiError, match=r"`twin` .* would be replaced by the renewal's"):
        renew([recording], twin=twin, policy=policy, report=tmp_path / "link")
    with pytest.raises(PhysaiError, match=r"`policy` .*policy\.onnx would be replaced .* give another `report` folder"):
        renew([recording], twin=twin, policy=policy, report=tmp_path)
    assert (twin.read_bytes(), policy.read_bytes()) == (kept, b"a policy")


def judged(outcomes: dict[str, str]) -> Verdict:
    return verdict(*(gate(name, VerdictOutcome(outcome)) for name, outcome in outcomes.items()))


@pytest.mark.parametrize(
    "outcomes",
    [
        {"contract": "PASS", "twin": "PASS", "success": "PASS", "latency": "INCONCLUSIVE"},
        {"contract": "PASS", "twin": "PASS", "engine": "INCONCLUSIVE", "parity": "INCONCLUSIVE"},
        {"contract": "FAIL", "twin": "INCONCLUSIVE", "success": "INCONCLUSIVE", "latency": "INCONCLUSIVE"},
    ],
)
def test_nothing_is_revoked_for_what_a_user_has_to_give(outcomes: dict[str, str]) -> None:
    with pytest.raises(DriftError, match=r"a\.physai was not judged, and nothing was signed or revoked: [clep]"):
        require_judged(judged(outcomes), Path("a.physai"))


def test_nothing_is_revoked_because_the_policy_to_compare_with_is_missing() -> None:
    found, missing = gate("contract", VerdictOutcome.PASS), gate("non-inferiority", VerdictOutcome.INCONCLUSIVE)
    with pytest.raises(DriftError, match="nothing was signed or revoked: non-inferiority: non-inferiority is"):
        require_judged(verdict(found, missing), Path("a.physai"))
    # Episodes that did not decide, and a policy that was worse, speak against it.
    require_judged(verdict(found, missing.model_copy(update={"episodes": 8})), Path("a.physai"))
    require_judged(verdict(found, gate("non-inferiority", VerdictOutcome.FAIL)), Path("a.physai"))
    require_judged(verdict(found, missing, gate("success", VerdictOutcome.FAIL)), Path("a.physai"))


@pytest.mark.parametrize(
    "outcomes",
    [
        {"contract": "PASS", "success": "PASS"},
        {"contract": "PASS", "success": "FAIL", "latency": "INCONCLUSIVE"},
        {"contract": "PASS", "twin": "INCONCLUSIVE", "success": "INCONCLUSIVE", "latency": "INCONCLUSIVE"},
        {"contract": "PASS", "latency": "FAIL"},
    ],
)
def test_what_speaks_against_a_policy_is_a_verdict(outcomes: dict[str, str]) -> None:
    require_judged(judged(outcomes), Path("a.physai"))
