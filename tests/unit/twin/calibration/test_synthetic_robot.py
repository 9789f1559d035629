"""The stand-in robot: hidden deviations inside their bounds, recordings that read back, delay where it was put."""

from pathlib import Path

import numpy as np
import pytest

from physai.sdk.base.errors import ModelError, PhysaiError
from physai.sdk.cli.main import main
from physai.sim.robots import load_robot
from physai.twin.calibration.stand_in.synthetic_robot import (
    DELAY_RANGE_S,
    StandIn,
    excite,
    stand_in,
    write_columns,
    write_recording,
)
from physai.twin.logs import read_log
from physai.twin.logs.quality import check_log
from physai.twin.logs.signals.lag import estimate_lag
from physai.twin.parameters.parameters import catalogue


@pytest.fixture(scope="module")
def arm() -> StandIn:
    return stand_in(load_robot("ur10e"), seed=3)


def test_equal_seeds_give_equal_stand_ins_and_others_differ(arm: StandIn) -> None:
    again, other = stand_in(arm.robot, seed=3), stand_in(arm.robot, seed=4)
    assert again.hidden == arm.hidden
    assert again.delay_s == arm.delay_s
    assert other.hidden != arm.hidden


def test_hidden_values_deviate_within_their_bounds_and_reach_the_model(arm: StandIn) -> None:
    bounds = {p.name: p for p in catalogue(arm.robot, "command")}
    for name, value in arm.hidden.items():
        assert bounds[name].lower <= value <= bounds[name].upper
    assert DELAY_RANGE_S[0] <= arm.delay_s <= DELAY_RANGE_S[1]
    assert arm.model.body("forearm_link").mass[0] == pytest.approx(arm.hidden["forearm_link.mass"])
    assert arm.hidden["forearm_link.mass"] != pytest.approx(bounds["forearm_link.mass"].prior, rel=1e-4)


def test_a_floating_base_is_not_recorded() -> None:
    with pytest.raises(ModelError, match="go2 has a floating base"):
        stand_in(load_robot("go2"), seed=0)


def test_an_excitation_stays_inside_the_limits_and_is_repeatable(arm: StandIn) -> None:
    first = excite(arm, duration_s=2.0, rate_hz=250.0, seed=1)
    assert first.time[1] == pytest.approx(0.004)
    assert len(first.time) == 500
    for number, joint in enumerate(arm.robot.spec.joints):
        assert joint.position_lower is not None
        assert joint.position_upper is not None
        assert joint.velocity_limit is not None
        assert first.command[:, number].min() > joint.position_lower
        assert first.command[:, number].max() < joint.position_upper
        assert np.abs(first.joint_vel[:, number]).max() < joint.velocity_limit
        assert np.ptp(first.joint_pos[:, number]) > 0.02
    again = excite(arm, duration_s=2.0, rate_hz=250.0, seed=1)
    assert np.array_equal(first.joint_pos, again.joint_pos)
    assert not np.array_equal(first.command, excite(arm, duration_s=2.0, rate_hz=250.0, seed=2).command)


def test_motors_get_efforts_that_act_after_the_delay() -> None:
    pendulum = stand_in(load_robot("double_pendulum"), seed=1)
    found = excite(pendulum, duration_s=4.0, rate_hz=500.0, seed=0)
    lag = round(pendulum.delay_s / 0.002)
    gain = pendulum.hidden["joint1.effort_gain"]
    early, late = gain * found.command[:-lag, 0], found.joint_effort[lag:, 0]
    # 0.005 of the effort limit is the sensor's noise; a step more or less of delay would be seen.
    noise = 0.005 * float(pendulum.robot.spec.joints[0].effort_limit)
    assert np.std(late - early) == pytest.approx(noise, rel=0.1)


@pytest.mark.parametrize(("duration_s", "rate_hz"), [(0.1, 250.0), (2.0, 1e6), (float("nan"), 250.0)])
def test_senseless_durations_and_rates_are_refused(arm: StandIn, duration_s: float, rate_hz: float) -> None:
    with pytest.raises(PhysaiError, match="must be in"):
        excite(arm, duration_s=duration_s, rate_hz=rate_hz, seed=0)


@pytest.mark.parametrize("name", ["ur10e", "double_pendulum", "cartpole"])
def test_what_is_written_reads_back_and_is_fit_to_calibrate(name: str, tmp_path: Path) -> None:
    robot = load_robot(name)
    recording = excite(stand_in(robot, seed=0), duration_s=6.0, rate_hz=250.0, seed=0)
    write_recording(recording, robot, tmp_path / "01.csv")
    write_columns(robot, tmp_path)
    log = read_log(tmp_path / "01.csv", robot.spec)
    assert np.allclose(log.joint_pos, recording.joint_pos, atol=1e-7)
    assert np.allclose(log.command, recording.command, atol=1e-6)
    assert log.command_kind == ("joint_pos" if name == "ur10e" else "joint_effort")
    assert [f.message for f in check_log(log, robot.spec).findings if f.severity == "defect"] == []


def test_the_verb_says_what_comes_next_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sim", "record", "cartpole", "-o", str(tmp_path / "rec"), "--recordings", "2", "--duration-s", "2"]
    assert main(words) == 0
    assert "next: physai sim calibrate cartpole" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "rec").iterdir()) == ["01.csv", "02.csv", "columns.yaml"]
    assert main(words) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*words[:2], "cartpole", "-o", str(tmp_path / "new"), "--recordings", "0"]) == 2
    assert "--recordings must lie in 1 … 100, got 0" in capsys.readouterr().err


def test_steps_in_the_commands_show_the_lag() -> None:
    """Without them nothing changes quickly, and no lag is identified."""
    robot = load_robot("cartpole")
    truth = stand_in(robot, seed=0)
    for steps, identified in ((0.0, False), (0.1, True)):
        made = excite(truth, duration_s=6.0, rate_hz=250.0, seed=0, steps=steps)
        lag = estimate_lag(made.time, made.command[:, 0], made.joint_effort[:, 0])
        assert (lag is not None and lag.identified) is identified
        if lag is not None and identified:
            # The model's steps and the command's period quantise the delay.
            assert lag.lag_s == pytest.approx(truth.delay_s, abs=0.003)
    with pytest.raises(PhysaiError, match=r"--steps must be in 0 … 0\.5, got nan"):
        excite(truth, duration_s=6.0, rate_hz=250.0, seed=0, steps=float("nan"))
