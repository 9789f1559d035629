"""The clock of a bag: stamps of the messages, or times of recording, and whether the clocks in it agree."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.readers.bags.bag_topics import TopicSeries

JUMP_S = 0.1
"""Difference between the steps of stamps and of times of recording that no transport explains [s]."""
APART_S, FAR_APART_S = 0.02, 0.1
"""Differences between the delays of two topics that are worth a warning, and that rule out calibration [s]."""

_USE_LOG = "use the times of recording: `ros: {clock: log}` in the column map"


def clock_findings(used: Sequence[TopicSeries], clock: str, *, chosen: bool) -> Iterator[LogFinding]:
    """Yield what the two clocks of the messages say of each other.

    Args:
        used: series with the measurements first, then the commands.
        clock: `header` or `log`, from which the times are taken.
        chosen: whether the column map chose it.
    """
    if clock == "log" and not chosen:
        yield from _fallback(used)
    for series in used:
        if series.has_stamps and len(series.log_ns) > 1:
            yield from _jumps(series, clock)
    if clock == "header":
        for series in used[1:]:
            yield from _apart(used[0], series)


def _delays(series: TopicSeries) -> NDArray[np.float64]:
    """Time of recording minus stamp of each row [s], shape (n,)."""
    return np.asarray((np.array(series.log_ns, np.int64) - np.array(series.stamp_ns, np.int64)) * 1e-9, np.float64)


def _fallback(used: Sequence[TopicSeries]) -> Iterator[LogFinding]:
    without = sorted({series.topic for series in used if not series.has_stamps})
    message = f"times are those of recording, as messages on {', '.join(without)} have no stamps"
    stamped = used[0] if used[0].has_stamps else None
    if stamped is not None:
        low, high = np.quantile(_delays(stamped), [0.01, 0.99])
        message += (
            f"; those of {stamped.topic} were recorded with delays that differ by {1e3 * (high - low):.3g} ms (1 % to "
            "99 %)"
        )
    yield LogFinding(
        severity="note",
        check="clock",
        message=message,
        advice="publish commands as sensor_msgs/JointState or trajectory_msgs/JointTrajectory, with stamps",
    )


def _jumps(series: TopicSeries, clock: str) -> Iterator[LogFinding]:
    """Stamps that step otherwise than the times of recording: a clock was set. Late messages come faster, not later."""
    stamp_steps = np.diff(np.array(series.stamp_ns, np.int64)) * 1e-9
    log_steps = np.diff(np.array(series.log_ns, np.int64)) * 1e-9
    jumps = np.flatnonzero((stamp_steps < -JUMP_S) | (stamp_steps - log_steps > JUMP_S)) + 1
    if not len(jumps):
        return
    first = int(jumps[0])
    since = (series.log_ns[first] - series.log_ns[0]) * 1e-9
    used = clock == "header"
    yield LogFinding(
        severity="defect" if used else "warning",
        check="clock",
        message=(
            f"the stamps of {series.topic} jump by {stamp_steps[first - 1]:+.3f} s while {log_steps[first - 1]:.3f} s "
            f"pass, {since:.3f} s after the first message"
            + (f", and {len(jumps) - 1} more times" if len(jumps) > 1 else "")
            + ": the clock was set"
        ),
        advice=_USE_LOG if used else "the times of recording are used, which do not jump",
        numbers={"jumps": len(jumps), "step_s": float(stamp_steps[first - 1])},
        samples=places(jumps.tolist()),
    )


def _apart(measured: TopicSeries, command: TopicSeries) -> Iterator[LogFinding]:
    """Delays of two topics whose medians differ: two computers whose clocks differ."""
    if command.kind == "JointTrajectory" or not (measured.log_ns and command.log_ns):
        return  # the stamp of a trajectory is when it starts, not when it was sent
    late, other = (float(np.median(_delays(series))) for series in (measured, command))
    apart = abs(late - other)
    if not apart > APART_S:
        return
    yield LogFinding(
        severity="defect" if apart > FAR_APART_S else "warning",
        check="clock",
        message=(
            f"stamps are {1e3 * late:.4g} ms older than the times of recording on {measured.topic}, and "
            f"{1e3 * other:.4g} ms on {command.topic}: the clocks of two computers differ by about {1e3 * apart:.4g} ms"
        ),
        advice=f"{_USE_LOG}, or synchronise the clocks (PTP, chrony) and record again",
        numbers={"measured_s": late, "command_s": other},
    )
