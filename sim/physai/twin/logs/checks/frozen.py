"""Sensors that repeat a value while their joint moves, and series that two publishers send to one topic."""

from collections.abc import Iterator

import numpy as np

from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawColumn, RawLog, true_runs
from physai.twin.logs.robot_log import Array
from physai.twin.logs.signals.noise import resolution

MIN_RUN, MIN_RUN_S = 8, 0.05
"""Fewest equal samples, and the shortest time, of a sensor that is frozen."""
REPEATS = 0.05
"""Share of equal neighbours outside of such runs below which a channel is noisy, so that it never repeats itself."""
JUMP, JUMP_STEPS = 5.0, 10.0
"""Change after a run, in median changes of the moving channel and in steps of the encoder, that shows missed motion."""
ALTERNATES = 0.2
"""Median change over two samples, as a share of that over one, below which every second sample is another's."""
LEAST_GAP = 0.01
"""Distance between two publishers' positions below which they agree [rad or m]."""
ZERO_ROWS, FAR = 3, 5.0
"""Fewest rows of zeros between others, and how far the others are from zero, in their own changes."""


def frozen_findings(log: RawLog) -> Iterator[LogFinding]:
    """Yield a warning for each channel that stands while its joint moves or its noise would change it."""
    for channel in log.channels:
        if channel.joint and not channel.label.startswith("command"):
            yield from _frozen(log, channel)


def _frozen(log: RawLog, channel: RawColumn) -> Iterator[LogFinding]:
    same = np.diff(channel.raw) == 0.0
    runs = [(start, stop) for start, stop in true_runs(same) if stop - start + 1 >= MIN_RUN]
    runs = [(start, stop) for start, stop in runs if log.time[stop] - log.time[start] >= MIN_RUN_S]
    if not runs:
        return
    outside = np.ones(len(same), bool)
    for start, stop in runs:
        outside[start:stop] = False
    if not outside.any():
        return
    noisy = float(same[outside].mean()) < REPEATS
    bad = [run for run in runs if noisy and _is_missed(log, channel, run)]
    if not bad:
        return
    first, last = max(bad, key=lambda run: log.time[run[1]] - log.time[run[0]])
    more = f", and {len(bad) - 1} more such stretches" if len(bad) > 1 else ""
    yield LogFinding(
        severity="warning",
        check="frozen",
        joint=channel.joint,
        channel=channel.series,
        message=(
            f"{channel.label} is {channel.raw[first]:.6g} in {last - first + 1} samples in a row, for "
            f"{log.time[last] - log.time[first]:.3g} s from {log.time[first]:.3f} s, and changes with every sample "
            f"elsewhere{more}: the sensor froze, or its driver repeats the last value"
        ),
        advice="exclude these stretches, or record again",
        numbers={"samples": last - first + 1, "duration_s": float(log.time[last] - log.time[first])},
        samples=places([i for start, stop in bad for i in range(start, stop + 1)]),
    )


def _is_missed(log: RawLog, channel: RawColumn, run: tuple[int, int]) -> bool:
    """Whether a run of equal values hides motion or noise, and is no rest, end stop or command that was followed."""
    start, stop = run
    values, joint = channel.values, log.joint_names.index(channel.joint)
    moving = np.abs(np.diff(values))
    typical = float(np.median(moving[moving > 0.0])) if moving.any() else 0.0
    after = abs(float(values[stop + 1] - values[stop])) if stop + 1 < len(values) else 0.0
    if channel.series == "joint_pos":
        if log.joint_vel is not None:
            speed = log.joint_vel[start : stop + 1, joint]
            travelled = float(np.abs(np.sum(0.5 * (speed[1:] + speed[:-1]) * np.diff(log.time[start : stop + 1]))))
            if travelled > max(JUMP_STEPS * resolution(values), 4.0 * typical):
                return True
        return after > JUMP * typical and after > JUMP_STEPS * resolution(values)
    at_stop = values[start] in (values.min(), values.max())
    followed = channel.series == log.command_kind and np.allclose(log.command[start : stop + 1, joint], values[start])
    return not (at_stop or followed or values[start] == 0.0)


def publisher_findings(log: RawLog) -> Iterator[LogFinding]:
    """Yield a defect if positions jump between two series: rows of zeros between others, or every second row."""
    positions = log.joint_pos
    if len(positions) < 20 or not positions.shape[1]:
        return
    once = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    twice = np.linalg.norm(positions[2:] - positions[:-2], axis=1)
    step, stride = float(np.median(once)), float(np.median(twice))
    zeros = (positions == 0.0).all(axis=1)
    size = np.linalg.norm(positions, axis=1)
    typical = float(np.median(once[once > 0.0])) if once.any() else 0.0
    others = np.minimum(size[_nearest(~zeros, -1)], size[_nearest(~zeros, 1)]) if (~zeros).any() else size
    inserted = zeros & (others > max(LEAST_GAP, FAR * min(typical, stride if stride else typical)))
    inserted[[0, -1]] = False
    if inserted.sum() >= ZERO_ROWS and len(true_runs(inserted)) >= ZERO_ROWS:
        what = f"all positions are exactly 0 in {int(inserted.sum())} of {len(positions)} samples, between others"
        samples = np.flatnonzero(inserted)
    elif step > LEAST_GAP and stride < ALTERNATES * step:
        what = f"positions alternate: they change by {step:.3g} in one sample and by {stride:.3g} in two"
        samples = np.arange(1, len(positions), 2)
    else:
        return
    yield LogFinding(
        severity="defect",
        check="publish",
        channel="joint_pos",
        message=f"{what}: two nodes publish the topic, or two sources fill the column",
        advice="stop the other one (ros2 topic info -v lists them) and record again, or remove its rows",
        numbers={"samples": len(samples)},
        samples=places(samples.tolist()),
    )


def _nearest(mask: Array, direction: int) -> Array:
    """Index of the nearest true sample before (-1) or after (1) each, or of any true one where there is none."""
    index = np.arange(len(mask))
    if direction < 0:
        found = np.maximum.accumulate(np.where(mask, index, -1))
        return np.where(found < 0, int(np.flatnonzero(mask)[0]), found)
    found = np.minimum.accumulate(np.where(mask, index, len(mask))[::-1])[::-1]
    return np.where(found >= len(mask), int(np.flatnonzero(mask)[-1]), found)
