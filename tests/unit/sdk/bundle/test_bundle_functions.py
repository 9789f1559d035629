"""Public functions on bundles, keys and trust files: what `physai bundle` and `physai keys` do, in one call."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from physai.sdk import (
    SignedTrust,
    VerdictTerms,
    VerificationError,
    change_trust,
    load_key,
    make_keys,
    pack_bundle,
    read_bundle,
    revoke_key,
    rotate_key,
    sign_as_publisher,
    sign_as_validator,
    sign_trust,
    state_time,
    verify_bundle,
)
from physai.sdk.evidence.verdict import load_verdict, save_verdict, utc_text
from physai.sdk.signing.files import rederivation
from physai.sdk.signing.time_statement import read_time

Workshop = Any


@pytest.fixture
def report(
    tmp_path: Path, workshop: Workshop, make_verdict: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Folder with a verdict on `run`; in the simulator's place, it is recomputed by reading it."""
    for name, data in workshop.members().items():
        (tmp_path / name).write_bytes(data)
    save_verdict(make_verdict(workshop.unsigned(), created=utc_text(datetime.now(UTC))), tmp_path / "verdict.json")

    def read(folder: Path, members: object, **options: object) -> Any:
        return load_verdict(folder)

    class Entry:
        load = staticmethod(lambda: read)

    def found(group: str) -> dict[str, Entry]:
        return {"sim": Entry()}

    monkeypatch.setattr(rederivation, "contributions", found)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_a_bundle_is_packed_signed_and_verified(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_keys(report / "keys", label="lab")
    publisher, validator = (load_key(role, report / f"keys/{role}.key") for role in ("publisher", "validator"))
    terms = VerdictTerms(robot="pendulum/7", days=3, trust=made.path)
    packed = pack_bundle(report, out=report / "a.physai", publisher=publisher, variants=[], version=4)
    assert read_bundle(packed.path).id == packed.bundle.id
    with pytest.raises(VerificationError, match="no-verdict"):
        verify_bundle(packed.path, trust=made.path)
    assert verify_bundle(packed.path, trust=made.path, require_verdict=False).verdict is None
    signed = sign_as_validator(packed.path, validator, report, terms=terms, out=report / "b.physai")
    verified = verify_bundle(signed.path, trust=made.path, robot="pendulum/7", floor=4)
    assert verified.verdict is not None
    assert verified.verdict.robot == "pendulum/7"
    later = datetime.now(UTC) + timedelta(days=4)
    with pytest.raises(VerificationError, match="expired"):
        verify_bundle(signed.path, trust=made.path, robot="pendulum/7", at=later)
    at_once = pack_bundle(
        report, out=report / "c.physai", publisher=publisher, version=4, report=report, validator=validator, terms=terms
    )
    assert verify_bundle(at_once.path, trust=made.path, robot="pendulum/7").policy == "policy.onnx"
    assert capsys.readouterr() == ("", "")


def test_a_trust_file_is_changed_by_its_owners(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, other = make_keys(report / "keys"), make_keys(report / "other", new_passphrase=lambda name: "long passphrase")
    assert (made.signed.check().version, made.missing) == (3, 0)
    more = change_trust([report / "other/publisher.pub"], thresholds={"publisher": 2}, trust=made.path)
    assert more.signed.trust.threshold("publisher") == 2
    assert not change_trust([report / "other/publisher.pub"], trust=made.path).changed
    packed = pack_bundle(
        report, out=report / "a.physai", publisher=load_key("publisher", report / "keys/publisher.key")
    )
    with pytest.raises(VerificationError, match="1 of 2 publisher signatures"):
        verify_bundle(packed.path, trust=made.path, require_verdict=False)
    second = load_key("publisher", report / "other/publisher.key", passphrase=lambda name: "long passphrase")
    sign_as_publisher(packed.path, second)
    verify_bundle(packed.path, trust=made.path, require_verdict=False)
    rotated = rotate_key(report / "keys/validator.key", trust=made.path)
    assert rotated.new_key == report / "keys/validator-2.key"
    owner = load_key("owner", report / "keys/owner.key")
    revoked = revoke_key(second.key_id, reason="left", trust=made.path, owner_keys=[owner])
    assert len(SignedTrust.load(revoked.path).check().revoked) == 1
    assert sign_trust(trust=other.path, passphrase=lambda name: "long passphrase").missing == 0
    assert capsys.readouterr() == ("", "")


def test_the_time_is_stated(report: Path) -> None:
    trust = make_keys(report / "keys").signed.check()
    key = load_key("validator", report / "keys/validator.key")
    now = state_time([key], robot="pendulum", out=report / "time.json")
    assert read_time((report / "time.json").read_bytes(), trust, robot="pendulum").time == utc_text(now)
