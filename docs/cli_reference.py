"""MkDocs hook: writes the command-line reference from the parsers themselves, so that it cannot disagree with them.

A page names its commands, `<!-- commands: robots, sim calibrate -->`: verbs with all their actions, or single actions.
"""

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

from physai.sdk.cli.grammar import choose

MARK = re.compile(r"^<!-- commands: ([a-z, -]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Fills in the commands where the page names them."""
    return MARK.sub(lambda found: "\n".join(_sections(found[1].split(", "))), markdown)


def _sections(commands: list[str]) -> Iterator[str]:
    for command in commands:
        verb, *actions = command.split()
        parser = parser_of(verb)
        for action in actions:
            parser = actions_of(parser)[action]
        yield from _help(parser, level=2)


def parser_of(verb: str) -> argparse.ArgumentParser:
    """Parser of a verb, or of a noun with all its verbs."""
    return choose([verb]).parser()


def actions_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Parsers of a parser's actions, by name, without aliases."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            choices: dict[str, argparse.ArgumentParser] = action.choices
            # An alias is the same parser under another name.
            for name, child in choices.items():
                if child not in found.values():
                    found[name] = child
    return found


def _help(parser: argparse.ArgumentParser, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    yield f"```text\n{parser.format_help().rstrip()}\n```\n"
    for child in actions_of(parser).values():
        yield from _help(child, level=min(level + 1, 4))
