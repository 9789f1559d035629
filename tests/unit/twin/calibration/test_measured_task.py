"""A task as a twin's recordings show its robot."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, SensorModel, Task
from physai.twin.calibration.page_motors import motor_rows
from physai.twin.model.measured_task import TRAINING_NOISE, lag_range, measured_sensors, sensor_age, training_task
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import (
    ActuatorResponse,
    FittedParameter,
    Interval,
    LogRecord,
    Logs,
    SensorNoise,
    Timing,
    TwinError,
)
from physai.twin.parameters.parameters import AGE, AGE_PERIODS, DELAY, DELAY_PERIODS, OFFSET_STD, Drive


def measured_twin() -> Twin:
    return replace(
        nominal_twin(load_robot("double_pendulum")),
        noise=SensorNoise(joint_pos_std=(1e-4, 2e-4), joint_vel_std=(0.1, 0.2)),
        timing=Timing(command_lag_mean_s=0.006, command_lag_p99_s=0.008),
    )


def test_delays_lie_around_the_measured_mean() -> None:
    task = load_task("pendubot-swingup")
    assert lag_range(task, measured_twin()) == pytest.approx((0.004, 0.008))
    unmeasured = nominal_twin(load_robot("double_pendulum"))
    assert lag_range(task, unmeasured) == (task.action_delay.lower_s, task.action_delay.upper_s)


@pytest.mark.parametrize(
    ("period_s", "periods", "expected"),
    [
        # The policy's period is 2 ms. Recorded at 10 ms, a lag of 14 to 18 ms holds up to one period of the loop.
        (0.010, (0.0, 1.0), (0.006, 0.018)),
        # Recordings at two rates show that it holds 0.9 to 1.1 periods.
        (0.010, (0.9, 1.1), (0.0052, 0.0108)),
        # Recorded at a higher rate, the policy's slower loop may add up to one period more.
        (0.001, (0.0, 1.0), (0.014, 0.019)),
        (0.002, (0.0, 1.0), (0.014, 0.018)),
    ],
)
def test_the_lag_at_another_rate_than_the_recordings(
    period_s: float, periods: tuple[float, float], expected: tuple[float, float]
) -> None:
    lo, hi = periods
    timing = Timing(
        command_lag_mean_s=0.016,
        command_lag_p99_s=0.018,
        command_lag_period_s=period_s,
        command_lag_periods=Interval(value=0.5 * (lo + hi), lo=lo, hi=hi),
    )
    twin = replace(measured_twin(), timing=timing)
    assert lag_range(load_task("pendubot-swingup"), twin) == pytest.approx(expected)


def test_motors_make_their_measured_share_of_a_command() -> None:
    """0.9 of it, at most 2 N·m, with 3 g·m² more inertia: where commands arrive, not where efforts are measured."""
    response = ActuatorResponse(
        joint="joint1",
        gain=0.9,
        gain_std=0.01,
        dead_time_s=0.002,
        time_constant_s=0.003,
        inertia=0.003,
        effort_max=2.0,
        period_s=0.002,
    )
    twin = replace(measured_twin(), actuators=(response,))
    gain, armature = twin.model().actuator_gainprm[:, 0], np.array(twin.model().dof_armature)
    found = training_task(load_task("pendubot-swingup"), twin).model
    assert found.actuator_gainprm[:, 0] == pytest.approx(gain * [0.9, 1.0])
    assert found.dof_armature == pytest.approx([armature[0] + 0.003, armature[1]])
    if found.actuator_forcelimited[0]:
        assert np.abs(found.actuator_forcerange[0]).max() == pytest.approx(min(2.0 * gain[0], 1e9))
    with pytest.raises(TwinError, match="joint elbow has no motor"):
        replace(twin, actuators=(response.model_copy(update={"joint": "elbow"}),)).apply_commanded(
            twin.model(), twin.values
        )


def test_training_sees_twice_the_delay_and_more_noise_under_the_same_contract() -> None:
    task = load_task("pendubot-swingup")
    found = training_task(task, measured_twin())
    assert found.contract == task.contract
    assert (found.action_delay.lower_s, found.action_delay.upper_s) == pytest.approx((0.0, 0.016))
    assert found.sensors["joint_vel"].noise_std == pytest.approx(TRAINING_NOISE * 0.2)
    assert found.sensors["joint_pos"].noise_std == pytest.approx(TRAINING_NOISE * 2e-4)
    # Nothing was fitted, so nothing more varies than the task itself varies.
    assert found.randomisation == task.randomisation


def aged(twin: Twin, *, identified: bool = True) -> Twin:
    """Positions are 1.0 ± 0.1 periods and 2 ± 0.5 ms older than efforts."""
    values = {AGE: ("s", 0.002, 0.0005), AGE_PERIODS: ("periods", 1.0, 0.1)}
    parameters = tuple(
        FittedParameter(
            name=name, unit=unit, prior=0.0, prior_std=1.0, lower=0.0, upper=4.0, value=value, std=std,
            identified=identified,
        )
        for name, (unit, value, std) in values.items()
    )  # fmt: skip
    return replace(twin, parameters=parameters, covariance=np.diag([0.0005**2, 0.1**2]))


def test_the_age_of_samples_keeps_its_periods_apart() -> None:
    """99 % of a normal distribution are within 2.326 standard deviations: 2 ± 1.163 ms and 1 ± 0.2326 periods."""
    task, twin = load_task("pendubot-swingup"), aged(measured_twin())
    age = sensor_age(task, twin)
    assert (age.lower_s, age.upper_s) == pytest.approx((0.000837, 0.003163))
    assert (age.lower_periods, age.upper_periods) == pytest.approx((0.7674, 1.2326))
    trained = training_task(task, twin).sensor_delay
    assert (trained.lower_s, trained.lower_periods) == (0.0, 0.0)
    assert (trained.upper_s, trained.upper_periods) == pytest.approx((0.006326, 2.4652))
    own = replace(task, sensor_delay=Delay(upper_s=0.001))
    assert sensor_age(own, aged(measured_twin(), identified=False)) == own.sensor_delay
    assert training_task(own, measured_twin()).sensor_delay == own.sensor_delay


def test_a_delay_fitted_at_one_rate_counts_as_seconds_and_the_report_says_so() -> None:
    """10 ± 1 ms: 12.326 ms with 99 %. With 0.5 periods of the policy's 2 ms in addition, 1 ms more."""
    task, silent = load_task("pendubot-swingup"), replace(measured_twin(), timing=Timing())
    (like, _) = aged(silent).parameters
    delay = like.model_copy(update={"name": DELAY, "value": 0.010, "std": 0.001})
    one_rate = replace(silent, parameters=(delay,), covariance=np.diag([1e-6]))
    assert lag_range(task, one_rate) == pytest.approx((0.007674, 0.012326))
    said = dict(motor_rows(one_rate))
    assert said["from command to measured position"].startswith(
        "10.0 ms, counted as constant: how much of it are periods"
    )
    assert "age of sensor samples" not in said
    periods = like.model_copy(update={"name": DELAY_PERIODS, "value": 0.5, "std": 0.0, "upper": 4.0})
    both = replace(silent, parameters=(delay, periods), covariance=np.diag([1e-6, 0.0]))
    assert lag_range(task, both) == pytest.approx((0.008674, 0.013326))
    assert dict(motor_rows(both))["from command to measured position"].startswith(
        "0.50 ± 0.00 periods of the loop + 10.0"
    )


def test_samples_minutes_old_are_refused() -> None:
    (seconds, periods) = aged(measured_twin()).parameters
    twin = replace(aged(measured_twin()), parameters=(seconds.model_copy(update={"std": 1e3}), periods))
    with pytest.raises(TwinError, match="at most 10 s can be simulated"):
        sensor_age(load_task("pendubot-swingup"), twin)


def test_radians_of_hinges_say_nothing_about_metres_of_slides() -> None:
    """A cart that is measured to 1 mm and a pole that is measured to 0.1 rad: neither takes the other's error."""
    task = load_task("cartpole-swingup")
    cart, pole = task.contract.robot.joint_names

    def recorded(*offsets: tuple[float, float]) -> Logs:
        """So many recordings that their number adds next to nothing, half of them with offsets of the other sign."""
        values, stds = zip(*offsets, strict=True)
        signed = values, tuple(-value for value in values)
        logs = [
            LogRecord(name="log", sha256="a" * 64, joint_pos_offset=offset, joint_pos_offset_std=stds)
            for offset in signed
        ]
        return Logs(train=tuple(logs * 2000))

    twin = replace(
        measured_twin(),
        joint_names=(cart, pole),
        noise=SensorNoise(joint_pos_std=(1e-4, 3e-3)),
        logs=recorded((0.001, 0.0), (-0.1, 0.0)),
    )
    found = measured_sensors(task.sensors, task.contract.robot.joints, twin, 2.0)["joint_pos"]
    assert found.noise_std == pytest.approx((2e-4, 6e-3))
    # Episodes draw uniformly within ±√3 times the recordings' standard deviation.
    assert found.bias == pytest.approx((0.001 * 3.0**0.5, 0.1 * 3.0**0.5), rel=1e-3)
    assert found.bias_mean == 0.0
    # Where only one kind is measured, the other keeps the task's own.
    half = replace(twin, logs=recorded((0.001, OFFSET_STD), (-0.1, 0.0)))
    own = replace(task, sensors={"joint_pos": SensorModel(bias=0.005)})
    assert measured_sensors(own.sensors, own.contract.robot.joints, half, 1.0)["joint_pos"].bias == pytest.approx(
        (0.005, 0.1 * 3.0**0.5), rel=1e-3
    )


def test_the_twins_model_takes_the_place_of_the_nominal_one() -> None:
    from physai.twin.parameters.parameters import catalogue

    robot = load_robot("double_pendulum")
    mass = next(p for p in catalogue(robot, "effort") if p.name.endswith(".mass"))
    fitted = FittedParameter.model_validate({**vars(mass), "value": 1.1 * mass.prior, "std": 0.01, "identified": True})
    twin = replace(measured_twin(), parameters=(fitted,), covariance=np.array([[1e-4]]))
    found = training_task(load_task("pendubot-swingup"), twin)
    body = mass.name.removesuffix(".mass")
    assert found.model.body(body).mass[0] == pytest.approx(1.1 * mass.prior)
    assert found.model.opt.timestep == found.contract.timing.physics_dt
    (rule,) = [
        r for r in found.randomisation[len(load_task("pendubot-swingup").randomisation) :] if r.field == "body_mass"
    ]
    assert rule.rows == (found.model.body(body).id,)
    # Three standard deviations of 0.01 kg, as far as 256 draws tell.
    assert rule.upper == pytest.approx(0.03, rel=0.15)
    assert rule.lower == -rule.upper


def test_a_model_that_steps_otherwise_than_its_contract_says_is_refused() -> None:
    task = load_task("pendubot-swingup")
    model = copy.copy(task.model)
    model.opt.timestep = 0.001
    with pytest.raises(TaskError, match=r"the model's time step is 0.001 s, the contract's 0.002 s"):
        replace(task, model=model)


def test_a_twin_of_another_robot_is_refused_with_both() -> None:
    with pytest.raises(TaskError, match=r"twin of cartpole has .*pendubot-swingup controls joint1, joint2"):
        training_task(load_task("pendubot-swingup"), nominal_twin(load_robot("cartpole")))


@pytest.mark.parametrize(
    ("robot", "task", "drive"), [("double_pendulum", "pendubot-swingup", "effort"), ("ur10e", "ur10e-reach", "command")]
)
def test_every_parameter_of_a_robot_left_open_makes_rules_that_a_task_accepts(
    robot: str, task: str, drive: Drive
) -> None:
    from physai.twin.parameters.parameters import catalogue

    loaded = load_robot(robot)
    known = catalogue(loaded, drive)
    parameters = tuple(
        FittedParameter.model_validate({**vars(p), "value": p.prior, "std": p.prior_std, "identified": False})
        for p in known
    )
    covariance = np.diag([p.prior_std**2 for p in known])
    twin = replace(nominal_twin(loaded), parameters=parameters, covariance=covariance)
    found = training_task(load_task(task), twin)
    added = found.randomisation[len(load_task(task).randomisation) :]
    assert {rule.field for rule in added} >= {"body_mass", "body_ipos", "body_inertia", "dof_armature"}
    environment = Environment(found, 4)
    environment.reset(np.arange(4, dtype=np.uint64))
    assert np.isfinite(environment.view.qpos).all()
    masses = environment.engine.parameter("body_mass")
    assert (masses > 0.0).all(axis=0).tolist() == (found.model.body_mass > 0.0).tolist()
    assert np.ptp(masses[:, -1]) > 0.0


def test_the_friction_of_a_twin_acts_in_its_task_and_differs_between_worlds() -> None:
    from physai.twin.model.conditions import conditions
    from physai.twin.model.twin_file import FittedParameter
    from physai.twin.parameters.parameters import catalogue
    from physai.twin.rollouts.batch import Batch
    from physai.twin.rollouts.worlds import build_worlds

    robot, task = load_robot("double_pendulum"), load_task("pendubot-swingup")
    known = [p for p in catalogue(robot, "effort", "load") if p.name == "joint2.load_friction"]
    fitted = FittedParameter.model_validate({**vars(known[0]), "value": 0.4, "std": 0.02, "identified": True})
    twin = replace(measured_twin(), parameters=(fitted,), covariance=np.array([[4e-4]]))
    found = training_task(task, twin)
    (rule, other) = [r for r in found.randomisation if r.field == "jnt_user"]
    assert (rule.rows, other.rows) == ((1,), (1,))
    assert rule.upper == pytest.approx(0.06, rel=0.15)

    def fallen(played: Task) -> np.ndarray:
        environment = Environment(played, 2, randomise=False)
        environment.reset(np.arange(2, dtype=np.uint64))
        environment.engine.reset(np.ones(2, bool), np.tile([0.0, 1.0], (2, 1)), np.zeros((2, 2)))
        environment.engine.step(100)
        return 1.0 - environment.engine.state("qpos")[:, 1]

    # The second link falls more slowly where its weight makes friction.
    with_friction, without = fallen(replace(found, randomisation=())), fallen(task)
    assert (without > 0.1).all()
    assert (with_friction < 0.9 * without).all()
    batch = Batch(condition=conditions(task, twin)["calibrated"], seeds=(1, 2, 3))
    worlds = build_worlds(task, twin, batch)
    drawn = worlds.env.engine.parameter("jnt_user")[:, 1, -7]
    assert drawn == pytest.approx(worlds.values[:, 0])
    assert np.ptp(drawn) > 0.0
