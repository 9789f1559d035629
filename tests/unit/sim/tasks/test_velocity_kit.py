"""The task `velocity` on robots that nobody prepared for it: feet, stance, scales and refusals."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_quadruped import write_foreign_quadruped

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.robots.checks.feet import find_feet, lowest_point
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import ImportOptions, import_robot
from physai.sim.robots.spec import home_controls
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.walking.velocity import velocity


@pytest.fixture(scope="module")
def quadruped(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    folder = tmp_path_factory.mktemp("legs")
    return import_robot(write_foreign_quadruped(folder), folder / "walker").robot


def test_it_stands_in_the_pose_that_the_import_has_found(quadruped: Robot) -> None:
    model, qpos = quadruped.model, home_qpos(quadruped.model)
    feet = find_feet(model, qpos)
    assert [model.body(foot.body).name for foot in feet] == [f"{leg}_shank" for leg in ("lf", "rf", "lh", "rh")]
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    for foot in feet:
        # Legs of 0.2 + 0.2 m, and a foot of 0.02 m: the hip stands at 72 % of what they reach.
        hip = data.xanchor[foot.joints[0]]
        lowest = min((lowest_point(model, data, geom) for geom in foot.geoms), key=lambda point: float(point[2]))
        assert hip[2] - lowest[2] == pytest.approx(0.72 * 0.42, abs=0.02)
        assert lowest[0] == pytest.approx(hip[0], abs=0.02)
    data.ctrl[:] = home_controls(model)
    for _ in range(1000):
        mujoco.mj_step(model, data)
    assert data.qpos[2] == pytest.approx(qpos[2], abs=0.05)


def test_its_terms_are_finite_and_its_feet_touch_the_floor(quadruped: Robot) -> None:
    task = velocity(quadruped)
    env = Environment(task, 4, randomise=False, num_threads=1)
    env.reset()
    home = np.tile(np.array([j.default_pos for j in quadruped.spec.joints], np.float32), (4, 1))
    for _ in range(50):
        stepped = env.step({"joint_pos_target": home})
        assert np.isfinite(stepped.reward).all()
    # Standing still at home: all four feet are loaded, and nothing has fallen in a second.
    assert (env.view.qpos[:, 2] > 0.2).all()


def test_stiff_servos_get_a_small_scale(quadruped: Robot) -> None:
    scale = velocity(quadruped).contract.action.terms[0].scale
    joints = quadruped.spec.joints
    for value, joint in zip(scale, joints, strict=True):
        assert value == pytest.approx(min(0.5, max(0.25, joint.effort_limit / joint.stiffness)), abs=1e-3)


def test_what_cannot_walk_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"base of ur10e is fixed; .*--floating"):
        velocity(load_robot("ur10e"))
    motors = import_robot(
        write_foreign_quadruped(tmp_path), tmp_path / "m", ImportOptions(servos=Servos(keep=True))
    ).robot
    with pytest.raises(TaskError, match=r"no position servos; .*--servo auto"):
        velocity(motors)
    ball = tmp_path / "ball.xml"
    ball.write_text(
        '<mujoco><worldbody><body name="ball"><freejoint/><geom size="0.1"/><body name="tail"><joint name="t" '
        'axis="0 1 0"/><geom size="0.05" pos="0.2 0 0"/></body></body></worldbody></mujoco>'
    )
    with pytest.raises(TaskError, match="0 legs"):
        velocity(load_robot(str(ball)))


def test_the_go2_has_the_same_feet_in_both_tasks() -> None:
    assert load_task("velocity").critic_size == load_task("go2-velocity").critic_size == 57
