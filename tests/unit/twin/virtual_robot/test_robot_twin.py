"""A robot's twin in whole physics steps: forces and times by hand on two masses of 2 and 4 kg."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, Task
from physai.twin.model.measured_task import training_task
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter, Timing
from physai.twin.virtual_robot.robot_twin import Jitter, RobotTwin, measured_jitter

TaskMaker = Callable[..., Task]
PUSH = {"joint_effort_target": np.array([4.0, 8.0])}


def timed(task: Task, **timing: float) -> Twin:
    return replace(nominal_twin(task.robot), timing=Timing.model_validate(timing))


def test_a_command_acts_in_the_physics_step_after_it(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task())
    twin.advance(2)
    twin.command(PUSH)
    twin.advance(2)
    twin.end_period()
    # 4 N on 2 kg and 8 N on 4 kg for 20 ms are 0.04 m/s, in any order of the actuators.
    np.testing.assert_allclose(twin.fields["joint_vel"], [0.04, 0.04], rtol=1e-6)


def test_a_motor_with_a_fitted_gain_is_driven(slider_task: TaskMaker) -> None:
    """It was refused: "gear 1 times gain 0.992 makes its control something other than the joint's effort"."""
    task = slider_task()
    (joint, *_) = task.contract.robot.joint_names
    gain = FittedParameter(
        name=f"{joint}.effort_gain",
        unit="",
        prior=1.0,
        prior_std=0.02,
        lower=0.5,
        upper=1.5,
        value=0.99,
        std=0.001,
        identified=True,
    )
    fitted = replace(nominal_twin(task.robot), parameters=(gain,), covariance=np.array([[1e-6]]))
    twin = RobotTwin(task, fitted)
    twin.advance(2)
    twin.command(PUSH)
    twin.advance(2)
    twin.end_period()
    # 0.04 m/s, as above, times the gain of the first joint.
    np.testing.assert_allclose(twin.fields["joint_vel"], [0.99 * 0.04, 0.04], rtol=1e-6)
    Environment(training_task(task, fitted), 2).reset()


def test_a_lag_delays_a_command_by_whole_steps(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task(action_delay=Delay(lower_s=0.02, upper_s=0.02)))
    twin.command(PUSH)
    twin.advance(2)
    twin.end_period()
    np.testing.assert_array_equal(twin.fields["joint_vel"], [0.0, 0.0])
    twin.advance(2)
    twin.end_period()
    np.testing.assert_allclose(twin.fields["joint_vel"], [0.04, 0.04], rtol=1e-6)


def test_sensors_have_the_age_they_had_in_training(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task(sensor_delay=Delay(lower_s=0.04, upper_s=0.04)))
    assert twin.age_s == pytest.approx(0.04)
    twin.command(PUSH)
    for speed in (0.0, 0.08):
        twin.advance(4)
        twin.end_period()
        np.testing.assert_allclose(twin.fields["joint_vel"], [speed, speed], rtol=1e-6)


def test_every_modelled_sensor_is_measured_and_the_operators_command_with_it(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task(), seed=1)
    assert set(twin.fields) == {"joint_pos", "joint_vel", "joint_effort", "goal"}
    twin.command(PUSH)
    twin.advance(4)
    twin.end_period()
    np.testing.assert_allclose(twin.fields["joint_effort"], [4.0, 8.0], rtol=1e-6)
    assert 0.0 <= twin.fields["goal"][0] <= 1.0


def test_equal_seeds_are_equal_and_others_differ(slider_task: TaskMaker) -> None:
    first, same, other = (RobotTwin(slider_task(), seed=seed).fields["goal"][0] for seed in (5, 5, 6))
    assert first == same
    assert first != other


def test_a_fall_puts_the_robot_back_and_an_episode_is_judged(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task())
    twin.command({"joint_effort_target": np.array([50.0, 0.0])})
    while not twin.falls:
        twin.advance(4)
        twin.end_period()
        assert twin.steps < 200
    assert abs(twin.fields["joint_pos"][0]) <= 1.0
    assert twin.judged >= 1
    # The episodes before ended beyond 2 m or not, none of them beyond 5 m.
    assert twin.met <= twin.judged - 1


def test_what_the_envelope_allows(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task())
    limit = max(envelope.effort_limit for envelope in slider_task().contract.safety.joints)
    assert twin.allows(PUSH)
    for bad in (math.nan, math.inf, -math.inf, 1.001 * limit):
        assert not twin.allows({"joint_effort_target": np.array([0.0, bad])})


def test_positions_are_held_without_commands() -> None:
    twin = RobotTwin(load_task("ur10e-reach"))
    before = twin.fields["joint_pos"].copy()
    for _ in range(10):
        twin.advance(4)
        twin.end_period()
    np.testing.assert_allclose(twin.fields["joint_pos"], before, atol=0.02)


def test_efforts_brake_without_commands() -> None:
    means: list[float] = []
    for brakes in (True, False):
        twin = RobotTwin(load_task("pendubot-swingup"))
        twin.command({"joint_effort_target": np.array([5.0])})
        twin.advance(50)
        twin.command({"joint_effort_target": np.zeros(1)})
        speeds: list[float] = []
        for _ in range(300):
            if brakes:
                twin.brake()
            twin.advance(1)
            twin.end_period()
            speeds.append(abs(twin.fields["joint_vel"][0]))
        means.append(float(np.mean(speeds)))
    assert means[0] < 0.8 * means[1]


def test_a_twin_of_another_robot_is_refused(slider_task: TaskMaker) -> None:
    with pytest.raises(TaskError, match=r"the twin of ur10e has joints shoulder_pan_joint, .* has left, right"):
        RobotTwin(slider_task(), nominal_twin(load_task("ur10e-reach").robot))


def test_physics_that_diverges_is_an_error(slider_task: TaskMaker) -> None:
    twin = RobotTwin(slider_task())
    twin.command({"joint_effort_target": np.array([math.nan, 0.0])})
    with pytest.raises(PhysaiError, match=r"diverged after 0\.040 s"):
        twin.advance(4)


def test_jitter_reproduces_the_measured_99th_percentile(slider_task: TaskMaker) -> None:
    twin = timed(slider_task(), period_median_s=0.04, period_p99_s=0.042, period_max_s=0.05)
    jitter = measured_jitter(twin)
    assert jitter == Jitter(mean_s=pytest.approx(0.002 / math.log(50.0)), max_s=pytest.approx(0.01))  # pyright: ignore
    rng = np.random.default_rng(0)
    delays = np.array([jitter.draw(rng) for _ in range(40_001)])
    assert 0.0 <= delays.min() <= delays.max() <= 0.01
    assert np.quantile(np.diff(delays), 0.99) == pytest.approx(0.002, rel=0.05)
    assert measured_jitter(nominal_twin(slider_task().robot)) == Jitter()
    assert Jitter().draw(rng) == 0.0


def test_the_contract_is_the_tasks(slider_task: TaskMaker) -> None:
    contract: PolicyContract = slider_task().contract
    assert RobotTwin(slider_task()).contract.fingerprint == contract.fingerprint
