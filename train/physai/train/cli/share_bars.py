"""Progress bars of verbs whose procedure tells the share of its work done."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial


@contextmanager
def share_bars(*labels: str) -> Generator[tuple[Callable[[float], None], ...]]:
    """Bars on stderr while the block runs, if that is a terminal: the report on stdout may be piped.

    Args:
        labels: text of each bar.

    Yields:
        For each bar a function that takes the share of the work done, in [0, 1].
    """
    from physai.compute.cli.progress_bars import progress_bar

    with progress_bar() as bar:
        tasks = [bar.add_task(label, total=1.0) for label in labels]
        yield tuple(partial(_update, bar.update, task) for task in tasks)


def _update(update: Callable[..., None], task: object, share: float) -> None:
    update(task, completed=share)
