"""Signing: what may be signed, and that what was signed is accepted."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from physai.sdk.bundle.archive import MAX_MEMBERS, MAX_SIGNATURES, BundleError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.sign import read_claims, sign_bundle, sign_verdict

Workshop = Any
MakeVerdict = Callable[..., Any]


def test_signed_as_the_library_does_it(workshop: Workshop, make_verdict: MakeVerdict, now: datetime) -> None:
    plain = workshop.unsigned()
    published = sign_bundle(read_bundle(plain), workshop.publisher)
    assert published == workshop.published(plain)
    complete = sign_verdict(read_bundle(published), workshop.validator, make_verdict(published), now=now)
    found = workshop.verify(complete)
    assert found.verdict.robot == "pendulum"
    assert found.verdict.expires == now + timedelta(days=90)


def test_the_order_of_signing_does_not_matter(workshop: Workshop, make_verdict: MakeVerdict, now: datetime) -> None:
    plain = workshop.unsigned()
    verdict = make_verdict(plain)
    first = sign_verdict(read_bundle(plain), workshop.validator, verdict, now=now)
    one = sign_bundle(read_bundle(first), workshop.publisher)
    two = sign_verdict(read_bundle(workshop.published(plain)), workshop.validator, verdict, now=now)
    assert one == two


def test_a_verdict_finds_the_policy_it_is_on(
    workshop: Workshop, make_onnx: Any, make_verdict: MakeVerdict, now: datetime
) -> None:
    data = workshop.unsigned(variants={"policy.fp16.onnx": make_onnx(workshop.header(), graph=b"half")})
    for policy in ("policy.onnx", "policy.fp16.onnx"):
        signed = sign_verdict(read_bundle(data), workshop.validator, make_verdict(data, policy), now=now)
        claims = read_claims(read_bundle(signed))
        assert claims.verdict is not None
        assert claims.verdict.policy == policy


@pytest.mark.parametrize(
    ("verdict", "options", "message"),
    [
        (
            {"policy_sha256": "0" * 64},
            {},
            "verdict is on a policy of SHA-256 000000000000, the bundle holds policy.onnx",
        ),
        ({"contract_fingerprint": "0" * 64}, {}, "under the contract 000000000000"),
        ({"outcome": VerdictOutcome.FAIL}, {}, "the verdict is FAIL; only a PASS"),
        ({"outcome": VerdictOutcome.INCONCLUSIVE}, {}, "the verdict is INCONCLUSIVE"),
        ({}, {"robot": "go2"}, "the bundle is for pendulum: the robot must be pendulum or pendulum/UNIT, got 'go2'"),
        ({}, {"robot": "pendulum/a b"}, "robot 'pendulum/a b'"),
        ({"created": "2096-01-01T00:00:00Z"}, {}, "created on 2096-01-01T00:00:00Z, but it is 2026-11-21T12:00:00Z"),
        ({}, {"lifetime": timedelta(0)}, "1 to 3650 days"),
        ({}, {"lifetime": timedelta(days=4000)}, "1 to 3650 days"),
    ],
)
def test_what_no_validator_signs(
    workshop: Workshop,
    make_verdict: MakeVerdict,
    now: datetime,
    verdict: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    data = workshop.unsigned()
    with pytest.raises(BundleError, match=message.replace(".", r"\.")):
        sign_verdict(read_bundle(data), workshop.validator, make_verdict(data, **verdict), now=now, **options)


def test_no_version_ends_updates_for_good(workshop: Workshop, make_verdict: MakeVerdict, now: datetime) -> None:
    """A publisher's key alone could otherwise raise the floor of a robot to the last version there is."""
    tomorrow = int(now.timestamp()) + 86_400
    latest = workshop.unsigned(version=tomorrow)
    assert sign_verdict(read_bundle(latest), workshop.validator, make_verdict(latest), now=now)
    for version in (tomorrow + 1, 2**53 - 1):
        last = workshop.unsigned(version=version)
        with pytest.raises(BundleError, match=rf"is version {version}; .* time, {tomorrow - 86_400}: .* `version`"):
            sign_verdict(read_bundle(last), workshop.validator, make_verdict(last), now=now)


def test_a_second_validator_signs_the_same(
    workshop: Workshop, complete: bytes, make_verdict: MakeVerdict, now: datetime
) -> None:
    """Whose own run came to the same, an hour later."""
    second, mine = SigningKey.generate(), make_verdict(complete, created="2026-11-21T11:30:00Z")
    both = read_bundle(sign_verdict(read_bundle(complete), second, mine, now=now))
    assert set(read_claims(both).validators) == {workshop.validator.key_id, second.key_id}
    assert read_claims(both).verdict == read_claims(read_bundle(complete)).verdict
    alone = read_bundle(sign_verdict(both, workshop.validator, mine, now=now, replace=True))
    assert read_claims(alone).validators == (workshop.validator.key_id,)


def test_a_second_validator_signs_no_time_or_gates_that_others_made_up(
    workshop: Workshop, make_verdict: MakeVerdict, now: datetime
) -> None:
    """Anybody can put a verdict of their own into a bundle; what a validator adds to it counts without them."""
    plain = workshop.unsigned()
    stranger, mine = SigningKey.generate(), make_verdict(plain)

    def planted(verdict: Any, **options: Any) -> Any:
        return read_bundle(sign_verdict(read_bundle(plain), stranger, verdict, **options))

    for_years = planted(mine, now=now, lifetime=timedelta(days=3650))
    with pytest.raises(BundleError, match=r"expires on 2036-11-18T12:00:00Z, later than your 90 days: .*`replace`"):
        sign_verdict(for_years, workshop.validator, mine, now=now)
    from_afar = planted(make_verdict(plain, created="2026-11-30T12:00:00Z"), now=now + timedelta(days=10))
    with pytest.raises(BundleError, match=r"created on 2026-11-30T12:00:00Z, but it is 2026-11-21T12:00:00Z"):
        sign_verdict(from_afar, workshop.validator, mine, now=now, lifetime=timedelta(days=3650))
    softer = tuple(gate.model_copy(update={"threshold": "none"}) for gate in mine.gates)
    with pytest.raises(BundleError, match=r"differs from this one in gates; .* `replace`"):
        sign_verdict(planted(mine.model_copy(update={"gates": softer}), now=now), workshop.validator, mine, now=now)


def test_a_new_verdict_drops_what_others_have_signed_only_when_asked_to(
    workshop: Workshop, complete: bytes, make_verdict: MakeVerdict, now: datetime
) -> None:
    second, bundle = SigningKey.generate(), read_bundle(complete)
    verdict = make_verdict(complete, twin_hash="e" * 64)
    with pytest.raises(BundleError, match=rf"signed by {workshop.validator.key_id[:16]}.* in twin_hash; .* `replace`"):
        sign_verdict(bundle, second, verdict, now=now)
    data = sign_verdict(bundle, second, verdict, now=now, replace=True)
    assert read_claims(read_bundle(data)).validators == (second.key_id,)
    own = read_bundle(sign_verdict(bundle, workshop.validator, verdict, now=now))
    assert read_claims(own).validators == (workshop.validator.key_id,)
    assert read_claims(own).verdict != read_claims(bundle).verdict


def test_publishers_beside_and_instead_of_each_other(workshop: Workshop, complete: bytes) -> None:
    second = SigningKey.generate()
    both = read_bundle(sign_bundle(read_bundle(complete), second))
    assert set(read_claims(both).publishers) == {workshop.publisher.key_id, second.key_id}
    alone = sign_bundle(both, workshop.publisher, replace=True)
    assert alone == complete


def test_signatures_are_bounded(workshop: Workshop) -> None:
    bundle = read_bundle(workshop.unsigned())
    room = MAX_MEMBERS - len(bundle.members)
    for _ in range(room):
        bundle = read_bundle(sign_bundle(bundle, SigningKey.generate()))
    assert room >= MAX_SIGNATURES
    with pytest.raises(BundleError, match=f"{MAX_MEMBERS + 1} members, a bundle has at most"):
        sign_bundle(bundle, SigningKey.generate())


def test_claims_of_what_cannot_be_read(workshop: Workshop, complete: bytes) -> None:
    from physai.sdk.bundle.manifest import attach

    bundle = read_bundle(complete)
    claims = read_claims(read_bundle(attach(bundle, {"verdict.dsse": b"junk"})))
    assert claims.verdict is None
    assert "not a DSSE envelope" in claims.problem
    assert claims.publishers == (workshop.publisher.key_id,)
    other = read_bundle(workshop.complete(version=6)).members["verdict.dsse"]
    assert "another bundle" in read_claims(read_bundle(attach(bundle, {"verdict.dsse": other}))).problem
