"""Progress bars of verbs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

LINE_S = 2.0
"""Time between two lines about progress [s]."""


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A progress bar on stderr, invisible if that is no terminal; `columns` replace the default ones."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)


class ShareLines:
    """Prints the share that is done and the time left on stderr, every `LINE_S` seconds, where no bar is visible."""

    def __init__(self) -> None:
        self._begun_s = self._said_s = time.monotonic()

    def __call__(self, label: str, share: float) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s < LINE_S:
            return
        self._said_s = now_s
        left = f", about {(now_s - self._begun_s) * (1.0 / share - 1.0):.0f} s left" if share > 0.0 else ""
        print(f"{label}: {share:.0%}{left}", file=sys.stderr, flush=True)


@contextmanager
def share_bars(*labels: str) -> Generator[tuple[Callable[[float], None], ...]]:
    """Show progress bars on stderr, lines if that is no terminal.

    Yields:
        For each label a function that receives the share that is done, in [0, 1].
    """
    lines = ShareLines()
    with progress_bar() as bar:

        def updates(label: str) -> Callable[[float], None]:
            line = bar.add_task(label, total=1.0)

            def update(share: float) -> None:
                bar.update(line, completed=share)
                if bar.disable:
                    lines(label, share)

            return update

        yield tuple(updates(label) for label in labels)


@contextmanager
def share_bar(label: str) -> Generator[Callable[[float], None]]:
    """Show a progress bar as `share_bars` does; yields what receives the share that is done."""
    with share_bars(label) as (update,):
        yield update
