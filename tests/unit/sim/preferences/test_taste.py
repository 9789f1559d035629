"""Measures that tastes name, by hand from MuJoCo's own results."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from physai.sim.envs.environment import Environment
from physai.sim.preferences.taste import DERIVED, measures
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


@pytest.mark.parametrize("name", ["cartpole-swingup", "go2-velocity"])
def test_robots_without_a_tool_have_no_tilt(name: str) -> None:
    assert "tool_tilt" not in measures(load_task(name))
