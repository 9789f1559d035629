"""`physai sim serve`: the digital twin as a service."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.verb import Option, verb
from physai.service.serving.serve_data import serve


@verb(serve, summary="serve twins, sessions and jobs to a team")
def command(
    call: Callable[..., None],
    *,
    reward: Annotated[Sequence[str], Option(repeat=True, metavar="TASK=FILE")] = (),
) -> int:
    """Serve until Ctrl-C.

    Args:
        reward: Python file whose reward(steps) or rubric(episode) replaces the task's reward for OpenEnv's
            clients; it runs in a sandbox; may be given once per task.
    """
    call(rewards=_files(reward), say=_say)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _files(given: Sequence[str]) -> dict[str, str]:
    """Files by task."""
    files: dict[str, str] = {}
    for words in given:
        task, _, file = words.partition("=")
        if not file:
            raise PhysaiError(f"--reward {words}: expected TASK=FILE, as ur10e-reach=mine.py")
        if task in files:
            raise PhysaiError(f"--reward {words}: {task} has a reward already; give one file per task")
        files[task] = file
    return files
