"""Robots on two feet: the stance that the import finds, the servos that hold it, and what the task rewards."""

from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support import foreign_biped
from tests.support.foreign_biped import write_foreign_biped

from physai.sim.envs.environment import Environment
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.robots.checks.feet import find_feet
from physai.sim.robots.importing.importer import import_robot
from physai.sim.robots.importing.pose.stance import TOPPLING, toppling_stiffness
from physai.sim.robots.spec import home_controls
from physai.sim.tasks.task import Push, Task
from physai.sim.tasks.walking import biped
from physai.sim.tasks.walking.legged import Legged, Stature, require_legs
from physai.sim.tasks.walking.velocity import COMMAND, velocity

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    folder = tmp_path_factory.mktemp("biped")
    return import_robot(write_foreign_biped(folder), folder / "strider").robot


@pytest.fixture(scope="module")
def task(robot: Robot) -> Task:
    return velocity(robot)


def at_home(robot: Robot) -> mujoco.MjData:
    data = mujoco.MjData(robot.model)
    data.qpos[:] = home_qpos(robot.model)
    data.ctrl[:] = home_controls(robot.model)
    mujoco.mj_forward(robot.model, data)
    return data


def test_gravity_topples_it_about_a_joint_with_its_weight_and_height(robot: Robot) -> None:
    straight = np.array(robot.model.qpos0)
    stiffness = toppling_stiffness(robot.model, straight)
    by_name = {str(robot.model.joint(joint).name): value for joint, value in stiffness.items()}
    # Half of the robot on each leg, twice as stiff as gravity: 36 kg · 9.81 m/s² · 0.6114 m = 215.9 N·m/rad.
    weight = foreign_biped.TOTAL_KG * 9.81
    ankle = 0.5 * TOPPLING * weight * (foreign_biped.CENTRE_M - foreign_biped.ANKLE_M)
    assert ankle == pytest.approx(215.9, abs=0.1)
    assert by_name["l_flex"] == pytest.approx(ankle, rel=1e-4)
    assert by_name["r_tilt"] == pytest.approx(ankle, rel=1e-4)
    assert by_name["l_knee"] == pytest.approx(0.5 * TOPPLING * weight * (foreign_biped.CENTRE_M + 0.3), rel=1e-4)
    assert by_name["l_yaw"] == pytest.approx(0.0, abs=1e-9)
    assert "l_shoulder" not in by_name
    for name in ("go2", "ur10e"):
        other = load_robot(name).model
        assert toppling_stiffness(other, home_qpos(other)) == {}


def test_its_ankles_are_stiff_enough_to_stand_on(robot: Robot) -> None:
    needed = toppling_stiffness(robot.model, home_qpos(robot.model))
    for joint in robot.spec.joints:
        assert joint.stiffness >= 0.99 * needed.get(int(robot.model.joint(joint.name).id), 0.0)
    # 40 N·m at 0.25 rad would be 160 N·m/rad, and tip over.
    assert {joint.name: joint.stiffness for joint in robot.spec.joints}["l_flex"] > 190.0


def test_its_centre_of_mass_is_above_its_feet(robot: Robot) -> None:
    data = at_home(robot)
    ankle = np.mean([data.xanchor[robot.model.joint(f"{side}_tilt").id, 0] for side in "lr"])
    # The middle of the sole is 4 cm ahead of the ankle. Ankles twice as stiff as gravity double a lever.
    assert data.subtree_com[0, 0] - ankle == pytest.approx(0.02, abs=2e-3)
    assert data.subtree_com[0, 1] == pytest.approx(0.0, abs=1e-3)


def test_held_at_home_it_stands_for_five_seconds(robot: Robot) -> None:
    data, home = at_home(robot), home_qpos(robot.model)
    mujoco.mj_step(robot.model, data, nstep=round(5.0 / robot.model.opt.timestep))
    assert data.qpos[2] == pytest.approx(home[2], abs=0.02)
    feet = np.array([data.xpos[foot.body, 0] for foot in find_feet(robot.model, home)])
    assert feet.min() + foreign_biped.HEEL_M < data.subtree_com[0, 0] < feet.max() + foreign_biped.TOE_M


def test_a_sole_has_the_corners_of_its_box(robot: Robot) -> None:
    for foot in find_feet(robot.model, home_qpos(robot.model)):
        wanted = {(x, y) for x in (foreign_biped.HEEL_M, foreign_biped.TOE_M) for y in (-1, 1)}
        got = {(round(x, 3), round(y / foreign_biped.HALF_WIDTH_M)) for x, y, _ in foot.corners}
        assert got == wanted
        assert foot.radius == 0.0
    assert all(foot.corners == () for foot in require_legs(load_robot("go2")))


def stands(task: Task, *poses: dict[str, float], commands: Array | None = None) -> Environment:
    """Worlds at home with some joints elsewhere, the lowest corner of the soles on the floor."""
    env = Environment(task, len(poses), randomise=False, num_threads=1)
    env.reset()
    qpos = np.tile(home_qpos(task.model), (len(poses), 1))
    for row, pose in zip(qpos, poses, strict=True):
        for name, angle in pose.items():
            row[task.model.jnt_qposadr[task.model.joint(name).id]] += angle
    everywhere = np.ones(len(poses), bool)
    env.engine.reset(everywhere, qpos, np.zeros((len(poses), task.model.nv)))
    env.view.shared.clear()
    lowest = body_of(task).foot_heights(env.view).min(axis=1)
    qpos[:, 2] -= lowest
    env.engine.reset(everywhere, qpos, np.zeros((len(poses), task.model.nv)))
    env.view.shared.clear()
    if commands is not None:
        env.view.commands[COMMAND][:] = commands
    return env


def body_of(task: Task) -> Legged:
    standing = float(home_qpos(task.model)[2])
    return Legged(task.robot, task.model, require_legs(task.robot), Stature.of(standing, feet=2))


def test_a_foot_on_its_toes_has_not_left_the_floor(task: Task) -> None:
    env = stands(task, {}, {"l_flex": 0.2}, {"l_knee": 0.6, "l_pitch": -0.3, "l_flex": -0.3})
    heights = body_of(task).foot_heights(env.view)
    assert heights[0] == pytest.approx([0.0, 0.0], abs=2e-3)
    # The middle of the left sole is 0.1 m · sin 0.2 above its toes, which stand; the right foot is in the air.
    assert heights[1, 0] == pytest.approx(0.0, abs=1e-6)
    assert heights[1, 1] > 0.01
    assert body_of(task).foot_contacts(env.view)[:2].tolist() == [[1.0, 1.0], [1.0, 0.0]]
    # Bent by 0.3 and 0.6 rad with the sole level, the ankle comes closer to the hip by more than 2 cm.
    assert heights[2, 0] > 0.02
    assert body_of(task).foot_contacts(env.view)[2].tolist() == [0.0, 1.0]


def test_it_steps_when_it_is_told_to_move_and_stands_when_told_to_stand(task: Task) -> None:
    lifted = {"l_knee": 0.4, "l_pitch": -0.2, "l_flex": -0.2}
    commands = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.3, 0.0, 0.0], [0.0, 0.0, 0.2]])
    env = stands(task, {}, lifted, {}, lifted, lifted, commands=commands)
    body = body_of(task)
    height = float(body.foot_heights(env.view)[1, 0])
    assert 0.02 < height < body.stature.clearance == 0.08
    high = 0.5 + 0.5 * height / 0.08
    assert task.rewards["support"].term(env.view) == pytest.approx([1.0, 0.0, 0.0, high, high], abs=1e-6)


def test_it_is_paid_for_every_second_on_its_feet(task: Task) -> None:
    env = stands(task, {}, {})
    assert task.rewards["alive"].term(env.view).tolist() == [1.0, 1.0]


def test_effort_counts_as_a_share_of_what_a_servo_gives(task: Task) -> None:
    env = stands(task, {})
    view, term = env.view, task.contract.action.terms[0]
    columns = list(task.contract.robot.joint_index(term.joints))
    view.target[:] = view.joint_pos[:, columns]
    joint = next(joint for joint in task.robot.spec.joints if joint.name == "l_knee")
    # A quarter of the effort on one joint; the others rest.
    view.target[0, term.joints.index("l_knee")] += 0.25 * joint.effort_limit / joint.stiffness
    view.shared.clear()
    assert task.rewards["effort"].term(view) == pytest.approx([0.0625], rel=1e-5)


def test_legs_may_bend_but_hips_keep_their_posture(task: Task) -> None:
    env = stands(task, {"l_knee": 0.2}, {"l_shoulder": 0.2}, {"r_roll": 0.1, "r_yaw": -0.1})
    pose = task.rewards["pose"].term(env.view)
    assert pose == pytest.approx([biped.FREEDOM * 0.04, 0.0, 0.02], rel=1e-5)
    driven = task.contract.action.terms[0].joints
    bends = biped.bending(task.robot, require_legs(task.robot))
    free = {name for name, bend in zip(driven, bends, strict=True) if bend}
    assert free == {f"{side}_{joint}" for side in "lr" for joint in ("pitch", "knee", "flex")}


def test_the_policy_sees_and_commands_the_legs_and_the_arms_are_held_at_home(task: Task) -> None:
    legs = {f"{side}_{joint}" for side in "lr" for joint in ("yaw", "roll", "pitch", "knee", "flex", "tilt")}
    assert set(task.contract.action.terms[0].joints) == legs
    # Angular velocity, gravity and command, and three values of each of the twelve joints.
    assert task.contract.observation_size == 3 + 3 + 3 + 3 * 12
    assert task.contract.command.fields[0].upper == biped.GREATEST_COMMAND
    env = Environment(task, 1, randomise=False, num_threads=1)
    env.reset()
    for _ in range(100):
        env.step({"joint_pos_target": np.array([task.contract.action.terms[0].offset], np.float32)})
    arms = [name for name in (joint.name for joint in task.robot.spec.joints) if name not in legs]
    assert arms == ["l_shoulder", "r_shoulder"]
    for name in arms:
        joint = task.model.joint(name)
        assert env.view.qpos[0, joint.qposadr[0]] == pytest.approx(home_qpos(task.model)[joint.qposadr[0]], abs=0.05)


def test_commands_and_pushes_grow_while_it_learns(task: Task) -> None:
    def same(draw: Array) -> dict[str, Array]:
        return {COMMAND: 0.0 * draw[:, :3] + np.array([0.6, 0.3, -0.6])}

    everyone = replace(task, command=same)
    # From a quarter to all: 0.25 + 0.75 · 0.5 = 0.625.
    for progress, training, wanted in ((0.0, True, 0.25), (0.5, True, 0.625), (1.0, True, 1.0), (0.0, False, 1.0)):
        env = Environment(everyone, 4, seed=3, training=training, num_threads=1)
        env.curriculum = progress
        env.reset()
        assert env.view.commands[COMMAND] == pytest.approx(np.tile([0.6, 0.3, -0.6], (4, 1)) * wanted, abs=1e-6)


def test_pushes_grow_with_the_commands(task: Task) -> None:
    # A knock so strong that contacts and servos change little of it within one control period.
    knock = (100.0, *[0.0] * (task.model.nv - 1))
    pushed = replace(task, push=Push(interval_s=task.contract.timing.control_dt, velocity=knock), terminations={})
    speeds: list[Array] = []
    for progress in (0.0, 1.0):
        env = Environment(pushed, 8, seed=3, training=True, num_threads=1)
        env.reset()
        env.curriculum = progress
        env.step({"joint_pos_target": np.tile(np.array(task.contract.action.terms[0].offset, np.float32), (8, 1))})
        speeds.append(env.view.qvel[:, 0].copy())
    assert np.abs(speeds[1]).max() > 30.0
    assert speeds[0] == pytest.approx(0.25 * speeds[1], abs=3.0)


def test_three_of_four_training_episodes_begin_in_the_middle_of_a_step(task: Task) -> None:
    assert task.training_reset is not None
    assert task.training_age is not None
    # All other numbers in the middle: home, at rest, heading along x, and along y in the third.
    draws = np.full((4, task.reset_draws), 0.5)
    draws[:, -3:] = [[0.0, 0.0, 0.5], [0.0, 0.9, 0.5], [0.0, 0.0, 0.5], [0.8, 0.0, 0.5]]
    draws[2, 0] = 0.75
    qpos, qvel = task.training_reset(draws)
    begin, rest = task.reset(draws)
    knees = {side: int(task.model.joint(f"{side}_knee").qposadr[0]) for side in "lr"}
    home = home_qpos(task.model)
    # The right leg is bent twice as much in the first one, the left one in the second.
    assert qpos[0, knees["r"]] == pytest.approx(2.0 * home[knees["r"]])
    assert qpos[0, knees["l"]] == pytest.approx(home[knees["l"]])
    assert qpos[1, knees["l"]] == pytest.approx(2.0 * home[knees["l"]])
    # It moves to the left foot, 0.1 m aside, with three quarters of the speed of a pendulum that stops above it.
    height = float(at_home(task.robot).subtree_com[0, 2])
    speed = 0.75 * 0.1 * np.sqrt(9.81 / height)
    assert qvel[0, :6] == pytest.approx([0.0, speed, 0.0, -speed / height, 0.0, 0.0], rel=1e-3, abs=1e-6)
    assert qvel[1, 1] == pytest.approx(-speed, rel=1e-3)
    assert qvel[2, :2] == pytest.approx([-speed, 0.0], rel=1e-3, abs=1e-6)
    assert qpos[3] == pytest.approx(begin[3])
    assert qvel[3] == pytest.approx(rest[3])
    assert task.training_age(draws).tolist() == [9.0, 9.0, 9.0, 0.0]


def test_on_rough_ground_it_begins_on_both_feet(robot: Robot) -> None:
    rough = velocity(robot, "terrain")
    assert rough.training_reset is None
    env = Environment(rough, 32, seed=1, training=True, num_threads=1)
    env.curriculum = 0.0
    env.reset()
    # On the flat tiles: 3 cm · 0.3 above the floor, joints within 0.03 rad of home.
    assert env.view.qpos[:, 2] == pytest.approx(home_qpos(rough.model)[2] + 0.009, abs=1e-6)
    assert np.abs(env.view.qpos[:, 7:] - home_qpos(rough.model)[7:]).max() < 0.0301


def test_the_device_environment_begins_and_rewards_the_same(task: Task) -> None:
    pytest.importorskip("torch")
    from tests.support.torch_mujoco import TorchMujoco

    from physai.sim.envs.device.device_environment import DeviceEnvironment

    host = Environment(task, 8, seed=3, training=True, num_threads=1)
    device = DeviceEnvironment(task, TorchMujoco(task, 8), seed=3, training=True)
    host.curriculum = 0.5
    device.set_curriculum(0.5)
    first, found = host.reset(), device.reset()
    assert found.critic.numpy() == pytest.approx(first.critic, abs=1e-5)
    assert found.commands[COMMAND].numpy() == pytest.approx(first.commands[COMMAND], abs=1e-6)
    target = {"joint_pos_target": np.tile(np.array(task.contract.action.terms[0].offset, np.float32), (8, 1))}
    for _ in range(5):
        step = host.step(target)
        same = device.step({"joint_pos_target": torch_of(target["joint_pos_target"])})
        assert same.reward.numpy() == pytest.approx(step.reward, abs=1e-4)


def torch_of(values: Any) -> Any:
    import torch

    return torch.as_tensor(values)
