"""A progress bar without dependencies, for the robot's verbs; the other packages use rich."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 30


@contextmanager
def progress(label: str, total: int, stream: TextIO) -> Generator[Callable[[int], None]]:
    """Draws a progress bar while the block runs; does nothing unless the stream is a terminal.

    Args:
        label: text in front of the bar.
        total: number of steps.
        stream: usually stderr.
    """
    if not stream.isatty():
        yield lambda done: None
        return

    def update(done: int) -> None:
        share = min(1.0, done / max(1, total))
        filled = round(WIDTH * share)
        stream.write(f"\r{label} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}")
        stream.flush()

    try:
        update(0)
        yield update
    finally:
        stream.write("\r\033[K")  # erases the line
        stream.flush()
