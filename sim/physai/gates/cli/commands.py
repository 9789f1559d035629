"""`physai sim commands`: plays a grid of commands and says which of them a policy does not follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bar
from physai.gates.execution.command_grid import command_grid
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.gates.execution.command_grid import CommandCell, CommandGrid


@verb(command_grid, summary="play a grid of commands and find those that a policy does not follow")
def command(call: Callable[..., CommandGrid], *, as_json: AsJson = False) -> int:
    """Print a line for each command, then what is not followed, or none."""
    with share_bar("playing a grid of commands") as progress:
        found = call(progress=progress)
    if as_json:
        print(json.dumps(found.record))
        return 0
    print(printable(table(("command", "achieved", ""), [_row(cell) for cell in found.cells], indent="")))
    print(printable(found.text))
    return 0


def _row(cell: CommandCell) -> tuple[str, str, str]:
    words = [f"falls {cell.falls} of {cell.episodes}"] if cell.falls else []
    words += [
        f"{word} {', '.join(('x', 'y', 'turn')[axis] for axis in axes)}"
        for word, axes in (("ignores", cell.ignored), ("slow in", cell.slow))
        if axes
    ]
    achieved = "-" if cell.achieved is None else _numbers(cell.achieved)
    return _numbers(cell.command), achieved, "; ".join(words) or "-"


def _numbers(values: tuple[float, float, float]) -> str:
    return "  ".join(f"{value:6.2f}" for value in values)
