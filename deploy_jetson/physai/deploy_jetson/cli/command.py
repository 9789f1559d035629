"""`physai robot command` and `physai robot shadow`: requests to the runtime of this robot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

from physai.deploy_jetson.runtime.commands.requests import CONFIRM_S, ask_for_shadow, tell_runtime
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, verb


@verb(tell_runtime, summary="send a command to the runtime that drives this robot")
def command_verb(call: Callable[..., dict[str, Any]], *, word: str, as_json: AsJson = False) -> int:
    """Send a command.

    exit code: 1 if a stop was not confirmed
    """

    def warn(text: str) -> None:
        print(styled(printable(text), "red", sys.stderr), file=sys.stderr)

    try:
        answer = call(warn=warn)
    except KeyboardInterrupt:
        return 0
    stopped = word != "stop" or bool(answer.get("stopped"))
    if as_json:
        print(json.dumps(answer, indent=2))
    elif not stopped:
        warn(f"NOT CONFIRMED: the joints were not measured at rest within {CONFIRM_S:g} s; cut the power")
    elif word == "stop":
        print("stopped: every joint was measured at rest")
    else:
        for key, value in _rows(answer):
            print(f"{key:24} {printable(value)}")
    return 0 if stopped else 1


@verb(ask_for_shadow, summary="let a second policy compute on this robot's samples and command nothing")
def shadow_verb(call: Callable[..., dict[str, Any]], *, as_json: AsJson = False) -> int:
    """Start or end a shadow."""
    answer = call()
    print(json.dumps(answer, indent=2) if as_json else printable(str(answer["shadow"])))
    return 0


def _rows(answer: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield one line per name and value; an innermost object shares one line."""
    for key, value in answer.items():
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            if any(isinstance(part, dict) for part in inner.values()):
                yield from _rows(inner, f"{above}{key}.")
            else:
                yield above + key, ", ".join(f"{name} {_short(part)}" for name, part in inner.items())
        # Empty values only make the status longer.
        elif value not in ("", None):
            yield above + key, _short(value)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
