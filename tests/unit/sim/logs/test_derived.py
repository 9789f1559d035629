"""A velocity that is a difference quotient of the position is recognised, and a measured one is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.sim.logs.quality import check_raw
from physai.sim.logs.reader import read_raw
from physai.sim.logs.signals.speed import MAX_SPAN, difference
from physai.sim.robots import load_robot

Array = NDArray[np.float64]


def motion(seed: int, count: int = 400) -> tuple[Array, Array, Array]:
    """Time with jitter, positions with the noise of an encoder, and the true speed."""
    random = np.random.default_rng(seed)
    time = np.cumsum(0.01 + 0.001 * random.random(count))
    position = np.sin(3.0 * time) + 0.3 * np.sin(7.0 * time)
    return time, position + 1e-4 * random.normal(size=count), 3.0 * np.cos(3.0 * time) + 2.1 * np.cos(7.0 * time)


@given(st.integers(0, 2**32 - 1), st.integers(1, MAX_SPAN))
def test_backward_and_central_differences_are_found(seed: int, span: int) -> None:
    time, position, _ = motion(seed)
    speed = np.zeros_like(time)
    speed[span:] = (position[span:] - position[:-span]) / (time[span:] - time[:-span])
    assert difference(time, position, speed) == ("backward", span)
    if span % 2 == 0:
        half = span // 2
        central = np.zeros_like(time)
        central[half:-half] = speed[span:]
        assert difference(time, position, central) == ("central", span)


@given(st.integers(0, 2**32 - 1), st.floats(0.003, 0.5))
def test_a_measured_speed_is_none(seed: int, noise: float) -> None:
    time, position, speed = motion(seed)
    speed += noise * np.random.default_rng(seed).normal(size=len(speed))
    assert difference(time, position, speed) is None


def test_a_smooth_motion_without_noise_says_nothing() -> None:
    time = np.linspace(0.0, 4.0, 2001)
    assert difference(time, np.sin(time), np.cos(time)) is None


def test_a_joint_that_rests_says_nothing() -> None:
    time, position, _ = motion(0)
    assert difference(time, position, np.zeros_like(time)) is None


def test_the_note_states_the_lag(write: Callable[..., Path], motion: dict[str, Array], arm: RobotSpec) -> None:
    """Three samples of 2 ms: half of 6 ms."""
    t, q = motion["t"], motion["q2"]
    speed = motion["v2"].copy()
    speed[3:] = (q[3:] - q[:-3]) / (t[3:] - t[:-3])
    report = check_raw(read_raw(write({**motion, "v2": speed}), arm))
    (note,) = [finding for finding in report.findings if finding.check == "derived"]
    assert note.message == "joint_vel of elbow is the backward difference of joint_pos over 3 samples: it lags by 3 ms"
    assert note.numbers["lag_s"] == pytest.approx(0.003)
    assert report.usable


def test_the_double_pendulum_of_dfki(recordings: Path) -> None:
    """Its recordings state a speed that is the backward difference of the position, which nobody had noticed."""
    files = sorted((recordings / "dfki_double_pendulum").glob("leaderboard/**/trajectory.csv.gz"))
    assert files
    spec = load_robot("double_pendulum").spec
    for file in files:
        found = [note.message for note in check_raw(read_raw(file, spec)).findings if note.check == "derived"]
        assert len(found) == 2
        assert all("is the backward difference of joint_pos over 1 sample:" in message for message in found)
