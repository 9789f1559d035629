"""The health window: reads the runtime's counters while a version is on trial, and commits it or goes back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from physai.deploy_jetson.agent.agent import UpdateAgent
from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.health import Health, HealthFinding, HealthWindow, health_path, read_counters
from physai.deploy_jetson.slots.records import Trial

POLL_S = 0.2
RETRY_S = 2.0
"""Pause after a change that could not be written: another process holds the lock, or the disk is full."""

End = Literal["committed", "rolled-back", "ended elsewhere", "none"]


@dataclass(frozen=True)
class Watched:
    """How a trial ended."""

    end: End
    version: int | None
    reason: str


class TrialWatcher:
    """Watches one trial after the other."""

    def __init__(
        self,
        agent: UpdateAgent,
        *,
        counters: Path | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        tell: Callable[[HealthFinding], None] = lambda finding: None,
    ) -> None:
        """Prepares to watch.

        Args:
            agent: of the robot.
            counters: the runtime's counters; None for where they usually are.
            monotonic_ns: CLOCK_MONOTONIC [ns].
            sleep: waits for some seconds.
            tell: gets every finding.
        """
        self._agent = agent
        self._counters = counters or health_path(agent.root)
        self._now_ns = monotonic_ns
        self._sleep = sleep
        self._tell = tell

    def watch_trial(self) -> Watched:
        """Waits for the end of the trial that is on, and brings it about.

        Raises:
            SlotError: the slots are damaged.
        """
        trial = self._agent.store.state().trial
        if trial is None:
            return Watched("none", None, "no version is on trial")
        window = self._window(trial)
        while True:
            finding = window.update(read_counters(self._counters), self._now_ns())
            self._tell(finding)
            if self._ended(trial):
                return Watched("ended elsewhere", trial.version, "the trial was ended by another command")
            end = self._conclude(finding)
            if end is not None:
                return Watched(end, trial.version, finding.reason)
            self._sleep(POLL_S)

    def watch_forever(self, ended: Callable[[Watched], None] = lambda watched: None) -> None:
        """Watches every trial there will be; for the agent's service. Ends with the process.

        Args:
            ended: gets the end of every trial.

        Raises:
            SlotError: the slots are damaged.
        """
        while True:
            watched = self.watch_trial()
            if watched.end == "none":
                self._sleep(POLL_S)
            else:
                ended(watched)

    def look(self) -> HealthFinding | None:
        """What one look at the counters says of the trial that is on; None if none is."""
        trial = self._agent.store.state().trial
        return None if trial is None else self._window(trial).update(read_counters(self._counters), self._now_ns())

    def _window(self, trial: Trial) -> HealthWindow:
        marker = self._agent.store.marker(trial.slot)
        if marker is None:
            raise SlotError(f"slot {trial.slot} is on trial but damaged; `physai robot recover` goes back")
        return HealthWindow(
            self._agent.config.limits(),
            bundle_sha256=trial.bundle_sha256,
            control_dt=marker.control_dt,
            boot_id=self._agent.boot(),
            now_ns=self._now_ns(),
        )

    def _ended(self, trial: Trial) -> bool:
        now = self._agent.store.state().trial
        return now is None or (now.bundle_sha256, now.started) != (trial.bundle_sha256, trial.started)

    def _conclude(self, finding: HealthFinding) -> End | None:
        try:
            if finding.health is Health.HEALTHY:
                self._agent.commit(finding.reason)
                return "committed"
            if finding.health is Health.FAILED:
                self._agent.rollback(finding.reason)
                return "rolled-back"
        except SlotError as error:
            self._agent.warn(f"{error}; trying again")
            self._sleep(RETRY_S)
        return None
