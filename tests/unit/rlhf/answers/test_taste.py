"""Measures that tastes name, by hand from MuJoCo's own results."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from physai.rlhf.answers.preferences import DERIVED, measures
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task


def test_the_tilt_of_a_tool_is_its_angle_to_straight_down() -> None:
    task = load_task("ur10e-reach", preset="position")
    task = replace(task, derived=tuple(dict.fromkeys((*task.derived, *DERIVED))))
    worlds = Environment(task, 5, seed=1)
    worlds.reset()
    site = mujoco.mj_name2id(task.model, mujoco.mjtObj.mjOBJ_SITE, "ee")
    tilts: list[float] = []
    for qpos in worlds.view.qpos:
        data = mujoco.MjData(task.model)
        data.qpos[:] = qpos
        mujoco.mj_kinematics(task.model, data)
        # The third column of the site's matrix is its z axis in the world.
        tilts.append(float(np.arccos(-data.site_xmat[site].reshape(3, 3)[2, 2])))
    assert measures(task)["tool_tilt"](worlds.view) == pytest.approx(tilts, abs=1e-6)
    assert max(tilts) > min(tilts) + 0.01


def test_near_the_goal_is_within_a_few_centimetres() -> None:
    """1 where the tool is at its target, 1/e where it is 0.1 m away, as MuJoCo says where it is."""
    task = load_task("ur10e-reach")
    worlds = Environment(task, 2, seed=1)
    worlds.reset()
    site = mujoco.mj_name2id(task.model, mujoco.mjtObj.mjOBJ_SITE, "ee")
    data, targets = mujoco.MjData(task.model), worlds.view.commands["ee_pose_target"]
    for world, away in enumerate((0.0, 0.1)):
        data.qpos[:] = worlds.view.qpos[world]
        mujoco.mj_kinematics(task.model, data)
        base = data.xpos[int(task.model.body_rootid[task.model.jnt_bodyid[0]])]
        targets[world, :3] = data.site_xpos[site] - base + np.array([0.0, away, 0.0])
    worlds.view.qvel[:] = 2.0
    worlds.view.shared.clear()
    near = measures(task)["near_goal"](worlds.view)
    assert near == pytest.approx([1.0, np.exp(-1.0)], abs=1e-6)
    assert measures(task)["speed_near_goal"](worlds.view) == pytest.approx(near * 2.0 * np.sqrt(6.0), abs=1e-5)


@pytest.mark.parametrize("name", ["cartpole-swingup", "go2-velocity"])
def test_robots_without_a_tool_have_no_tilt(name: str) -> None:
    assert "tool_tilt" not in measures(load_task(name))
