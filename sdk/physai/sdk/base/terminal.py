"""Terminal output: tables, colours (unless NO_COLOR is set), escaped control characters."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

_CODES = {"bold": "1", "red": "31", "green": "32", "dim": "2"}


def wants_colour(stream: TextIO) -> bool:
    """Return whether the stream is a terminal and colours are not disabled (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style of `_CODES`, or unchanged if the stream does not support colour."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if wants_colour(stream) else text


def printable(text: str) -> str:
    """Escape control characters except line feeds, so that untrusted text cannot control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "  ") -> str:
    """Format left-aligned columns, two spaces apart; empty if there are no rows."""
    if not rows:
        return ""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join((indent + line).rstrip() for line in padded)


def say_on_stderr(text: str) -> None:
    """Print a line for people on standard error, without control characters."""
    print(printable(text), file=sys.stderr)
