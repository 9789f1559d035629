"""The promise: an exam is of one policy, twin and settings; its seeds are new; none that was opened is forgotten."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.requirements import Requirements, RequirementsError
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.exam import (
    MAX_EXAM_BYTES,
    Exam,
    ExamError,
    ExamSubject,
    load_exam,
    open_exam,
    read_exam,
    with_opened,
)
from physai.sdk.signing.time_statement import sign_time

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SUBJECT = ExamSubject(policies={"policy": "a" * 64}, contract="c" * 64, twin="d" * 64, settings="e" * 64)
KEY = SigningKey.generate()
KNOWN = [KEY.public_key("validator")]


def opened(journal: Path, subject: ExamSubject = SUBJECT) -> Exam:
    return open_exam(subject, KEY, journal, now=NOW)


def test_the_same_policy_gets_other_episodes_each_time(tmp_path: Path) -> None:
    exams = [opened(tmp_path / "journal") for _ in range(3)]
    seeds = {exam.seed(stream) for exam in exams for stream in (1, 2)}
    assert len(seeds) == 6
    assert all(0 <= seed < 1 << 64 for seed in seeds)
    again = read_exam(exams[0].encode(), source="it")
    again.require_signed(KNOWN)
    again.require_subject(SUBJECT)
    assert (again.seed(1), again.facts) == (exams[0].seed(1), exams[0].facts)


def test_exams_are_counted_per_contract_and_twin(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    first = opened(journal)
    other = opened(journal, SUBJECT.model_copy(update={"twin": "f" * 64}))
    # Another policy under the same contract and twin is another attempt.
    second = opened(journal, SUBJECT.model_copy(update={"policies": {"policy": "b" * 64}}))
    assert [exam.facts.number for exam in (first, other, second)] == [1, 1, 2]
    assert with_opened(first.facts, journal).shown == "exam 1 of 2"
    assert with_opened(other.facts, journal).shown == "exam 1 of 1"


def test_exams_that_are_opened_at_once_have_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        exams = list(pool.map(opened, [tmp_path / "journal"] * 16))
    assert sorted(exam.facts.number for exam in exams) == list(range(1, 17))


def test_a_line_of_a_killed_process_is_dropped_and_another_damage_is_reported(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    first = opened(journal)
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[: len(whole) // 2])
    assert opened(journal).facts.number == 2
    assert len(journal.read_bytes().splitlines()) == 2
    # An editor has dropped the last end of a line: both exams were opened all the same.
    journal.write_bytes(journal.read_bytes().rstrip(b"\n"))
    assert with_opened(first.facts, journal).opened == 2
    assert opened(journal).facts.number == 3
    assert len(journal.read_bytes().splitlines()) == 3
    journal.write_bytes(whole[5:])
    with pytest.raises(ExamError, match="damaged"):
        opened(journal)
    journal.write_bytes(b"")
    with pytest.raises(ExamError, match="does not have the exam"):
        with_opened(first.facts, journal)
    journal.unlink()
    with pytest.raises(ExamError, match="cannot be read"):
        with_opened(first.facts, journal)
    with pytest.raises(ExamError, match="cannot be written"):
        opened(tmp_path / "nowhere" / "journal")


@pytest.mark.parametrize("field", ["policies", "contract", "twin", "settings"])
def test_an_exam_is_of_nothing_else(tmp_path: Path, field: str) -> None:
    value = {"policy": "0" * 64} if field == "policies" else "0" * 64
    with pytest.raises(ExamError, match=f"opened for the {field} .*, this is .*0000"):
        opened(tmp_path / "journal").require_subject(SUBJECT.model_copy(update={field: value}))


def test_only_a_trusted_validators_exam_counts(tmp_path: Path) -> None:
    exam = opened(tmp_path / "journal")
    forged = Exam(SigningKey.generate().envelope(exam._envelope.payload), exam.predicate)  # pyright: ignore[reportPrivateUsage]
    for one, known in ((exam, []), (exam, [KEY.public_key("publisher")]), (forged, KNOWN)):
        with pytest.raises(ExamError, match="no validator that you trust"):
            one.require_signed(known)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 9, b"x" * (MAX_EXAM_BYTES + 1), sign_time([KEY], "ur10e", NOW)])
def test_files_that_are_no_exams(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "exam.json").write_bytes(data)
    with pytest.raises(ExamError):
        load_exam(tmp_path / "exam.json")


def test_a_robots_owner_may_ask_for_an_exam(tmp_path: Path, make_verdict: Any, workshop: Any) -> None:
    asked = Requirements.parse(json.dumps({"format_version": 1, "exam": True}), source="it")
    assert b'"exam"' not in Requirements().encode()
    bundle = workshop.unsigned()
    rehearsed, robot = make_verdict(bundle), read_bundle(bundle).manifest.robot
    with pytest.raises(RequirementsError, match="of a rehearsal"):
        asked.check(rehearsed, robot=robot)
    asked.check(rehearsed.model_copy(update={"exam": opened(tmp_path / "journal").facts}), robot=robot)
