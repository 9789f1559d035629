"""`physai sim tokens`: access tokens of a service."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, noun, verb
from physai.service.auth.token_admin import create_token, list_tokens, revoke_token


@verb(create_token, summary="create a token")
def _create(
    call: Callable[..., str], *, name: str, scope: str, token_file: Path | None = None, as_json: AsJson = False
) -> int:
    """Print the token."""
    token = call()
    # That of a file is known already, and what is printed may be kept in a log.
    secret = {} if token_file is not None else {"token": token}
    if as_json:
        print(json.dumps({"name": name, "scope": scope, **secret}))
    elif secret:
        # Nothing else goes to stdout: TOKEN=$(physai sim tokens create …) is the token.
        print(token)
        print(
            "This is shown once; send it as `Authorization: Bearer …`, or set PHYSAI_TOKEN. "
            "From now on the service answers nobody without a token.",
            file=sys.stderr,
        )
    return 0


@verb(list_tokens, summary="list the tokens, without their secrets")
def _list(call: Callable[..., list[dict[str, Any]]], *, as_json: AsJson = False) -> int:
    """Print the tokens."""
    tokens = call()
    rows = [[t["name"], t["scope"], _day(t["created"]), _day(t["expires"])] for t in tokens]
    if as_json:
        print(json.dumps({"tokens": tokens}))
    else:
        print(printable(table(["name", "scope", "created", "expires"], rows, indent="")) if rows else "no tokens")
    return 0


@verb(revoke_token, summary="revoke a token")
def _revoke(call: Callable[..., None]) -> int:
    """Print nothing."""
    call()
    return 0


def _day(moment: float | None) -> str:
    return "never" if moment is None else time.strftime("%Y-%m-%d", time.gmtime(moment))


command = noun(
    "create, list and revoke access tokens of a service", {"create": _create, "list": _list, "revoke": _revoke}
)
"""The verb `sim tokens`."""
