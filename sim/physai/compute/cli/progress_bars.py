"""Progress bars of verbs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A progress bar on stderr, invisible if that is no terminal; `columns` replace the default ones."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)


@contextmanager
def share_bar(label: str) -> Generator[Callable[[float], None]]:
    """Show a progress bar on stderr, invisible if that is no terminal; yields what receives the share that is done."""
    with progress_bar() as bar:
        line = bar.add_task(label, total=1.0)

        def update(share: float) -> None:
            bar.update(line, completed=share)

        yield update
