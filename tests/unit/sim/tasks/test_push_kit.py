"""Objects beside a robot, and the task `push` on arms that nobody prepared for it."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_arm import write_foreign_arm

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.robots.importing.importer import import_robot
from physai.sim.robots.objects import Box, free_columns, is_object, with_objects
from physai.sim.robots.payload import moving_mass, payload_body
from physai.sim.tasks.arms.push import PLACE
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("push")


def test_objects_come_after_the_robot_and_change_none_of_its_indices() -> None:
    robot = load_robot("ur10e")
    cube = Box(name="cube", half_size=(0.03, 0.03, 0.03), position=(0.6, 0.0, 0.03), mass=0.1)
    model = with_objects(robot, [cube], physics_dt=0.008)
    assert model.nbody == robot.model.nbody + 1
    assert free_columns(model, "cube") == (robot.model.nq, robot.model.nv)
    assert [is_object(model, body) for body in range(1, model.nbody)] == [False] * (model.nbody - 2) + [True]
    # What the gates load the robot with does not depend on what lies beside it.
    assert moving_mass(model) == pytest.approx(moving_mass(robot.model))
    assert payload_body(model) == payload_body(robot.model)


def test_a_cube_rests_on_its_table_and_its_sensor_measures_from_the_base() -> None:
    robot = load_robot("ur10e")
    table = Box(name="table", half_size=(0.3, 0.3, 0.05), position=(0.7, 0.0, 0.05))
    cube = Box(name="cube", half_size=(0.03, 0.03, 0.03), position=(0.7, 0.1, 0.2), mass=0.1)
    model = with_objects(robot, [table, cube], physics_dt=0.004)
    data = mujoco.MjData(model)
    data.qpos[: robot.model.nq] = robot.model.key_qpos[0]
    for _ in range(500):
        mujoco.mj_step(model, data)
    measured = data.sensor(cube.sensor).data
    base = data.site("physai_base")
    # 0.1 m of table and half of the cube's 0.06 m.
    wanted = base.xmat.reshape(3, 3).T @ (np.array([0.7, 0.1, 0.13]) - base.xpos)
    assert measured == pytest.approx(wanted, abs=2e-3)


def test_the_arm_sees_cube_and_place_and_commands_its_joints(task: Task) -> None:
    contract = task.contract
    assert contract.action.terms[0].joints == task.robot.spec.joint_names
    assert [term.name for term in contract.observation.terms if term.kind == "position_error"] == [
        "to_cube",
        "to_place",
    ]
    assert "cube_pos" in {sensor.name for sensor in contract.robot.sensors}


def test_nothing_falls_or_bursts_while_the_arm_stands_still(task: Task) -> None:
    env = Environment(task, 16, seed=1)
    now = env.reset()
    name = task.contract.action.terms[0].target_name
    held = env.view.target.copy()
    start = now.sensors["cube_pos"].copy()
    for _ in range(30):
        now = env.step({name: held.astype(np.float32)})
        assert np.isfinite(now.reward).all()
        assert not now.terminated.any()
    # Noise and offset of the sensor are millimetres.
    assert np.abs(now.sensors["cube_pos"] - start).max() < 0.02
    field = task.contract.command.fields[0]
    assert field.name == PLACE
    assert (now.commands[PLACE] >= np.array(field.lower, np.float32) - 1e-6).all()
    assert (now.commands[PLACE] <= np.array(field.upper, np.float32) + 1e-6).all()


def test_what_cannot_push_is_refused_with_the_way_out(tmp_path: Path) -> None:
    import_robot(write_foreign_arm(tmp_path), tmp_path / "arm")
    # Four joints, stretched out upwards: the table in front of it is out of reach.
    with pytest.raises(TaskError, match=r"does not reach every place .* keyframe named home"):
        load_task("push", robot=f"{tmp_path}/arm/")
    with pytest.raises(TaskError):
        load_task("push", robot="cartpole")
