"""Summary of a run: duration of each stage of a tick, missed deadlines, and steal time of the hypervisor."""

from collections.abc import Mapping
from dataclasses import dataclass

from physai.deploy_jetson.runtime.loop.loop_result import Counts
from physai.deploy_jetson.telemetry.meter import Meter
from physai.sdk.base.terminal import table

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@dataclass(frozen=True)
class Summary:
    """Results of one run."""

    stages_us: Mapping[str, Mapping[str, float]]
    """Percentiles [µs] by stage and name in `SHARES`."""
    counts: Counts
    steal_s: float | None
    """Steal time of the hypervisor [s]; None if unknown."""

    @property
    def missed_per_million(self) -> float:
        """Control periods without a timely command of the policy, per million."""
        # A skipped period counts as missed, so it counts as a period.
        periods = self.counts.ticks + self.counts.skipped
        return 1e6 * self.counts.missed / max(1, periods)


def stages_us(meter: Meter) -> dict[str, dict[str, float]]:
    """Return percentiles [µs] by stage and name in `SHARES`, for stages with at least one sample."""
    return {
        stage: dict(
            zip(SHARES, (1e-3 * value for value in histogram.quantiles_ns(tuple(SHARES.values()))), strict=True)
        )
        for stage, histogram in meter.stages.items()
        if histogram.count
    }


def summary_text(summary: Summary) -> str:
    """Format a summary for a terminal."""
    counts = summary.counts
    rows = [(stage, *(f"{numbers[share]:.0f}" for share in SHARES)) for stage, numbers in summary.stages_us.items()]
    lines = [table(("stage [µs]", *SHARES), rows, indent=""), ""] if rows else []
    lines.append(
        f"{counts.ticks} ticks, {counts.missed} missed ({summary.missed_per_million:.3g} per million), of these "
        f"{counts.skipped} skipped; guard intervened in {counts.interventions}; {counts.swaps} changes of policy"
    )
    if summary.steal_s:
        lines.append(f"steal time of the hypervisor: {summary.steal_s:.2f} s")
    return "\n".join(lines)
