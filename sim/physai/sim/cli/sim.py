"""`physai sim`: calibrates a twin on recordings, replays recordings in it and validates policies in it."""

from __future__ import annotations

import argparse

from physai.sdk.cli.command import CliCommand
from physai.sim.cli import calibrate, closed_loop, exam, excite, rank, record, replay, ros, serve, tokens, validate

_VERBS = {
    "record": record.command,
    "calibrate": calibrate.command,
    "replay": replay.command,
    "excite": excite.command,
    "closed-loop": closed_loop.command,
    "exam": exam.command,
    "validate": validate.command,
    "rank": rank.command,
    "serve": serve.command,
    "tokens": tokens.command,
    "ros": ros.command,
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, verb in _VERBS.items():
        description = verb.summary[0].upper() + verb.summary[1:] + "."
        verb.add_arguments(actions.add_parser(name, help=verb.summary, description=description))


def _run(arguments: argparse.Namespace) -> int:
    return _VERBS[arguments.action].run(arguments)


command = CliCommand(
    summary="calibrate a twin, replay recordings, validate policies", add_arguments=_add_arguments, run=_run
)
"""The verb `sim`."""
