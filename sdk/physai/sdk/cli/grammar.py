"""The grammar of the command line: `physai NOUN VERB`, and short cuts for the verbs of every day.

Entry points of the group `physai.commands` are named NOUN.VERB, or NOUN for a module that has several verbs, or by the
verb alone where it concerns this installation. Other distributions contribute verbs in the same way.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.base.extras import missing_extra
from physai.sdk.base.plugins import contributions
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.cli.verb import RUN, add_action, noun

GROUP = "physai.commands"

NOUNS = {
    "policy": "train, imitate, evaluate, play, export and quantise policies",
    "sim": "calibrate a twin, replay recordings, validate policies",
}
"""Summaries of the nouns whose verbs lie in several modules."""

SHORT_CUTS = {
    "train": "policy.train",
    "imitate": "policy.imitate",
    "finetune": "policy.finetune",
    "eval": "policy.eval",
    "play": "policy.play",
    "export": "policy.export",
    "import": "policy.import",
    "calibrate": "sim.calibrate",
    "drift": "sim.drift",
    "validate": "sim.validate",
    "flash": "robot.flash",
    "new": "tasks.new",
}
"""Names of twelve verbs without their nouns."""

RESERVED = ("demos", "fleet", "mcp")
"""Places of verbs to come; nothing else takes them."""

OLD_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("new", "task"): ("new",),
    ("prefer",): ("preferences",),
    ("quantize",): ("policy", "quantize"),
    ("robot", "rehearse"): ("robot", "simulate"),
    ("sim", "ros"): ("robot", "simulate", "--transport", "ros"),
    ("sweep",): ("runs", "sweep"),
    ("warmup",): ("tasks", "warmup"),
}
"""Commands of the last version that have another name now."""

_EXTRAS = {
    "physai.train": "train",
    "physai.foreign": "train",
    "physai.cluster": "train",
    "physai.rlhf": "train",
    "physai.compute": "sim",
    "physai.sim": "sim",
    "physai.twin": "sim",
    "physai.gates": "sim",
    "physai.service": "sim",
    "physai.deploy_jetson": "robot",
    "physai.ros": "ros",
}
"""The extra that installs each package's dependencies."""


@dataclass(frozen=True, kw_only=True)
class ChosenCommand:
    """A command that the user chose."""

    name: str
    """As in help texts: `sim validate`."""
    command: CliCommand
    words: list[str]
    """Words that follow."""
    entry: EntryPoint | None
    """Entry point of the command; None for a noun whose verbs lie in several modules."""

    def parser(self) -> Parser:
        """The command's parser, with its options."""
        summary = self.command.summary
        parser = Parser(prog=f"physai {self.name}", description=f"{summary[:1].upper()}{summary[1:]}.")
        self.command.add_arguments(parser)
        return parser

    def parse(self) -> argparse.Namespace:
        """The options.

        Raises:
            PhysaiError: the words are no options of the command.
        """
        return self.parser().parse(self.words)


def canonical(words: Sequence[str]) -> tuple[str, ...]:
    """The words without short cuts and names of the last version: NOUN VERB, or a verb without a noun, first."""
    new, rest = _renamed(words)
    name = new[0] if new else rest[0] if rest else ""
    if name in SHORT_CUTS:
        return (*SHORT_CUTS[name].split("."), *new[1:], *rest[0 if new else 1 :])
    return (*new, *rest)


def choose(words: Sequence[str]) -> ChosenCommand:
    """The command that the words name, without importing others; a name of the last version is told on stderr.

    Raises:
        PhysaiError: there is no such command, or its module cannot be imported.
    """
    new, others = _renamed(words)
    if new:
        print(f"note: {' '.join(words[: len(words) - len(others)])} is now {' '.join(new)}", file=sys.stderr)
    entries = _entries()
    name, *rest = [*new, *others]
    if name in SHORT_CUTS and SHORT_CUTS[name] in entries:
        entry = entries[SHORT_CUTS[name]]
        return ChosenCommand(name=name, command=load(entry), words=rest, entry=entry)
    if rest and (entry := entries.get(f"{name}.{rest[0]}")) is not None:
        return ChosenCommand(name=f"{name} {rest[0]}", command=load(entry), words=rest[1:], entry=entry)
    if name not in names():
        raise unknown_name("verb", name, names())
    own = load(entries[name]) if name in entries else None
    return ChosenCommand(name=name, command=_gathered(name, own), words=rest, entry=entries.get(name))


def names() -> list[str]:
    """First words of all commands, sorted."""
    found = {name.partition(".")[0] for name in _entries()}
    return sorted(found | {short for short, long in SHORT_CUTS.items() if long in _entries()})


def summary_of(name: str) -> str:
    """Summary of a command, or the reason why it is unavailable.

    Args:
        name: first word of the command.
    """
    try:
        return NOUNS.get(name) or choose([name]).command.summary
    except PhysaiError as error:
        return f"unavailable: {error}".splitlines()[0]


def every_parser() -> Parser:
    """A parser of all commands that can be loaded; its actions are the first words."""
    root = Parser(prog="physai", add_help=False)
    commands = root.add_subparsers()
    for name in names():
        try:
            command = choose([name]).command
            command.add_arguments(commands.add_parser(name, help=command.summary, description=command.summary))
        except (ImportError, PhysaiError):
            continue
    return root


def load(entry: EntryPoint) -> CliCommand:
    """Loads a command.

    Raises:
        PhysaiError: its module cannot be imported or contains no command.
    """
    try:
        command = entry.load()
    # Importing a third party's plugin can raise anything; it must not break the other verbs.
    except (Exception, SystemExit) as error:
        missing = extra_for(entry, error)
        raise missing or PhysaiError(f"{entry.name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(command, CliCommand):
        raise PhysaiError(f"{entry.name} cannot be loaded: {entry.value} is {type(command).__name__}, not CliCommand")
    return command


def extra_for(entry: EntryPoint, error: BaseException) -> MissingExtraError | None:
    """An error that names the extra to install; None if the cause is not a missing dependency."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.split(".")[0] == "physai":
        return None
    extra = next((e for package, e in _EXTRAS.items() if entry.module.startswith(f"{package}.")), None)
    return missing_extra(entry.name.replace(".", " "), error, preferred=extra)


@functools.cache
def _entries() -> dict[str, EntryPoint]:
    return contributions(GROUP)


def _gathered(name: str, own: CliCommand | None) -> CliCommand:
    """A noun with the verbs that other modules contribute."""
    prefix = f"{name}."
    others = {key.removeprefix(prefix): _listed(entry) for key, entry in _entries().items() if key.startswith(prefix)}
    if own is None:
        return noun(NOUNS.get(name, f"verbs of {name}"), others)
    if not others:
        return own
    first = own

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        first.add_arguments(parser)
        for verb, command in others.items():
            add_action(parser, verb, command)

    def run(namespace: argparse.Namespace) -> int:
        return getattr(namespace, RUN, first.run)(namespace)

    return CliCommand(summary=first.summary, add_arguments=add_arguments, run=run)


def _listed(entry: EntryPoint) -> CliCommand:
    """A verb in the list of its noun; one that cannot be loaded says why, and harms no other."""
    try:
        return load(entry)
    except PhysaiError as error:
        reason = error

    def refuse(namespace: argparse.Namespace) -> int:
        raise reason

    return CliCommand(summary=f"unavailable: {reason}".splitlines()[0], add_arguments=lambda parser: None, run=refuse)


def _renamed(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The new name of a command of the last version, empty for others, and the words that follow."""
    for length in (2, 1):
        new = OLD_NAMES.get(tuple(words[:length]))
        if new is not None:
            return new, list(words[length:])
    return (), list(words)
