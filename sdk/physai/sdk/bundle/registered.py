"""Bundles in the registry of a service: published there, and fetched by their SHA-256."""

import re
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from physai.sdk.base.files import write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.service import Service, ServiceRequestError
from physai.sdk.base.user_cache import user_cache
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, BundleError, read_file
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.verdict import Sha256

SHORTEST_PREFIX = 8
"""Digits of a SHA-256 that name a bundle, at least."""

UPLOAD_S = 300.0
"""Longest silence of the service while a bundle is sent [s]."""

_PREFIX = re.compile(f"[0-9a-f]{{{SHORTEST_PREFIX},64}}")


class _Entry(BaseModel):
    """Fields that are read of an entry in the registry."""

    sha256: Sha256


_ENTRIES = TypeAdapter(list[_Entry])


def is_digest_prefix(text: str) -> bool:
    """Whether a text may name a registered bundle."""
    return _PREFIX.fullmatch(text) is not None


def cache_folder() -> Path:
    """Folder of fetched bundles: `~/.cache/physai/bundles`, unless PHYSAI_CACHE or XDG_CACHE_HOME is set."""
    return user_cache("bundles")


def push_bundle(bundle: Path | str | bytes, *, server: str | Service) -> str:
    """Store and register a bundle in a service, unless the service has it; return its SHA-256.

    Args:
        bundle: bundle file, or its contents.
        server: service of `physai sim serve`; token in PHYSAI_TOKEN.

    Raises:
        BundleError: the file cannot be read, or is no bundle.
        ServiceRequestError: the service cannot be reached or refuses the bundle.
    """
    service = Service.parse(server) if isinstance(server, str) else server
    data = bundle if isinstance(bundle, bytes) else read_file(Path(bundle))
    digest = read_bundle(data).sha256
    service.post("/v1/blobs", data, timeout_s=UPLOAD_S)
    service.post("/v1/registry/bundle", {"sha256": digest})
    return digest


def fetch_bundle(service: Service, prefix: str) -> bytes:
    """A registered bundle, from the cache of this computer if it is there; only its SHA-256 is checked.

    Args:
        service: where it is registered; not asked for a bundle in the cache that is named by its whole SHA-256.
        prefix: its SHA-256, or the first digits of it; see `is_digest_prefix`.

    Raises:
        BundleError: no bundle begins with these digits, or several do.
        ServiceRequestError: the service cannot be reached, or sends something else.
    """
    digest = prefix if len(prefix) == 64 else _resolve(service, prefix)
    file = cache_folder() / f"{digest}.physai"
    if file.is_file() and sha256_hex(data := read_file(file)) == digest:
        return data
    data = service.read(f"/v1/blobs/{digest}", limit=MAX_BUNDLE_BYTES)
    if sha256_hex(data) != digest:
        raise ServiceRequestError(f"{service.url} sent other content than {digest[:16]}…; do not use this service")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, data)
    return data


def _resolve(service: Service, prefix: str) -> str:
    """The only registered SHA-256 that begins with these digits."""
    try:
        entries = _ENTRIES.validate_python(service.get(f"/v1/registry/bundle?prefix={prefix}"))
    except ValidationError:
        raise ServiceRequestError(f"{service.url} lists no bundles; is it a service of `physai sim serve`?") from None
    found = [entry.sha256 for entry in entries if entry.sha256.startswith(prefix)]
    if len(found) != 1:
        which = ", ".join(digest[:16] for digest in found[:5]) or "none"
        raise BundleError(
            f"{prefix} names {len(found)} bundles at {service.url} ({which}); give more digits of one that is listed "
            "there, or publish it: physai bundle push"
        )
    return found[0]
