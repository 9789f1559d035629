"""Checks of single columns: wrapped integers, wrapped angles, clipping, spikes and constant values."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from physai.twin.logs.checks.turns import turns
from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawColumn, RawLog, true_runs
from physai.twin.logs.robot_log import Array
from physai.twin.logs.signals.noise import resolution

_MODULI = (256, 4096, 65536, 2**24, 2**32)
"""Number of values of unsigned integers with 8, 12, 16, 24 and 32 bits."""

_SPIKE_WINDOW = 7
"""Window of the running median to which values are compared [samples]; detects spikes of up to three samples."""

_SPIKE_SPAN = 0.5
"""A spike deviates from that median by more than this share of the channel's range (1st to 99th percentile) …"""

_SPIKE_TAIL = 12.0
"""… or by this multiple of the 99th percentile of all deviations and a twentieth of the range."""

_CLIP_RUN = 4
"""Minimum length of a run at an extreme that counts as clipping [samples]."""

_CLIP_PART = 0.01
"""Share of samples in such runs from which clipping is reported."""

_STALE_PART = 0.02
"""Share of repeated rows in motion from which they are reported."""


def channel_findings(log: RawLog) -> Iterator[LogFinding]:
    """Yield the findings for a recording without NaN and with ascending time."""
    for channel in log.channels:
        wrapped = list(_wrapped(channel)) or list(_unwound(log, channel))
        yield from wrapped
        # The jumps of a wrapped column would look like spikes and clipping.
        if not any(finding.severity == "defect" for finding in wrapped):
            yield from _clipped(log, channel)
            if channel.joint:
                yield from _spikes(log, channel)
                yield from _constant(log, channel)
    yield from _stale(log)


def spike_samples(values: Array) -> npt.NDArray[np.int64]:
    """Return the indices of samples that stand out from their neighbours; `values` has shape (n,)."""
    if len(values) < _SPIKE_WINDOW:
        return np.zeros(0, np.int64)
    away = np.abs(values - _running_median(values))
    lowest, highest = np.quantile(values, [0.01, 0.99])
    span, tail = float(highest - lowest), float(np.quantile(away, 0.99))
    # A spike exceeds the range, the noise and the encoder's step, or at least stands alone above all other deviations.
    step = resolution(values)
    alone = (away > _SPIKE_TAIL * max(tail, step)) & (away > 0.05 * span)
    return np.flatnonzero(((away > _SPIKE_SPAN * span) & (away > 4.0 * _spread(values)) & (away > 8.0 * step)) | alone)


def _running_median(values: Array) -> Array:
    padded = np.pad(values, _SPIKE_WINDOW // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, _SPIKE_WINDOW), axis=1)


def _spread(values: Array) -> float:
    """Robust estimate of the noise's standard deviation from third differences."""
    if len(values) < 8:
        return 0.0
    # 1.4826 scales a normal distribution's median absolute value to its standard deviation; third differences of white
    # noise have √20 times its standard deviation.
    return float(np.quantile(np.abs(np.diff(values, 3)), 0.5)) * 1.4826 / 20.0**0.5


def _wrapped(channel: RawColumn) -> Iterator[LogFinding]:
    """Detect signed integers stored as unsigned: -1 reads as 65535."""
    raw = channel.raw
    if not bool((raw == np.round(raw)).all()) or raw.min() < 0.0:
        return
    jumps = np.abs(np.diff(raw))
    # Ascending, so that the narrowest type that holds all values is reported.
    for modulus in _MODULI:
        top = raw >= 0.75 * modulus
        if not (raw.max() < modulus and top.any() and (raw < 0.25 * modulus).any() and (jumps > modulus / 2).any()):
            continue
        bits = round(math.log2(modulus))
        count = int((raw >= modulus / 2).sum())
        message = (
            f"column {channel.column!r} contains signed {bits}-bit values stored as unsigned: {raw[top].max():.0f} "
            f"means {raw[top].max() - modulus:.0f}; {count} of {len(raw)} samples"
        )
        undone = channel.wrap == modulus
        yield LogFinding(
            severity="note" if undone else "defect",
            check="wrap",
            joint=channel.joint,
            channel=channel.label,
            message=message + (", undone by the column map" if undone else ""),
            advice="" if undone else f"add `wrap: {modulus}` to this column in the column map",
            numbers={"modulus": modulus, "samples": count},
            samples=places(np.flatnonzero(raw >= modulus / 2).tolist()),
        )
        return


def _unwound(log: RawLog, channel: RawColumn) -> Iterator[LogFinding]:
    """Detect angles that wrap after a full turn."""
    commanded = channel.label.startswith("command") and log.command_kind == "joint_pos"
    if not channel.joint or not (channel.label.startswith("joint_pos") or (commanded and _turning(log, channel.joint))):
        return
    joint = next(joint for joint in log.joints if joint.name == channel.joint)
    if joint.kind == "prismatic":
        return
    jumps = turns(channel.values, 2.0 * math.pi)
    if not len(jumps):
        return
    yield LogFinding(
        severity="defect",
        check="wrap",
        joint=channel.joint,
        channel="command" if commanded else "joint_pos",
        message=(
            f"{'command' if commanded else 'joint_pos'} of {channel.joint} jumps by a full turn {len(jumps)} times, "
            f"first at {log.time[jumps[0] + 1]:.3f} s: "
            + ("its angles wrap" if commanded else "a single-turn encoder wraps")
        ),
        advice=f"add `period:` to column {channel.column!r} in the column map (6.283185307 in rad, 360 in degrees)",
        numbers={"jumps": len(jumps)},
        samples=places((jumps + 1).tolist()),
    )


def _turning(log: RawLog, joint: str) -> bool:
    """Whether a joint's positions wrap, or the column map converts them: its command may step by a full turn, else."""
    column = next((one for one in log.channels if one.joint == joint and one.series == "joint_pos"), None)
    if column is None:
        return False
    return bool(len(turns(column.values, 2.0 * math.pi))) or not np.array_equal(column.raw, column.values)


def _clipped(log: RawLog, channel: RawColumn) -> Iterator[LogFinding]:
    """Detect runs at an extreme that the value reached at speed."""
    for sign in (1.0, -1.0):
        values = sign * channel.values
        runs = _clip_runs(values)
        count = sum(stop - start for start, stop in runs)
        if count < max(2 * _CLIP_RUN, _CLIP_PART * len(values)):
            continue
        at = float(sign * values.max())
        commanded = channel.label.startswith("command")
        yield LogFinding(
            severity="note" if commanded else "warning",
            check="clip",
            joint=channel.joint,
            channel=channel.series,
            message=(
                f"{channel.label} stays at its {'maximum' if sign > 0 else 'minimum'} {at:.6g} in {count} of "
                f"{len(values)} samples, {len(runs)} times, first at {log.time[runs[0][0]]:.3f} s: "
                + ("the command saturates" if commanded else "saturated, clipped or at an end stop")
            ),
            advice="" if commanded else "exclude these stretches, or record with less amplitude",
            numbers={"value": at, "samples": count, "runs": len(runs)},
            samples=places([i for start, stop in runs for i in range(start, stop)]),
        )


def _clip_runs(values: Array) -> list[tuple[int, int]]:
    """Return runs at the maximum that were reached at speed, as half-open index ranges."""
    step = resolution(values)
    span = float(np.ptp(values))
    if span == 0.0:
        return []
    moving = np.abs(np.diff(values))
    typical = float(np.sqrt(np.square(moving).mean()))
    runs: list[tuple[int, int]] = []
    for start, stop in true_runs(values >= values.max() - 1e-9 * span):
        # A run up to the end of the recording is where the robot came to rest.
        if start < 2 or stop - start < _CLIP_RUN or stop == len(values):
            continue
        entry = float(moving[start - 2 : start].max())
        if entry >= 0.5 * typical and entry >= 2.5 * step:
            runs.append((start, stop))
    return runs


def _spikes(log: RawLog, channel: RawColumn) -> Iterator[LogFinding]:
    """Detect outliers that no command explains."""
    if channel.label.startswith("command"):
        return
    spikes = spike_samples(channel.values)
    # A measured effort that follows a step of its command is no spike.
    if channel.label.startswith("joint_effort") and log.command_kind == "joint_effort":
        spikes = _unexplained(spikes, channel.values, log.command[:, log.joint_names.index(channel.joint)])
    if not len(spikes):
        return
    worst = int(spikes[np.abs(channel.values[spikes]).argmax()])
    median = float(_running_median(channel.values)[worst])
    limit = next((j.effort_limit for j in log.joints if j.name == channel.joint), 0.0)
    effort = channel.label.startswith("joint_effort") and log.limits_known and limit > 0.0
    beyond = f", the joint's limit is {limit:g}" if effort and abs(channel.values[worst]) > limit else ""
    share = len(spikes) / len(channel.values)
    yield LogFinding(
        severity="defect" if share > 0.1 else "warning",
        check="spike",
        joint=channel.joint,
        channel=channel.series,
        message=(
            f"{len(spikes)} spike{'s' if len(spikes) > 1 else ''} in {channel.label}, reaching "
            f"{channel.values[worst]:.4g} at {log.time[worst]:.3f} s, where the local median is {median:.3g}{beyond}"
        ),
        advice="exclude windows with spikes from replay; look for a loose cable or noisy velocity feedback",
        numbers={"spikes": len(spikes), "worst": float(channel.values[worst]), "worst_time_s": float(log.time[worst])},
        samples=places(spikes.tolist()),
    )


def _unexplained(spikes: npt.NDArray[np.int64], measured: Array, command: Array) -> npt.NDArray[np.int64]:
    """Return spikes of measured effort without a preceding command change of at least a third of their size."""
    kept: list[int] = []
    # The command may precede its effect by a few samples, so its window starts earlier and ends at the spike.
    for i in spikes.tolist():
        around = measured[max(i - 4, 0) : i + 5]
        before = command[max(i - 8, 0) : i + 1]
        if np.ptp(before) < np.ptp(around) / 3.0:
            kept.append(i)
    return np.array(kept, np.int64)


def _constant(log: RawLog, channel: RawColumn) -> Iterator[LogFinding]:
    """Detect a measurement that never changes although its joint moves."""
    if not channel.joint or channel.label.startswith(("command", "joint_pos")) or np.ptp(channel.values) > 0.0:
        return
    joint = log.joint_names.index(channel.joint)
    if channel.label.startswith("joint_effort") and not log.driven[joint] and channel.values[0] == 0.0:
        return  # a joint without a motor has no effort
    moved = float(np.ptp(log.joint_pos[:, joint]))
    if moved > 0.0:
        yield LogFinding(
            severity="defect",
            check="constant",
            joint=channel.joint,
            channel=channel.series,
            message=f"{channel.label} is {channel.values[0]:g} throughout, while the joint moves by {moved:.3g}",
            advice="the sensor is dead or the column is wrong; remove it from the column map",
            numbers={"value": float(channel.values[0]), "moved": moved},
        )


def _stale(log: RawLog) -> Iterator[LogFinding]:
    """Detect rows that repeat all measurements of the row before while the robot moves."""
    measured = [values for name, values in log.series() if name != "command"]
    together = np.concatenate(measured, axis=1)
    same = (together[1:] == together[:-1]).all(axis=1)
    moving = _moves_visibly(log)
    repeated = np.flatnonzero(same & moving)
    if moving.sum() == 0 or len(repeated) <= _STALE_PART * moving.sum():
        return
    share = len(repeated) / int(moving.sum())
    yield LogFinding(
        severity="warning",
        check="stale",
        message=(
            f"{share:.0%} of the samples in motion repeat all measurements of the sample before, first at "
            f"{log.time[repeated[0] + 1]:.3f} s: the sensors are read faster than they measure"
        ),
        advice="log at the sensors' own rate, or use their time stamps",
        numbers={"share": share, "samples": len(repeated)},
        samples=places((repeated + 1).tolist()),
    )


def _moves_visibly(log: RawLog) -> npt.NDArray[np.bool_]:
    """Whether any joint moves by more than two encoder steps per sample over ten samples, shape (n - 1,)."""
    # Over a single sample a slow joint may not move by one encoder step, although its sensor is fresh.
    reach = min(10, len(log.time) - 1)
    visible = np.zeros(len(log.time) - reach, bool)
    for j in range(len(log.joints)):
        step = resolution(log.joint_pos[:, j])
        moved = np.abs(log.joint_pos[reach:, j] - log.joint_pos[:-reach, j])
        visible |= moved > 2.0 * reach * step if step > 0.0 else False
    return np.concatenate([np.full(reach - 1, visible[0]), visible])
