"""Checks of a recording's clock: gaps, jitter and rate."""

from collections.abc import Iterator

import numpy as np

from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.robot_log import Array, BasePose
from physai.twin.logs.signals.timing import GAP_FACTOR, PeriodStatistics

JITTER_FACTOR = 1.25
"""Periods longer than this many medians are reported as jitter."""

MIN_RATE_HZ = 100.0
"""Recommended minimum rate; below it a fast arm moves far between two samples."""

BURST_FACTOR = 4.0
"""Mean over median period from which samples come in bursts …"""

MIN_BURSTS, MIN_BURST_PART = 5, 0.01
"""… if there are so many, and so many per sample: a few pauses are gaps."""

_MIN_SAMPLES = 100
"""Minimum number of samples for enough replay windows."""

_MIN_POSES = 40
"""The same for a free body, whose throw takes half a second."""


def timing_findings(log: RawLog, periods: PeriodStatistics) -> Iterator[LogFinding]:
    """Yield the findings for a recording with ascending time."""
    steps = np.diff(log.time)
    yield from _length(log)
    bursts = list(_bursts(log.time, steps, periods))
    yield from bursts
    if bursts:
        return  # gaps, jitter and rate in multiples of a period that means nothing
    yield from _gaps(log.time, steps, periods)
    yield from _jitter(log.time, steps, periods)
    yield from _rate(log, periods)


def _length(log: RawLog) -> Iterator[LogFinding]:
    least = _MIN_SAMPLES if log.joints else _MIN_POSES
    if len(log.time) < least:
        yield LogFinding(
            severity="defect",
            check="length",
            message=f"{len(log.time)} samples in {log.time[-1]:.3g} s, at least {least} are needed",
            advice="record longer",
            numbers={"samples": len(log.time)},
        )


def _bursts(time: Array, steps: Array, periods: PeriodStatistics) -> Iterator[LogFinding]:
    """Times of reception: messages come together, and long after they were sent."""
    mean = float(steps.mean())
    pauses = int((steps > mean).sum())
    if not (mean > BURST_FACTOR * periods.median_s and pauses >= max(MIN_BURSTS, MIN_BURST_PART * len(steps))):
        return
    together = np.flatnonzero(steps < mean / BURST_FACTOR)
    yield LogFinding(
        severity="defect",
        check="burst",
        message=(
            f"samples come in {pauses} bursts: {len(together)} of {len(steps)} periods are below "
            f"{1e3 * mean / BURST_FACTOR:.3g} ms, on average {1e3 * mean:.4g} ms pass, at most "
            f"{1e3 * periods.max_s:.4g} ms: these are times of reception"
        ),
        advice="map the time at which the sensor measured: a column of its clock, or of a bag `ros: {clock: header}`",
        numbers={"median_s": periods.median_s, "mean_s": mean, "max_s": periods.max_s},
        samples=places((together + 1).tolist()),
    )


def _gaps(time: Array, steps: Array, periods: PeriodStatistics) -> Iterator[LogFinding]:
    gaps = np.flatnonzero(steps > GAP_FACTOR * periods.median_s)
    if not len(gaps):
        return
    worst = int(gaps[steps[gaps].argmax()])
    yield LogFinding(
        severity="warning",
        check="gap",
        message=(
            f"{len(gaps)} gap{'s' if len(gaps) > 1 else ''} longer than {GAP_FACTOR:g} periods, the longest of "
            f"{1e3 * steps[worst]:.4g} ms at {time[worst]:.3f} s"
        ),
        advice="commands in a gap are unknown; exclude windows that span it",
        numbers={"gaps": len(gaps), "longest_s": float(steps[worst])},
        samples=places((gaps + 1).tolist()),
    )


def _jitter(time: Array, steps: Array, periods: PeriodStatistics) -> Iterator[LogFinding]:
    late = np.flatnonzero(steps > JITTER_FACTOR * periods.median_s)
    if not len(late):
        return
    yield LogFinding(
        severity="warning",
        check="jitter",
        message=(
            f"periods of {1e3 * periods.median_s:.2f} ms (median) reach {1e3 * periods.max_s:.2f} ms "
            f"(99 %: {1e3 * periods.p99_s:.2f} ms); {len(late)} of {len(steps)} are longer than {JITTER_FACTOR:g} "
            f"medians, first at {time[late[0]]:.3f} s"
        ),
        advice="replay with the recorded times, not with a fixed period; the twin reproduces this jitter",
        numbers={
            "median_s": periods.median_s,
            "p99_s": periods.p99_s,
            "max_s": periods.max_s,
            "late": len(late),
        },
        samples=places((late + 1).tolist()),
    )


def _rate(log: RawLog, periods: PeriodStatistics) -> Iterator[LogFinding]:
    if periods.rate_hz >= MIN_RATE_HZ:
        return
    if log.base is not None and not log.joints:
        yield from _pose_rate(log.base, periods)
        return
    step = np.abs(np.diff(log.joint_pos, axis=0))
    joint = int(step.max(axis=0).argmax())
    unit = "m" if log.joints[joint].kind == "prismatic" else "rad"
    yield LogFinding(
        severity="warning",
        check="rate",
        message=(
            f"logged at {_hz(periods.rate_hz)} Hz: {log.joint_names[joint]} moves up to {step[:, joint].max():.3g} "
            f"{unit} between two samples"
        ),
        advice=f"log at {MIN_RATE_HZ:.0f} Hz or more; command and motion between samples are unknown",
        numbers={"rate_hz": periods.rate_hz, "median_s": periods.median_s, "largest_step": float(step.max())},
    )


def _pose_rate(base: BasePose, periods: PeriodStatistics) -> Iterator[LogFinding]:
    step = float(np.linalg.norm(np.diff(base.position, axis=0), axis=1).max())
    yield LogFinding(
        severity="warning",
        check="rate",
        message=f"logged at {_hz(periods.rate_hz)} Hz: the base moves up to {step:.3g} m between two samples",
        advice=f"use a camera with {MIN_RATE_HZ:.0f} Hz or more; an impact takes milliseconds",
        numbers={"rate_hz": periods.rate_hz, "median_s": periods.median_s, "largest_step": step},
    )


def _hz(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 1.0 else f"{rate:.2g}"
