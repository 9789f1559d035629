"""Counters by which the agent judges a version on trial."""

from physai.deploy_jetson.slots.health import HealthWriter


class RuntimeHealth(HealthWriter):
    """As `HealthWriter`, and it can be told of periods that were skipped."""

    def warm_up(self) -> None:
        """Does what `tick` does, and changes nothing; see `physai.deploy_jetson.runtime.io.dry_run`."""
        self._packed()

    def skip(self, now_ns: int, periods: int) -> None:
        """Counts that many ticks that did not happen, each of which missed its deadline."""
        self._counts[0] += periods
        self._counts[1] += periods
        self._store(now_ns)
