"""Episodes begin inside the start envelope, whatever its policy, and on the floor, and at any heading."""

import math
from typing import Any

import numpy as np
import pytest
from tests.support.fixtures_sliders import TaskMaker
from tests.support.start_contracts import with_start

from physai.sdk.safety.start import StartGate
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.envs.start_states import STATES, start_states
from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

THIGH = {"joint": "FL_thigh_joint", "lower": 0.5, "upper": 1.3, "speed": 1.5}
CALF = {"joint": "RR_calf_joint", "lower": -1.7, "upper": -1.4}
ENVELOPE = {"joints": [THIGH, CALF], "tilt": 0.3}


@pytest.fixture(scope="module")
def task() -> Task:
    return with_start(load_task("go2-velocity"), ENVELOPE)


def begun(task: Task, count: int = 512) -> tuple[Array, Array]:
    start, draws = start_states(task)
    return start(np.random.default_rng(1).random((count, draws)))


def test_every_episode_begins_inside_the_envelope(task: Task) -> None:
    qpos, qvel = begun(task)
    gate = StartGate(task.contract)
    for row, speeds in zip(qpos, qvel, strict=True):
        assert gate.obstacle(row[None, 7:], speeds[None, 6:], {"imu_quat": row[None, 3:7]}) == ""


def test_all_of_the_envelope_is_drawn(task: Task) -> None:
    names = task.contract.robot.joint_names
    qpos, qvel = begun(task)
    thigh, calf = names.index("FL_thigh_joint"), names.index("RR_calf_joint")
    # Of a uniform draw of 256, the ends are within 5 % with a probability of 1 - 2e-6.
    assert np.ptp(qpos[:, 7 + thigh]) > 0.95 * 0.8
    assert np.ptp(qpos[:, 7 + calf]) > 0.95 * 0.3
    assert np.ptp(qvel[:, 6 + thigh]) > 0.95 * 3.0
    up = 1.0 - 2.0 * (qpos[:, 4] ** 2 + qpos[:, 5] ** 2)
    assert 0.28 < math.acos(up.min()) <= 0.3 + 1e-9
    heading = np.arctan2(
        2.0 * (qpos[:, 3] * qpos[:, 6] + qpos[:, 4] * qpos[:, 5]), 1.0 - 2.0 * (qpos[:, 5] ** 2 + qpos[:, 6] ** 2)
    )
    assert np.ptp(heading) > 6.0


def test_what_the_envelope_does_not_name_is_as_the_task_draws_it(task: Task) -> None:
    draws = np.random.default_rng(2).random((64, task.reset_draws))
    start, _ = start_states(task)
    qpos, qvel = start(np.concatenate([draws, np.full((64, 1), 0.5)], axis=1))
    own, speeds = task.reset(draws)
    names = task.contract.robot.joint_names
    others = [7 + names.index(name) for name in names if name not in (THIGH["joint"], CALF["joint"])]
    assert np.array_equal(qpos[:, others], own[:, others])
    thigh = 6 + names.index("FL_thigh_joint")
    assert np.array_equal(np.delete(qvel, thigh, axis=1), np.delete(speeds, thigh, axis=1))


def test_its_lowest_point_is_as_high_as_the_tasks(task: Task) -> None:
    draws = np.full((STATES, task.reset_draws), 0.5)
    wanted = lowest_touching(task.model, task.reset(draws[:1])[0][0])
    start, _ = start_states(task)
    rows = (np.arange(STATES)[:, None] + 0.5) / STATES
    qpos, _ = start(np.concatenate([draws, rows], axis=1))
    assert np.ptp(qpos[:, 2]) > 0.02
    for row in qpos[::16]:
        assert lowest_touching(task.model, row) == pytest.approx(wanted, abs=1e-6)


def test_a_robot_that_waits_for_its_start_stands_well_inside_at_rest_and_upright(task: Task) -> None:
    start, draws = start_states(task, at_rest=True)
    qpos, qvel = start(np.random.default_rng(1).random((512, draws)))
    names = task.contract.robot.joint_names
    thigh, calf = names.index("FL_thigh_joint"), names.index("RR_calf_joint")
    assert 0.7 <= qpos[:, 7 + thigh].min() < qpos[:, 7 + thigh].max() <= 1.1
    assert np.ptp(qpos[:, 7 + calf]) <= 0.15
    assert not qvel[:, 6 + thigh].any()
    assert not qpos[:, 4:6].any()


def test_a_range_beyond_the_joints_own_is_drawn_within_it() -> None:
    wide = with_start(load_task("go2-velocity"), {"joints": [{"joint": "FL_calf_joint", "lower": -9.0, "upper": 9.0}]})
    joint = wide.contract.robot.joints[wide.contract.robot.joint_names.index("FL_calf_joint")]
    qpos, _ = begun(wide)
    column = qpos[:, 7 + wide.contract.robot.joint_names.index("FL_calf_joint")]
    assert joint.position_lower is not None
    assert joint.position_upper is not None
    assert joint.position_lower <= column.min() < column.max() <= joint.position_upper


def test_a_fixed_base_is_not_lifted(slider_task: TaskMaker) -> None:
    range_m = {"joint": "right", "lower": 0.5, "upper": 0.7}
    task = with_start(slider_task(), {"joints": [range_m]})
    env = Environment(task, 64, num_threads=1)
    env.reset()
    assert 0.5 <= env.view.qpos[:, 1].min() < env.view.qpos[:, 1].max() <= 0.7
    # The left one is as the task draws it.
    assert env.view.qpos[:, 0].max() > 0.9


def test_without_an_envelope_nothing_changes(slider_task: TaskMaker) -> None:
    for task in (slider_task(), with_start(slider_task(), {"ramp_s": 1.0})):
        start, draws = start_states(task)
        assert start is task.reset
        assert draws == task.reset_draws


def test_training_keeps_to_the_tasks_own_states(slider_task: TaskMaker) -> None:
    task = with_start(slider_task(), {"joints": [{"joint": "right", "lower": 0.5, "upper": 0.7}]})
    env = Environment(task, 8, num_threads=1, training=True)
    env.reset()
    assert not env.view.qpos[:, 1].any()


def test_a_device_begins_in_the_same_states(task: Task) -> None:
    torch = pytest.importorskip("torch")
    start, count = start_states(task)
    draws = np.random.default_rng(3).random((32, count))
    found: Any = start(torch.as_tensor(draws))
    for mine, wanted in zip(found, start(draws), strict=True):
        np.testing.assert_allclose(mine.numpy(), wanted, atol=1e-12)
