"""Estimate the noise of a robot's sensors."""

import itertools
from dataclasses import dataclass

import numpy as np

from physai.twin.logs.robot_log import Array, RobotLog

STILL_S = 0.25
"""Minimum length of a stretch at rest that is used for the noise [s]."""

MIN_STILL_S = 0.5
"""Minimum total time at rest; with less, noise is estimated from third differences [s]."""

_STILL_STEPS = 4.0
"""A joint is at rest while it stays within this many encoder steps …"""

_STILL_STDS = 8.0
"""… or within this many standard deviations of its noise, estimated from third differences."""

_TRIMMED = 0.01
"""Share of the largest differences that is dropped as spikes."""

_TRIMMED_STD = 0.9616
"""Standard deviation of a normal distribution without its outer 1 %: (1 - 2·z·φ(z)/0.99)^½ at z = 2.5758."""

_THIRD_DIFFERENCE_GAIN = 20.0**0.5
"""Gain of third differences on the standard deviation of white noise: 1² + 3² + 3² + 1² = 20."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Standard deviation of each joint's sensor noise, shape (J,); None if not measured."""

    joint_pos_std: Array
    """[rad or m]"""
    joint_vel_std: Array | None
    """[rad/s or m/s]"""
    joint_effort_std: Array | None
    """[N·m or N]"""
    still_s: Array
    """Time of each joint at rest [s], shape (J,)."""


def sensor_noise(log: RobotLog) -> NoiseEstimate:
    """Estimate each joint's sensor noise from its time at rest, otherwise from third differences."""
    count = len(log.joint_names)
    still_s = np.zeros(count)
    measured = [(name, values) for name, values in log.series() if name != "command"]
    stds = {name: np.zeros(count) for name, _ in measured}
    for joint in range(count):
        stretches = still_stretches(log.time, log.joint_pos[:, joint], log.command[:, joint])
        still_s[joint] = sum(log.time[part.stop - 1] - log.time[part.start] for part in stretches)
        # Third differences need no rest, but they assume white noise and include a motor's ripple.
        if not still_s[joint] >= MIN_STILL_S:
            stretches = []
        for name, values in measured:
            stds[name][joint] = noise_std(values[:, joint], stretches)
    return NoiseEstimate(stds["joint_pos"], stds.get("joint_vel"), stds.get("joint_effort"), still_s)


def noise_std(series: Array, stretches: list[slice]) -> float:
    """Return the standard deviation of a series' noise, in its unit.

    Args:
        series: shape (n,).
        stretches: where the true value is constant. Empty to use third differences, without the largest 1 %; these
            remove motion up to a parabola.
    """
    if stretches:
        parts = [series[part] - series[part].mean() for part in stretches]
        return float(np.sqrt(np.concatenate(parts).var()))
    if len(series) < 4:
        return 0.0
    differences = np.sort(np.abs(np.diff(series, 3)))
    kept = differences[: max(1, int(len(differences) * (1.0 - _TRIMMED)))]
    return float(np.sqrt(np.square(kept).mean())) / _THIRD_DIFFERENCE_GAIN / _TRIMMED_STD


def resolution(series: Array) -> float:
    """Return the smallest step between the distinct values of a series; 0 if it is constant."""
    values = np.unique(series)
    if len(values) < 2:
        return 0.0
    steps = np.diff(values)
    # Ignore steps that are only rounding.
    real = steps[steps > 1e-9 * float(np.abs(values).max())]
    return float(real.min()) if len(real) else 0.0


def still_stretches(time: Array, position: Array, command: Array) -> list[slice]:
    """Return stretches of at least `STILL_S` in which neither position nor command of a joint changes.

    Args:
        time: time of each sample [s], shape (n,).
        position: position of the joint, shape (n,).
        command: command to the joint, shape (n,).
    """
    span = max(_STILL_STEPS * resolution(position), _STILL_STDS * noise_std(position, []))
    wiggle = 0.01 * float(np.ptp(command))
    stretches: list[slice] = []
    for part in _blocks(time, STILL_S):
        quiet = np.ptp(position[part]) <= span and np.ptp(command[part]) <= wiggle
        if not quiet:
            continue
        joined = stretches and stretches[-1].stop == part.start
        # Join blocks at rest only while the joint stays in one place, or a slow creep would count as noise.
        whole = slice(stretches[-1].start, part.stop) if joined else part
        if joined and np.ptp(position[whole]) <= span:
            stretches[-1] = whole
        else:
            stretches.append(part)
    return stretches


def _blocks(time: Array, length_s: float) -> list[slice]:
    """Split into consecutive blocks of that length; blocks of fewer than eight samples are dropped."""
    number = np.floor((time - time[0]) / length_s)
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(time)]
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last - first >= 8]
