"""Summary of a run: duration of each stage of a tick, missed deadlines, and the time the hypervisor took for itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from physai.deploy_jetson.runtime.loop import Counts
from physai.deploy_jetson.telemetry.meter import Meter
from physai.sdk.base.terminal import table

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@dataclass(frozen=True)
class Summary:
    """Numbers of one run."""

    stages_us: Mapping[str, Mapping[str, float]]
    """Stage to `SHARES` to microseconds."""
    counts: Counts
    steal_s: float | None
    """Time the machine beneath took meanwhile [s]."""

    @property
    def missed_per_million(self) -> float:
        """Control periods without a command of the policy in time."""
        periods = self.counts.ticks + self.counts.skipped
        return 1e6 * self.counts.missed / max(1, periods)


def stages_us(meter: Meter) -> dict[str, dict[str, float]]:
    """Percentiles of each stage of all ticks: stage to `SHARES` to microseconds; without stages that never happened."""
    return {
        stage: dict(
            zip(SHARES, (1e-3 * found for found in histogram.quantiles_ns(tuple(SHARES.values()))), strict=True)
        )
        for stage, histogram in meter.stages.items()
        if histogram.count
    }


def summarise(meter: Meter, counts: Counts, *, steal: float | None) -> Summary:
    """What a run came to.

    Args:
        meter: has counted every tick.
        counts: of the loop.
        steal: see `Summary`.
    """
    return Summary(stages_us(meter), counts, steal)


def summary_text(summary: Summary) -> str:
    """For a terminal."""
    counts = summary.counts
    rows = [(stage, *(f"{numbers[share]:.0f}" for share in SHARES)) for stage, numbers in summary.stages_us.items()]
    lines = [table(("stage [µs]", *SHARES), rows, indent=""), ""] if rows else []
    lines.append(
        f"{counts.ticks} ticks, {counts.missed} missed ({summary.missed_per_million:.3g} per million), of these "
        f"{counts.skipped} skipped; guard intervened in {counts.interventions}; {counts.swaps} changes of policy"
    )
    if summary.steal_s:
        lines.append(f"the machine beneath took {summary.steal_s:.2f} s for itself")
    return "\n".join(lines)
