"""Key files: nobody else's to read, and nothing but a key."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from physai.sdk.signing.ed25519 import (
    KeyFileError,
    PublicKey,
    SigningKey,
    check_role,
    load_private_key,
    load_public_key,
    public_path,
    save_private_key,
    save_public_key,
)

PASSPHRASE = "correct horse battery"


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


@pytest.fixture
def path(key: SigningKey, tmp_path: Path) -> Path:
    """A key without a passphrase."""
    save_private_key(key, tmp_path / "publisher.key", passphrase=None)
    return tmp_path / "publisher.key"


@pytest.fixture
def encrypted(key: SigningKey, tmp_path: Path) -> Path:
    save_private_key(key, tmp_path / "encrypted.key", passphrase=PASSPHRASE)
    return tmp_path / "encrypted.key"


def never(_: str) -> str:
    raise AssertionError("nobody is to be asked")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_key_is_its_owners_alone(key: SigningKey, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        save_private_key(key, tmp_path / "k.key", passphrase=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k.key").stat().st_mode) == 0o600


def test_keys_round_trip(key: SigningKey, path: Path) -> None:
    loaded = load_private_key(path, passphrase=never)
    assert (loaded.public, loaded.key_id) == (key.public, key.key_id)
    assert loaded.sign(b"x") == key.sign(b"x")
    assert key.public.hex() not in repr(loaded)


def test_encrypted_keys_round_trip(key: SigningKey, encrypted: Path) -> None:
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return PASSPHRASE

    assert load_private_key(encrypted, passphrase=ask).public == key.public
    assert asked == [str(encrypted)]
    assert b"ENCRYPTED" in encrypted.read_bytes()


def test_a_wrong_or_missing_passphrase(encrypted: Path) -> None:
    with pytest.raises(KeyFileError, match="wrong passphrase"):
        load_private_key(encrypted, passphrase=lambda _: "wrong horse battery")
    with pytest.raises(KeyFileError, match="passphrase is needed"):
        load_private_key(encrypted)


def test_a_short_passphrase_is_refused(key: SigningKey, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="at least 8"):
        save_private_key(key, tmp_path / "k.key", passphrase="short")
    assert not (tmp_path / "k.key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o610, 0o601])
def test_an_open_key_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600"):
        load_private_key(path)


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, False), (0o604, True), (0o644, True)])
def test_an_encrypted_key_may_be_a_groups(encrypted: Path, mode: int, refused: bool) -> None:
    encrypted.chmod(mode)
    if refused:
        with pytest.raises(KeyFileError, match="open to the world"):
            load_private_key(encrypted, passphrase=never)
    else:
        load_private_key(encrypted, passphrase=lambda _: PASSPHRASE)


def test_a_key_is_never_overwritten(key: SigningKey, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(KeyFileError, match="never overwritten"):
        save_private_key(key, path, passphrase=None)
    (path.parent / "link.key").symlink_to(path.parent / "elsewhere")
    with pytest.raises(KeyFileError, match="never overwritten"):
        save_private_key(key, path.parent / "link.key", passphrase=None)
    assert path.read_bytes() == before
    assert not (path.parent / "elsewhere").exists()


def _link(path: Path) -> Path:
    link = path.with_name("link.key")
    link.symlink_to(path)
    return link


def _pipe(path: Path) -> Path:
    os.mkfifo(path.with_name("pipe.key"), 0o600)
    return path.with_name("pipe.key")


def _folder(path: Path) -> Path:
    return path.parent


def _nothing(path: Path) -> Path:
    return path.with_name("none.key")


@pytest.mark.parametrize("make", [_link, _pipe, _folder, _nothing])
def test_only_regular_files_are_keys(path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(KeyFileError):
        load_private_key(make(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_somebody_elses_key_is_refused(path: Path) -> None:
    os.chown(path, 4711, -1)
    with pytest.raises(KeyFileError, match="user 4711"):
        load_private_key(path)


def other_algorithm() -> bytes:
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a private key"),
        (b"junk" * 100, "not a private key"),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\njunk", "wrong passphrase, or damaged"),
        (bytes(20_000), "at most"),
        (other_algorithm(), "Ed25519 key is needed"),
    ],
)
def test_what_is_no_key(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "k.key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=message):
        load_private_key(path, passphrase=lambda _: PASSPHRASE)


def test_public_keys_round_trip(key: SigningKey, tmp_path: Path) -> None:
    public = key.public_key("validator", label="alice's laptop")
    save_public_key(public, tmp_path / "k.pub")
    assert load_public_key(tmp_path / "k.pub") == public
    assert stat.S_IMODE((tmp_path / "k.pub").stat().st_mode) == 0o644


def test_a_private_key_is_not_taken_for_a_public_one(path: Path) -> None:
    with pytest.raises(KeyFileError, match="is a private key; use the"):
        load_public_key(path)


@pytest.mark.parametrize(
    "change",
    [
        {"key_id": "0" * 64},
        {"public": "0" * 64},
        {"public": "00"},
        {"role": "root"},
        {"label": "a\x1b[0m"},
        {"format_version": 2},
        {"more": 1},
    ],
)
def test_public_keys_are_checked(key: SigningKey, tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "k.pub"
    save_public_key(key.public_key("publisher"), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(KeyFileError):
        load_public_key(path)


def test_the_id_is_computed_not_believed(key: SigningKey) -> None:
    other = SigningKey.generate()
    with pytest.raises(ValueError, match="is not that of the key"):
        PublicKey(key_id=other.key_id, public=key.public.hex(), role="publisher")


def test_a_key_signs_in_its_own_role(key: SigningKey, path: Path) -> None:
    check_role(path, key, "validator")
    save_public_key(key.public_key("publisher"), public_path(path))
    check_role(path, key, "publisher")
    with pytest.raises(KeyFileError, match="two roles never share a key"):
        check_role(path, key, "validator")
    with pytest.raises(KeyFileError, match="not the public key of"):
        check_role(path, SigningKey.generate(), "publisher")
