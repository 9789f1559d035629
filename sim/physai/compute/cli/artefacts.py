"""`physai artefacts`: runs, bundles and twins in object stores and folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, Option, noun, verb

if TYPE_CHECKING:
    from physai.compute.objects.address import Address
    from physai.compute.objects.manifest import ArtefactManifest


@verb(summary="write a file or folder to an address")
def _push(path: Path, address: str, *, as_json: AsJson = False) -> int:
    """Push an artefact.

    Readers find the previous artefact there until this one is complete. Credentials are those of the environment, such
    as AWS_PROFILE; AWS_ENDPOINT_URL names another server than Amazon's.

    Args:
        path: file or folder, such as a bundle or a run.
        address: place of this artefact alone: s3://BUCKET/PREFIX, gs://, abfs://, file:///FOLDER, or the path of a
            folder.
    """
    from physai.compute.objects.address import Address
    from physai.compute.objects.transfer import push

    place = Address.parse(address)
    return _print(place, push(path, place, tell=_tell), as_json=as_json)


@verb(summary="read an artefact into a new file or folder")
def _pull(
    address: str,
    path: Path,
    *,
    sha256: Annotated[str | None, Option(metavar="HASH")] = None,
    as_json: AsJson = False,
) -> int:
    """Pull an artefact.

    The file or folder appears when all hashes were checked.

    Args:
        address: place of the artefact: s3://BUCKET/PREFIX, gs://, abfs://, file:///FOLDER, or the path of a folder.
        path: file or folder to write; must not exist.
        sha256: content that it must have, as `push` prints it.
    """
    from physai.compute.objects.address import Address
    from physai.compute.objects.transfer import pull

    place = Address.parse(address)
    return _print(place, pull(place, path, content_sha256=sha256, tell=_tell), as_json=as_json)


@verb(summary="list the files of an artefact")
def _show(address: str, *, as_json: AsJson = False) -> int:
    """Show an artefact.

    Args:
        address: place of the artefact: s3://BUCKET/PREFIX, gs://, abfs://, file:///FOLDER, or the path of a folder.
    """
    from physai.compute.objects.address import Address
    from physai.compute.objects.transfer import show

    place = Address.parse(address)
    return _print(place, show(place), as_json=as_json, files=True)


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def _print(address: Address, manifest: ArtefactManifest, *, as_json: bool, files: bool = False) -> int:
    if as_json:
        print(json.dumps(_record(address, manifest), indent=2))
    else:
        print(printable(_text(address, manifest, files=files)))
    return 0


def _record(address: Address, manifest: ArtefactManifest) -> dict[str, object]:
    return {
        "address": str(address),
        "content_sha256": manifest.content_sha256,
        "size": manifest.size,
        **manifest.model_dump(mode="json"),
    }


def _text(address: Address, manifest: ArtefactManifest, *, files: bool) -> str:
    what = "1 file" if manifest.kind == "file" else f"folder of {len(manifest.files)} files"
    lines = [
        f"address  {address}",
        f"content  {manifest.content_sha256} ({what}, {manifest.size} bytes)",
        f"created  {manifest.created} by {manifest.software}",
    ]
    if files:
        rows = [(name, str(entry.size), entry.sha256) for name, entry in sorted(manifest.files.items())]
        lines.append(table(("file", "bytes", "SHA-256"), rows))
    return "\n".join(lines)


command = noun(
    "keep runs, bundles and twins in object stores and folders", {"push": _push, "pull": _pull, "show": _show}
)
"""The verb `artefacts`."""
