"""`physai keys`: create and revoke signing keys, and edit trust files; an owner signs every change."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.shared.key_files import key_of_role
from physai.sdk.cli.shared.passphrases import passphrase_from
from physai.sdk.cli.verb import AsJson, Option, noun, verb
from physai.sdk.signing.files.statements import sign_ticks, state_time
from physai.sdk.signing.files.trust_changes import (
    TrustFile,
    change_trust,
    make_keys,
    revoke_key,
    rotate_key,
    sign_trust,
)
from physai.sdk.signing.files.user_keys import default_trust, key_folder

if TYPE_CHECKING:
    from datetime import datetime

    from physai.sdk.evidence.latency import LatencyEvidence
    from physai.sdk.signing.ed25519 import Passphrase
    from physai.sdk.signing.trust_store import TrustStore

_Change = Callable[..., TrustFile]


@dataclass(frozen=True, kw_only=True)
class _Encryption:
    """Encryption of a new private key.

    Attributes:
        encrypt: encrypt the private key with a passphrase.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """

    encrypt: bool = False
    passphrase_file: Path | None = None

    def passphrase(self) -> Passphrase | None:
        """Reads the passphrase of a new key; None without encryption."""
        return passphrase_from(self.passphrase_file, confirm=True) if self.encrypt or self.passphrase_file else None


@dataclass(frozen=True, kw_only=True)
class _Owners:
    """Owners who sign a trust file.

    Attributes:
        owner_key: owner's private key that signs the trust file; repeatable. None for owner.key in the same folder.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """

    owner_key: Annotated[Sequence[Path], Option(repeat=True)] = ()
    passphrase_file: Path | None = None

    def sign(self, call: _Change) -> TrustFile:
        """Has the owners sign a change."""
        return call(owner_keys=self.owner_key, passphrase=passphrase_from(self.passphrase_file))


_Encrypted = Annotated[_Encryption, Option(flatten=True)]
_Signing = Annotated[_Owners, Option(flatten=True)]


@verb(make_keys, summary="create an owner's, a publisher's and a validator's key, and a trust file for them")
def _init(call: _Change, *, encryption: _Encrypted) -> int:
    """Create keys."""
    from physai.sdk.signing.attestation import ROLES
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX

    made = call(new_passphrase=encryption.passphrase())
    private_keys = f"{made.path.parent}/{{{','.join(ROLES)}}}{PRIVATE_SUFFIX}"
    print(printable(_keys_text(made.signed.trust)))
    print(printable(f"\nprivate keys  {private_keys}: back them up and never share them"))
    print(printable(f"trust file    {made.path}: install it on the robots. It is signed by the owner's key,"))
    print("              which is used for nothing else: keep that key offline")
    return 0


@verb(change_trust, summary="add public keys to a trust file, set thresholds")
def _trust(call: _Change, *, owners: _Signing) -> int:
    """Change a trust file."""
    return _changed(owners.sign(call))


@verb(rotate_key, summary="create the successor of a key; both are trusted until you revoke one")
def _rotate(
    call: _Change,
    *,
    key: Path,
    owner_key: Annotated[Sequence[Path], Option(repeat=True)] = (),
    encryption: _Encrypted,
) -> int:
    """Rotate a key.

    Args:
        owner_key: owner's private key that signs the trust file; repeatable. None for owner.key in the same folder.
    """
    from physai.sdk.signing.ed25519 import load_public_key, public_path

    old = load_public_key(public_path(key))
    passphrase = passphrase_from(encryption.passphrase_file)
    made = call(owner_keys=owner_key, passphrase=passphrase, new_passphrase=encryption.passphrase())
    _changed(made)
    remedy = f"physai keys revoke {old.key_id[:16]} --reason rotated"
    print(
        printable(f"\nnew key  {made.new_key}\nnext     install {made.path} on the robots and sign with the new key;")
    )
    print(printable(f"         once every robot runs a bundle signed with it: {remedy}"))
    return 0


@verb(revoke_key, summary="revoke a key")
def _revoke(call: _Change, *, owners: _Signing) -> int:
    """Revoke a key."""
    made = owners.sign(call)
    _changed(made)
    print(printable(f"\nnext  install {made.path} on the robots; until then they still trust the key"))
    return 0


def _changed(made: TrustFile) -> int:
    """Prints a trust file after a change."""
    version = made.signed.trust.version
    if not made.changed:
        print(printable(f"{made.path} is unchanged (version {version})"))
        return 0
    remedy = "(physai keys sign --owner-key KEY)"
    unsigned = f"; owner signatures still missing: {made.missing} {remedy}" if made.missing else ""
    print(printable(_keys_text(made.signed.trust)))
    print(printable(f"\n{made.path} is version {version}{unsigned}"))
    return 0


@verb(sign_trust, summary="add an owner's signature to a trust file")
def _sign(call: _Change, *, owners: _Signing) -> int:
    """Sign a trust file."""
    made = owners.sign(call)
    trust = made.signed.trust
    needed, count = trust.threshold("owner"), made.signed.count(trust.usable("owner"))
    print(printable(f"{made.path}, version {trust.version}: {count} of {needed} owners have signed"))
    return 0


@verb(state_time, summary="sign the current time, for a robot with an unreliable clock")
def _time(
    call: Callable[..., datetime],
    *,
    robot: str,
    replaces: str | None,
    out: Path,
    key: Annotated[Sequence[Path], Option(repeat=True)] = (),
    passphrase_file: Path | None = None,
) -> int:
    """Sign the time.

    Args:
        key: a validator's or owner's key; repeatable. None for validator.key, or owner.key, of ~/.config/physai/keys.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    from physai.sdk.evidence.verdict import utc_text
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, load_private_key

    role = "validator" if replaces is None else "owner"
    passphrase = passphrase_from(passphrase_file)
    files = key or [key_folder() / f"{role}{PRIVATE_SUFFIX}"]
    now = call([load_private_key(file, passphrase=passphrase) for file in files])
    print(printable(f"{out}: states {utc_text(now)} for {robot}"))
    print("next  physai flash HOST BUNDLE --time FILE, or on the robot: physai robot time --statement FILE")
    return 0


@verb(sign_ticks, summary="sign tick times that you measured on a robot yourself")
def _ticks(
    call: Callable[..., LatencyEvidence],
    *,
    file: Path,
    key: Path | None = None,
    passphrase_file: Path | None = None,
) -> int:
    """Sign tick times.

    Args:
        key: validator's key. None for ~/.config/physai/keys/validator.key.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    signing = key_of_role("validator", key, passphrase_file)
    signed = call(key=signing)
    found = f"{len(signed.tick_s)} ticks from {signed.origin}, signed by {signing.key_id[:16]}"
    print(printable(f"{file}: {found}"))
    return 0


@verb(summary="show the keys and thresholds of a trust file")
def _list(*, trust: Path | None = None, as_json: AsJson = False) -> int:
    """Show a trust file.

    Args:
        trust: the trust file. None for ~/.config/physai/keys/trust.json.
    """
    from physai.sdk.signing.trust_file import SignedTrust

    store = SignedTrust.load(trust or default_trust()).trust
    print(json.dumps(store.model_dump(mode="json"), indent=2) if as_json else printable(_keys_text(store)))
    return 0


def _keys_text(store: TrustStore) -> str:
    from physai.sdk.signing.attestation import ROLES

    rows: list[tuple[str, str, str, str]] = []
    for key in store.keys:
        revoked = store.revocation(key.key_id)
        state = "trusted" if revoked is None else f"revoked {revoked.since}: {revoked.reason}"
        rows.append((key.role, key.key_id[:16], key.label, state))
    known = {key.key_id for key in store.keys}
    rows += [("", r.key_id[:16], "", f"revoked {r.since}: {r.reason}") for r in store.revoked if r.key_id not in known]
    lines = [table(("role", "key", "label", ""), rows, indent="")] if rows else ["no keys"]
    for role in ROLES:
        needed, usable = store.threshold(role), len(store.usable(role))
        short = "" if usable >= needed else ": too few keys, nothing can be accepted"
        lines.append(f"{role}: {needed} of {usable} must sign{short}")
    return "\n".join(lines)


command = noun(
    "manage signing keys and trust files",
    {
        "init": _init,
        "trust": _trust,
        "rotate": _rotate,
        "revoke": _revoke,
        "sign": _sign,
        "time": _time,
        "ticks": _ticks,
        "list": _list,
    },
)
