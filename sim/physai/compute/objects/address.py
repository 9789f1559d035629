"""Stores of artefacts: a folder, or a prefix of an object store, through fsspec."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import MissingExtraError, PhysaiError

SCHEMES = ("file", "memory", "s3", "gs", "abfs")
"""File systems that take an object as a whole or not at all."""

REMOTE_SCHEMES = ("s3", "gs", "abfs")

_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
_ADDRESS = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<path>[ -~]{1,1024})")


class ArtefactError(PhysaiError):
    """An artefact cannot be read or written, or is not what it was when it was written."""


@dataclass(frozen=True)
class Address:
    """A place for one artefact, or for several below it."""

    scheme: str
    path: str
    """Without a slash at its end: a path, or bucket and prefix."""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `s3://bucket/prefix`, `file:///folder` or a folder's path.

        Raises:
            ArtefactError: the scheme is not supported, or the address leads elsewhere.
        """
        if "://" not in text:
            return cls("file", str(Path(text).absolute()))
        found = _ADDRESS.fullmatch(text)
        if found is None or found["scheme"] not in SCHEMES:
            raise ArtefactError(f"{text[:200]!r} is no address; give a folder, or one of {_examples()}")
        path = found["path"].rstrip("/")
        parts = path.split("/")
        # fsspec chains file systems with `::`, expands `*` and `?`, and some resolve `..`.
        if ".." in parts or "::" in path or set(path) & set("*?[]#") or "" in parts[1:] or not path:
            raise ArtefactError(f"{text[:200]!r} has `..`, `::`, an empty part or one of *?[]#; give a plain address")
        if found["scheme"] == "file" and not path.startswith("/"):
            raise ArtefactError(f"{text[:200]!r} is relative; write file:///ABSOLUTE/PATH, or the path without file://")
        return cls(found["scheme"], path)

    def __str__(self) -> str:
        """Return the address as `parse` reads it; a folder as its path."""
        return self.path if self.scheme == "file" else f"{self.scheme}://{self.path}"

    def __truediv__(self, name: str) -> "Address":
        """Return a place below this one."""
        return Address(self.scheme, f"{self.path}/{name}")

    def filesystem(self) -> Any:
        """Return fsspec's file system, which keeps no listings.

        Raises:
            MissingExtraError: a package is missing.
        """
        try:
            import fsspec  # type: ignore[import-untyped]

            module: Any = fsspec
            return module.filesystem(self.scheme, use_listings_cache=False)
        except ImportError:
            package = _PACKAGES.get(self.scheme, "fsspec")
            raise MissingExtraError(
                f"{self.scheme}:// needs the package {package}: pip install 'physai-sdk[artefacts]' {package}"
            ) from None


def _examples() -> str:
    return ", ".join(f"{scheme}://{'/FOLDER' if scheme == 'file' else 'BUCKET/PREFIX'}" for scheme in SCHEMES)


@contextmanager
def explained(address: Address, doing: str) -> Generator[None]:
    """Turn the errors of file systems into one line that says what to do.

    Raises:
        ArtefactError: the block raised an error of a file system.
    """
    try:
        yield
    except PhysaiError:
        raise
    except Exception as error:  # each file system has its own: OSError, botocore's, aiohttp's, google's
        raise ArtefactError(f"{address}: cannot be {doing}: {_reason(error, address)}") from error


def _reason(error: Exception, address: Address) -> str:
    kinds = {type(one).__name__ for one in _chain(error)}
    text = " ".join(str(error).split())[:300] or type(error).__name__
    bucket = address.path.partition("/")[0]
    if kinds & {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"}:
        return "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "NoSuchBucket" in text or "bucket does not exist" in text:
        return f"there is no bucket {bucket!r}; create it, or name another"
    if isinstance(error, PermissionError) and address.scheme == "file":
        return f"access was denied to {error.filename2 or error.filename or address.path}; ask its owner for it"
    if isinstance(error, PermissionError):
        return f"access was denied ({text}); check the credentials and what they may do in {bucket!r}"
    if kinds & {"EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError"}:
        return f"the server cannot be reached ({text}); check the network and AWS_ENDPOINT_URL"
    if isinstance(error, OSError) and error.strerror and not kinds & {"ClientError"}:
        return error.strerror.lower() if address.scheme == "file" else text
    return text


def _chain(error: BaseException | None) -> Generator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
