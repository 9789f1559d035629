"""Keys and trust files: created and changed in one call; an owner signs every change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.option import Option
from physai.sdk.signing.files.user_keys import default_trust, key_folder, load_key

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustStore

SHORTEST_PREFIX = 8
"""Minimum number of digits that identify a key."""

_Passphrase = Callable[[str], str]


@dataclass(frozen=True)
class TrustFile:
    """A trust file as a change left it."""

    path: Path
    signed: SignedTrust
    missing: int = 0
    """Owner signatures that a robot still needs before it accepts the file."""
    changed: bool = True
    """Whether the file was written; False if it was so already."""
    new_key: Path | None = None
    """Private key file that the change created."""


def make_keys(
    folder: Annotated[Path | str | None, Option(word=True, metavar="DIR")] = None,
    *,
    label: Annotated[str, Option(metavar="TEXT")] = "",
    new_passphrase: _Passphrase | None = None,
) -> TrustFile:
    """Create an owner's, a publisher's and a validator's key, and a trust file for them.

    Args:
        folder: new folder. None for ~/.config/physai/keys.
        label: holder of the keys.
        new_passphrase: called with the folder's name for the passphrase that encrypts the private keys; None to save
            them unencrypted.

    Returns:
        The trust file, signed by the new owner's key.

    Raises:
        KeyFileError: a file exists already or cannot be written, or the label or the passphrase is not allowed.
    """
    from physai.sdk.signing.attestation import ROLES
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, PUBLIC_SUFFIX, KeyFileError, SigningKey, public_path
    from physai.sdk.signing.trust_file import TRUST_FILE, SignedTrust
    from physai.sdk.signing.trust_store import TrustStore

    folder = Path(folder or key_folder())
    names = [f"{role}{suffix}" for role in ROLES for suffix in (PRIVATE_SUFFIX, PUBLIC_SUFFIX)]
    for name in (*names, TRUST_FILE):
        if (folder / name).exists():
            raise KeyFileError(
                f"{folder / name} exists; name another folder, or replace a key with: physai keys rotate"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise KeyFileError(f"{folder}: cannot be created: {error.strerror}") from None
    passphrase = None if new_passphrase is None else new_passphrase(str(folder))
    store, created = TrustStore(), list[Path]()
    keys: dict[Role, SigningKey] = {role: SigningKey.generate() for role in ROLES}
    try:
        for role, key in keys.items():
            private = folder / f"{role}{PRIVATE_SUFFIX}"
            public = _save(key, private, role, label, passphrase)
            created += [private, public_path(private)]
            store = store.with_key(public)
        signed = SignedTrust(store).signed([keys["owner"]])
        signed.save(folder / TRUST_FILE)
    except BaseException:
        # The keys have not been used, and a partial set would block the next attempt.
        for path in created:
            path.unlink(missing_ok=True)
        raise
    return TrustFile(folder / TRUST_FILE, signed)


def change_trust(
    keys: Annotated[Sequence[Path], Option(word=True, metavar="PUB")] = (),
    *,
    thresholds: Annotated[
        Mapping[str, int | str] | None, Option(flags=("--threshold",), metavar="ROLE=N", repeat=True)
    ] = None,
    trust: Path | str | None = None,
    owner_keys: Sequence[SigningKey | Path | str] = (),
    passphrase: _Passphrase | None = None,
) -> TrustFile:
    """Add public keys to a trust file and set thresholds; the file is created if there is none.

    Args:
        keys: public key files.
        thresholds: how many owners, publishers or validators must sign: validator=2.
        trust: the trust file. None for ~/.config/physai/keys/trust.json.
        owner_keys: owners' private keys that sign the trust file, or their files; empty for owner.key in its folder.
        passphrase: called with the name of a key file that is encrypted.

    Raises:
        TrustError: there is nothing to change, the trust file is not signed by its owners, or a threshold is out of
            range.
        KeyFileError: a key cannot be read.
    """
    from physai.sdk.signing.ed25519 import load_public_key
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustError, TrustStore

    if not keys and not thresholds:
        raise TrustError("nothing to change: give public key files, or `thresholds` ROLE=N")
    path = Path(trust or default_trust())
    before = _load(path) if path.exists() else SignedTrust(TrustStore())
    store = before.trust
    for file in keys:
        store = store.with_key(load_public_key(Path(file)))
    for role, number in (thresholds or {}).items():
        store = _with_threshold(store, role, str(number))
    return _change(before, store, path, owner_keys, passphrase)


def rotate_key(
    key: Annotated[Path | str, Option(metavar="KEY")],
    *,
    trust: Path | str | None = None,
    owner_keys: Sequence[SigningKey | Path | str] = (),
    passphrase: _Passphrase | None = None,
    new_passphrase: _Passphrase | None = None,
) -> TrustFile:
    """Create the successor of a key; both are trusted until one is revoked.

    Args:
        key: private key file to replace, next to its .pub file.
        trust: the trust file. None for ~/.config/physai/keys/trust.json.
        owner_keys: owners' private keys that sign the trust file, or their files; empty for owner.key in its folder.
        passphrase: called with the name of a key file that is encrypted.
        new_passphrase: called with the new key's file name for the passphrase that encrypts the key; None to save it
            unencrypted.

    Returns:
        The changed trust file, with the new key's file.

    Raises:
        KeyFileError: a key cannot be read or written.
        TrustError: the trust file is missing, or not signed by its owners.
    """
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, SigningKey, load_public_key, public_path

    old, path = Path(key), Path(trust or default_trust())
    public = load_public_key(public_path(old))
    before = _load(path)
    successor = next(
        new for n in range(2, 10_000) if not (new := old.with_name(f"{public.role}-{n}{PRIVATE_SUFFIX}")).exists()
    )
    secret = None if new_passphrase is None else new_passphrase(str(successor))
    # Save the key before the trust file, so that every key in a trust file exists.
    fresh = SigningKey.generate()
    store = before.trust.with_key(_save(fresh, successor, public.role, public.label, secret))
    also = [fresh] if public.role == "owner" else []
    return _change(before, store, path, owner_keys, passphrase, also=also, new_key=successor)


def revoke_key(
    key: Annotated[str | Path, Option(metavar="KEY")],
    *,
    reason: Annotated[str, Option(metavar="TEXT")],
    trust: Path | str | None = None,
    owner_keys: Sequence[SigningKey | Path | str] = (),
    passphrase: _Passphrase | None = None,
) -> TrustFile:
    """Revoke a key.

    Args:
        key: key id, its first 8 digits or more, or a public key file.
        reason: shown when a bundle is refused for this key.
        trust: the trust file. None for ~/.config/physai/keys/trust.json.
        owner_keys: owners' private keys that sign the trust file, or their files; empty for owner.key in its folder.
        passphrase: called with the name of a key file that is encrypted.

    Raises:
        TrustError: the key is not found, too few owners would remain, or the trust file is not signed by its owners.
        KeyFileError: a key cannot be read.
    """
    path = Path(trust or default_trust())
    before = _load(path)
    store = before.trust.with_revoked(_find_key(before.trust, str(key)), since=datetime.now(UTC), reason=reason)
    return _change(before, store, path, owner_keys, passphrase)


def sign_trust(
    *,
    trust: Path | str | None = None,
    owner_keys: Sequence[SigningKey | Path | str] = (),
    passphrase: _Passphrase | None = None,
) -> TrustFile:
    """Add an owner's signature to a trust file.

    Args:
        trust: the trust file. None for ~/.config/physai/keys/trust.json.
        owner_keys: owners' private keys that sign the trust file, or their files; empty for owner.key in its folder.
        passphrase: called with the name of a key file that is encrypted.

    Raises:
        TrustError: the file cannot be read, or a key is not an owner's in it.
        KeyFileError: a key cannot be read.
    """
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustError

    path = Path(trust or default_trust())
    before = SignedTrust.load(path)
    keys = _owners(owner_keys, path, passphrase)
    for key in keys:
        if before.trust.key(key.key_id) is None:
            raise TrustError(f"key {key.key_id[:16]} is not an owner's in {path}: add it with `physai keys trust`")
    signed = before.signed(keys)
    signed.save(path)
    return TrustFile(path, signed, _missing(signed.trust, signed))


def _save(key: SigningKey, path: Path, role: Role, label: str, passphrase: str | None) -> PublicKey:
    from pydantic import ValidationError

    from physai.sdk.signing.ed25519 import KeyFileError, public_path, save_private_key, save_public_key

    try:
        public = key.public_key(role, label=label)
    except ValidationError:
        raise KeyFileError(f"`label` {label!r}: at most 64 printable ASCII characters") from None
    save_private_key(key, path, passphrase=passphrase)
    try:
        save_public_key(public, public_path(path))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return public


def _load(path: Path) -> SignedTrust:
    """Loads a trust file that is about to change.

    Raises:
        TrustError: the file is missing, malformed, or not signed by its owners.
    """
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustError

    if not path.exists():
        raise TrustError(f"{path}: no such trust file; create one with an owner's key: physai keys init")
    signed = SignedTrust.load(path)
    signed.check()
    return signed


def _with_threshold(store: TrustStore, name: str, number: str) -> TrustStore:
    from physai.sdk.signing.attestation import ROLES
    from physai.sdk.signing.trust_store import TrustError

    for role in ROLES:
        if name == role and number.isascii() and number.isdecimal() and len(number) <= 4:
            return store.with_threshold(role, int(number))
    given = f"{name}={number}"
    raise TrustError(f"`thresholds` {given!r}: give ROLE=N with role {' or '.join(ROLES)}, for example validator=2")


def _find_key(store: TrustStore, text: str) -> str:
    """Id of a key given as a public key file, an id or a prefix of it."""
    from physai.sdk.signing.ed25519 import load_public_key
    from physai.sdk.signing.trust_store import TrustError

    if Path(text).is_file():
        return load_public_key(Path(text)).key_id
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text
    matches = [key.key_id for key in store.keys if key.key_id.startswith(text)]
    if len(text) >= SHORTEST_PREFIX and len(matches) == 1:
        return matches[0]
    known = ", ".join(key.key_id[:16] for key in store.keys) or "none"
    raise TrustError(
        f"{text!r} matches {len(matches)} keys in the trust file; give a .pub file, or at least {SHORTEST_PREFIX} "
        f"digits of one id: {known}"
    )


def _change(
    before: SignedTrust,
    after: TrustStore,
    path: Path,
    owner_keys: Sequence[SigningKey | Path | str],
    passphrase: _Passphrase | None,
    *,
    also: Sequence[SigningKey] = (),
    new_key: Path | None = None,
) -> TrustFile:
    """Signs and saves a changed trust file."""
    from physai.sdk.signing.trust_file import SignedTrust

    if after == before.trust:
        return TrustFile(path, before, changed=False, new_key=new_key)
    signed = SignedTrust(after).signed([*_owners(owner_keys, path, passphrase), *also])
    # A robot follows changes of owners one version at a time, so keep the old file for robots that lag behind.
    if before.trust.version and after.usable("owner") != before.trust.usable("owner"):
        before.save(path.with_name(f"{path.stem}-{before.trust.version}{path.suffix}"))
    signed.save(path)
    return TrustFile(path, signed, _missing(before.trust, signed), new_key=new_key)


def _owners(given: Sequence[SigningKey | Path | str], trust: Path, passphrase: _Passphrase | None) -> list[SigningKey]:
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError

    keys: list[SigningKey] = []
    for one in given or [trust.with_name(f"owner{PRIVATE_SUFFIX}")]:
        if isinstance(one, str | Path):
            if not Path(one).exists():
                raise KeyFileError(
                    f"{one}: no such key; an owner signs every change of the trust file: `owner_key` FILE"
                )
            keys.append(load_key("owner", one, passphrase=passphrase))
        else:
            keys.append(one)
    return keys


def _missing(before: TrustStore, signed: SignedTrust) -> int:
    """Number of owner signatures that a robot with the store before still needs."""
    stores = (before, signed.trust)
    return max(0, *(store.threshold("owner") - signed.count(store.usable("owner")) for store in stores))
