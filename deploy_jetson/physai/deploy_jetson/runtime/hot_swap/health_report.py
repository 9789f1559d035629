"""Counters from which the agent decides whether a version on trial is healthy."""

from physai.deploy_jetson.update.slots.health import HealthWriter


class RuntimeHealth(HealthWriter):
    """`HealthWriter` with skipped periods and a warm-up."""

    def warm_up(self) -> None:
        """Run the code of `tick` without any effect; see `physai.deploy_jetson.runtime.io.dry_run`."""
        self._packed()

    def skip(self, now_ns: int, periods: int) -> None:
        """Count skipped periods, each as a tick that missed its deadline."""
        # The counters of ticks and of missed deadlines, in the layout of `HealthWriter`.
        self._counts[0] += periods
        self._counts[1] += periods
        self._store(now_ns)
