"""Statistics of the loop, and of what the sensors add."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.twin.logs import LogError, RobotLog, period_statistics, sensor_noise
from physai.twin.logs.signals.noise import noise_std, resolution, still_stretches

Array = NDArray[np.float64]


def clock(count: int, period_s: float) -> Array:
    """Times of samples [s]."""
    return np.linspace(0.0, (count - 1) * period_s, count)


def test_period_statistics_by_hand() -> None:
    statistics = period_statistics(np.array([0.0, 0.002, 0.004, 0.006, 0.019]))
    assert statistics.median_s == pytest.approx(0.002)
    assert statistics.rate_hz == pytest.approx(500.0)
    assert (statistics.min_s, statistics.max_s) == (pytest.approx(0.002), pytest.approx(0.013))
    assert statistics.gaps == 1  # 13 ms is more than five times 2 ms
    # Mean 4.75 ms, deviations -2.75 three times and 8.25: ((3·2.75² + 8.25²)/4)^½ = 4.763 ms.
    assert statistics.std_s == pytest.approx(0.004763, abs=1e-6)


def test_periods_need_a_clock_that_runs() -> None:
    for time in ([0.0], [0.0, 0.0], [0.0, 1.0, 0.5], [0.0, np.nan]):
        with pytest.raises(LogError, match="at least two samples of ascending time"):
            period_statistics(np.array(time))


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50))
def test_statistics_bound_each_other(periods: list[int]) -> None:
    s = period_statistics(np.concatenate([[0.0], np.cumsum(np.array(periods) * 1e-3)]))
    assert s.min_s <= s.median_s <= s.max_s
    assert s.median_s <= s.p99_s + 1e-12 <= s.max_s + 2e-12


@pytest.mark.parametrize("std", [1e-4, 0.05, 3.0])
def test_white_noise_on_a_parabola_is_measured(std: float) -> None:
    random = np.random.default_rng(0)
    t = clock(20_000, 0.01)
    series = 5.0 + t - 0.1 * t**2 + random.normal(0, std, len(t))
    assert noise_std(series, []) == pytest.approx(std, rel=0.03)
    # One sample in five hundred may be a spike.
    series[::500] += 100 * std
    assert noise_std(series, []) == pytest.approx(std, rel=0.1)


def test_noise_at_rest_is_the_spread_about_each_stretchs_mean() -> None:
    series = np.array([1.0, 3.0, 1.0, 3.0, 99.0, 11.0, 13.0, 11.0, 13.0])
    assert noise_std(series, [slice(0, 4), slice(5, 9)]) == pytest.approx(1.0)


def test_resolution_is_the_smallest_step() -> None:
    assert resolution(np.array([0.5, 0.1, 0.4, 0.1])) == pytest.approx(0.1)
    assert resolution(np.array([2.0, 2.0])) == 0.0
    # The same value computed in two ways is one value.
    assert resolution(np.array([0.3, 0.1 + 0.2, 0.8])) == pytest.approx(0.5)


def test_still_stretches_hold_neither_motion_nor_command() -> None:
    t = clock(1000, 0.01)
    position = np.where(t < 3.0, 0.0, np.where(t < 6.0, np.round((t - 3.0) / 0.001) * 0.001, 3.0))
    command = np.where(t < 8.0, 0.0, np.sin(9 * t))
    found = still_stretches(t, position, command)
    assert [(part.start, part.stop) for part in found] == [(0, 300), (600, 800)]


def log(position: Array, effort: Array, command: Array) -> RobotLog:
    t = clock(len(position), 0.005)
    columns = [values[:, None] for values in (position, effort, command)]
    return RobotLog("a", ("j",), t, columns[0], None, columns[1], columns[2], "joint_effort", "", "")


def test_sensor_noise_prefers_rest() -> None:
    random = np.random.default_rng(1)
    position = np.round(random.normal(0, 2e-4, 1000) / 2e-4) * 2e-4
    effort = random.normal(0, 0.02, 1000)
    noise = sensor_noise(log(position, effort, np.zeros(1000)))
    assert noise.still_s[0] == pytest.approx(5.0, abs=0.1)
    assert noise.joint_effort_std is not None
    assert noise.joint_effort_std[0] == pytest.approx(effort.std(), rel=0.05)
    assert noise.joint_pos_std[0] == pytest.approx(position.std(), rel=0.05)
    assert noise.joint_vel_std is None


def test_sensor_noise_of_a_joint_that_never_rests() -> None:
    random = np.random.default_rng(2)
    t = clock(4000, 0.005)
    noise = sensor_noise(log(np.sin(3 * t) + random.normal(0, 1e-3, 4000), np.cos(t), np.cos(t)))
    assert noise.still_s[0] == 0.0
    assert noise.joint_pos_std[0] == pytest.approx(1e-3, rel=0.05)
