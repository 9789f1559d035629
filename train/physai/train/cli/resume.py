"""What `physai train --resume` asks of the user."""

from pathlib import Path

from physai.sdk.base.errors import TaskError


def require_built_in(task: str, run: Path) -> None:
    """Raises TaskError for the task file of a run, which the user has to name."""
    from physai.sim.policies.kept_task import kept_task
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
