"""`physai sim`: calibrates a twin on recordings, replays recordings in it and validates policies in it."""

from __future__ import annotations

import argparse

from physai.sdk.base.plugins import contributions
from physai.sdk.cli.command import CliCommand

GROUP = "physai.sim_commands"
"""Entry-point group of the actions, which twin, gates and service contribute."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, entry in contributions(GROUP).items():
        verb: CliCommand = entry.load()
        description = verb.summary[0].upper() + verb.summary[1:] + "."
        action = actions.add_parser(name, help=verb.summary, description=description)
        verb.add_arguments(action)
        # No subcommand has an option or a subcommand of this name.
        action.set_defaults(sim_command=verb)


def _run(arguments: argparse.Namespace) -> int:
    verb: CliCommand = arguments.sim_command
    return verb.run(arguments)


command = CliCommand(
    summary="calibrate a twin, replay recordings, validate policies", add_arguments=_add_arguments, run=_run
)
"""The verb `sim`."""
