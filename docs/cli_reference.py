"""MkDocs hook: writes the command-line reference from the parsers themselves, so that it cannot disagree with them."""

import argparse
from collections.abc import Iterator
from typing import Any

from physai.sdk.base.plugins import contributions
from physai.sdk.cli.parser import Parser

PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Fills in the commands where the page asks for them."""
    return markdown.replace(PLACE, "\n".join(_pages())) if PLACE in markdown else markdown


def _pages() -> Iterator[str]:
    for verb, entry in sorted(contributions("physai.commands").items()):
        command = entry.load()
        parser = Parser(prog=f"physai {verb}", description=command.summary)
        command.add_arguments(parser)
        yield from _help(parser, level=2)


def _help(parser: argparse.ArgumentParser, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    yield f"```text\n{parser.format_help().rstrip()}\n```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            children: dict[str, argparse.ArgumentParser] = action.choices
            # An alias is the same parser under another name.
            for child in dict.fromkeys(children.values()):
                yield from _help(child, level=min(level + 1, 4))
