"""Steps of a renewal that are done, and the recordings and policies that one begins with."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.gates.test_report import gate, verdict

from physai.drift import DriftError, renew
from physai.drift.monitor.recordings import DatedLog
from physai.drift.renewal.renew import since_change
from physai.drift.renewal.stages import require_judged
from physai.drift.renewal.steps import STEPS_FILE, RenewalSteps, option_hashes
from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome
from physai.twin.logs import RobotLog


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


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 60_000, '{"twin": 3}', "x" * 100_000])
def test_a_damaged_file_of_steps_means_that_none_is_done(tmp_path: Path, content: str) -> None:
    (tmp_path / STEPS_FILE).write_text(content)
    (tmp_path / "twin.json").write_text("fitted")
    assert not RenewalSteps(tmp_path).is_done("twin", {}, tmp_path / "twin.json")


def test_options_count_by_the_content_of_their_files(tmp_path: Path) -> None:
    file = tmp_path / "ticks.json"
    file.write_text("1")
    first = option_hashes(ValidationOptions(latency=file))
    assert first == option_hashes(ValidationOptions(latency=file, jobs=7))
    assert first != option_hashes(ValidationOptions(latency=file, seed=1))
    file.write_text("2")
    assert first != option_hashes(ValidationOptions(latency=file))


def dated(log: RobotLog, count: int) -> list[DatedLog]:
    return [DatedLog(log=replace(log, name=f"log{k}"), start_s=None) for k in range(count)]


def test_recordings_since_a_change_begin_after_it(still_log: RobotLog) -> None:
    given = dated(still_log, 8)
    at_its_start = since_change(given, {"recording": "log2", "time_s": 7.5})
    assert [log.name for log in at_its_start] == [f"log{k}" for k in range(2, 8)]
    within = since_change(given, {"recording": "log2", "time_s": 12.5})
    assert [log.name for log in within] == [f"log{k}" for k in range(3, 8)]
    with pytest.raises(DriftError, match="4 of 8 recordings were begun since then; a new twin needs at least 5"):
        since_change(given, {"recording": "log4", "time_s": 0.0})


def test_a_report_folder_that_is_a_file_and_a_validity_of_no_days_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PhysaiError, match=r"`report` .*file is a file; name a folder"):
        renew(["a.csv"], twin="twin.json", policy="a.physai", report=tmp_path / "file")
    with pytest.raises(PhysaiError, match="`days` must lie in"):
        renew(["a.csv"], twin="twin.json", policy="a.physai", report=tmp_path, days=float("nan"))


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
