"""`physai sim tokens`: access tokens of a service."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.service.auth.tokens import TokenStore

SCOPES = ("read", "run", "admin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim tokens`."""
    parser.add_argument("verb", choices=("create", "list", "revoke"), metavar="create|list|revoke")
    parser.add_argument("name", nargs="?", help="name of the token, such as ci or alice")
    parser.add_argument(
        "--scope", choices=SCOPES, default="run", help="read, run (sessions and jobs) or admin (default: run)"
    )
    parser.add_argument("--days", type=float, metavar="N", help="days until the token expires (default: never)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="store the token in FILE instead of a random one, in place of an older one of this name",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("physai-service"), metavar="DIR", help="data folder (default: physai-service)"
    )
    parser.add_argument("--db", metavar="URL", help="database, as for `physai sim serve`")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Creates, lists or revokes tokens; a running service notices within seconds."""
    try:
        from physai.service.auth.tokens import TokenStore
        from physai.service.database.engine import open_database
        from physai.service.settings import default_database
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"physai sim tokens needs {error.name}; pip install 'physai-sdk[serve]'") from error
    if arguments.verb != "list" and arguments.name is None:
        raise PhysaiError(f"physai sim tokens {arguments.verb} needs the NAME of a token")
    if arguments.days is not None and not 0.0 < arguments.days <= 36500.0:
        raise PhysaiError(f"--days must lie above 0 and at most at 36500, got {arguments.days:g}")
    if arguments.token_file is not None and arguments.verb != "create":
        raise PhysaiError(f"--token-file goes with create, not with {arguments.verb}")
    data: Path = arguments.data.absolute()
    if arguments.db is None:
        data.mkdir(parents=True, exist_ok=True)
    store = TokenStore(open_database(arguments.db or default_database(data)))
    if arguments.verb == "create":
        return _create(store, arguments)
    if arguments.verb == "revoke":
        store.revoke(arguments.name)
        return 0
    tokens = store.all()
    if arguments.json:
        print(json.dumps({"tokens": tokens}))
    else:
        rows = [[t["name"], t["scope"], _day(t["created"]), _day(t["expires"])] for t in tokens]
        print(printable(table(["name", "scope", "created", "expires"], rows, indent="")) if rows else "no tokens")
    return 0


def _create(store: TokenStore, arguments: argparse.Namespace) -> int:
    given = None if arguments.token_file is None else _read(arguments.token_file)
    token = store.create(arguments.name, arguments.scope, days=arguments.days, token=given)
    if given is not None:
        # It is known already, and what is printed may be kept in a log.
        if arguments.json:
            print(json.dumps({"name": arguments.name, "scope": arguments.scope}))
        return 0
    if arguments.json:
        print(json.dumps({"name": arguments.name, "scope": arguments.scope, "token": token}))
    else:
        # Nothing else goes to stdout: TOKEN=$(physai sim tokens create …) is the token.
        print(token)
        print(
            "This is shown once; send it as `Authorization: Bearer …`, or set PHYSAI_TOKEN. "
            "From now on the service answers nobody without a token.",
            file=sys.stderr,
        )
    return 0


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(1024)
    except OSError as error:
        raise PhysaiError(f"{file}: {error.strerror or error}") from error
    return content.decode("ascii", "replace").strip()


def _day(moment: float | None) -> str:
    return "never" if moment is None else time.strftime("%Y-%m-%d", time.gmtime(moment))


command = CliCommand(summary="create, list and revoke access tokens of a service", add_arguments=add_arguments, run=run)
"""The verb `sim tokens`."""
