"""Status documents and reports: who may sign which, and what is refused."""

import json
import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from tests.harness.fixtures.sample import ROBOT, SampleSigners, sample_policy

from physai.sdk.base.errors import PhysaiError
from physai.sdk.signing.attestation import Role
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.files.status_files import read_word, revoke_verdict
from physai.sdk.signing.status.drift_report import ReportError, ReportPredicate, read_report, sign_report
from physai.sdk.signing.status.status_document import (
    MAX_STATUS_BYTES,
    NarrowedConditions,
    RevokedVerdict,
    StatusError,
    StatusPredicate,
    parse_status,
    read_status,
    sign_status,
)

A, B = "a" * 64, "b" * 64
SINCE = "2026-11-29T12:00:00Z"


@pytest.fixture(scope="module")
def signers() -> SampleSigners:
    return SampleSigners()


def word(*revoked: str, robot: str = ROBOT, serial: int = 7) -> StatusPredicate:
    entries = tuple(RevokedVerdict(bundle=one, reason="the gear is worn", since=SINCE) for one in revoked)
    return StatusPredicate(robot=robot, serial=serial, issued=SINCE, revoked=entries)


def test_a_word_comes_back_as_it_was_signed(signers: SampleSigners) -> None:
    said = word(A, B)
    assert read_status(sign_status([signers.validator], said), signers.trust, robot=f"{ROBOT}/cell-3") == said


def test_all_well_is_an_empty_list(signers: SampleSigners) -> None:
    data = sign_status([signers.validator], word())
    payload = json.loads(b64decode(json.loads(data)["payload"]))
    assert payload["predicate"]["revoked"] == payload["predicate"]["narrowed"] == []
    assert payload["predicateType"] == "urn:physai:status:1"


@pytest.mark.parametrize("role", ["owner", "publisher"])
def test_only_a_validator_speaks(signers: SampleSigners, role: str) -> None:
    key: SigningKey = getattr(signers, role)
    with pytest.raises(StatusError, match=f"0 of 1 validator signatures: key {key.key_id[:16]} is a {role}'s"):
        read_status(sign_status([key], word()), signers.trust)


def test_an_unknown_key_and_a_revoked_one_are_named(signers: SampleSigners) -> None:
    with pytest.raises(StatusError, match=r"0 of 1 validator signatures: key [0-9a-f]{16} is not in the trust file"):
        read_status(sign_status([SigningKey.generate()], word()), signers.trust)
    since = datetime(2026, 11, 1, tzinfo=UTC)
    trust = signers.trust.with_revoked(signers.validator.key_id, since=since, reason="stolen")
    with pytest.raises(StatusError, match="was revoked on 2026-11-01T00:00:00Z: stolen"):
        read_status(sign_status([signers.validator], word()), trust)


def test_two_validators_where_two_must_sign(signers: SampleSigners) -> None:
    second = SigningKey.generate()
    trust = signers.trust.with_key(second.public_key("validator")).with_threshold("validator", 2)
    with pytest.raises(StatusError, match="1 of 2 validator signatures"):
        read_status(sign_status([signers.validator], word()), trust)
    # The same key twice is one signature.
    with pytest.raises(StatusError, match="1 of 2 validator signatures"):
        read_status(sign_status([signers.validator, signers.validator], word()), trust)
    assert read_status(sign_status([signers.validator, second], word()), trust) == word()


def test_another_robot_is_refused_with_both_names(signers: SampleSigners) -> None:
    with pytest.raises(StatusError, match="is for pendulum/cell-3, this robot is pendulum/cell-4"):
        read_status(
            sign_status([signers.validator], word(robot="pendulum/cell-3")), signers.trust, robot="pendulum/cell-4"
        )


def resigned(signers: SampleSigners, at: tuple[str, ...], value: object) -> bytes:
    """A document with one other value that the validator signs, as another version of physai may write it."""
    payload: Any = json.loads(b64decode(json.loads(sign_status([signers.validator], word(A)))["payload"]))
    place: Any = payload
    for name in at[:-1]:
        place = place[int(name)] if name.isdigit() else place[name]
    place[at[-1]] = value
    return signers.validator.envelope(rfc8785.dumps(payload)).encode()


ENTRY = {"bundle": A, "reason": "worn", "since": SINCE}


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("predicate", "colour"), "red", r"predicate\.colour: Extra inputs"),
        (("predicateType",), "urn:physai:status:2", "predicateType: Input should be 'urn:physai:status:1'"),
        (("predicate", "serial"), 0, r"predicate\.serial: Input should be greater than"),
        (("predicate", "issued"), "yesterday", r"predicate\.issued"),
        (("predicate", "revoked"), [ENTRY, ENTRY], "bundle"),
        (("predicate", "revoked", "0", "reason"), "two\nlines", "reason"),
    ],
)
def test_what_this_version_does_not_know_is_refused(
    signers: SampleSigners, at: tuple[str, ...], value: object, message: str
) -> None:
    with pytest.raises(StatusError, match=message):
        read_status(resigned(signers, at, value), signers.trust)


def test_garbage_truncation_and_size_are_refused(signers: SampleSigners) -> None:
    data = sign_status([signers.validator], word(A))
    for wrong in (b"", b"{}", data[:-1], data[: len(data) // 2], data + b"x", b"\0" * 100):
        with pytest.raises(StatusError, match="not a DSSE envelope"):
            read_status(wrong, signers.trust)
    with pytest.raises(StatusError, match=f"more than the {MAX_STATUS_BYTES} bytes"):
        read_status(b" " * (MAX_STATUS_BYTES + 1), signers.trust)
    other = b64encode(b64decode(json.loads(data)["payload"]).replace(b"worn", b"fine"))
    changed = data.replace(json.loads(data)["payload"].encode(), other)
    with pytest.raises(StatusError, match=r"the signature of validator [0-9a-f]{16} is invalid"):
        read_status(changed, signers.trust)


def test_too_long_a_list_is_not_signed(signers: SampleSigners) -> None:
    entries = tuple(RevokedVerdict(bundle=f"{i:064x}", reason="x" * 512, since=SINCE) for i in range(128))
    with pytest.raises(StatusError, match=f"at most {MAX_STATUS_BYTES} are read"):
        sign_status([signers.validator], word().model_copy(update={"revoked": entries}))


def test_conditions_that_narrow_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="it narrows nothing"):
        NarrowedConditions()
    with pytest.raises(ValueError, match="a lower value is above its upper one"):
        NarrowedConditions.model_validate({"commands": {"v": {"lower": (1.0,), "upper": (0.0,)}}})


class TestFiles:
    @pytest.fixture
    def bundle(self, tmp_path: Path, signers: SampleSigners) -> Path:
        (tmp_path / "b.physai").write_bytes(signers.published(sample_policy(), version=1))
        return tmp_path / "b.physai"

    def test_a_file_is_followed_by_the_next_word(self, tmp_path: Path, bundle: Path, signers: SampleSigners) -> None:
        out, keys = tmp_path / "status.json", [signers.validator]
        first = revoke_verdict(keys, bundle, robot=ROBOT, reason="worn", out=out).word
        assert isinstance(first, StatusPredicate)
        second = revoke_verdict(keys, A, robot=ROBOT, reason="worn, too", out=out).word
        assert isinstance(second, StatusPredicate)
        assert (second.serial > first.serial, [one.bundle for one in second.revoked]) == (
            True,
            [first.revoked[0].bundle, A],
        )
        # By the manifest, which a second verdict on the same bytes does not change.
        assert re.fullmatch("[0-9a-f]{64}", first.revoked[0].bundle)
        revoke_verdict(keys, bundle, robot=ROBOT, lift=True, out=out)
        renewed = revoke_verdict(keys, robot=ROBOT, out=out).word
        assert isinstance(renewed, StatusPredicate)
        assert [one.bundle for one in renewed.revoked] == [A]
        assert parse_status(out.read_bytes()) == renewed

    def test_narrowing_takes_the_place_of_a_revocation(self, tmp_path: Path, signers: SampleSigners) -> None:
        out, conditions = tmp_path / "status.json", tmp_path / "c.json"
        conditions.write_text('{"joints": {"pivot": {"speed": 2.0}}, "payload_kg": 1.5}')
        revoke_verdict([signers.validator], A, robot=ROBOT, reason="worn", out=out)
        found = revoke_verdict([signers.validator], A, robot=ROBOT, reason="slowly", narrow=conditions, out=out).word
        assert isinstance(found, StatusPredicate)
        assert (found.revoked, found.narrowed[0].conditions.payload_kg) == ((), 1.5)
        conditions.write_text('{"joints": {"pivot": {"speed": -2.0}}}')
        with pytest.raises(StatusError, match=r"joints\.pivot\.speed -2\.0: Input should be greater than 0"):
            revoke_verdict([signers.validator], A, robot=ROBOT, reason="slowly", narrow=conditions, out=out)

    def test_what_is_missing_is_said(self, tmp_path: Path, signers: SampleSigners) -> None:
        out, keys = tmp_path / "status.json", [signers.validator]
        with pytest.raises(StatusError, match="give the `reason`"):
            revoke_verdict(keys, A, robot=ROBOT, out=out)
        with pytest.raises(StatusError, match="name the bundle that"):
            revoke_verdict(keys, robot=ROBOT, reason="worn", out=out)
        with pytest.raises(StatusError, match="nothing to lift"):
            revoke_verdict(keys, A, robot=ROBOT, lift=True, out=out)
        with pytest.raises(StatusError, match="no key signs the document"):
            revoke_verdict([], robot=ROBOT, out=out)
        assert not out.exists()
        revoke_verdict(keys, robot=ROBOT, out=out)
        with pytest.raises(StatusError, match="the status document before is for pendulum, this one for crane"):
            revoke_verdict(keys, robot="crane", out=out)

    def test_a_strangers_file_is_not_followed(
        self, tmp_path: Path, signers: SampleSigners, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
        out = tmp_path / "status.json"
        out.write_bytes(sign_status([SigningKey.generate()], word()))
        with pytest.raises(StatusError, match="not signed by one of your validators"):
            revoke_verdict([signers.validator], A, robot=ROBOT, reason="worn", out=out)

    def test_documents_and_reports_are_shown(self, tmp_path: Path, signers: SampleSigners) -> None:
        trust, file = tmp_path / "trust.json", tmp_path / "file.json"
        signers.signed().save(trust)
        file.write_bytes(sign_status([signers.validator], word(A)))
        assert read_word(file, trust=trust).word == word(A)
        report = ReportPredicate(robot=ROBOT, issued=SINCE, finding="DRIFTED", bundle=A, values={"mass": 1.2})
        file.write_bytes(sign_report([signers.owner], report) + b"\n")
        shown = read_word(file, trust=trust)
        assert (shown.word, shown.signers) == (report, (f"owner {signers.owner.key_id}",))


class TestReports:
    REPORT = ReportPredicate(robot=ROBOT, issued=SINCE, finding="DRIFTED", text="recalibrate")

    @pytest.mark.parametrize("role", ["robot", "owner", "validator"])
    def test_a_robot_an_owner_and_a_validator_report(self, signers: SampleSigners, role: Role) -> None:
        key = SigningKey.generate()
        trust = signers.trust.with_key(key.public_key(role, label=ROBOT))
        report, keys = read_report(sign_report([key], self.REPORT), trust)
        assert (report, [one.key_id for one in keys]) == (self.REPORT, [key.key_id])

    @pytest.mark.parametrize("label", ["", "pendulum/other"])
    def test_a_robot_reports_on_itself_only(self, signers: SampleSigners, label: str) -> None:
        key = SigningKey.generate()
        trust = signers.trust.with_key(key.public_key("robot", label=label))
        told = f"the report is on {ROBOT}, and signed by the key of {label or 'no robot'}"
        with pytest.raises(ReportError, match=told):
            read_report(sign_report([key], self.REPORT), trust)
        # With an owner's signature it counts, by this one alone.
        _, keys = read_report(sign_report([key, signers.owner], self.REPORT), trust)
        assert [one.key_id for one in keys] == [signers.owner.key_id]

    def test_a_publisher_does_not(self, signers: SampleSigners) -> None:
        with pytest.raises(ReportError, match="role is robot or owner or validator"):
            read_report(sign_report([signers.publisher], self.REPORT), signers.trust)

    def test_a_report_is_no_word(self, signers: SampleSigners) -> None:
        """Signed by a validator, too, it revokes nothing."""
        data = sign_report([signers.validator], self.REPORT)
        with pytest.raises(StatusError, match="not one that this version of physai reads"):
            read_status(data, signers.trust)
        with pytest.raises(PhysaiError, match="not one that this version of physai reads"):
            read_report(sign_status([signers.validator], word()), signers.trust)
