"""Stages as processes of this computer."""

import select
from collections.abc import Callable, Mapping
from pathlib import Path

from physai.cluster.workflow.executors.place import Ended, Given
from physai.cluster.workflow.executors.processes import Attempt
from physai.cluster.workflow.executors.resources import Pool, ResourceLimits
from physai.cluster.workflow.model import WorkflowStage


class Here:
    """Runs attempts within limits; see `Place`."""

    def __init__(self, limits: ResourceLimits) -> None:
        self._pool = Pool(limits)
        self._running: dict[str, tuple[WorkflowStage, Attempt, list[int]]] = {}

    def require(self, name: str, stage: WorkflowStage) -> None:
        """Check that a stage fits into the limits, and that its platform is this computer's."""
        self._pool.require(name, stage)

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
        """Start an attempt if what it asks for is free."""
        if (gpus := self._pool.take(stage)) is None:
            return None
        try:
            folder = fresh()
            attempt = Attempt(stage, inputs, folder, log, gpus=gpus, first=first)
        except BaseException:
            self._pool.give_back(stage, gpus)
            raise
        self._running[name] = stage, attempt, gpus
        return folder

    def wait(self) -> list[Ended]:
        """Wait until an attempt ends; return those that did."""
        poll = select.poll()
        names = {attempt.pidfd: name for name, (_, attempt, _) in self._running.items()}
        for pidfd in names:
            poll.register(pidfd, select.POLLIN)
        return [self._end(names[pidfd]) for pidfd, _ in poll.poll()]

    def _end(self, name: str) -> Ended:
        stage, attempt, gpus = self._running[name]
        code = attempt.finish()
        del self._running[name]
        self._pool.give_back(stage, gpus)
        return Ended(stage=name, code=code, seconds=attempt.seconds)

    def stop(self) -> None:
        """End all attempts, each within 10 s."""
        for _, attempt, _ in self._running.values():
            attempt.stop()
