"""Verbs of the command line, made from the signatures and docstrings of functions.

A procedure is a public function with keyword arguments. A verb presents it: it adds what belongs to a terminal
(progress, text, `--json`, exit code). Both signatures become options, and their `Args:` sections the help.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parsing.docstring import argument_texts, epilog_of, with_flags
from physai.sdk.cli.parsing.parameter import Parameter, parameters_of
from physai.sdk.cli.parsing.parser import Parser

__all__ = ["AsJson", "Option", "noun", "verb"]

AsJson = Annotated[bool, Option(help="print one JSON object")]
"""Type of the parameter `as_json` of what presents a result: the option `--json`."""

RUN = "run_action"
"""Name in a Namespace under which a noun's parser keeps the function that runs the chosen verb."""

_Present = Callable[..., int]


def verb(function: Callable[..., Any] | None = None, *, summary: str) -> Callable[[_Present], CliCommand]:
    """Make a verb from a procedure and from the decorated function, which presents it.

    Positional parameters without a default are words, all others options. A parameter whose annotation names no type of
    the command line (str, int, float, bool, Path, Literal, and sequences and mappings of them), such as a callback,
    stays out of it. Of a union the first such type counts.

    Args:
        function: the procedure. None if the verb has none of its own.
        summary: one line for the list of verbs, without a period.

    Returns:
        A decorator of the presenting function. That takes the procedure, bound to the options given, as its first
        argument, and its own parameters by name; one that the procedure has as well gets the same value, and needs no
        text. It returns the exit code. Its docstring after the first paragraph is shown below the options. Errors
        that name a parameter in backticks name the option instead.
    """

    def decorated(present: _Present) -> CliCommand:
        return _made(function, present, summary)

    return decorated


def _made(function: Callable[..., Any] | None, present: _Present, summary: str) -> CliCommand:
    @functools.cache
    def parameters() -> tuple[dict[str, Parameter], dict[str, Parameter]]:
        if function is None:
            return {}, parameters_of(present, argument_texts(present))
        procedure = parameters_of(function, argument_texts(function))
        return procedure, parameters_of(present, argument_texts(present), skip=1)

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        procedure, own = parameters()
        parser.epilog = epilog_of(present)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        groups: dict[str, Any] = {}
        for parameter in (procedure | {name: one for name, one in own.items() if name not in procedure}).values():
            parameter.add_to(parser, groups)

    def run(namespace: argparse.Namespace) -> int:
        procedure, own = parameters()
        try:
            return presented(procedure, own, vars(namespace))
        except PhysaiError as error:
            flags = {name: flag for one in (own | procedure).values() for name, flag in one.all_flags()}
            error.args = tuple(with_flags(word, flags) if isinstance(word, str) else word for word in error.args)
            raise

    def presented(procedure: dict[str, Parameter], own: dict[str, Parameter], given: dict[str, Any]) -> int:
        options: dict[str, Any] = {}
        for name, one in own.items():
            source = procedure.get(name, one)
            if source.is_given(given):
                options[name] = source.value(given)
            elif one.required:
                options[name] = source.default
        if function is None:
            return present(**options)
        bound = {name: one.value(given) for name, one in procedure.items() if one.is_given(given)}
        return present(functools.partial(function, **bound), **options)

    return CliCommand(summary=summary, add_arguments=add_arguments, run=run)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Noun:
    """Verbs of a noun."""

    actions: Mapping[str, CliCommand]
    default: str | None
    old_names: Mapping[str, str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds a parser per action."""
        if isinstance(parser, Parser):
            parser.renamed_words.update(self.old_names)
        for name, command in self.actions.items():
            add_action(parser, name, command, required=self.default is None)

    def run(self, namespace: argparse.Namespace) -> int:
        """Runs the action that was chosen."""
        action: Callable[[argparse.Namespace], int] | None = getattr(namespace, RUN, None)
        return self.actions[str(self.default)].run(argparse.Namespace()) if action is None else action(namespace)


def add_action(parser: argparse.ArgumentParser, name: str, command: CliCommand, *, required: bool = True) -> None:
    """Adds a verb to the parser of its noun; `required` says whether a verb must be named."""
    group: Any = argparse._SubParsersAction  # pyright: ignore[reportPrivateUsage]
    existing: Any = next((one for one in parser._actions if isinstance(one, group)), None)  # pyright: ignore[reportPrivateUsage]
    actions = existing or parser.add_subparsers(dest="action", required=required, metavar="VERB")
    summary = command.summary
    child = actions.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    command.add_arguments(child)
    child.set_defaults(**{RUN: command.run})


def noun(
    summary: str,
    actions: Mapping[str, CliCommand],
    *,
    default: str | None = None,
    old_names: Mapping[str, str] | None = None,
) -> CliCommand:
    """Make a noun with several verbs, `physai NOUN VERB`; entry points `NOUN.VERB` add others.

    Args:
        summary: one line for the list of nouns, without a period.
        actions: verbs by name.
        default: verb that runs, without options, if none is named; None if one is required.
        old_names: names of verbs by the names they had in the last version, which still work.
    """
    made = _Noun(actions=actions, default=default, old_names=old_names or {})
    return CliCommand(summary=summary, add_arguments=made.add_arguments, run=made.run)
