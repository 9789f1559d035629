"""Recordings of one trajectory are found by their commands; a servo's gain by its duty cycle."""

from dataclasses import replace

import numpy as np
import pytest

from physai.twin.logs import RobotLog
from physai.twin.logs.comparison.trajectories import by_trajectory
from physai.twin.logs.signals.duty import duty_gain


def log(command: str, *, rate: float = 200.0, seconds: float = 4.0, kind: str = "joint_pos") -> RobotLog:
    """Commands of one joint at a rate [Hz]."""
    time = np.arange(round(seconds * rate)) / rate
    shapes = {"sine": np.sin(3.0 * time), "slower": np.sin(2.0 * time), "ramp": 0.2 * time, "still": 0.0 * time}
    values = shapes[command][:, None]
    made = RobotLog("log", ("j",), time, 0.9 * values, None, None, values, "joint_pos", "log.csv", "0" * 64)
    return replace(made, command_kind=kind)  # pyright: ignore[reportArgumentType]


def test_the_same_commands_are_one_trajectory_at_any_rate() -> None:
    logs = [log("sine"), log("ramp"), log("sine", rate=91.0), log("slower"), log("ramp"), log("sine", seconds=3.0)]
    assert by_trajectory(logs) == ((0, 2), (1, 4), (3,), (5,))


def test_the_same_efforts_are_not_the_same_motion() -> None:
    assert by_trajectory([log("sine", kind="joint_effort")] * 3) == ((0,), (1,), (2,))
    assert by_trajectory([log("still", kind="joint_effort"), log("still", kind="joint_effort")]) == ((0,), (1,))


def test_the_gain_of_a_servo_from_its_duty() -> None:
    error = np.linspace(-1.0, 1.0, 400)
    # 2.5 per rad, clipped at 1: only what is below counts.
    assert duty_gain(error, np.clip(2.5 * error, -1.0, 1.0)) == pytest.approx(2.5)
    noisy = 0.8 * error + 0.01 * np.random.default_rng(0).standard_normal(400)
    assert duty_gain(error, noisy) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("duty", ["reversed", "other", "saturated", "unknown"])
def test_a_duty_that_is_not_proportional_to_the_error_gives_no_gain(duty: str) -> None:
    error = np.linspace(-1.0, 1.0, 400)
    columns = {
        "reversed": -0.8 * error,
        "other": np.cos(5.0 * error),
        "saturated": np.sign(error),
        "unknown": np.full(400, np.nan),
    }
    assert duty_gain(error, columns[duty]) is None
    assert duty_gain(np.zeros(400), np.zeros(400)) is None
