"""Places at which attempts at stages run."""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from physai.cluster.workflow.model import WorkflowStage


@dataclass(frozen=True, kw_only=True)
class Given:
    """An input of an attempt."""

    path: Path
    hash: str
    shown: Path
    """Where the attempt finds it: alone, since what lies beside `path` is not in the stage's key. The same in every
    attempt, as outputs may name it."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Result of an attempt."""

    stage: str
    code: int = 0
    """Exit code of its lead; negative if a signal ended it."""
    seconds: float = 0.0
    host: str = ""
    """Computer that it ran on; empty for this one."""
    problem: str = ""
    """Why there is no exit code."""
    lost: bool = False
    """Whether the computer or Ray's process died, so that the problem is not the stage's."""


class Place(Protocol):
    """Runs attempts, each in a fresh folder."""

    def require(self, name: str, stage: WorkflowStage) -> None:
        """Check that a stage can run here at all.

        Raises:
            WorkflowError: it asks for more than there is, or for another platform.
        """
        ...

    def start(
        self,
        name: str,
        stage: WorkflowStage,
        inputs: Mapping[str, Given],
        fresh: Callable[[], Path],
        log: Path,
        *,
        first: bool,
    ) -> Path | None:
        """Start an attempt.

        Args:
            name: the stage's name.
            stage: the stage, which has no other attempt here.
            inputs: its inputs by name.
            fresh: makes the folder for its outputs.
            log: file for what its commands print.
            first: whether the log starts anew.

        Returns:
            The folder; None if what the stage asks for is not free yet.

        Raises:
            OSError: a file cannot be written.
        """
        ...

    def wait(self) -> list[Ended]:
        """Wait until an attempt ends; return those that did."""
        ...

    def stop(self) -> None:
        """End all attempts."""
        ...


def disk_problem(error: OSError, folder: Path) -> str:
    """One line for a file that cannot be read or written; `folder` is named where the error names none."""
    first = error.args[0] if error.args else None
    if isinstance(error, shutil.Error) and isinstance(first, list):
        # Of a copied folder: for each file its source, target and a message as of `OSError`.
        failed = cast("list[tuple[str, str, str]]", first)
        _, target, message = failed[0]
        reason = re.sub(r"^\[Errno \d+\] |: '.*", "", str(message)).lower()
        return f"{target}: {reason}" + (f" (and {len(failed) - 1} more)" if len(failed) > 1 else "")
    # Of a copy, the file that was to be written; a write into an open file names none.
    file = error.filename2 or error.filename or folder
    return f"{file}: {(error.strerror or str(error)).lower()}"
