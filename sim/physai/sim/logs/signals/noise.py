"""How much a robot's sensors add to what they measure."""

import itertools
from dataclasses import dataclass

import numpy as np

from physai.sim.logs.robot_log import Array, RobotLog

STILL_S = 0.25
"""Shortest stretch without motion whose spread is taken for noise."""

MIN_STILL_S = 0.5
"""Least time without motion, in all, before it is preferred to differences of a moving joint."""

_STILL_STEPS = 4.0
"""A joint that stays within so many steps of its encoder stands still …"""

_STILL_STDS = 8.0
"""… or within so many standard deviations of its noise, as third differences have it."""

_TRIMMED = 0.01
"""Part of the differences, the largest, that is left out: spikes."""

_TRIMMED_STD = 0.9616
"""Standard deviation of a normal distribution without its outer 1 %: (1 - 2·z·φ(z)/0.99)^½ at z = 2.5758."""

_THIRD_DIFFERENCE_GAIN = 20.0**0.5
"""Standard deviation of the third differences of white noise over its own: 1² + 3² + 3² + 1² = 20."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Standard deviation of the noise of each joint's sensors, shape (J,); None for what is not measured."""

    joint_pos_std: Array
    """[rad or m]"""
    joint_vel_std: Array | None
    """[rad/s or m/s]"""
    joint_effort_std: Array | None
    """[N·m or N]"""
    still_s: Array
    """Time each joint stood still [s], shape (J,). Below `MIN_STILL_S` the noise is that of third differences, which
    holds for white noise only and counts a motor's ripple as noise."""


def sensor_noise(log: RobotLog) -> NoiseEstimate:
    """Noise of a recording's sensors: the spread while a joint stands still, else that of third differences."""
    count = len(log.joint_names)
    pos, still_s = np.zeros(count), np.zeros(count)
    vel = None if log.joint_vel is None else np.zeros(count)
    effort = None if log.joint_effort is None else np.zeros(count)
    for joint in range(count):
        stretches = still_stretches(log.time, log.joint_pos[:, joint], log.command[:, joint])
        still_s[joint] = sum(log.time[part.stop - 1] - log.time[part.start] for part in stretches)
        if not still_s[joint] >= MIN_STILL_S:
            stretches = []
        pos[joint] = noise_std(log.joint_pos[:, joint], stretches)
        if vel is not None and log.joint_vel is not None:
            vel[joint] = noise_std(log.joint_vel[:, joint], stretches)
        if effort is not None and log.joint_effort is not None:
            effort[joint] = noise_std(log.joint_effort[:, joint], stretches)
    return NoiseEstimate(pos, vel, effort, still_s)


def noise_std(series: Array, stretches: list[slice]) -> float:
    """Standard deviation of a series' noise, in its unit.

    Args:
        series: shape (n,).
        stretches: where the true value is constant; their own means are taken out. Empty to take third differences,
            which leave nothing of a parabola, without the largest 1 %.
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
    """Smallest step between the values a series takes, 0 for a constant one."""
    values = np.unique(series)
    if len(values) < 2:
        return 0.0
    steps = np.diff(values)
    # Two values that differ by rounding only are one.
    real = steps[steps > 1e-9 * float(np.abs(values).max())]
    return float(real.min()) if len(real) else 0.0


def still_stretches(time: Array, position: Array, command: Array) -> list[slice]:
    """Stretches of at least `STILL_S` in which neither position nor command of a joint moves.

    Args:
        time: of each sample [s], shape (n,).
        position: of the joint, shape (n,).
        command: to the joint, shape (n,).
    """
    span = max(_STILL_STEPS * resolution(position), _STILL_STDS * noise_std(position, []))
    wiggle = 0.01 * float(np.ptp(command))
    stretches: list[slice] = []
    for part in _blocks(time, STILL_S):
        quiet = np.ptp(position[part]) <= span and np.ptp(command[part]) <= wiggle
        if not quiet:
            continue
        joined = stretches and stretches[-1].stop == part.start
        whole = slice(stretches[-1].start, part.stop) if joined else part
        if joined and np.ptp(position[whole]) <= span:
            stretches[-1] = whole
        else:
            stretches.append(part)
    return stretches


def _blocks(time: Array, length_s: float) -> list[slice]:
    """Blocks of that length, end to end, the last one shorter; those of fewer than eight samples are left out."""
    number = np.floor((time - time[0]) / length_s)
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(time)]
    return [slice(first, last) for first, last in itertools.pairwise(edges) if last - first >= 8]
