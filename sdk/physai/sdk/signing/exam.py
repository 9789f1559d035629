"""Exams: a validator fixes what is to be judged, and only then draws what it is judged on.

The statement names the bytes, the twin and the gate settings by hash, and holds a nonce that was drawn after them. The
seeds of the episodes follow from all of it, so that no policy can have been made for them.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import rfc8785
from pydantic import ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.exam_facts import Attempts, ExamFacts
from physai.sdk.evidence.verdict import Sha256, Utc, utc_text
from physai.sdk.signing.attestation import STATEMENT_TYPE, AttestationError, Envelope, is_signed_by, parse_envelope
from physai.sdk.signing.ed25519 import PublicKey, SigningKey

EXAM_PREDICATE = "urn:physai:exam:1"
MAX_EXAM_BYTES = 1 << 14
JOURNAL_FILE = "exams.jsonl"
"""File of the exams that a validator opened, in the folder of their keys; lines are only ever added."""
MAX_JOURNAL_BYTES = 64 << 20


class ExamError(PhysaiError):
    """An exam is malformed, not signed by a trusted validator, or of something else."""


class ExamSubject(Frozen):
    """Policy, twin and settings that an exam judges."""

    policies: Annotated[dict[Name, Sha256], Field(min_length=1, max_length=8)]
    """SHA-256 of each graph that plays, by its role: `policy` is the one under test."""
    contract: Sha256
    """Fingerprint of its contract."""
    twin: Sha256
    """`Twin.signed_hash`, wherever the twin's file lies."""
    settings: Sha256
    """Of the gates."""


class ExamPredicate(Frozen):
    """A validator's claim."""

    subject: ExamSubject
    nonce: Sha256
    """32 random bytes in hexadecimal digits, drawn when the exam was opened."""
    number: Attempts
    """Which exam of this validator under this contract and twin it is."""
    opened: Utc


class _ExamStatement(Frozen):
    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: ExamPredicate
    predicate_type: Literal["urn:physai:exam:1"] = Field(default=EXAM_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()

    def encode(self) -> bytes:
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True))


class Exam:
    """An exam file that was parsed; `require_signed` verifies it."""

    def __init__(self, envelope: Envelope, predicate: ExamPredicate) -> None:
        """See `read_exam`."""
        self._envelope, self.predicate = envelope, predicate

    @property
    def facts(self) -> ExamFacts:
        """Facts of it that a verdict states."""
        validator, number = self._envelope.signatures[0].key_id, self.predicate.number
        return ExamFacts(id=sha256_hex(self._envelope.payload), validator=validator, number=number, opened=number)

    def encode(self) -> bytes:
        """The file's content."""
        return self._envelope.encode() + b"\n"

    def seed(self, stream: int) -> int:
        """Seed of a stream of episodes, 64 bits."""
        digest = hashlib.sha256(b"%d " % stream + self._envelope.payload).digest()
        return int.from_bytes(digest[:8], "big")

    def require_subject(self, subject: ExamSubject) -> None:
        """Check what is judged.

        Raises:
            ExamError: it is not what the exam was opened for.
        """
        for what in ExamSubject.model_fields:
            mine, its = getattr(self.predicate.subject, what), getattr(subject, what)
            if mine != its:
                raise ExamError(
                    f"the exam was opened for the {what} {_shown(mine)}, this is {_shown(its)}; open one for this: "
                    "physai sim exam open"
                )

    def require_signed(self, validators: Iterable[PublicKey]) -> None:
        """Check the signature.

        Raises:
            ExamError: no validator among these opened the exam.
        """
        (signature,) = self._envelope.signatures
        for key in validators:
            its = key.role == "validator" and key.key_id == signature.key_id
            if its and is_signed_by(bytes.fromhex(key.public), signature.value, self._envelope.payload):
                return
        raise ExamError(
            f"the exam was opened with the key {signature.key_id[:16]}, which no validator that you trust has, or was "
            "changed: name the trust file with that key (--trust FILE), or open your own exam: physai sim exam open"
        )


def _shown(value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value[:12]
    return ", ".join(f"{name} {sha256[:12]}" for name, sha256 in sorted(value.items()))


def read_exam(data: bytes, *, source: str) -> Exam:
    """Parse an exam file, whose signature is still to be verified.

    Raises:
        ExamError: it is none.
    """
    if not len(data) <= MAX_EXAM_BYTES:
        raise ExamError(f"{source}: an exam has at most {MAX_EXAM_BYTES} bytes")
    try:
        envelope = parse_envelope(data.rstrip(b"\n"), source=source)
        statement = _ExamStatement.model_validate_json(envelope.payload)
    except AttestationError as error:
        raise ExamError(f"{error}; expected a file of physai sim exam open") from None
    except ValidationError as error:
        raise ExamError(f"{source}: not an exam: {error.errors(include_url=False)[0]['msg']}") from None
    if statement.encode() != envelope.payload or len(envelope.signatures) != 1:
        raise ExamError(f"{source}: not in canonical JSON, or not signed by one key")
    return Exam(envelope, statement.predicate)


def load_exam(path: Path) -> Exam:
    """Read an exam file; raises ExamError."""
    with oserror_as(ExamError, f"{path}: cannot be read"):
        return read_exam(read_plain(path, limit=MAX_EXAM_BYTES), source=str(path))


def open_exam(subject: ExamSubject, key: SigningKey, journal: Path, *, now: datetime) -> Exam:
    """Open an exam: count it, draw its nonce, write it into the journal and sign it.

    Args:
        subject: what is judged; fixed from now on.
        key: the validator's key.
        journal: see `JOURNAL_FILE`.
        now: current time, timezone-aware.

    Raises:
        ExamError: the journal cannot be read or written.
    """
    with oserror_as(ExamError, f"{journal}: cannot be written"), journal.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = _lines(file, journal)
        number = 1 + sum(line.is_of(subject) for line in lines)
        nonce = secrets.token_hex(32)
        predicate = ExamPredicate(subject=subject, nonce=nonce, number=number, opened=utc_text(now))
        exam = Exam(key.envelope(_ExamStatement(predicate=predicate).encode()), predicate)
        line = _Line(contract=subject.contract, exam=exam.facts.id, opened=predicate.opened, twin=subject.twin)
        # On the disk before anybody sees the nonce: an exam whose result displeases cannot be forgotten.
        file.write(canonical_json(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return exam


def with_opened(facts: ExamFacts, journal: Path) -> ExamFacts:
    """Return the facts with the number of exams that were opened by now.

    Raises:
        ExamError: the journal cannot be read, or does not have this exam.
    """
    try:
        with journal.open("rb") as file:
            lines = _lines(file, journal)
    except OSError as error:
        raise ExamError(f"{journal}: cannot be read: {error.strerror}; restore it, or open a new exam") from None
    found = [line for line in lines if line.exam == facts.id]
    if not found:
        raise ExamError(f"{journal} does not have the exam {facts.id[:12]}; restore it, or open a new exam")
    opened = sum((line.contract, line.twin) == (found[0].contract, found[0].twin) for line in lines)
    return facts.model_copy(update={"opened": max(opened, facts.number)})


class _Line(Frozen):
    contract: Sha256
    exam: Sha256
    opened: Utc
    twin: Sha256

    def is_of(self, subject: ExamSubject) -> bool:
        return (self.contract, self.twin) == (subject.contract, subject.twin)


def _is_line(data: bytes) -> bool:
    try:
        _Line.model_validate_json(data)
    except ValidationError:
        return False
    return True


def _lines(file: BinaryIO, journal: Path) -> list[_Line]:
    file.seek(0)
    data = file.read(MAX_JOURNAL_BYTES + 1)
    if not len(data) <= MAX_JOURNAL_BYTES:
        raise ExamError(f"{journal}: more than {MAX_JOURNAL_BYTES} bytes; is it the journal of exams?")
    whole, _, torn = data.rpartition(b"\n")
    if _is_line(torn):
        # An editor may leave out the last end of a line, and an exam that was opened counts.
        whole = data
        if file.writable():
            file.write(b"\n")
    elif torn and file.writable():
        # Of a process that was killed before it said what the exam is.
        file.truncate(len(data) - len(torn))
    try:
        return [_Line.model_validate_json(line) for line in whole.split(b"\n") if line]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ExamError(f"{journal}: damaged: {first['msg']}; restore it from a backup") from None
