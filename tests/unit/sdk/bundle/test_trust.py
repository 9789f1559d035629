"""Trust files, and every rule of the verifier: what keeps it is accepted, what breaks it is refused by that rule."""

import json
import stat
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.bundle.archive import signature_file, write_archive
from physai.sdk.bundle.manifest import attach, read_bundle
from physai.sdk.evidence.verdict import VerdictOutcome, utc_text
from physai.sdk.signing.attestation import bundle_statement
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.verify import Rule, TrustError, TrustStore, VerificationError

Workshop = Any
MakeVerdict = Callable[..., Any]


def refused(workshop: Workshop, data: bytes, trust: TrustStore | None = None, **changes: Any) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        workshop.verify(data, trust, **changes)
    return caught.value


def test_a_signed_and_validated_bundle_is_accepted(workshop: Workshop, complete: bytes, now: datetime) -> None:
    found = workshop.verify(complete)
    assert found.bundle.id == read_bundle(complete).id
    assert found.signers == {"publisher": (workshop.publisher.key_id,), "validator": (workshop.validator.key_id,)}
    assert found.policy == "policy.onnx"
    assert found.verdict.outcome is VerdictOutcome.PASS
    assert found.verdict.robot == "pendulum"
    assert found.verdict.expires == now + timedelta(days=30)
    assert found.verdict_problem is None


def test_without_a_publisher(workshop: Workshop) -> None:
    error = refused(workshop, workshop.validated(workshop.unsigned()))
    assert error.rule is Rule.THRESHOLD
    assert "0 of 1 publisher" in str(error)


def test_without_a_verdict(workshop: Workshop) -> None:
    assert refused(workshop, workshop.published(workshop.unsigned())).rule is Rule.NO_VERDICT


def test_the_override_says_what_is_missing(workshop: Workshop) -> None:
    found = workshop.verify(workshop.published(workshop.unsigned()), require_verdict=False)
    assert found.verdict is None
    assert found.policy == "policy.onnx"
    assert found.verdict_problem.startswith("no-verdict: this bundle has no verdict")
    assert found.signers["validator"] == ()


def test_the_override_overrides_nothing_else(workshop: Workshop) -> None:
    assert refused(workshop, workshop.unsigned(), require_verdict=False).rule is Rule.THRESHOLD
    plain = workshop.published(workshop.unsigned())
    assert refused(workshop, plain, require_verdict=False, floor=6).rule is Rule.VERSION
    assert refused(workshop, plain, require_verdict=False, robot="go2").rule is Rule.ROBOT


def test_a_verdict_that_holds_counts_under_the_override_too(workshop: Workshop, complete: bytes) -> None:
    assert workshop.verify(complete, require_verdict=False).verdict is not None


def test_an_expired_verdict_under_the_override_is_none(workshop: Workshop, complete: bytes, now: datetime) -> None:
    found = workshop.verify(complete, require_verdict=False, now=now + timedelta(days=31))
    assert found.verdict is None
    assert found.verdict_problem.startswith("expired: ")


def test_strangers_sign_for_nobody(workshop: Workshop) -> None:
    stranger = SigningKey.generate()
    assert refused(workshop, workshop.published(workshop.unsigned(), stranger)).rule is Rule.KEY
    published = workshop.published(workshop.unsigned())
    assert refused(workshop, workshop.validated(published, stranger)).rule is Rule.KEY
    assert refused(workshop, workshop.published(workshop.complete(), stranger)).rule is Rule.KEY, (
        "not even beside others"
    )


def test_each_key_has_its_role(workshop: Workshop) -> None:
    error = refused(workshop, workshop.published(workshop.unsigned(), workshop.validator))
    assert error.rule is Rule.KEY
    assert "is a validator's key; a publisher's key is required here" in str(error)
    published = workshop.published(workshop.unsigned())
    assert refused(workshop, workshop.validated(published, workshop.publisher)).rule is Rule.KEY


def test_revoked_keys_are_not_believed(workshop: Workshop, complete: bytes, now: datetime) -> None:
    for key in (workshop.publisher, workshop.validator):
        trust = workshop.trust.with_revoked(key.key_id, since=now, reason="stolen laptop")
        error = refused(workshop, complete, trust)
        assert error.rule is Rule.REVOKED
        assert "stolen laptop" in str(error)


def test_signatures_of_another_bundle(workshop: Workshop, complete: bytes) -> None:
    other = read_bundle(workshop.complete(version=6)).members
    signature = signature_file(workshop.publisher.key_id)
    bundle = read_bundle(complete)
    assert refused(workshop, attach(bundle, {signature: other[signature]})).rule is Rule.STATEMENT
    error = refused(workshop, attach(bundle, {"verdict.dsse": other["verdict.dsse"]}))
    assert error.rule is Rule.STATEMENT
    assert "another bundle" in str(error)


def test_a_verdict_in_the_place_of_a_signature(workshop: Workshop, complete: bytes) -> None:
    bundle = read_bundle(complete)
    signature = signature_file(workshop.publisher.key_id)
    assert refused(workshop, attach(bundle, {"verdict.dsse": bundle.members[signature]})).rule is Rule.KEY
    trust = TrustStore().with_key(workshop.publisher.public_key("validator"))
    trust = trust.with_key(workshop.validator.public_key("publisher"))
    # With the roles exchanged, each key is known in the role it did not sign in; what it signed still is another thing.
    swapped = write_archive(
        {name: bundle.members[name] for name in bundle.members if name != signature}
        | {
            signature_file(workshop.validator.key_id): workshop.validator.envelope(
                bundle_statement(bundle.id)
            ).encode(),
            "verdict.dsse": bundle.members[signature],
        }
    )
    assert refused(workshop, swapped, trust).rule is Rule.STATEMENT


def test_a_signature_under_another_name(workshop: Workshop) -> None:
    bundle = read_bundle(workshop.unsigned())
    envelope = workshop.publisher.envelope(bundle_statement(bundle.id))
    forged = attach(bundle, {signature_file("0" * 64): envelope.encode()})
    assert refused(workshop, forged).rule is Rule.ENVELOPE
    two = envelope.with_signature(SigningKey.generate().sign(envelope.payload))
    forged = attach(bundle, {signature_file(two.signatures[0].key_id): two.encode()})
    assert refused(workshop, forged).rule is Rule.ENVELOPE


def test_one_signature_counts_once(workshop: Workshop) -> None:
    """Thresholds count keys, and a key has one id, computed from it."""
    second = SigningKey.generate()
    trust = workshop.trust.with_key(second.public_key("publisher")).with_threshold("publisher", 2)
    data = workshop.unsigned()
    assert refused(workshop, workshop.validated(workshop.published(data)), trust).rule is Rule.THRESHOLD
    both = workshop.validated(workshop.published(data, workshop.publisher, second))
    assert set(workshop.verify(both, trust).signers["publisher"]) == {workshop.publisher.key_id, second.key_id}


def test_two_validators_of_one_verdict(workshop: Workshop) -> None:
    second = SigningKey.generate()
    trust = workshop.trust.with_key(second.public_key("validator")).with_threshold("validator", 2)
    published = workshop.published(workshop.unsigned())
    assert refused(workshop, workshop.validated(published), trust).rule is Rule.THRESHOLD
    both = workshop.validated(published, workshop.validator, second)
    assert len(workshop.verify(both, trust).signers["validator"]) == 2


def test_older_versions_are_refused(workshop: Workshop, complete: bytes) -> None:
    assert workshop.verify(complete, floor=5).bundle.manifest.version == 5
    error = refused(workshop, complete, floor=6)
    assert error.rule is Rule.VERSION
    assert "5 is older than 6" in str(error)


@pytest.mark.parametrize(
    ("signed_for", "robot", "accepted"),
    [
        ("pendulum", "pendulum", True),
        ("pendulum", "pendulum/cell-3", True),
        ("pendulum/cell-3", "pendulum/cell-3", True),
        ("pendulum/cell-3", "pendulum/cell-3/left", True),
        ("pendulum/cell-3", "pendulum/cell-33", False),
        ("pendulum/cell-3", "pendulum/cell-4", False),
        ("pendulum/cell-3", "pendulum", False),
        ("pendulum", "pendulum2", False),
        ("pendulum", "go2", False),
        ("pendulum", "", False),
        ("pendulum", "PENDULUM", False),
    ],
)
def test_the_robot_is_the_one_that_was_judged(workshop: Workshop, signed_for: str, robot: str, accepted: bool) -> None:
    data = workshop.validated(workshop.published(workshop.unsigned()), robot=signed_for)
    if accepted:
        assert workshop.verify(data, robot=robot).verdict.robot == signed_for
    else:
        assert refused(workshop, data, robot=robot).rule is Rule.ROBOT


def test_a_verdict_for_another_model(workshop: Workshop) -> None:
    data = workshop.validated(workshop.published(workshop.unsigned()), robot="go2")
    assert refused(workshop, data).rule is Rule.STATEMENT


@pytest.mark.parametrize(
    ("late_s", "rule"),
    [
        (-3901, Rule.CLOCK),
        (-3900, None),  # made an hour ago; a clock may lag by five minutes
        (0, None),
        (30 * 86400 - 1, None),
        (30 * 86400, Rule.EXPIRED),
    ],
)
def test_a_verdict_counts_for_a_while(
    workshop: Workshop, complete: bytes, now: datetime, late_s: int, rule: Rule | None
) -> None:
    moment = (now + timedelta(seconds=late_s)).astimezone(timezone(timedelta(hours=-8)))
    if rule is None:
        assert workshop.verify(complete, now=moment).verdict is not None
    else:
        assert refused(workshop, complete, now=moment).rule is rule


def test_a_time_without_a_zone_is_refused(workshop: Workshop, complete: bytes, now: datetime) -> None:
    assert refused(workshop, complete, now=now.replace(tzinfo=None)).rule is Rule.CLOCK


@pytest.mark.parametrize("outcome", [VerdictOutcome.FAIL, VerdictOutcome.INCONCLUSIVE])
def test_only_a_pass_is_accepted(workshop: Workshop, make_verdict: MakeVerdict, outcome: VerdictOutcome) -> None:
    published = workshop.published(workshop.unsigned())
    data = workshop.validated(published, verdict=make_verdict(published, outcome=outcome))
    assert refused(workshop, data).rule is Rule.OUTCOME


def test_a_verdict_of_no_gates_is_no_pass(workshop: Workshop, make_verdict: MakeVerdict) -> None:
    published = workshop.published(workshop.unsigned())
    empty = make_verdict(published, gates=(), outcome=VerdictOutcome.INCONCLUSIVE)
    assert refused(workshop, workshop.validated(published, verdict=empty)).rule is Rule.OUTCOME


@pytest.mark.parametrize("field", ["policy_sha256", "contract_fingerprint"])
def test_a_verdict_on_other_bytes(workshop: Workshop, make_verdict: MakeVerdict, field: str) -> None:
    published = workshop.published(workshop.unsigned())
    data = workshop.validated(published, verdict=make_verdict(published, **{field: "0" * 64}))
    error = refused(workshop, data)
    assert error.rule is Rule.STATEMENT
    assert "0" * 64 in str(error)


def test_the_policy_that_was_judged_is_the_one_that_runs(workshop: Workshop, make_onnx: Any, make_verdict: Any) -> None:
    variant = {"policy.int8.onnx": make_onnx(workshop.header(), graph=b"int8")}
    published = workshop.published(workshop.unsigned(variants=variant))
    assert workshop.verify(workshop.validated(published, policy="policy.int8.onnx")).policy == "policy.int8.onnx"
    assert workshop.verify(workshop.validated(published)).policy == "policy.onnx"
    # A verdict on the float graph does not let the quantised one run.
    crossed = workshop.validated(published, policy="policy.int8.onnx", verdict=make_verdict(published, "policy.onnx"))
    assert refused(workshop, crossed).rule is Rule.STATEMENT


def test_a_judged_policy_that_is_not_there(workshop: Workshop, make_onnx: Any, make_verdict: Any) -> None:
    variant = {"policy.int8.onnx": make_onnx(workshop.header(), graph=b"int8")}
    full = workshop.validated(workshop.published(workshop.unsigned(variants=variant)), policy="policy.int8.onnx")
    plain = read_bundle(workshop.published(workshop.unsigned()))
    forged = attach(plain, {"verdict.dsse": read_bundle(full).members["verdict.dsse"]})
    assert refused(workshop, forged).rule is Rule.STATEMENT


def test_a_tampered_member_is_refused_whatever_its_checksum(workshop: Workshop, complete: bytes) -> None:
    members = dict(read_bundle(complete).members)
    members["policy.onnx"] = members["policy.onnx"].replace(b"weights", b"WEIGHTS")
    assert refused(workshop, write_archive(members)).rule is Rule.CONTENTS


def test_a_tampered_manifest_is_refused_before_it_is_parsed(workshop: Workshop, complete: bytes) -> None:
    members = dict(read_bundle(complete).members)
    members["manifest.json"] = b"junk"
    assert refused(workshop, write_archive(members)).rule is Rule.STATEMENT
    assert refused(workshop, write_archive({"policy.onnx": b""})).rule is Rule.ARCHIVE


def test_messages_name_the_rule(workshop: Workshop, complete: bytes) -> None:
    error = refused(workshop, complete + b"\0")
    assert error.rule is Rule.ARCHIVE
    assert str(error) == f"archive: {error.reason}"


def test_the_rules_are_all_documented() -> None:
    from physai.sdk.signing.verify import verify

    assert verify.__doc__ is not None
    assert [rule.value for rule in Rule if f"{rule.value}:" not in verify.__doc__] == []


def test_trust_files_round_trip(workshop: Workshop, tmp_path: Path, now: datetime) -> None:
    trust = workshop.trust.with_revoked("0" * 64, since=now, reason="lost")
    assert trust.version == 4
    workshop.signed(trust).save(tmp_path / "trust.json")
    assert SignedTrust.load(tmp_path / "trust.json").check() == trust
    assert stat.S_IMODE((tmp_path / "trust.json").stat().st_mode) == 0o644


def test_changes_that_change_nothing(workshop: Workshop, now: datetime) -> None:
    trust = workshop.trust.with_revoked("0" * 64, since=now, reason="lost")
    assert trust.with_key(trust.keys[0]) is trust
    assert trust.with_revoked("0" * 64, since=now, reason="again") is trust


def test_changes_that_make_no_sense(workshop: Workshop, now: datetime) -> None:
    trust = workshop.trust
    with pytest.raises(TrustError, match="trusted as publisher and cannot also be a validator's"):
        trust.with_key(workshop.publisher.public_key("validator"))
    revoked = trust.with_revoked(workshop.publisher.key_id, since=now, reason="stolen")
    with pytest.raises(TrustError, match=r"was revoked on .*: stolen"):
        revoked.with_key(workshop.publisher.public_key("publisher"))
    with pytest.raises(TrustError, match="give 1 to 1"):
        trust.with_threshold("validator", 2)
    with pytest.raises(TrustError, match="it has no usable key; add a public key first"):
        revoked.with_threshold("publisher", 1)
    with pytest.raises(TrustError, match="reason"):
        trust.with_revoked("1" * 64, since=now, reason="")


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 3},
        {"thresholds": {"publisher": 0, "validator": 1}},
        {"thresholds": {"publisher": True, "validator": 1}},
        {"thresholds": {"publisher": 1}, "extra": {}},
        {"keys": "all"},
        {"revoked": [{"key_id": "*", "since": "2026-01-01T00:00:00Z", "reason": "x"}]},
        {"revoked": [{"key_id": "0" * 64, "since": "once", "reason": "x"}]},
    ],
)
def test_malformed_trust_files(workshop: Workshop, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "trust.json"
    workshop.signed().save(path)
    document = json.loads(path.read_text())
    changed = {"trust": document["trust"] | change} if "format_version" not in change else change
    path.write_text(json.dumps(document | changed))
    with pytest.raises(TrustError):
        SignedTrust.load(path)


def test_a_key_twice_or_under_a_false_id(workshop: Workshop, tmp_path: Path) -> None:
    document = json.loads(workshop.signed().encode())
    key = document["trust"]["keys"][0]
    for keys in ([key, key], [{**key, "key_id": "0" * 64}], [key, {**key, "role": "validator"}]):
        with pytest.raises(TrustError):
            SignedTrust.parse(json.dumps({**document, "trust": {**document["trust"], "keys": keys}}), source="x")


def test_files_that_are_none(tmp_path: Path) -> None:
    for data in (b"", b"[]", b"{}", b"[" * 100_000, b'{"format_version":2}' + b" " * (1 << 20), b"\xff"):
        (tmp_path / "trust.json").write_bytes(data)
        with pytest.raises(TrustError):
            SignedTrust.load(tmp_path / "trust.json")
    with pytest.raises(TrustError, match="cannot be read"):
        SignedTrust.load(tmp_path)


def test_expiry_is_part_of_what_is_signed(workshop: Workshop, complete: bytes, now: datetime) -> None:
    bundle = read_bundle(complete)
    later = workshop.validated(complete, SigningKey.generate(), expires=utc_text(now + timedelta(days=3000)))
    assert refused(workshop, later).rule is Rule.KEY
    signature = json.loads(bundle.members["verdict.dsse"])["signatures"]
    forged = json.loads(read_bundle(later).members["verdict.dsse"]) | {"signatures": signature}
    raw = json.dumps(forged, separators=(",", ":"), sort_keys=True).encode()
    assert refused(workshop, attach(bundle, {"verdict.dsse": raw})).rule is Rule.SIGNATURE
