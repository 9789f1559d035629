"""The promise: a robot takes no trust file that its owners have not signed, and none older than the one it has."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.signing.attestation import PAYLOAD_TYPE, Role, Signature
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.trust_store import TrustError, TrustStore

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
Change = Callable[[TrustStore], TrustStore]

OWNER, SECOND, THIEF = (SigningKey.generate() for _ in range(3))


def with_key(key: SigningKey, role: Role = "owner") -> Change:
    return lambda store: store.with_key(key.public_key(role))


def store(*changes: Change) -> TrustStore:
    made = TrustStore()
    for change in changes:
        made = change(made)
    return made


def signed(trust: TrustStore, *keys: SigningKey) -> SignedTrust:
    return SignedTrust(trust).signed(keys)


KNOWN = store(with_key(OWNER), with_key(SECOND), with_key(SigningKey.generate(), "publisher"))
TWO_OWNERS = KNOWN.with_threshold("owner", 2)


def test_the_first_file_is_signed_by_its_own_owners() -> None:
    assert signed(KNOWN, OWNER).check() == KNOWN
    for keys in ((), (THIEF,)):
        with pytest.raises(TrustError, match="version 3, is signed by 0 of 1 of its own owners"):
            signed(KNOWN, *keys).check()
    with pytest.raises(TrustError, match="signed by 0 of 1 of its own owners"):
        signed(TrustStore()).check()


def test_the_next_file_is_signed_by_the_owners_before() -> None:
    later = KNOWN.with_key(SigningKey.generate().public_key("validator"))
    assert signed(later, OWNER).check_after(KNOWN) == later
    stolen = store(with_key(THIEF)).model_copy(update={"version": 99})
    with pytest.raises(TrustError, match="signed by 0 of 1 of the owners that this robot knows"):
        signed(stolen, THIEF).check_after(KNOWN)
    taken_over = KNOWN.with_key(THIEF.public_key("owner"))
    with pytest.raises(TrustError, match="signed by 0 of 1 of the owners that this robot knows"):
        signed(taken_over, THIEF).check_after(KNOWN)


def test_versions_only_rise() -> None:
    """Version 3, then a version 0 without the key, then the old file with the revoked key."""
    revoked = KNOWN.with_revoked(SECOND.key_id, since=NOW, reason="lost")
    bare = store(with_key(OWNER)).model_copy(update={"version": 0})
    for older in (bare, KNOWN):
        with pytest.raises(
            TrustError, match=rf"version {older.version}, the robot has version 4 and accepts only a higher"
        ):
            signed(older, OWNER).check_after(revoked)
    again = KNOWN.model_copy(update={"version": 9})
    with pytest.raises(TrustError, match=f"key {SECOND.key_id[:16]} was revoked on this robot on .*: lost"):
        signed(again, OWNER).check_after(revoked)
    # One more file of the same version is not the same file.
    other = KNOWN.model_copy(update={"keys": KNOWN.keys[:1]})
    with pytest.raises(TrustError, match="version 3, the robot has version 3"):
        signed(other, OWNER).check_after(KNOWN)
    assert signed(KNOWN, OWNER).check_after(KNOWN) == KNOWN


def test_a_threshold_falls_with_the_signatures_it_asks_for() -> None:
    lower = TWO_OWNERS.with_threshold("owner", 1)
    with pytest.raises(TrustError, match="signed by 1 of 2 of the owners that this robot knows"):
        signed(lower, OWNER).check_after(TWO_OWNERS)
    assert signed(lower, OWNER, SECOND).check_after(TWO_OWNERS) == lower
    higher = KNOWN.with_threshold("owner", 2)
    with pytest.raises(TrustError, match="signed by 1 of 2 of its own owners"):
        signed(higher, OWNER).check_after(KNOWN)


def test_one_owner_counts_once() -> None:
    once = signed(TWO_OWNERS, OWNER).signatures[0]
    twice = SignedTrust(TWO_OWNERS, (once, replace(once, key_id=SECOND.key_id)))
    assert twice.count(TWO_OWNERS.usable("owner")) == 1


def test_a_revoked_owner_does_not_count() -> None:
    revoked = KNOWN.with_revoked(SECOND.key_id, since=NOW, reason="lost")
    with pytest.raises(TrustError, match="signed by 0 of 1"):
        signed(revoked, SECOND).check()
    later = revoked.with_key(SigningKey.generate().public_key("validator"))
    with pytest.raises(TrustError, match="signed by 0 of 1"):
        signed(later, SECOND).check_after(revoked)


def test_the_last_owner_is_not_revoked_by_mistake() -> None:
    with pytest.raises(TrustError, match="0 owners remain, but 1 must sign every change"):
        store(with_key(OWNER)).with_revoked(OWNER.key_id, since=NOW, reason="lost")


def test_no_other_document_passes_for_a_trust_file() -> None:
    payload = canonical_json(KNOWN)
    assert SignedTrust(KNOWN, (OWNER.sign(payload, PAYLOAD_TYPE),)).count(KNOWN.usable("owner")) == 0
    assert OWNER.sign(payload) == OWNER.sign(payload, PAYLOAD_TYPE)


def test_files_round_trip(tmp_path: Path) -> None:
    file = signed(TWO_OWNERS, OWNER, SECOND)
    file.save(tmp_path / "trust.json")
    assert SignedTrust.load(tmp_path / "trust.json") == file


def test_an_owner_signs_once_in_a_file(tmp_path: Path) -> None:
    one = signed(KNOWN, OWNER).signatures[0]
    with pytest.raises(ValueError, match="occurs twice"):
        SignedTrust(KNOWN, (one, Signature(one.key_id, bytes(64)))).encode()


class Succession(RuleBasedStateMachine):
    """Owners and a thief who has every file there ever was, and some owners' keys, offer files in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.owners = {key.key_id: key for key in (SigningKey.generate() for _ in range(3))}
        self.thieves = [SigningKey.generate()]
        first = store(*(with_key(key) for key in self.owners.values())).with_threshold("owner", 2)
        self.known = first
        self.newest = first
        self.files = [signed(first, *self.owners.values())]
        self.revoked: set[str] = set()
        self.stolen: str | None = None

    def publish(self, trust: TrustStore) -> None:
        keys = [self.owners[key.key_id] for key in self.newest.usable("owner") if key.key_id in self.owners]
        self.files.append(signed(trust, *keys))
        self.newest = trust

    def offer(self, file: SignedTrust) -> None:
        try:
            self.known = file.check_after(self.known)
        except TrustError:
            return

    @rule(role=st.sampled_from(["publisher", "validator"]))
    def believe_one_more(self, role: Role) -> None:
        self.publish(self.newest.with_key(SigningKey.generate().public_key(role)))

    @rule()
    @precondition(lambda self: len(self.newest.usable("publisher")) > 0)
    def revoke(self) -> None:
        key_id = self.newest.usable("publisher")[0].key_id
        self.publish(self.newest.with_revoked(key_id, since=NOW, reason="stolen"))

    @rule(data=st.data())
    def put_on_the_robot(self, data: Any) -> None:
        """Any file that the owners ever signed, by whoever has a copy."""
        self.offer(data.draw(st.sampled_from(self.files)))
        self.revoked |= {one.key_id for one in self.known.revoked}

    @rule(data=st.data())
    def forge(self, data: Any) -> None:
        """The thief has one of three owners' keys, and signatures from every file."""
        base = data.draw(st.sampled_from(self.files)).trust
        change = data.draw(st.sampled_from(["key", "owner", "threshold", "forget", "version"]))
        version = base.version + data.draw(st.integers(0, 3))
        update: dict[str, Any] = {"version": version}
        if change == "key":
            update["keys"] = (*base.keys, self.thieves[0].public_key("publisher"))
        elif change == "owner":
            update["keys"] = (*base.keys, self.thieves[0].public_key("owner"))
        elif change == "threshold":
            update["thresholds"] = base.thresholds.model_copy(update={"owner": 1})
        elif change == "forget":
            update["revoked"] = ()
        else:
            update["version"] = base.version + 50
        trust = base.model_copy(update=update)
        if trust in [file.trust for file in self.files]:
            return
        keys = [self.thieves[0], next(iter(self.owners.values()))]
        borrowed = data.draw(st.sampled_from(self.files)).signatures
        self.offer(SignedTrust(trust, borrowed).signed(keys))

    @invariant()
    def only_what_the_owners_signed_is_believed(self) -> None:
        assert self.known in [file.trust for file in self.files]

    @invariant()
    def nothing_revoked_is_forgotten(self) -> None:
        assert self.revoked <= {one.key_id for one in self.known.revoked}


Succession.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSuccession = Succession.TestCase
