"""`physai artefacts`: runs, bundles and twins in object stores and folders."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.compute.objects.address import Address
    from physai.compute.objects.manifest import ArtefactManifest

_ADDRESS = "s3://BUCKET/PREFIX, gs://, abfs://, file:///FOLDER, or the path of a folder"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    push = actions.add_parser(
        "push",
        help="write a file or folder to an address",
        description="Write a file or folder to an address. Readers find the previous artefact there until this one is "
        "complete. Credentials are those of the environment, such as AWS_PROFILE; AWS_ENDPOINT_URL names another "
        "server than Amazon's.",
    )
    push.add_argument("path", type=Path, metavar="PATH", help="file or folder, such as a bundle or a run")
    push.add_argument("address", metavar="ADDRESS", help=f"place of this artefact alone: {_ADDRESS}")
    pull = actions.add_parser(
        "pull",
        help="read an artefact into a new file or folder",
        description="Read an artefact into a new file or folder, which appears when all hashes were checked.",
    )
    pull.add_argument("address", metavar="ADDRESS", help=f"place of the artefact: {_ADDRESS}")
    pull.add_argument("path", type=Path, metavar="PATH", help="file or folder to write; must not exist")
    pull.add_argument("--sha256", metavar="HASH", help="content that it must have, as `push` prints it")
    show = actions.add_parser("show", help="list the files of an artefact")
    show.add_argument("address", metavar="ADDRESS", help=f"place of the artefact: {_ADDRESS}")
    for action in (push, pull, show):
        action.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    from physai.compute.objects.address import Address
    from physai.compute.objects.transfer import pull, push, show

    address = Address.parse(arguments.address)
    if arguments.action == "push":
        manifest = push(arguments.path, address, tell=_tell)
    elif arguments.action == "pull":
        manifest = pull(address, arguments.path, content_sha256=arguments.sha256, tell=_tell)
    else:
        manifest = show(address)
    if arguments.json:
        print(json.dumps(_record(address, manifest), indent=2))
    else:
        print(printable(_text(address, manifest, files=arguments.action == "show")))
    return 0


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


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


command = CliCommand(
    summary="keep runs, bundles and twins in object stores and folders", add_arguments=_add_arguments, run=_run
)
"""The verb `artefacts`."""
