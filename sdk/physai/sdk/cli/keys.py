"""`physai keys`: create, rotate and revoke signing keys, and edit trust files; an owner signs every change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.key_files import KEYS_SHOWN, default_trust, key_folder, load_key
from physai.sdk.cli.shared.passphrases import add_passphrase_argument, passphrase_from
from physai.sdk.cli.shared.statements import add_ticks_arguments, add_time_arguments, sign_ticks_file, sign_time_file

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustStore

SHORTEST_PREFIX = 8
"""Minimum number of digits that identify a key."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser(
        "init", help="create an owner's, a publisher's and a validator's key, and a trust file for them"
    )
    init.add_argument("folder", nargs="?", type=Path, metavar="DIR", help=f"new folder (default: {KEYS_SHOWN})")
    init.add_argument("--label", default="", metavar="TEXT", help="holder of the keys")
    _add_encryption(init)
    trust = actions.add_parser("trust", help="add public keys to a trust file, set thresholds")
    trust.add_argument("keys", nargs="*", type=Path, metavar="PUB", help="public key files")
    trust.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="ROLE=N",
        help="how many owners, publishers or validators must sign: validator=2",
    )
    rotate = actions.add_parser("rotate", help="create the successor of a key; both are trusted until you revoke one")
    rotate.add_argument("key", type=Path, metavar="KEY", help="private key file to replace, next to its .pub file")
    _add_encryption(rotate)
    revoke = actions.add_parser("revoke", help="revoke a key")
    revoke.add_argument("key", metavar="KEY", help="key id, its first 8 digits or more, or a public key file")
    revoke.add_argument("--reason", required=True, metavar="TEXT", help="shown when a bundle is refused for this key")
    sign = actions.add_parser("sign", help="add an owner's signature to a trust file")
    add_time_arguments(actions.add_parser("time", help="sign the current time, for a robot with an unreliable clock"))
    add_ticks_arguments(actions.add_parser("ticks", help="sign tick times that you measured on a robot yourself"))
    show = actions.add_parser("list", help="show the keys and thresholds of a trust file")
    show.add_argument("--json", action="store_true", help="print JSON")
    for action in (trust, rotate, revoke, sign):
        action.add_argument(
            "--owner-key",
            action="append",
            type=Path,
            metavar="FILE",
            help="owner's private key that signs the trust file; repeatable (default: owner.key in the same folder)",
        )
    for action in (trust, revoke, sign):
        add_passphrase_argument(action)
    for action in (trust, rotate, revoke, sign, show):
        action.add_argument("--trust", type=Path, metavar="FILE", help=f"default: {KEYS_SHOWN}/trust.json")


def _add_encryption(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encrypt", action="store_true", help="encrypt the private key with a passphrase")
    add_passphrase_argument(parser)


def _run(arguments: argparse.Namespace) -> int:
    alone = {"init": _init, "time": sign_time_file, "ticks": sign_ticks_file}
    if arguments.action in alone:
        return alone[arguments.action](arguments)
    actions = {"trust": _trust, "rotate": _rotate, "revoke": _revoke, "sign": _sign, "list": _list}
    return actions[arguments.action](arguments, arguments.trust or default_trust())


def _init(arguments: argparse.Namespace) -> int:
    from physai.sdk.signing.attestation import ROLES
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, PUBLIC_SUFFIX, KeyFileError, SigningKey, public_path
    from physai.sdk.signing.trust_file import TRUST_FILE, SignedTrust
    from physai.sdk.signing.trust_store import TrustStore

    folder: Path = arguments.folder or key_folder()
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
    passphrase = _new_passphrase(arguments, str(folder))
    store, created = TrustStore(), list[Path]()
    keys: dict[Role, SigningKey] = {role: SigningKey.generate() for role in ROLES}
    try:
        for role, key in keys.items():
            private = folder / f"{role}{PRIVATE_SUFFIX}"
            public = _save(key, private, role, arguments.label, passphrase)
            created += [private, public_path(private)]
            store = store.with_key(public)
        SignedTrust(store).signed([keys["owner"]]).save(folder / TRUST_FILE)
    except BaseException:
        # The keys have not been used, and a partial set would block the next attempt.
        for path in created:
            path.unlink(missing_ok=True)
        raise
    private_keys = f"{folder}/{{{','.join(ROLES)}}}{PRIVATE_SUFFIX}"
    print(printable(_keys_text(store)))
    print(printable(f"\nprivate keys  {private_keys}: back them up and never share them"))
    print(printable(f"trust file    {folder / TRUST_FILE}: install it on the robots. It is signed by the owner's key,"))
    print("              which is used for nothing else: keep that key offline")
    return 0


def _new_passphrase(arguments: argparse.Namespace, name: str) -> str | None:
    if not (arguments.encrypt or arguments.passphrase_file):
        return None
    return passphrase_from(arguments.passphrase_file, confirm=True)(name)


def _save(key: SigningKey, path: Path, role: Role, label: str, passphrase: str | None) -> PublicKey:
    from pydantic import ValidationError

    from physai.sdk.signing.ed25519 import KeyFileError, public_path, save_private_key, save_public_key

    try:
        public = key.public_key(role, label=label)
    except ValidationError:
        raise KeyFileError(f"--label {label!r}: at most 64 printable ASCII characters") from None
    save_private_key(key, path, passphrase=passphrase)
    try:
        save_public_key(public, public_path(path))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return public


def _trust(arguments: argparse.Namespace, path: Path) -> int:
    from physai.sdk.signing.ed25519 import load_public_key
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustError, TrustStore

    if not arguments.keys and not arguments.threshold:
        raise TrustError("nothing to change: give public key files, or --threshold ROLE=N")
    before = _load(path) if path.exists() else SignedTrust(TrustStore())
    store = before.trust
    for file in arguments.keys:
        store = store.with_key(load_public_key(file))
    for text in arguments.threshold:
        store = _with_threshold(store, text)
    return _save_trust(arguments, before, store, path)


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


def _with_threshold(store: TrustStore, text: str) -> TrustStore:
    from physai.sdk.signing.attestation import ROLES
    from physai.sdk.signing.trust_store import TrustError

    name, _, number = text.partition("=")
    for role in ROLES:
        if name == role and number.isascii() and number.isdecimal() and len(number) <= 4:
            return store.with_threshold(role, int(number))
    raise TrustError(f"--threshold {text!r}: give ROLE=N with role {' or '.join(ROLES)}, for example validator=2")


def _rotate(arguments: argparse.Namespace, path: Path) -> int:
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, SigningKey, load_public_key, public_path

    old: Path = arguments.key
    public = load_public_key(public_path(old))
    before = _load(path)
    successor = next(
        new for n in range(2, 10_000) if not (new := old.with_name(f"{public.role}-{n}{PRIVATE_SUFFIX}")).exists()
    )
    passphrase = _new_passphrase(arguments, str(successor))
    # Save the key before the trust file, so that every key in a trust file exists.
    fresh = SigningKey.generate()
    store = before.trust.with_key(_save(fresh, successor, public.role, public.label, passphrase))
    code = _save_trust(arguments, before, store, path, also=[fresh] if public.role == "owner" else [])
    remedy = f"physai keys revoke {public.key_id[:16]} --reason rotated"
    print(printable(f"\nnew key  {successor}\nnext     install {path} on the robots and sign with the new key;"))
    print(printable(f"         once every robot runs a bundle signed with it: {remedy}"))
    return code


def _revoke(arguments: argparse.Namespace, path: Path) -> int:
    before = _load(path)
    key_id = _find_key(before.trust, arguments.key)
    store = before.trust.with_revoked(key_id, since=datetime.now(UTC), reason=arguments.reason)
    code = _save_trust(arguments, before, store, path)
    print(printable(f"\nnext  install {path} on the robots; until then they still trust the key"))
    return code


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


def _save_trust(
    arguments: argparse.Namespace,
    before: SignedTrust,
    after: TrustStore,
    path: Path,
    also: Sequence[SigningKey] = (),
) -> int:
    """Signs, saves and prints a changed trust file."""
    from physai.sdk.signing.trust_file import SignedTrust

    if after == before.trust:
        print(printable(f"{path} is unchanged (version {after.version})"))
        return 0
    signed = SignedTrust(after).signed([*_owner_keys(arguments, path), *also])
    # A robot follows changes of owners one version at a time, so keep the old file for robots that lag behind.
    if before.trust.version and after.usable("owner") != before.trust.usable("owner"):
        before.save(path.with_name(f"{path.stem}-{before.trust.version}{path.suffix}"))
    signed.save(path)
    print(printable(_keys_text(after)))
    print(printable(f"\n{path} is version {after.version}{_unsigned(before.trust, signed)}"))
    return 0


def _owner_keys(arguments: argparse.Namespace, path: Path) -> list[SigningKey]:
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError

    keys: list[SigningKey] = []
    for file in arguments.owner_key or [path.with_name(f"owner{PRIVATE_SUFFIX}")]:
        if not file.exists():
            raise KeyFileError(f"{file}: no such key; an owner signs every change of the trust file: --owner-key FILE")
        keys.append(load_key(file, "owner", arguments))
    return keys


def _unsigned(before: TrustStore, signed: SignedTrust) -> str:
    """Owner signatures that a robot still needs before it accepts the file; empty if none."""
    missing = max(store.threshold("owner") - signed.count(store.usable("owner")) for store in (before, signed.trust))
    return f"; owner signatures still missing: {missing} (physai keys sign --owner-key KEY)" if missing > 0 else ""


def _sign(arguments: argparse.Namespace, path: Path) -> int:
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.trust_store import TrustError

    before = SignedTrust.load(path)
    keys = _owner_keys(arguments, path)
    for key in keys:
        if before.trust.key(key.key_id) is None:
            raise TrustError(f"key {key.key_id[:16]} is not an owner's in {path}: add it with `physai keys trust`")
    signed = before.signed(keys)
    signed.save(path)
    needed, count = signed.trust.threshold("owner"), signed.count(signed.trust.usable("owner"))
    print(printable(f"{path}, version {signed.trust.version}: {count} of {needed} owners have signed"))
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


def _list(arguments: argparse.Namespace, path: Path) -> int:
    from physai.sdk.signing.trust_file import SignedTrust

    store = SignedTrust.load(path).trust
    print(json.dumps(store.model_dump(mode="json"), indent=2) if arguments.json else printable(_keys_text(store)))
    return 0


command = CliCommand(
    summary="manage signing keys and trust files",
    add_arguments=_add_arguments,
    run=_run,
)
