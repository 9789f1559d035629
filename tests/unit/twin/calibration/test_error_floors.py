"""What a sensor explains of a replay error is measured in the joint's own unit: a finger moves by millimetres."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.twins import Change, Trial, gain, rescored, scaled

from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.measured import FLOOR_STDS, error_floors
from physai.twin.claims.changes import missing_alternatives
from physai.twin.claims.spot_check import spot_check
from physai.twin.logs import RobotLog
from physai.twin.model.credibility import ERROR_FLOOR_MAX, bounds

Recorder = Callable[..., RobotLog]

GRIPPER = """
<mujoco model="gripper">
  <compiler autolimits="true"/>
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody>
    <body name="finger">
      <inertial pos="0 0 0" mass="0.3" diaginertia="1e-4 1e-4 1e-4"/>
      <joint name="finger" type="slide" axis="1 0 0" range="-0.01 0.01" stiffness="1200" damping="20"
        frictionloss="0.5"/>
      <geom type="sphere" size="0.005" mass="0" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor name="finger" joint="finger" ctrlrange="-20 20" forcerange="-20 20"/></actuator>
</mujoco>
"""
"""A finger with 20 mm of travel and a spring: 12 N hold it at 10 mm."""
TRUTH = {"finger.friction": 1.5, "finger.damping": 30.0}
NOISE = 0.05
"""Of the pendulum's: 15 µm, 2.5 mm/s, 1 mN."""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, record: Recorder) -> Trial:
    folder: Path = tmp_path_factory.mktemp("gripper")
    (folder / "gripper.xml").write_text(GRIPPER)
    robot = load_robot(folder / "gripper.xml")
    logs = [record(robot, TRUTH, seed=seed, seconds=6.0, noise=NOISE, name=f"log{seed}") for seed in range(5)]
    train, held_out = tuple(logs[:3]), tuple(logs[3:])
    twin = fit_twin(robot, train, held_out, friction="coulomb", budget_steps=500_000, folder=folder).twin
    return Trial(robot=robot, twin=twin, train=train, held_out=held_out)


def stiffer(model: Any) -> None:
    """A spring half as strong again, which no parameter and no changed twin contains."""
    model.jnt_stiffness[:] *= 1.5


WRONG: dict[str, Change] = {
    "friction 0": scaled("dof_frictionloss", 0.0),
    "gain +10 %": gain(1.1),
    "spring +50 %": stiffer,
}


@pytest.mark.slow
def test_the_right_twin_of_a_finger_is_accepted(trial: Trial) -> None:
    found = trial.twin.credible()
    assert found.holds, found.reasons
    assert missing_alternatives(trial.twin, trial.robot) == ""
    assert spot_check(trial.twin, trial.robot) == ""
    assert trial.twin.residuals is not None
    # Five times 15 µm.
    assert trial.twin.residuals.floor == pytest.approx((7.5e-5,), rel=0.2)
    assert bounds(trial.twin.residuals)["finger"] < 0.001


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_twin_of_a_finger_is_blocked_by_its_error(trial: Trial, name: str) -> None:
    """All of their errors are far below 10 mm, which is half of the finger's travel."""
    wrong = rescored(trial, WRONG[name])
    assert wrong.residuals is not None
    assert wrong.residuals.twin[0].hi < 0.5 * ERROR_FLOOR_MAX
    said = wrong.credible()
    assert not said.holds
    assert any("is above the bound 0.000" in reason for reason in said.reasons), said.reasons


def test_the_floor_is_that_of_noise_or_of_steps(pendulum: Robot, record: Recorder) -> None:
    """The pendulum's encoder has 3e-4 rad of noise; read in steps of 0.01 rad it is off by 0.01/√12."""
    log = record(pendulum, {}, seed=1)
    assert error_floors([log]) == pytest.approx((FLOOR_STDS * 3e-4,), rel=0.1)
    coarse = replace(log, joint_pos=0.01 * np.round(log.joint_pos / 0.01))
    assert error_floors([coarse])[0] >= 0.99 * FLOOR_STDS * 0.01 / 12.0**0.5
