"""Replay errors as residuals: what a wrong start does to a window is told from what wrong parameters do."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.base.errors import UnknownNameError
from physai.sim.robots import Robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.fit.problem import Problem
from physai.twin.calibration.replay.windows import Windows, cut
from physai.twin.logs import LogError, RobotLog
from physai.twin.parameters.parameters import catalogue

Array = NDArray[np.float64]
Recorder = Callable[..., RobotLog]

TRUTH = {"hinge.friction": 0.35, "hinge.damping": 0.2}


def problem(robot: Robot, windows: Windows) -> Problem:
    chosen = [parameter for parameter in catalogue(robot, "effort") if parameter.name in TRUTH]
    return Problem(robot, chosen, windows, "effort", num_threads=1)


@pytest.fixture(scope="module")
def exact(pendulum: Robot, record: Recorder) -> Windows:
    """Windows of a recording without noise that start in the very states it was in."""
    log = record(pendulum, TRUTH, seed=3, seconds=4.0, every=1, noise=0.0)
    windows = cut([log], 0.25)
    at = np.searchsorted(log.time, windows.start_s - 1e-9)
    assert log.joint_vel is not None
    return replace(windows, joint_pos=log.joint_pos[at], joint_vel=log.joint_vel[at])


def test_the_truth_replays_its_recording(pendulum: Robot, exact: Windows) -> None:
    errors = problem(pendulum, exact).errors(np.array([list(TRUTH.values())]))
    assert np.abs(errors).max() < 1e-9


def test_a_wrong_start_is_taken_out_and_a_wrong_parameter_is_not(pendulum: Robot, exact: Windows) -> None:
    """Starts off by 0.05 rad/s and noise of 1e-4 rad: 99 % of the squared error is the starts'."""
    random = np.random.default_rng(0)
    windows = replace(
        exact,
        joint_vel=exact.joint_vel + 0.05 * random.normal(size=exact.joint_vel.shape),
        start_std=np.tile([1e-5, 0.05], (len(exact), 1)),
        target=exact.target + 1e-4 * random.normal(size=exact.target.shape),
    )
    found, truth = problem(pendulum, windows), np.array([list(TRUTH.values())])
    total = found.measure_spread(truth[0])
    assert total[0] == pytest.approx(0.05 * 0.25 / np.sqrt(3.0), rel=0.5)
    assert found.spread[0] == pytest.approx(1e-4, rel=0.2)
    left = found.residuals(found.errors(truth))
    whole = problem(pendulum, windows).residuals(found.errors(truth)) / found.spread
    assert (left**2).sum() < 0.01 * (whole**2).sum()
    wrong = found.residuals(found.errors(truth * 1.5))
    assert (wrong**2).sum() > 20.0 * (left**2).sum()


def test_where_the_model_errs_starts_take_out_next_to_nothing(pendulum: Robot, exact: Windows) -> None:
    """Friction wrong by a factor of two, starts known to 1e-4 rad/s."""
    found = problem(pendulum, replace(exact, start_std=np.tile([1e-6, 1e-4], (len(exact), 1))))
    wrong = np.array([0.7, 0.2])
    total = found.measure_spread(wrong)
    assert found.spread[0] == pytest.approx(total[0], rel=0.01)


def test_only_the_named_parameters_are_fitted(pendulum: Robot, record: Recorder) -> None:
    log = record(pendulum, TRUTH, seed=5, seconds=3.0)
    twin = fit_twin(pendulum, [log], only=("hinge.friction",), num_threads=1).twin
    # The others are there as not fitted: at their priors, with their uncertainty.
    assert [parameter.name for parameter in twin.parameters if parameter.identified] == ["hinge.friction"]
    known = {parameter.name: parameter for parameter in catalogue(pendulum, "effort")}
    assert {parameter.name for parameter in twin.parameters} == set(known)
    assert set(twin.unconstrained) == set(known) - {"hinge.friction"}
    for row, parameter in enumerate(twin.parameters[1:], start=1):
        prior = known[parameter.name]
        assert (parameter.value, parameter.std) == (prior.prior, prior.prior_std)
        assert twin.covariance[row, row] == pytest.approx(prior.prior_std**2)
    masses = twin.draw(400, seed=0)[:, [parameter.name for parameter in twin.parameters].index("arm.mass")]
    assert masses.std() == pytest.approx(known["arm.mass"].prior_std, rel=0.15)
    with pytest.raises(UnknownNameError, match=r"did you mean hinge\.friction"):
        fit_twin(pendulum, [log], only=("hinge.fiction",))


def test_recordings_of_another_robot_and_one_twice_are_refused(pendulum: Robot, record: Recorder) -> None:
    log = record(pendulum, TRUTH, seed=5, seconds=3.0)
    with pytest.raises(LogError, match="another robot"):
        fit_twin(pendulum, [replace(log, joint_names=("knee",))])
    with pytest.raises(LogError, match="to be fitted and held out"):
        fit_twin(pendulum, [log], [log])
    with pytest.raises(LogError, match="no recordings"):
        fit_twin(pendulum, [])
