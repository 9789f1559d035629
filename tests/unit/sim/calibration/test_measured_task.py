"""A task as a twin's recordings show its robot."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.sim.twin.measured_task import TRAINING_NOISE, lag_range, training_task
from physai.sim.twin.parameters import Drive
from physai.sim.twin.record import SensorNoise, Timing
from physai.sim.twin.twin import Twin, nominal_twin


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


def test_training_sees_twice_the_delay_and_more_noise_under_the_same_contract() -> None:
    task = load_task("pendubot-swingup")
    found = training_task(task, measured_twin())
    assert found.contract == task.contract
    assert (found.action_delay.lower_s, found.action_delay.upper_s) == pytest.approx((0.0, 0.016))
    assert found.sensors["joint_vel"].noise_std == pytest.approx(TRAINING_NOISE * 0.2)
    assert found.sensors["joint_pos"].noise_std == pytest.approx(TRAINING_NOISE * 2e-4)
    # Nothing was fitted, so nothing more varies than the task itself varies.
    assert found.randomisation == task.randomisation


def test_the_twins_model_takes_the_place_of_the_nominal_one() -> None:
    from physai.sim.twin.parameters import catalogue
    from physai.sim.twin.record import FittedParameter

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
    from physai.sim.twin.parameters import catalogue
    from physai.sim.twin.record import FittedParameter

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
    from physai.sim.gates.execution.batch import Batch
    from physai.sim.gates.execution.worlds import build_worlds
    from physai.sim.twin.conditions import conditions
    from physai.sim.twin.parameters import catalogue
    from physai.sim.twin.record import FittedParameter

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
