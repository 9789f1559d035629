"""Cutting recordings, the states windows start in, and what drives them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots.loader import load_robot
from physai.twin.calibration.replay.drive import DriveSignal, choose_drive
from physai.twin.calibration.replay.states import StateEstimate
from physai.twin.calibration.replay.windows import SAMPLES, cut
from physai.twin.logs import LogError, RobotLog

Array = NDArray[np.float64]


def log_of(motion: Callable[[Array], Array], *, seconds: float = 1.0, period_s: float = 0.01) -> RobotLog:
    time = np.linspace(0.0, seconds, round(seconds / period_s) + 1)
    position = motion(time)[:, None]
    still = np.zeros_like(position)
    return RobotLog("log", ("hinge",), time, position, still, still, still, "joint_effort", "log.csv", "0" * 64)


def test_windows_follow_each_other_and_keep_off_the_ends() -> None:
    """Of one second without 20 ms at either end: 0.02, 0.27 and 0.52 s; a fourth would end at 1.02 s."""
    windows = cut([log_of(np.sin)], 0.25)
    np.testing.assert_allclose(windows.start_s, [0.02, 0.27, 0.52])
    assert windows.target.shape == (3, SAMPLES, 1)
    np.testing.assert_allclose(windows.sample_s[:, -1], 0.25)
    moments = windows.start_s[:, None] + windows.sample_s
    np.testing.assert_allclose(windows.target[:, :, 0], np.sin(moments))


def test_a_gap_and_a_spike_cost_their_windows() -> None:
    log = log_of(lambda t: np.sin(3.0 * t), seconds=4.0)
    whole = cut([log], 0.25)
    gap = np.ones(len(log.time), dtype=bool)
    gap[85:93] = False
    holed = RobotLog(
        *(log.name, log.joint_names, log.time[gap], log.joint_pos[gap], None, None, log.command[gap]),
        *("joint_effort", log.source, log.sha256),
    )
    assert len(cut([holed], 0.25)) < len(whole)
    struck = log.joint_pos.copy()
    struck[200] += 3.0
    kept = cut([replace(log, joint_pos=struck)], 0.25)
    assert len(kept) == len(whole) - 1
    assert not ((kept.start_s <= 2.0) & (kept.start_s + 0.25 >= 2.0)).any()


def test_an_effort_the_joint_cannot_give_costs_its_windows() -> None:
    log = log_of(lambda t: np.sin(3.0 * t), seconds=4.0)
    effort = np.full_like(log.joint_pos, 2.0)
    effort[200] = -5.6
    struck = replace(log, joint_effort=effort)
    assert len(cut([struck], 0.25)) == len(cut([struck], 0.25, effort_limits=[0.0])) == 15
    # Limits of 5 and 5.2 N·m with a tenth to spare: 5.5 and 5.72.
    assert len(cut([struck], 0.25, effort_limits=[5.0])) == 14
    assert len(cut([struck], 0.25, effort_limits=[5.2])) == 15


def test_a_recording_without_a_window_is_refused() -> None:
    with pytest.raises(LogError, match=r"0\.2 s long, no window of 0\.25 s"):
        cut([log_of(np.sin, seconds=0.2)], 0.25)


def test_windows_shorter_than_a_few_samples_ask_for_longer_ones() -> None:
    """A gap may last a quarter of a window: 2.5 ms, and samples are 10 ms apart."""
    with pytest.raises(LogError, match=r"its samples are 10 ms apart, use a longer `window_s`$"):
        cut([log_of(np.sin)], 0.01)


def test_thinning_and_shortening() -> None:
    windows = cut([log_of(np.sin, seconds=5.0)], 0.25, stride_s=0.125)
    assert len(windows.thinned(7)) == 7
    assert windows.thinned(1000) is windows
    short = windows.shortened(0.1)
    assert short.sample_s.max() <= 0.1 + 1e-9
    np.testing.assert_array_equal(short.start_s, windows.start_s)


def test_motion_by_hand() -> None:
    """At 2 rad/s the samples lie 0.5/24, …, 0.5 rad away or so: the root mean square of a ramp is its end / sqrt(3)."""
    moved = cut([log_of(lambda t: 2.0 * t, period_s=0.001, seconds=2.0)], 0.25).motion()
    assert moved[0] == pytest.approx(0.5 / np.sqrt(3.0), rel=0.05)


@settings(deadline=None)
@given(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3), st.integers(20, 80))
def test_a_parabola_is_estimated_exactly(coefficients: list[float], sample: int) -> None:
    a, b, c = coefficients
    log = log_of(lambda t: a + b * t + c * t**2)
    position, speed = StateEstimate(log).at(np.array([sample]))
    t = float(log.time[sample])
    assert position[0, 0] == pytest.approx(a + b * t + c * t**2, abs=1e-8)
    assert speed[0, 0] == pytest.approx(b + 2.0 * c * t, abs=1e-6)


def test_the_speed_of_a_noisy_sine_is_within_a_few_per_cent() -> None:
    """1 Hz, 0.5 rad, 3e-4 rad of noise at 250 Hz: 3.14 rad/s at most, off by 1 % at half a width of 50 ms or less."""
    log = log_of(lambda t: 0.5 * np.sin(2.0 * np.pi * t), seconds=4.0, period_s=0.004)
    noise = 3e-4 * np.random.default_rng(0).normal(size=log.joint_pos.shape)
    estimate = StateEstimate(replace(log, joint_pos=log.joint_pos + noise))
    assert estimate.half_width_s is not None
    assert estimate.half_width_s <= 0.05
    samples = np.arange(50, 950)
    error = estimate.at(samples)[1][:, 0] - np.pi * np.cos(2.0 * np.pi * log.time[samples])
    assert float(np.sqrt((error**2).mean())) < 0.04


def test_a_slow_recording_keeps_its_measured_speed() -> None:
    log = replace(log_of(np.sin, period_s=0.05), joint_vel=np.full((21, 1), 7.0))
    assert StateEstimate(log).at(np.array([5]))[1][0, 0] == 7.0


def test_a_held_command_by_hand() -> None:
    """0 until 0.5 s, then 1: over 0.49 … 0.52 s it is 1 for two thirds; 10 ms later for one third."""
    log = log_of(lambda t: np.zeros_like(t))
    signal = DriveSignal(replace(log, command=(log.time >= 0.5 - 1e-9).astype(np.float64)[:, None]), "command")
    edges = np.array([[0.49, 0.52]])
    assert signal.means(edges)[0, 0, 0] == pytest.approx(2.0 / 3.0)
    assert signal.means(edges - 0.01)[0, 0, 0] == pytest.approx(1.0 / 3.0)
    # Beyond the ends the first and the last command hold.
    assert signal.means(np.array([[-0.5, -0.4], [1.2, 1.3]]))[:, 0, 0].tolist() == pytest.approx([0.0, 1.0])


def test_a_measured_effort_is_interpolated() -> None:
    log = log_of(lambda t: np.zeros_like(t))
    signal = DriveSignal(replace(log, joint_effort=2.0 * log.time[:, None]), "effort")
    assert signal.means(np.array([[0.301, 0.303]]))[0, 0, 0] == pytest.approx(0.604)


def test_a_servo_without_a_recorded_target_is_refused(tmp_path: Path) -> None:
    """A replay would hold its joint at 0; a motor that was never commanded gives no effort, which is right."""
    arm = """<mujoco><worldbody><body><joint name="hinge"/><geom size=".1" mass="1"/></body></worldbody>
      <actuator><{}></actuator></mujoco>"""
    log = replace(log_of(np.sin), driven=(False,))
    (tmp_path / "motor.xml").write_text(arm.format('motor joint="hinge" ctrlrange="-1 1"/'))
    assert choose_drive(load_robot(tmp_path / "motor.xml"), [log]) == "effort"
    (tmp_path / "servo.xml").write_text(arm.format('position joint="hinge" kp="5" forcerange="-1 1"/'))
    servo = load_robot(tmp_path / "servo.xml")
    with pytest.raises(LogError, match=r"log log has no command for hinge.*position servo there.*--drive"):
        choose_drive(servo, [replace(log, command_kind="joint_pos")])
