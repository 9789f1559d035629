"""`physai tasks new`: writes a commented file to start from."""

from collections.abc import Callable
from pathlib import Path

from physai.sdk.cli.verb import verb
from physai.sim.tasks.new_task import new_task


@verb(new_task, summary="write a task file to start from")
def command(call: Callable[[], Path]) -> int:
    """Print the file's path."""
    path = call()
    print(f"{path}\nnext: physai train {path}")
    return 0
