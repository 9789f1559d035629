"""The task `reach` fits any arm: targets that it can reach, joints that it commands, servos that it needs."""

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_arm import write_foreign_arm

from physai.sdk.base.errors import ModelError, PhysaiError, TaskError, UnknownNameError
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import ImportOptions, import_robot
from physai.sim.tasks.arms.reach_targets import COMMAND
from physai.sim.tasks.arms.workspace import POSES, sampled_workspace
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.virtual_robot.robot_twin import RobotTwin

TURNED = """<mujoco><compiler angle="radian"/><worldbody><body name="base" pos="1 2 0.5" euler="0 0 1.5707963267948966">
  <geom size=".05"/><body pos="0 0 .1"><joint name="a" axis="0 0 1" range="-2 2"/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/><body pos=".3 0 0"><joint name="b" axis="0 1 0" range="-2 2"/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/><site name="ee" pos=".3 0 0" euler="0 .5 0"/>
  </body></body></body>
</worldbody><actuator><position name="a" joint="a" kp="50" kv="5" forcerange="-9 9"/>
<position name="b" joint="b" kp="50" kv="5" forcerange="-9 9"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("arm")
    import_robot(write_foreign_arm(folder), folder / "arm")
    return load_task("reach", robot=f"{folder}/arm/")


def test_it_commands_the_arm_and_not_the_fingers(foreign: Task) -> None:
    contract = foreign.contract
    assert contract.action.terms[0].joints == ("joint1", "joint2", "joint3", "joint4")
    assert len(contract.robot.joints) == 6
    assert contract.timing.control_dt == pytest.approx(0.032)
    limits = {joint.joint: joint.following_error_limit for joint in contract.safety.joints}
    assert limits["finger_joint"] is None
    assert limits["joint1"] is not None


def test_targets_are_reachable_and_within_what_the_contract_states(foreign: Task) -> None:
    worlds = Environment(foreign, 256, seed=3)
    targets = worlds.reset().commands[COMMAND]
    field = foreign.contract.command.fields[0]
    assert (targets >= np.array(field.lower, np.float32) - 1e-6).all()
    assert (targets <= np.array(field.upper, np.float32) + 1e-6).all()
    poses = sampled_workspace(foreign.robot.model, "ee").poses.astype(np.float32)
    assert len(poses) == POSES
    assert {row.tobytes() for row in targets} <= {row.tobytes() for row in poses}
    # Different targets for different worlds, above the floor and within the arm's length from its shoulder.
    assert len({row.tobytes() for row in targets}) > 200
    assert targets[:, 2].min() > 0.0
    assert np.linalg.norm(targets[:, :3] - [0.0, 0.0, 0.21], axis=1).max() < 3 * 0.21 + 0.08 + 1e-3


def test_targets_are_in_the_frame_in_which_the_policy_sees_them(tmp_path: Path) -> None:
    (tmp_path / "turned.xml").write_text(TURNED)
    task = load_task("reach", robot=str(tmp_path / "turned.xml"))
    at_home = sampled_workspace(task.robot.model, "ee", spread=1e-9).poses[0]
    # 0.6 m ahead of a base that is turned, 0.1 m above it, the site turned by 0.5 rad about y.
    assert at_home == pytest.approx([0.6, 0.0, 0.1, np.cos(0.25), 0.0, np.sin(0.25), 0.0], abs=1e-6)
    # Reward and success compare an arm with its target in that frame, too: it has reached the pose that it stands in.
    worlds = Environment(task, 4, seed=0)
    worlds.reset()
    yaw, pitch = worlds.view.joint_pos.T
    reach = 0.3 + 0.3 * np.cos(pitch)
    position = [reach * np.cos(yaw), reach * np.sin(yaw), 0.1 - 0.3 * np.sin(pitch)]
    half_yaw, half_pitch = 0.5 * yaw, 0.5 * (pitch + 0.5)
    # Rotation about z by the first joint, then about y by the second and the site's half a radian.
    turn = [
        np.cos(half_yaw) * np.cos(half_pitch),
        -np.sin(half_yaw) * np.sin(half_pitch),
        np.cos(half_yaw) * np.sin(half_pitch),
        np.sin(half_yaw) * np.cos(half_pitch),
    ]
    there = replace(worlds.view, commands={COMMAND: np.stack([*position, *turn], axis=1)}, shared={})
    assert task.metrics["position_error_m"](there) == pytest.approx(0.0, abs=1e-6)
    assert task.metrics["orientation_error_rad"](there) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("name", ["reach", "ur10e-reach"])
def test_with_the_preset_position_the_orientation_does_not_count(name: str) -> None:
    pose, position = load_task(name), load_task(name, preset="position")
    kept = [term for term in pose.rewards if term not in ("angle", "fine_rotation")]
    assert list(position.rewards) == [*kept, "clearance"]
    assert position.contract == pose.contract
    assert {*pose.metrics} - {*position.metrics} == {"orientation_error_rad"}
    worlds = Environment(position, 2, seed=0)
    worlds.reset()
    tip = mujoco.mj_name2id(position.model, mujoco.mjtObj.mjOBJ_SITE, "ee")
    # The UR10e's base stands at the origin of the world. A quarter turn about any axis is more than 0.1 rad.
    here = worlds.view.derived["site_xpos"][:, tip]
    turned = np.tile([np.cos(np.pi / 4), np.sin(np.pi / 4), 0.0, 0.0], (2, 1))
    there = replace(worlds.view, commands={COMMAND: np.concatenate([here, turned], axis=1)}, shared={})
    assert position.metrics["position_error_m"](there) == pytest.approx(0.0, abs=1e-6)
    assert position.success.condition(there).tolist() == [True, True]
    assert pose.success.condition(there).tolist() == [False, False]
    away = replace(
        there, commands={COMMAND: np.concatenate([here + np.array([0.0, 0.0, 0.03]), turned], axis=1)}, shared={}
    )
    assert position.success.condition(away).tolist() == [False, False]


def test_with_the_preset_position_an_arm_is_to_stay_above_its_plane() -> None:
    """By hand from the positions of joints and tip: 8 cm above the plane that the UR10e stands on cost nothing."""
    task = load_task("ur10e-reach", preset="position")
    lack = task.rewards["clearance"].term
    worlds = Environment(task, 2, seed=0)
    worlds.reset()
    assert lack(worlds.view).tolist() == [0.0, 0.0]
    positions = worlds.view.derived["xpos"].copy()
    elbow = task.model.body("forearm_link").id
    positions[0, elbow, 2], positions[1, elbow, 2] = 0.05, -0.02
    tip = mujoco.mj_name2id(task.model, mujoco.mjtObj.mjOBJ_SITE, "ee")
    here = worlds.view.derived["site_xpos"][:, tip]
    commands = {COMMAND: np.concatenate([here, np.tile([1.0, 0.0, 0.0, 0.0], (2, 1))], axis=1)}
    low = replace(worlds.view, commands=commands, derived={**worlds.view.derived, "xpos": positions}, shared={})
    assert lack(low) == pytest.approx([0.03, 0.1])
    # Below the plane nothing is a success, wherever the tip is.
    assert task.success.condition(low).tolist() == [True, False]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="preset of reach"):
        load_task("reach", preset="positions")


def test_no_target_lies_behind_what_stands_in_the_way() -> None:
    """A post that stands still keeps a boom of 0.4 m, 4 cm thick, from turning left; its hub turns in its foot.

    The post's near face is at y = 0.10 m and the boom's side 0.02 m from its axis, at x = 0.25 to 0.35 m: the angle is
    below atan(0.10 / 0.25) = 0.38 rad, where the boom's axis would pass the corner.
    """
    text = """<mujoco><compiler autolimits="true" angle="radian"/><worldbody>
      <geom type="box" size=".05 .05 .05" pos=".3 .15 .1"/>
      <geom type="cylinder" size=".05 .2"/>
      <body pos="0 0 .1"><joint name="turn" axis="0 0 1" range="-1 1"/>
        <geom type="capsule" fromto="0 0 0 .4 0 0" size=".02" mass="1"/><site name="ee" pos=".4 0 0"/></body>
      </worldbody></mujoco>"""
    poses = sampled_workspace(mujoco.MjSpec.from_string(text).compile(), "ee").poses
    angle = np.arctan2(poses[:, 1], poses[:, 0])
    assert angle.max() < 0.38
    assert angle.max() > 0.2
    assert angle.min() < -0.59


def test_motors_are_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "motors"
    import_robot(write_foreign_arm(tmp_path), folder, ImportOptions(servos=Servos(keep=True)))
    for name in ("reach", "ur10e-reach"):
        with pytest.raises(TaskError, match=r"joint 'joint1' of motors has a motor, .* --servo auto"):
            load_task(name, robot=f"{folder}/")


def test_robots_that_cannot_reach(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no site named 'ee'.*physai robots import FILE --ee LINK"):
        load_task("reach", robot="cartpole")
    robot = load_robot("go2")
    spec = robot.model_spec.copy()
    spec.body("base").add_site(name="ee")
    with pytest.raises(TaskError, match="needs a robot with a fixed base; import it with --fixed-base"):
        sampled_workspace(spec.compile(), "ee")


def test_servos_that_nobody_commands_hold_the_home_pose(foreign: Task) -> None:
    worlds = Environment(foreign, 4, seed=1, randomise=False)
    worlds.reset()
    home = {joint.name: joint.default_pos for joint in foreign.robot.spec.joints}
    arm = np.array([home[name] for name in foreign.contract.action.terms[0].joints])
    for _ in range(50):
        worlds.step({"joint_pos_target": np.tile(arm, (4, 1))})
    fingers = list(home).index("finger_joint")
    assert home["finger_joint"] == pytest.approx(0.05 * 0.04)
    assert np.allclose(worlds.view.joint_pos[:, fingers], home["finger_joint"], atol=2e-4)


def test_episodes_start_within_the_limits_and_with_the_fingers_at_home(foreign: Task) -> None:
    worlds = Environment(foreign, 512, seed=2)
    worlds.reset()
    start = worlds.view.joint_pos.copy()
    for column, joint in enumerate(foreign.robot.spec.joints):
        spread = np.abs(start[:, column] - joint.default_pos).max()
        if joint.name not in foreign.contract.action.terms[0].joints:
            assert spread == 0.0
            continue
        assert joint.position_lower is not None
        # joint3 is at home 5 % of 2.3 rad above its limit.
        assert spread <= min(0.3, 0.9 * (joint.default_pos - joint.position_lower)) + 1e-12
        assert spread > 0.08


def test_a_robot_that_a_contract_cannot_describe_is_refused(tmp_path: Path) -> None:
    far = TURNED.replace('range="-2 2"', 'range="-2e9 2e9"')
    (tmp_path / "far.xml").write_text(far)
    with pytest.raises(PhysaiError, match="1000000000"):
        load_task("reach", robot=str(tmp_path / "far.xml"))
    slow = TURNED.replace("<worldbody>", '<option timestep="20"/><worldbody>')
    (tmp_path / "slow.xml").write_text(slow)
    with pytest.raises(ModelError, match=r"slow\.xml: <option> timestep is 20 s, it must lie in ") as caught:
        load_task("reach", robot=str(tmp_path / "slow.xml"))
    assert "\n" not in str(caught.value)


def test_the_served_twin_holds_the_gripper_where_training_held_it(foreign: Task) -> None:
    """The virtual robot commanded 0 to servos that nobody commands, so the robot's runtime waited for ever."""
    twin = RobotTwin(foreign)
    for _ in range(60):
        twin.advance(foreign.contract.timing.decimation)
        twin.end_period()
    joints = foreign.robot.spec.joints
    finger = foreign.robot.spec.joint_names.index("finger_joint")
    assert joints[finger].default_pos == pytest.approx(0.002)
    # The sensor's offset is up to 1 mm.
    assert twin.fields["joint_pos"][finger] == pytest.approx(0.002, abs=1.5e-3)
