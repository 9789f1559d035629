"""Watches trials: reads the runtime's counters and commits the version on trial or rolls it back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.health import Health, HealthFinding, HealthWindow, health_path, read_counters
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import VersionTrial

POLL_S = 0.2
RETRY_S = 2.0
"""Pause after a failed commit or rollback: another process holds the lock, or the disk is full."""

End = Literal["committed", "rolled-back", "ended elsewhere", "none"]


@dataclass(frozen=True)
class Watched:
    """Result of a watched trial."""

    end: End
    version: int | None
    reason: str


class TrialWatcher:
    """Watches trials, one after another."""

    def __init__(
        self,
        agent: UpdateAgent,
        *,
        counters: Path | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        tell: Callable[[HealthFinding], None] = lambda finding: None,
    ) -> None:
        """Initialises the watcher.

        Args:
            agent: the robot's agent.
            counters: file of the runtime's counters; None selects the default.
            monotonic_ns: CLOCK_MONOTONIC [ns].
            sleep: sleeps for a number of seconds.
            tell: receives every finding.
        """
        self._agent = agent
        self._counters = counters or health_path(agent.root)
        self._now_ns = monotonic_ns
        self._sleep = sleep
        self._report = tell

    def watch_trial(self) -> Watched:
        """Watches the current trial until it ends.

        Raises:
            SlotError: the slots are damaged.
        """
        trial = self._agent.store.state().trial
        if trial is None:
            return Watched("none", None, "no version is on trial")
        window = self._window(trial)
        while True:
            finding = window.update(read_counters(self._counters), self._now_ns())
            self._report(finding)
            if self._ended(trial):
                return Watched("ended elsewhere", trial.version, "the trial was ended by another command")
            end = self._conclude(finding)
            if end is not None:
                return Watched(end, trial.version, finding.reason)
            self._sleep(POLL_S)

    def watch_forever(self, ended: Callable[[Watched], None] = lambda watched: None) -> None:
        """Watches every trial, forever; for the agent's service.

        Args:
            ended: receives the result of every trial.

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
        """Reads the counters once and judges the current trial; None if there is none."""
        trial = self._agent.store.state().trial
        return None if trial is None else self._window(trial).update(read_counters(self._counters), self._now_ns())

    def _window(self, trial: VersionTrial) -> HealthWindow:
        marker = self._agent.store.marker(trial.slot)
        if marker is None:
            raise SlotError(f"slot {trial.slot} is on trial but damaged; roll back with `physai robot recover`")
        return HealthWindow(
            self._agent.config.limits(),
            bundle_sha256=trial.bundle_sha256,
            control_dt=marker.control_dt,
            boot_id=self._agent.boot(),
            now_ns=self._now_ns(),
        )

    def _ended(self, trial: VersionTrial) -> bool:
        current = self._agent.store.state().trial
        return current is None or (current.bundle_sha256, current.started) != (trial.bundle_sha256, trial.started)

    def _conclude(self, finding: HealthFinding) -> End | None:
        try:
            if finding.health is Health.HEALTHY:
                self._agent.commit(finding.reason)
                return "committed"
            if finding.health is Health.FAILED:
                self._agent.rollback(finding.reason)
                return "rolled-back"
        except SlotError as error:
            self._agent.warn(f"{error}; retrying")
            self._sleep(RETRY_S)
        return None
