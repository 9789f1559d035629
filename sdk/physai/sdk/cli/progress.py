"""A progress bar without dependencies, for the verbs of the robot; elsewhere rich draws them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 30


@contextmanager
def progress(label: str, total: int, stream: TextIO) -> Generator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; the bar is gone when the block ends.

    Args:
        label: what is being done.
        total: steps there are.
        stream: where to draw, usually stderr.
    """
    if not stream.isatty():
        yield lambda done: None
        return

    def tell(done: int) -> None:
        share = min(1.0, done / max(1, total))
        filled = round(WIDTH * share)
        stream.write(f"\r{label} [{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%}")
        stream.flush()

    try:
        tell(0)
        yield tell
    finally:
        stream.write("\r\033[K")
        stream.flush()
