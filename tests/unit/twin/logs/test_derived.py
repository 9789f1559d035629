"""A velocity that is a difference quotient of the position is recognised, and a measured one is not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.sim.robots import load_robot
from physai.twin.logs.quality import check_raw
from physai.twin.logs.reader import read_raw
from physai.twin.logs.signals.speed import MAX_SPAN, Speed, difference, reading_step, speed_origin

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


@given(st.integers(0, 2**32 - 1), st.floats(0.005, 0.05))
def test_a_filtered_difference_is_found_with_its_time_constant(seed: int, constant_s: float) -> None:
    time, position, _ = motion(seed)
    speed = np.zeros_like(time)
    for i in range(1, len(time)):
        quotient = (position[i] - position[i - 1]) / (time[i] - time[i - 1])
        keep = np.exp(-(time[i] - time[i - 1]) / constant_s)
        speed[i] = keep * speed[i - 1] + (1.0 - keep) * quotient
    found = speed_origin(time, position, speed)
    assert found is not None
    assert (found.kind, found.span) == ("backward", 1)
    assert found.time_constant_s == pytest.approx(constant_s, rel=0.02)


@given(st.integers(0, 2**32 - 1), st.integers(1, MAX_SPAN), st.sampled_from([0.022, 0.044, 0.1]))
def test_a_difference_that_is_read_in_steps_is_found(seed: int, span: int, step: float) -> None:
    time, position, _ = motion(seed)
    speed = np.zeros_like(time)
    speed[span:] = (position[span:] - position[:-span]) / (time[span:] - time[:-span])
    speed = np.round(speed / step) * step
    assert reading_step(speed) == pytest.approx(step, rel=1e-3)
    # Two spans whose differences are closer than the steps cannot be told apart.
    assert difference(time, position, speed) in (("backward", span), None)


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 0.1), st.integers(1, 5))
def test_steps_are_found_also_where_few_readings_are_neighbours(seed: int, step: float, digits: int) -> None:
    """Written with few digits, the multiples of a step are rounded: to a twentieth of a step here, or finer."""
    random = np.random.default_rng(seed)
    series = random.integers(-400, 400, 300) * step
    grain = step / 20.0 / digits
    assert reading_step(np.asarray(np.round(series / grain) * grain, np.float64)) == pytest.approx(step, rel=0.01)


@given(st.integers(0, 2**32 - 1))
def test_readings_without_steps_show_none(seed: int) -> None:
    random = np.random.default_rng(seed)
    assert reading_step(random.normal(size=500)) == 0.0
    assert reading_step(np.round(random.normal(size=500), 9)) == 0.0
    assert reading_step(np.zeros(100)) == 0.0


def test_the_lag_of_a_filter_by_hand() -> None:
    """Half a sample of 10 ms for the difference; e^-1/(1 - e^-1) = 0.582 of one for a filter of 10 ms."""
    assert Speed("backward", 1, 0.01).lag_s(0.01) == pytest.approx(0.0050 + 0.00582, abs=1e-5)
    assert Speed("backward", 3).lag_s(0.01) == pytest.approx(0.015)
    assert Speed("central", 2).lag_s(0.01) == Speed().lag_s(0.01) == 0.0


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


def test_the_encoders_of_real_robots(recordings: Path) -> None:
    """16 bits over 25 rad, and 12 bits over a turn."""
    steps = {
        "dfki_double_pendulum": ("double_pendulum", "leaderboard/**/trajectory.csv.gz", 25.0 / 65535.0),
        "bam_xl330": ("xl330_pendulum", "raw/*.json.gz", 2.0 * np.pi / 4096.0),
    }
    for folder, (name, pattern, step) in steps.items():
        files = sorted((recordings / folder).glob(pattern))[:4]
        assert files
        for file in files:
            log = read_raw(file, load_robot(name).spec)
            for joint in range(log.joint_pos.shape[1]):
                assert reading_step(log.joint_pos[:, joint]) == pytest.approx(step, rel=0.01)
