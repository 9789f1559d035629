"""How the real double pendulum's motors follow their commands, at two rates."""

import os
from pathlib import Path

import pytest

from physai.sim.robots import load_robot
from physai.twin.calibration.measured import measured_actuators, measured_timing
from physai.twin.logs import RobotLog, read_logs

DATA = Path(os.environ.get("PHYSAI_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
RUNS = DATA / "dfki_double_pendulum/leaderboard/pendubot/real_hardware_v2/src_data"

pytestmark = pytest.mark.skipif(
    not RUNS.is_dir(), reason="needs the DFKI double pendulum's recordings: set PHYSAI_DATA to their folder"
)


@pytest.fixture(scope="module")
def runs() -> tuple[RobotLog, ...]:
    """Three at 400 Hz, two at 33 Hz."""
    robot = load_robot("double_pendulum")
    fast = [RUNS / f"ilqr_tvlqr_lqr/experiment0{n}/trajectory.csv.gz" for n in (1, 2, 3)]
    slow = [RUNS / f"mcpilco/experiment0{n}/trajectory.csv.gz" for n in (1, 2)]
    return read_logs([*fast, *slow], robot.spec)


def test_the_first_motor_makes_its_command_less_an_inertia(runs: tuple[RobotLog, ...]) -> None:
    """The plain ratio of measured to commanded effort is 0.96 to 0.97; what is missing goes with the acceleration.

    The second motor is commanded too little for its lag to be identified.
    """
    (motor,) = measured_actuators(runs)
    assert motor.joint == "joint1"
    assert motor.gain == pytest.approx(0.995, abs=0.01)
    assert motor.inertia == pytest.approx(2.8e-3, abs=4e-4)
    assert motor.gain_std < 0.01
    assert motor.dead_time_s == pytest.approx(0.0023, abs=0.0005)
    assert motor.time_constant_s == pytest.approx(0.004, abs=0.0006)
    assert motor.effort_max is None
    assert motor.period_s == pytest.approx(0.0025, abs=1e-4)


def test_a_period_of_the_lag_waits_for_the_loop(runs: tuple[RobotLog, ...]) -> None:
    """6 ms at 400 Hz, 37 to 49 ms at 33 Hz: about one period and a few milliseconds."""
    both = measured_timing(runs)
    assert both.command_lag_mean_s == pytest.approx(0.0062, abs=0.0005)
    assert both.command_lag_period_s == pytest.approx(0.0025, abs=1e-4)
    periods = both.command_lag_periods
    assert periods is not None
    assert periods.value == pytest.approx(1.2, abs=0.15)
    assert periods.lo < 1.2 < periods.hi
    # With one rate, between none and the one period that fits into the dead time.
    alone = measured_timing(runs[:3]).command_lag_periods
    assert alone is not None
    assert (alone.lo, alone.value, alone.hi) == (0.0, 0.5, 1.0)
