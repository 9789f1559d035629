"""`physai robot command`: send a command to the runtime of this robot."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled

WORDS = {
    "status": "show the state of the runtime, and why",
    "activate": "begin to drive",
    "deactivate": "ramp to a safe state and send nothing more",
    "hold": "brake to a standstill, until reset",
    "damp": "brake without stiffness, until reset",
    "stop": "protective stop, until reset; succeeds once every joint was measured at rest",
    "reset": "reset a confirmed stop; the robot stays where it is",
    "start": "let the policy move the robot again, from standstill",
    "record": "write a flight recording of the last seconds, as on a fault",
    "heartbeat": "report that the operator is present; repeat it with --every",
    "shutdown": "ramp to a safe state and end",
}

# Longest wait for the joints to be at rest [s].
CONFIRM_S = 3.0

_POLL_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `--root` and `--json` are common to all actions."""
    help_text = "; ".join(f"{word}: {meaning}" for word, meaning in WORDS.items())
    parser.add_argument("word", choices=tuple(WORDS), metavar="WORD", help=help_text)
    parser.add_argument("--every", type=float, metavar="S", help="repeat the heartbeat until interrupted")


def run(root: Path, arguments: argparse.Namespace) -> int:
    """Send the command; return exit code 1 if a stop was not confirmed.

    Raises:
        ControlError: no runtime listens.
    """
    from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
    from physai.deploy_jetson.update.slots.health import health_path

    path = health_path(root).with_name(CONTROL_FILE)
    if arguments.every is not None:
        return _repeat(path, arguments)
    if arguments.word == "stop":
        try:
            warning = tell(path, arguments.word).get("warning")
            if warning:
                print(styled(printable(str(warning)), "red", sys.stderr), file=sys.stderr)
            return _confirm(path, arguments)
        except ControlError as error:
            # Whoever presses stop has to know at once that it did not work.
            raise ControlError(f"{error}\nNOT CONFIRMED: cut the power") from None
    _print(arguments, tell(path, arguments.word))
    return 0


def _repeat(path: Path, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.runtime.commands.control_socket import tell

    if arguments.word != "heartbeat" or not 0.0 < arguments.every <= 60.0:
        raise PhysaiError(f"--every is for the heartbeat, and up to 60 s; got {arguments.every} for {arguments.word}")
    try:
        while True:
            tell(path, arguments.word)
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return 0


def _confirm(path: Path, arguments: argparse.Namespace) -> int:
    """Wait until the joints were measured at rest after a stop."""
    from physai.deploy_jetson.runtime.commands.control_socket import tell

    deadline_s = time.monotonic() + CONFIRM_S
    status = tell(path, "status")
    # The runtime accepts a stop at once, but the joints take time to come to rest.
    while not status.get("stopped") and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        status = tell(path, "status")
    stopped = bool(status.get("stopped"))
    if arguments.json:
        print(json.dumps(status, indent=2))
    elif stopped:
        print("stopped: every joint was measured at rest")
    else:
        text = f"NOT CONFIRMED: the joints were not measured at rest within {CONFIRM_S:g} s; cut the power"
        print(styled(text, "red", sys.stderr), file=sys.stderr)
    return 0 if stopped else 1


def _print(arguments: argparse.Namespace, answer: dict[str, Any]) -> None:
    if arguments.json:
        print(json.dumps(answer, indent=2))
    else:
        for key, value in _rows(answer):
            print(f"{key:24} {printable(value)}")


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
