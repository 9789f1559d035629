"""The lag of effort behind command, on responses made with known dead times and time constants."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.twin.logs import LagEstimate, RobotLog, command_lag, estimate_lag, lag_summary

Array = NDArray[np.float64]


def clock(count: int, period_s: float = 0.002) -> Array:
    """Times of samples [s]."""
    return np.linspace(0.0, (count - 1) * period_s, count)


def steps(count: int, seed: int, hold: int = 5) -> Array:
    """A command that jumps every few samples."""
    return np.repeat(np.random.default_rng(seed).normal(size=-(-count // hold)), hold)[:count]


def response(time: Array, command: Array, dead_time_s: float, time_constant_s: float) -> Array:
    """Exact first-order response, sample by sample: between changes y approaches u as exp(-t/τ)."""
    changes = time + dead_time_s
    y, out, at = command[0], np.zeros(len(time)), 0.0
    events = sorted([(t, 0, u) for t, u in zip(changes, command, strict=True)] + [(t, 1, 0.0) for t in time])
    u, i = command[0], 0
    for t, is_sample, value in events:
        y = u + (y - u) * (math.exp(-(t - at) / time_constant_s) if time_constant_s > 0 else 0.0)
        at = t
        if is_sample:
            out[i], i = y, i + 1
        else:
            u = value
    return out


def estimate(time: Array, command: Array, measured: Array) -> LagEstimate:
    found = estimate_lag(time, command, measured)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("dead_s", "tau_s"), [(0.0051, 0.0), (0.0021, 0.004), (0.0, 0.003), (0.0103, 0.002), (0.031, 0.005)]
)
def test_dead_time_and_time_constant_are_found(dead_s: float, tau_s: float) -> None:
    time = clock(2000)
    command = steps(2000, seed=1)
    found = estimate(time, command, 0.9 * response(time, command, dead_s, tau_s) + 0.3)
    assert found.identified
    assert found.explained > 0.99
    assert found.gain == pytest.approx(0.9, rel=0.02)
    # A command that changes with the samples tells a dead time to half a period.
    assert found.lag_s == pytest.approx(dead_s + tau_s, abs=0.001)
    assert found.lower_s - 5e-4 <= dead_s + tau_s <= found.upper_s + 5e-4


@settings(max_examples=10, deadline=None)
@given(st.floats(0.0, 0.01), st.floats(0.0, 0.008), st.integers(0, 100))
def test_noise_jitter_and_motion_leave_the_lag_within_its_interval(dead_s: float, tau_s: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    time = np.cumsum(np.abs(random.normal(0.002, 0.0002, 3000)))
    time -= time[0]
    command = steps(3000, seed, hold=3)
    measured = response(time, command, dead_s, tau_s) + random.normal(0, 0.1, 3000) + 2.0 * np.sin(3.0 * time)
    found = estimate(time, command, measured)
    assert found.identified
    assert found.lower_s - 5e-4 <= dead_s + tau_s <= found.upper_s + 5e-4
    assert found.lag_s == pytest.approx(dead_s + tau_s, abs=0.0015)


def test_coarse_samples_tell_the_lag_to_a_period_only() -> None:
    time = clock(400, 0.03)
    command = steps(400, seed=2, hold=4)
    found = estimate(time, command, response(time, command, 0.045, 0.0))
    assert found.lower_s <= 0.045 <= found.upper_s
    assert found.upper_s - found.lower_s > 0.015


def test_a_slow_command_does_not_tell_the_lag() -> None:
    random = np.random.default_rng(0)
    time = clock(3000)
    command = np.sin(2 * time)
    measured = response(time, command, 0.005, 0.002) + random.normal(0, 0.02, 3000)
    assert not estimate(time, command, measured).identified


def test_a_gap_does_not_move_the_lag() -> None:
    time = clock(3000)
    command = steps(3000, seed=3)
    measured = response(time, command, 0.005, 0.0)
    time[1500:] += 3600.0
    assert estimate(time, command, measured).lag_s == pytest.approx(0.005, abs=0.001)


def test_the_shift_is_that_of_straight_lines() -> None:
    time = clock(3000)
    command = steps(3000, seed=4)
    measured = np.interp(time - 0.0046, time, command)
    assert estimate(time, command, measured).shift_s == pytest.approx(0.0046, abs=2e-4)


def test_nothing_is_said_of_constant_or_short_series() -> None:
    time = clock(100)
    assert estimate_lag(time, np.zeros(100), time) is None
    assert estimate_lag(time, time, np.ones(100)) is None
    assert estimate_lag(time[:40], steps(40, 0), steps(40, 0)) is None


def test_long_recordings_are_judged_where_the_command_moves() -> None:
    time = clock(40_000)
    command = np.concatenate([np.zeros(30_000), steps(10_000, seed=5)])
    found = estimate(
        time, command, np.concatenate([np.zeros(30_000), response(time[:10_000], command[30_000:], 0.004, 0)])
    )
    assert found.identified


def log(kind: str, effort: Array | None, command: Array) -> RobotLog:
    time = clock(len(command))
    names = tuple(f"j{i}" for i in range(command.shape[1]))
    return RobotLog("a", names, time, np.zeros_like(command), None, effort, command, kind, "", "")  # pyright: ignore[reportArgumentType]


def test_only_effort_behind_effort_is_a_lag() -> None:
    time = clock(1000)
    command = np.stack([steps(1000, 6), np.zeros(1000)], axis=1)
    effort = np.stack([response(time, command[:, 0], 0.005, 0.0), np.zeros(1000)], axis=1)
    first, second = command_lag(log("joint_effort", effort, command))
    assert first is not None
    assert first.identified
    assert second is None
    assert command_lag(log("joint_pos", effort, command)) == (None, None)
    assert command_lag(log("joint_effort", None, command)) == (None, None)


def known(lag_s: float, half_width_s: float, explained: float = 1.0) -> LagEstimate:
    return LagEstimate(lag_s, lag_s - half_width_s, lag_s + half_width_s, lag_s, 0.0, lag_s, 1.0, explained)


def test_the_summary_counts_sure_estimates_most() -> None:
    summary = lag_summary([known(0.006, 0.001), known(0.007, 0.001), known(0.04, 0.02), known(0.1, 0.001, 0.2), None])
    assert summary is not None
    assert summary.estimates == 3
    # Weights 1, 1 and 1/400: (6 + 7 + 40/400) / (2 + 1/400) = 6.541 ms.
    assert summary.mean_s == pytest.approx(0.006541, abs=1e-6)
    assert summary.mean_s < summary.p99_s < 0.0085
    assert lag_summary([None, known(0.1, 0.001, 0.2)]) is None


def test_the_summary_of_one_is_its_own_normal_distribution() -> None:
    summary = lag_summary([known(0.006, 0.00196)])
    assert summary is not None
    assert summary.mean_s == pytest.approx(0.006)
    # One standard deviation is 1 ms; 2.326 of them are exceeded by 1 %.
    assert summary.p99_s == pytest.approx(0.006 + 0.002326, abs=5e-5)
