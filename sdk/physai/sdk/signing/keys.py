"""Ed25519 keys in files: a private key nobody else can read, and the public one to hand out.

A private key is PEM (PKCS #8), encrypted with a passphrase or readable by its owner alone; a file that is neither is
refused before it is read. A public key is a small JSON file with the role it is meant for.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from pydantic import Field, model_validator

from physai.sdk.base.canonical import canonical_json
from physai.sdk.base.documents import DocumentKind
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import create_durable, read_plain, write_atomic
from physai.sdk.contract.robot import Frozen
from physai.sdk.evidence.verdict import Sha256
from physai.sdk.signing.attestation import (
    PAYLOAD_TYPE,
    Envelope,
    Role,
    Signature,
    is_weak_key,
    key_id_of,
    pre_authentication,
)

FORMAT_VERSION = 1

MAX_KEY_BYTES = 1 << 14
"""Greatest size of a key file; an encrypted Ed25519 key takes some 400 bytes."""

MIN_PASSPHRASE = 8
"""Fewest characters of a passphrase."""

PRIVATE_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"

KeyLabel = Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")]
"""Whose key it is, in words: printable ASCII, at most 64 characters."""

Passphrase = Callable[[str], str]
"""Asks for the passphrase of a file, by name; called only for an encrypted key."""


class KeyFileError(PhysaiError):
    """A key file is missing, malformed, readable by others, or of another role."""


class PublicKey(Frozen):
    """A public key and the one role it is meant for."""

    key_id: Sha256
    """`key_id_of` the key."""
    public: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The 32 bytes of an Ed25519 public key in hexadecimal digits."""
    role: Role
    label: KeyLabel = ""

    @model_validator(mode="after")
    def _id_is_the_keys(self) -> Self:
        if is_weak_key(bytes.fromhex(self.public)):
            raise ValueError("not an Ed25519 key: a point of small order, or not in its one form; make a key anew")
        expected = key_id_of(bytes.fromhex(self.public))
        if self.key_id != expected:
            raise ValueError(f"key_id {self.key_id[:16]}… is not that of the key, {expected[:16]}…")
        return self


class PublicKeyFile(PublicKey):
    """A public key as it lies in a file."""

    format_version: Literal[1] = FORMAT_VERSION


@dataclass(frozen=True)
class SigningKey:
    """A private key in memory; never printed."""

    _private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Self:
        """A new key from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def key_id(self) -> str:
        """Id of the public key."""
        return key_id_of(self.public)

    def public_key(self, role: Role, *, label: str = "") -> PublicKey:
        """The public key, for one role."""
        return PublicKey(key_id=self.key_id, public=self.public.hex(), role=role, label=label)

    def sign(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> Signature:
        """The signature over a payload of a type."""
        return Signature(self.key_id, self._private.sign(pre_authentication(payload, payload_type)))

    def envelope(self, payload: bytes) -> Envelope:
        """An envelope that this key alone has signed."""
        return Envelope(payload, (self.sign(payload),))


def save_private_key(key: SigningKey, path: Path, *, passphrase: str | None) -> None:
    """Writes the key into a new file that its owner alone may read.

    Args:
        key: what to keep.
        path: a file that does not exist.
        passphrase: encrypts the key; None leaves it readable to whoever is the owner.

    Raises:
        KeyFileError: the file exists or cannot be written, or the passphrase is too short.
    """
    if passphrase is not None and not len(passphrase) >= MIN_PASSPHRASE:
        raise KeyFileError(f"a passphrase of {len(passphrase)} characters, give at least {MIN_PASSPHRASE}")
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode("utf-8"))
    private = key._private  # pyright: ignore[reportPrivateUsage]
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    try:
        # Created with its final permissions: there is no moment at which somebody else could open it.
        create_durable(path, data, mode=0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} exists; a key is never overwritten: name another file or move it away") from None
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be written: {error.strerror}") from None


def load_private_key(path: Path, *, passphrase: Passphrase | None = None) -> SigningKey:
    """The key in a file, if nobody but its owner could have read it.

    Args:
        path: the file.
        passphrase: asked once if the key is encrypted.

    Raises:
        KeyFileError: the file is missing, no regular file, somebody else's, or open to others; no Ed25519 key; or the
            passphrase is missing or wrong.
    """
    data = _read_private(path)
    encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
    if encrypted and passphrase is None:
        raise KeyFileError(f"{path} is encrypted; its passphrase is needed")
    word = passphrase(str(path)).encode("utf-8") if encrypted and passphrase is not None else None
    try:
        private = load_pem_private_key(data, word)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "wrong passphrase, or damaged" if encrypted else "no private key in PEM (PKCS #8)"
        raise KeyFileError(f"{path}: {reason}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: an Ed25519 key is needed; make one with: physai keys init")
    return SigningKey(private)


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "; symbolic links are not followed" if path.is_symlink() else ""
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}{hint}") from None
    try:
        # Of the open file, not of the name: what is checked is what is read.
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise KeyFileError(f"{path}: not a regular file")
        if facts.st_uid not in (os.geteuid(), 0):
            raise KeyFileError(f"{path} belongs to user {facts.st_uid}; a private key belongs to whoever signs with it")
        if not facts.st_size <= MAX_KEY_BYTES:
            raise KeyFileError(f"{path}: {facts.st_size} bytes, a key file has at most {MAX_KEY_BYTES}")
        data = os.read(descriptor, MAX_KEY_BYTES)
    finally:
        os.close(descriptor)
    _check_permissions(path, stat.S_IMODE(facts.st_mode), encrypted=b"ENCRYPTED" in data.split(b"\n", 1)[0])
    return data


def _check_permissions(path: Path, mode: int, *, encrypted: bool) -> None:
    """An encrypted key may be shared with a group; nothing may be open to the world."""
    forbidden = 0o007 if encrypted else 0o077
    if mode & forbidden:
        what = "an encrypted key must not be open to the world" if encrypted else "a key without passphrase is 0600"
        raise KeyFileError(f"{path} has mode {mode:04o}; {what}: chmod 600 {path} (and consider it known to others)")


_KIND = DocumentKind(
    name="public key", format_version=FORMAT_VERSION, max_bytes=MAX_KEY_BYTES, max_depth=2, error=KeyFileError
)


def save_public_key(key: PublicKey, path: Path) -> None:
    """Writes the public key, readable by everybody.

    Raises:
        KeyFileError: the file cannot be written.
    """
    record = PublicKeyFile(**key.model_dump())
    try:
        write_atomic(path, canonical_json(record) + b"\n")
        path.chmod(0o644)
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be written: {error.strerror}") from None


def load_public_key(path: Path) -> PublicKey:
    """The public key in a file.

    Raises:
        KeyFileError: the file cannot be read, or holds no public key.
    """
    try:
        data = read_plain(path, limit=MAX_KEY_BYTES)
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}") from None
    if b"PRIVATE KEY" in data:
        raise KeyFileError(f"{path} is a private key; hand out the {PUBLIC_SUFFIX} file beside it")
    record = _KIND.parse(PublicKeyFile, data, source=str(path))
    return PublicKey(**record.model_dump(exclude={"format_version"}))


def public_path(private: Path) -> Path:
    """Where the public key of a private key's file lies."""
    if not private.name:
        raise KeyFileError(f"{str(private)!r} is no name of a key file")
    return private.with_suffix(PUBLIC_SUFFIX)


def check_role(private: Path, key: SigningKey, role: Role) -> None:
    """Refuses to sign in one role with a key that its public file gives another.

    Raises:
        KeyFileError: the public file beside the private one names another role or another key, or is malformed.
    """
    path = public_path(private)
    if not path.exists():
        return
    public = load_public_key(path)
    if public.key_id != key.key_id:
        raise KeyFileError(f"{path} is not the public key of {private}")
    if public.role != role:
        raise KeyFileError(
            f"{private} is a {public.role}'s key, this asks for a {role}'s: the two roles never share a key"
        )
