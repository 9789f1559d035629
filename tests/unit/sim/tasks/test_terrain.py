"""Rough ground and stairs for walking robots: where the ground is, where episodes begin, how they get harder."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_quadruped import write_foreign_quadruped

from physai.sdk.base.errors import TaskError, UnknownNameError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.robots.importing.importer import import_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.sim.tasks.walking.terrain import CELL_M, LEVELS, RISE, ROUGHNESS, TILE_M, Terrain


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("velocity", preset="terrain")


def test_heights_are_those_that_a_ray_finds(task: Task) -> None:
    """The task's own interpolation against MuJoCo's height field."""
    terrain = Terrain(float(task.robot.model.key_qpos[0, 2]))
    data = mujoco.MjData(task.model)
    mujoco.mj_kinematics(task.model, data)
    random = np.random.default_rng(0)
    x, y = random.uniform(-30.0, 30.0, 400), random.uniform(-13.0, 13.0, 400)
    wanted = terrain.height(x, y, np)
    only_static = np.zeros(6, np.uint8)
    only_static[0] = 1
    for at_x, at_y, height in zip(x, y, wanted, strict=True):
        from_above, down = np.array([at_x, at_y, 5.0]), np.array([0.0, 0.0, -1.0])
        distance = mujoco.mj_ray(task.model, data, from_above, down, only_static, 1, -1, np.zeros(1, np.int32))
        # MuJoCo's cells are two triangles each; across a step's edge they differ from the bilinear surface.
        step = RISE * float(task.robot.model.key_qpos[0, 2])
        assert 5.0 - distance == pytest.approx(height, abs=0.25 * step + 1e-3)


def test_steps_and_bumps_are_as_high_as_stated() -> None:
    terrain = Terrain(0.3)
    border = (terrain.heights.shape[0] - 1 - LEVELS * round(TILE_M / CELL_M)) // 2
    tile = round(TILE_M / CELL_M)
    hardest = slice(border + (LEVELS - 1) * tile, border + LEVELS * tile)
    rough, down, up = (terrain.heights[hardest, border + kind * tile : border + (kind + 1) * tile] for kind in range(3))
    assert 0.8 * ROUGHNESS * 0.3 < rough.max() <= ROUGHNESS * 0.3
    # (4 - 1) m of stairs, 0.3 m each: ten steps of 9 cm.
    assert down.max() == pytest.approx(10 * RISE * 0.3)
    assert up.min() == pytest.approx(-10 * RISE * 0.3)
    middle = down[tile // 2, tile // 2 :]
    rises = np.diff(middle)[np.diff(middle) != 0.0]
    assert rises == pytest.approx(-RISE * 0.3)
    # The first tiles, the border and all seams between tiles are flat.
    assert not terrain.heights[: border + tile].any()
    assert not terrain.heights[border::tile].any()


def test_training_begins_on_flat_ground_and_ends_where_eval_judges(task: Task) -> None:
    worlds = Environment(task, 512, seed=1, training=True)
    worlds.curriculum = 0.0
    worlds.reset()
    flat = float(worlds.view.qpos[0, 2])
    assert np.ptp(worlds.view.qpos[:, 2]) < 1e-9
    heights: list[float] = []
    for progress in (0.5, 1.0):
        worlds.curriculum = progress
        worlds.reset()
        heights.append(float(worlds.view.qpos[:, 2].max()) - flat)
    assert heights[0] == pytest.approx(0.5 * heights[1])
    judged = Environment(task, 512, seed=1)
    judged.reset()
    assert judged.view.qpos[:, 2].max() - flat == pytest.approx(heights[1])


def test_robots_start_on_their_feet_whatever_the_ground(task: Task) -> None:
    worlds = Environment(task, 96, seed=2)
    worlds.reset()
    start = worlds.view.qpos[:, :2].copy()
    home = np.tile(np.array([joint.default_pos for joint in task.robot.spec.joints], np.float32), (96, 1))
    for _ in range(50):
        result = worlds.step({"joint_pos_target": home})
        assert not result.terminated.any()
    assert np.linalg.norm(worlds.view.qpos[:, :2] - start, axis=1).max() < 0.6


def test_it_takes_a_foreign_robot_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    import_robot(write_foreign_quadruped(tmp_path), tmp_path / "dog")
    made = load_task("velocity", robot=f"{tmp_path}/dog/", preset="terrain")
    assert made.model.nhfield == 1
    with pytest.raises(UnknownNameError, match="terrain"):
        load_task("velocity", preset="stairs")
    bare = load_robot("cartpole").model_spec.copy()
    for geom in list(bare.worldbody.geoms):
        bare.delete(geom)
    with pytest.raises(TaskError, match="no floor"):
        Terrain(0.3).add_to(bare)
