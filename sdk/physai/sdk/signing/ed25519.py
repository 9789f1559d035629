"""Ed25519 key files.

A private key is PEM (PKCS #8), encrypted with a passphrase or readable by its owner only; any other file is refused. A
public key is a small JSON file with the key's role.
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

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import create_durable, oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.documents import DocumentKind
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
"""Maximum size of a key file; an encrypted Ed25519 key takes about 400 bytes."""

MIN_PASSPHRASE = 8
"""Minimum length of a passphrase, in characters."""

PRIVATE_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"

KeyLabel = Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")]
"""Holder of a key: printable ASCII, at most 64 characters."""

Passphrase = Callable[[str], str]
"""Returns the passphrase for a file name; called only for an encrypted key."""


class KeyFileError(PhysaiError):
    """A key file is missing, malformed, readable by others, or has another role."""


class PublicKey(Frozen):
    """A public key and its role."""

    key_id: Sha256
    """`key_id_of` the key."""
    public: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Ed25519 public key (32 bytes) in hexadecimal digits."""
    role: Role
    label: KeyLabel = ""

    @model_validator(mode="after")
    def _id_is_the_keys(self) -> Self:
        if is_weak_key(bytes.fromhex(self.public)):
            raise ValueError("weak Ed25519 key: a point of small order or a non-canonical encoding; make a new key")
        expected = key_id_of(bytes.fromhex(self.public))
        if self.key_id != expected:
            raise ValueError(f"key_id {self.key_id[:16]}… is not that of the key, {expected[:16]}…")
        return self


class PublicKeyFile(PublicKey):
    """The JSON document of a public key file."""

    format_version: Literal[1] = FORMAT_VERSION


@dataclass(frozen=True)
class SigningKey:
    """A private key in memory."""

    _private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Self:
        """Generates a key from the system's random number generator."""
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
        """The public key with its role."""
        return PublicKey(key_id=self.key_id, public=self.public.hex(), role=role, label=label)

    def sign(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> Signature:
        """Signs a payload in DSSE's pre-authentication encoding."""
        return Signature(self.key_id, self._private.sign(pre_authentication(payload, payload_type)))

    def envelope(self, payload: bytes) -> Envelope:
        """An envelope signed by this key only."""
        return Envelope(payload, (self.sign(payload),))


def save_private_key(key: SigningKey, path: Path, *, passphrase: str | None) -> None:
    """Writes the key to a new file that only its owner may read.

    Args:
        key: the key to save.
        path: a file that does not exist.
        passphrase: encrypts the key; None saves it unencrypted.

    Raises:
        KeyFileError: the file exists or cannot be written, or the passphrase is too short.
    """
    if passphrase is not None and not len(passphrase) >= MIN_PASSPHRASE:
        raise KeyFileError(f"the passphrase has {len(passphrase)} characters, at least {MIN_PASSPHRASE} are needed")
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode("utf-8"))
    private = key._private  # pyright: ignore[reportPrivateUsage]
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    try:
        # Created with its final permissions, so that other users can open it at no time.
        create_durable(path, data, mode=0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} exists; keys are never overwritten: name another file, or move this one") from None
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be written: {error.strerror}") from None


def load_private_key(path: Path, *, passphrase: Passphrase | None = None) -> SigningKey:
    """Loads a private key after checking the owner and permissions of its file.

    Args:
        path: the key file.
        passphrase: called once if the key is encrypted.

    Raises:
        KeyFileError: the file is missing, not a regular file, owned by another user or accessible to others; it holds
            no Ed25519 key; or the passphrase is missing or wrong.
    """
    data = _read_private(path)
    encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
    if encrypted and passphrase is None:
        raise KeyFileError(f"{path} is encrypted; its passphrase is needed")
    password = passphrase(str(path)).encode("utf-8") if encrypted and passphrase is not None else None
    try:
        private = load_pem_private_key(data, password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "wrong passphrase, or damaged file" if encrypted else "not a private key in PEM (PKCS #8)"
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
        # fstat of the open file, not stat of the path: a file swapped in between would escape the checks.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"{path}: not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise KeyFileError(f"{path} belongs to user {status.st_uid}; a private key must belong to its user or root")
        if not status.st_size <= MAX_KEY_BYTES:
            raise KeyFileError(f"{path}: {status.st_size} bytes, a key file has at most {MAX_KEY_BYTES}")
        data = os.read(descriptor, MAX_KEY_BYTES)
    finally:
        os.close(descriptor)
    _check_permissions(path, stat.S_IMODE(status.st_mode), encrypted=b"ENCRYPTED" in data.split(b"\n", 1)[0])
    return data


def _check_permissions(path: Path, mode: int, *, encrypted: bool) -> None:
    # A group may share an encrypted key; an unencrypted one is for its owner only.
    forbidden = 0o007 if encrypted else 0o077
    if mode & forbidden:
        rule = "an encrypted key must not be open to the world" if encrypted else "an unencrypted key must be 0600"
        raise KeyFileError(f"{path} has mode {mode:04o}; {rule}: chmod 600 {path} (and consider it compromised)")


_KIND = DocumentKind(
    name="public key", format_version=FORMAT_VERSION, max_bytes=MAX_KEY_BYTES, max_depth=2, error=KeyFileError
)


def save_public_key(key: PublicKey, path: Path) -> None:
    """Writes the public key, world-readable.

    Raises:
        KeyFileError: the file cannot be written.
    """
    record = PublicKeyFile(**key.model_dump())
    with oserror_as(KeyFileError, f"{path}: cannot be written"):
        write_atomic(path, canonical_json(record) + b"\n")
        path.chmod(0o644)


def load_public_key(path: Path) -> PublicKey:
    """Loads a public key.

    Raises:
        KeyFileError: the file cannot be read or is not a public key.
    """
    with oserror_as(KeyFileError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_KEY_BYTES)
    if b"PRIVATE KEY" in data:
        raise KeyFileError(f"{path} is a private key; use the {PUBLIC_SUFFIX} file next to it")
    record = _KIND.parse(PublicKeyFile, data, source=str(path))
    return PublicKey(**record.model_dump(exclude={"format_version"}))


def public_path(private: Path) -> Path:
    """Path of the public key file that belongs to a private key file."""
    if not private.name:
        raise KeyFileError(f"{str(private)!r} is not a file name")
    return private.with_suffix(PUBLIC_SUFFIX)


def check_role(private: Path, key: SigningKey, role: Role) -> None:
    """Refuses a key whose public file, if there is one, states another role.

    Raises:
        KeyFileError: the public file names another role or key, or is malformed.
    """
    path = public_path(private)
    if not path.exists():
        return
    public = load_public_key(path)
    if public.key_id != key.key_id:
        raise KeyFileError(f"{path} is not the public key of {private}")
    if public.role != role:
        raise KeyFileError(
            f"{private} is a {public.role}'s key, but a {role}'s key is needed: two roles never share a key"
        )
