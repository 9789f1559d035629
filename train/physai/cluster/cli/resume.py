"""Options of `physai train --resume`."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from physai.sdk.base.errors import PhysaiError, TaskError


def require_built_in(task: str, run: Path) -> None:
    """Raises TaskError for the task file of a run, which the user has to name."""
    from physai.sim.policies.saved_task import kept_task
    from physai.sim.tasks.registry import BUILT_IN

    if task in BUILT_IN:
        return
    kept = kept_task(run)
    copy = None if kept is None else kept.source
    ways = "name it" if copy is None else f"read {copy} and name its folder, {run}, or another file"
    raise TaskError(
        f"{run} was trained with the task file {task[:256]!r}, and no Python file is run because another file names "
        f"it; {ways}: physai train TASK --resume {run}"
    )


def require_no_settings(arguments: argparse.Namespace, names: Iterable[str]) -> None:
    """Raises PhysaiError if one of these options, `--set` or `--deterministic` was given: a run keeps its settings."""
    fixed = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    fixed += [f"--set {option}" for option in arguments.options]
    fixed += ["--deterministic"] if arguments.deterministic else []
    if fixed:
        raise PhysaiError(f"a resumed run keeps its settings; leave out {', '.join(fixed)} or start a new run")
