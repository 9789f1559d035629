"""Forward kinematics as tensors, against MuJoCo and against geometry done by hand."""

import math
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.contract.robot import ChainSegment, KinematicChain
from physai.sim.robots import kinematic_chain, load_robot
from physai.sim.tasks import rotations
from physai.train.models.kinematics import MAX_ORIENTATION_ERROR, ForwardKinematics, Pick, pose_error

HALF = math.sqrt(0.5)
unit = st.floats(-1.0, 1.0)


def same_rotation(p: Any, q: Any) -> float:
    """|p · q|, 1 for one orientation whatever the signs of its quaternions."""
    return float(np.abs(np.sum(np.asarray(p, float) * np.asarray(q, float), axis=-1)).min())


def planar() -> KinematicChain:
    """Two links of 0.2 m and 0.3 m that turn about z, the second joint first in the joint vector."""
    along = (1.0, 0.0, 0.0, 0.0)
    return KinematicChain(
        name="tip",
        segments=(
            ChainSegment(translation=(0.0, 0.0, 0.5), quat=along, joint="shoulder"),
            ChainSegment(translation=(0.2, 0.0, 0.0), quat=along, joint="elbow"),
            ChainSegment(translation=(0.3, 0.0, 0.0), quat=along),
        ),
    )


@given(st.floats(-7.0, 7.0), st.floats(-7.0, 7.0))
def test_two_links_in_a_plane(shoulder: float, elbow: float) -> None:
    position, quat = ForwardKinematics(planar(), ["elbow", "wrist", "shoulder"])(torch.tensor([[elbow, 9.0, shoulder]]))
    angle = shoulder + elbow
    x = 0.2 * math.cos(shoulder) + 0.3 * math.cos(angle)
    y = 0.2 * math.sin(shoulder) + 0.3 * math.sin(angle)
    assert position.numpy().tolist()[0] == pytest.approx([x, y, 0.5], abs=1e-6)
    assert same_rotation(quat, [math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)]) == pytest.approx(1.0, abs=1e-6)


def test_a_quarter_turn_about_x_then_a_joint() -> None:
    """After R_x(90°) the parent's z is the segment's y, so a joint about y turns the tip about the parent's z."""
    turned = ChainSegment(translation=(0.0, 0.0, 1.0), quat=(HALF, HALF, 0.0, 0.0), joint="q", axis=(0.0, 1.0, 0.0))
    tip = ChainSegment(translation=(0.5, 0.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0))
    position, _ = ForwardKinematics(KinematicChain(name="tip", segments=(turned, tip)), ["q"])(
        torch.tensor([[0.0], [math.pi / 2]])
    )
    assert position[0].numpy().tolist() == pytest.approx([0.5, 0.0, 1.0], abs=1e-6)
    assert position[1].numpy().tolist() == pytest.approx([0.0, 0.5, 1.0], abs=1e-6)


def test_a_chain_without_joints_is_a_constant() -> None:
    fixed = ChainSegment(translation=(0.1, 0.2, 0.3), quat=(0.0, 1.0, 0.0, 0.0))
    tip = ChainSegment(translation=(0.0, 1.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0))
    forward = ForwardKinematics(KinematicChain(name="tip", segments=(fixed, tip)), ["a", "b"])
    position, quat = forward(torch.zeros(2, 2))
    assert position.numpy().tolist() == pytest.approx(np.array([[0.1, -0.8, 0.3]] * 2))
    assert quat.numpy().tolist() == [[0.0, 1.0, 0.0, 0.0]] * 2


def test_the_ur10e_against_mujoco() -> None:
    robot = load_robot("ur10e")
    (chain,) = robot.spec.chains
    joint_pos = np.random.default_rng(1).uniform(-2 * math.pi, 2 * math.pi, (64, 6))
    position, quat = ForwardKinematics(chain, robot.spec.joint_names)(torch.tensor(joint_pos, dtype=torch.float32))
    data = mujoco.MjData(robot.model)
    for row, q in enumerate(joint_pos):
        data.qpos[:] = q
        mujoco.mj_kinematics(robot.model, data)
        orientation = np.zeros(4)
        mujoco.mju_mat2Quat(orientation, data.site(chain.name).xmat)
        assert position[row].numpy() == pytest.approx(data.site(chain.name).xpos, abs=3e-6)
        assert same_rotation(quat[row], orientation) == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.tuples(unit, unit, unit),
            st.tuples(unit, unit, unit).filter(lambda axis: math.hypot(*axis) > 0.1),
            st.tuples(unit, unit, unit),
            st.floats(-3.0, 3.0),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_chain_against_mujoco(links: list[tuple[Any, Any, Any, float]]) -> None:
    """Bodies placed and turned at will, hinges about any axis through any point."""
    xml = ""
    for index, (place, axis, anchor, angle) in enumerate(links):
        turn = f"{60.0 * angle} {90.0 * axis[1]} {90.0 * axis[0]}"
        xml += (
            f'<body pos="{place[0]} {place[1]} {place[2]}" euler="{turn}"><geom size="0.1"/>'
            f'<joint name="j{index}" axis="{axis[0]} {axis[1]} {axis[2]}" pos="{anchor[0]} {anchor[1]} {anchor[2]}"/>'
        )
    xml += '<site name="ee" pos="0.1 -0.2 0.3" euler="20 30 40"/>' + "</body>" * len(links)
    model = mujoco.MjSpec.from_string(f"<mujoco><worldbody>{xml}</worldbody></mujoco>").compile()
    names = [f"j{index}" for index in range(len(links))]
    joint_pos = np.array([link[3] for link in links])
    position, quat = ForwardKinematics(kinematic_chain(model, "ee"), names)(torch.tensor(joint_pos[None]).float())
    data = mujoco.MjData(model)
    data.qpos[:] = joint_pos
    mujoco.mj_kinematics(model, data)
    orientation = np.zeros(4)
    mujoco.mju_mat2Quat(orientation, data.site("ee").xmat)
    assert position[0].numpy() == pytest.approx(data.site("ee").xpos, abs=1e-5)
    assert same_rotation(quat[0], orientation) == pytest.approx(1.0, abs=1e-5)


def test_pick_takes_columns_in_the_order_asked_for() -> None:
    vector = torch.arange(6.0).reshape(2, 3)
    assert Pick([2, 0], 3)(vector).numpy().tolist() == [[2.0, 0.0], [5.0, 3.0]]
    assert Pick([0, 1, 2], 3)(vector).numpy().tolist() == vector.numpy().tolist()


def test_a_pose_error_by_hand() -> None:
    """From a quarter turn about z back to none: minus 90° about z, 2 sin(45°) = √2."""
    target = torch.tensor([[0.0, 0.5, 0.1, 1.0, 0.0, 0.0, 0.0]])
    error = pose_error(target, torch.tensor([[0.0, 0.2, 0.1]]), torch.tensor([[HALF, 0.0, 0.0, HALF]]))
    assert error[0].numpy().tolist() == pytest.approx([0.0, 0.3, 0.0, 0.0, 0.0, -math.sqrt(2.0)], abs=1e-6)


quaternions = (
    st.tuples(unit, unit, unit, unit).filter(lambda q: math.hypot(*q) > 0.1).map(lambda q: np.array(q) / math.hypot(*q))
)


@given(quaternions, quaternions)
def test_the_rotation_part_is_that_of_the_twin(target: Any, actual: Any) -> None:
    """The twin judges by `rotations.error_vector`; the graph must see the same error, whatever the signs."""
    pose = torch.tensor(np.concatenate([np.zeros(3), target])[None])
    error = pose_error(pose, torch.zeros(1, 3), torch.tensor(actual[None]))[0, 3:].numpy()
    assert error == pytest.approx(rotations.error_vector(target[None], actual[None], np)[0], abs=1e-6)
    assert np.linalg.norm(error) <= MAX_ORIENTATION_ERROR + 1e-6
    if abs(target @ actual) > 1e-3:
        pose[0, 3:] *= -1.0
        flipped = pose_error(pose, torch.zeros(1, 3), torch.tensor(-actual[None]))[0, 3:].numpy()
        assert flipped == pytest.approx(error, abs=1e-6)


@given(quaternions, quaternions)
def test_a_small_rotation_part_is_mujocos_rotation_vector(target: Any, turn: Any) -> None:
    """For an angle θ about an axis n: n θ in MuJoCo, n 2 sin(θ / 2) here; the same direction."""
    small = np.concatenate([[1.0], 0.05 * turn[1:]])
    small /= np.linalg.norm(small)
    actual = rotations.multiply(small[None], target[None], np)[0]
    error = pose_error(
        torch.tensor(np.concatenate([np.zeros(3), target])[None]), torch.zeros(1, 3), torch.tensor(actual[None])
    )
    vector = np.zeros(3)
    mujoco.mju_subQuat(vector, target, actual)
    world = np.zeros(3)
    mujoco.mju_rotVecQuat(world, vector, actual)
    assert error[0, 3:].numpy() == pytest.approx(world, abs=1e-4)
