"""The task `lift`: an arm with a gripper, found by itself."""

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.robots.objects import free_columns
from physai.sim.tasks.arms.lift import LIFT_M, OPEN, gripper_joints
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("lift")


def test_the_gripper_is_what_moves_beyond_the_arm(task: Task) -> None:
    assert gripper_joints(load_robot("so101")) == ("gripper",)
    assert task.contract.action.terms[0].joints == task.robot.spec.joint_names
    with pytest.raises(TaskError, match="ur10e has no gripper: no joint with a servo beyond wrist_3_joint"):
        load_task("lift", robot="ur10e")


def test_the_gripper_starts_open_and_the_cube_on_the_table(task: Task) -> None:
    env = Environment(task, 16, seed=1, randomise=False)
    env.reset()
    # Closed at 0, its limit is 1.74533 rad.
    assert env.view.joint_pos[:, 5] == pytest.approx(OPEN * 1.74533)
    position, _ = free_columns(task.model, "cube")
    name = task.contract.action.terms[0].target_name
    start = env.view.qpos[:, position : position + 3].copy()
    for _ in range(20):
        now = env.step({name: env.view.target.astype(np.float32)})
        assert not now.terminated.any()
    assert np.abs(env.view.qpos[:, position : position + 3] - start).max() < 1e-3


def test_a_cube_that_is_up_counts_and_one_that_left_the_table_ends_the_episode(task: Task) -> None:
    env = Environment(task, 3, seed=1, randomise=False)
    env.reset()
    position, _ = free_columns(task.model, "cube")
    qpos = env.view.qpos.copy()
    edge = float(task.model.geom("cube").size[0]) * 2.0
    qpos[:, position + 2] += np.array([0.0, LIFT_M + 0.001, -1.1 * edge])
    env.engine.reset(np.ones(3, bool), qpos, np.zeros_like(env.view.qvel))
    env.view.shared.clear()
    assert task.success.condition(env.view).tolist() == [False, True, False]
    assert task.terminations["fell"](env.view).tolist() == [False, False, True]
