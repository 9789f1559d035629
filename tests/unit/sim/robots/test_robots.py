"""Loading, and what the contract reads off a compiled model."""

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from physai.sdk.base.errors import ModelError, UnknownNameError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import KinematicChain, RobotSpec
from physai.sim.robots import home_qpos, kinematic_chain, load_robot, robot_names, robot_spec
from physai.sim.tasks.registry import load_task

Array = NDArray[np.float64]


def compiled(xml: str) -> mujoco.MjModel:
    return mujoco.MjSpec.from_string(xml).compile()


def arm(joint: str, actuator: str = "", extra: str = "") -> str:
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
      <worldbody><body name="link"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>{joint}</body></worldbody>
      <actuator>{actuator}</actuator>{extra}</mujoco>"""


HINGE = '<joint name="j" type="hinge" range="-1 2"/>'


def evaluate(chain: KinematicChain, angles: dict[str, float]) -> tuple[Array, Array]:
    """Tip position and rotation matrix by the rule in ChainSegment's docstring."""
    position, rotation = np.zeros(3), np.eye(3)
    for segment in chain.segments:
        position = position + rotation @ np.array(segment.translation)
        rotation = rotation @ matrix_of_quat(np.array(segment.quat))
        if segment.joint is not None:
            rotation = rotation @ rodrigues(np.array(segment.axis), angles[segment.joint])
    return position, rotation


def matrix_of_quat(q: Array) -> Array:
    w, v = q[0], q[1:]
    return (w * w - v @ v) * np.eye(3) + 2.0 * np.outer(v, v) + 2.0 * w * cross_matrix(v)


def cross_matrix(v: Array) -> Array:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def rodrigues(axis: Array, angle: float) -> Array:
    k = cross_matrix(axis)
    return np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * k @ k


@pytest.mark.parametrize("name", robot_names())
def test_built_in_robots_load_and_recompile(name: str) -> None:
    robot = load_robot(name)
    assert robot.name == name
    assert robot.spec.name == name
    assert "\n" not in robot.description
    assert len(robot.description) > 10
    again = robot.model_spec.copy().compile()
    np.testing.assert_array_equal(again.body_mass, robot.model.body_mass)
    assert robot_spec(again, name=name) == robot.spec


@pytest.mark.parametrize("name", robot_names())
def test_every_actuator_drives_the_joint_of_its_name(name: str) -> None:
    model = load_robot(name).model
    for actuator in range(model.nu):
        joint = int(model.actuator_trnid[actuator, 0])
        assert model.actuator(actuator).name == model.joint(joint).name


@pytest.mark.parametrize("name", robot_names())
def test_home_lies_within_the_limits(name: str) -> None:
    robot = load_robot(name)
    home = home_qpos(robot.model)[-len(robot.spec.joints) :]
    assert [j.default_pos for j in robot.spec.joints] == home.tolist()


def test_names_and_paths_are_told_apart(tmp_path: Path) -> None:
    assert load_robot(load_robot("ur10e").path).spec.joint_names == load_robot("ur10e").spec.joint_names
    copy = tmp_path / "7 dof.xml"
    copy.write_text(arm(HINGE))
    assert load_robot(str(copy)).name == "_7_dof"
    with pytest.raises(UnknownNameError, match="did you mean ur10e"):
        load_robot("ur10")


def test_a_servo_gives_gains_and_limits() -> None:
    servo = '<position name="j" joint="j" kp="30" kv="2" forcerange="-8 8"/>'
    limits = '<custom><numeric name="joint_velocity_limit" data="3.5"/></custom>'
    home = '<keyframe><key name="home" qpos="0.25"/></keyframe>'
    (joint,) = robot_spec(compiled(arm(HINGE, servo, limits + home)), name="r").joints
    assert (joint.stiffness, joint.damping, joint.effort_limit) == (30.0, 2.0, 8.0)
    assert (joint.kind, joint.position_lower, joint.position_upper) == ("revolute", -1.0, 2.0)
    assert (joint.velocity_limit, joint.default_pos) == (3.5, 0.25)


def test_a_motor_has_no_gains_and_the_smallest_of_its_limits() -> None:
    motor = '<motor name="j" joint="j" ctrlrange="-5 5" forcerange="-9 9"/>'
    hinge = '<joint name="j" type="hinge" actuatorfrcrange="-4 4"/>'
    (joint,) = robot_spec(compiled(arm(hinge, motor)), name="r").joints
    assert (joint.stiffness, joint.damping, joint.effort_limit, joint.kind) == (0.0, 0.0, 4.0, "continuous")
    assert joint.velocity_limit is None


def test_a_slide_without_actuator_is_a_passive_prismatic_joint() -> None:
    slide = '<joint name="j" type="slide" range="0.5 1.5"/>'
    (joint,) = robot_spec(compiled(arm(slide)), name="r").joints
    assert (joint.kind, joint.effort_limit) == ("prismatic", 0.0)
    assert joint.default_pos == 0.5, "the zero pose, brought into the range"


def test_a_velocity_limit_of_zero_means_none() -> None:
    limits = '<custom><numeric name="joint_velocity_limit" data="0"/></custom>'
    assert robot_spec(compiled(arm(HINGE, extra=limits)), name="r").joints[0].velocity_limit is None


def test_sensor_fields_follow_the_model() -> None:
    sensors = {s.name: (s.size, s.unit, s.frame) for s in load_robot("go2").spec.sensors}
    assert sensors == {
        "joint_pos": (12, "rad", ""),
        "joint_vel": (12, "rad/s", ""),
        "joint_effort": (12, "N*m", ""),
        "imu_quat": (4, "", "w"),
        "imu_ang_vel_b": (3, "rad/s", "b"),
        "imu_lin_acc_b": (3, "m/s^2", "b"),
    }
    assert load_robot("cartpole").spec.sensors[0].unit == "rad or m"


@pytest.mark.parametrize(
    ("joint", "actuator", "message"),
    [
        (HINGE, '<motor name="m" joint="j" gear="50" ctrlrange="-1 1"/>', "gear 50 times gain 1"),
        (HINGE, '<motor name="m" joint="j"/>', "no effort limit"),
        (HINGE, '<position name="m" joint="j" kp="3" gear="2" forcerange="-1 1"/>', "gear 2"),
        (HINGE, '<velocity name="m" joint="j" kv="3" forcerange="-1 1"/>', "neither a <motor> nor a <position>"),
        (HINGE, '<motor name="a" joint="j"/><motor name="b" joint="j"/>', "two actuators, 'a' and 'b'"),
        ('<joint type="hinge"/>', "", "has no name"),
        ('<joint name="j" type="ball"/>', "", "ball joint"),
        ("", "", "no hinge or slide joint"),
        ('<joint name="a b" type="hinge"/>', "", "joints.0.name|name: String should match"),
    ],
)
def test_what_a_contract_cannot_express_is_refused(joint: str, actuator: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        robot_spec(compiled(arm(joint, actuator)), name="r")


def test_a_body_with_a_free_joint_alone_is_a_robot_that_no_contract_commands() -> None:
    spec = robot_spec(compiled(arm("<freejoint/>", "")), name="r")
    assert (spec.base, spec.joints) == ("floating", ())
    assert [sensor.name for sensor in spec.sensors] == ["base_pos", "base_quat"]
    with pytest.raises(ValidationError, match="joints: a robot needs at least one"):
        RobotSpec(name="r", base="fixed", joints=(), sensors=spec.sensors)
    contract = load_task("go2-velocity").contract
    with pytest.raises(ValidationError, match="joints"):
        PolicyContract.model_validate({**dict(contract), "robot": spec})


def test_a_home_pose_outside_the_limits_is_refused() -> None:
    home = '<keyframe><key name="home" qpos="2.5"/></keyframe>'
    with pytest.raises(ModelError, match=r"default_pos 2.5 lies outside \[-1.0, 2.0\]"):
        robot_spec(compiled(arm(HINGE, extra=home)), name="r")


def test_velocity_limits_must_be_one_per_joint() -> None:
    limits = '<custom><numeric name="joint_velocity_limit" data="1 2"/></custom>'
    with pytest.raises(ModelError, match="2 values for 1 joints"):
        robot_spec(compiled(arm(HINGE, extra=limits)), name="r")


def test_an_imu_sensor_of_the_wrong_kind_is_refused() -> None:
    sensor = '<sensor><framepos name="imu_quat" objtype="body" objname="link"/></sensor>'
    with pytest.raises(ModelError, match="'imu_quat' must be a framequat"):
        robot_spec(compiled(arm(HINGE, extra=sensor)), name="r")


def test_a_second_free_body_is_refused() -> None:
    xml = """<mujoco><worldbody>
      <body><freejoint/><geom size="1"/><body><joint name="j"/><geom size="1"/></body></body>
      <body name="ball"><freejoint/><geom size="1"/></body></worldbody></mujoco>"""
    with pytest.raises(ModelError, match="second free joint"):
        robot_spec(compiled(xml), name="r")


@pytest.mark.parametrize("name", ["double_pendulum", "ur10e"])
@given(seed=st.integers(0, 2**32 - 1))
def test_chain_ends_where_the_site_is(name: str, seed: int) -> None:
    robot = load_robot(name)
    (chain,) = robot.spec.chains
    qpos = np.random.default_rng(seed).uniform(-3.0, 3.0, size=int(robot.model.nq))
    check_chain(robot.model, chain, qpos)


def check_chain(model: mujoco.MjModel, chain: KinematicChain, qpos: Array) -> None:
    """Compare with the site's pose in the frame of the body below the world."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    site = data.site(chain.name)
    base = data.body(1)
    p_b = base.xmat.reshape(3, 3).T @ (site.xpos - base.xpos)
    r_b = base.xmat.reshape(3, 3).T @ site.xmat.reshape(3, 3)
    angles = {model.joint(j).name: float(qpos[model.jnt_qposadr[j]]) for j in range(model.njnt)}
    position, rotation = evaluate(chain, angles)
    np.testing.assert_allclose(position, p_b, atol=1e-9)
    np.testing.assert_allclose(rotation, r_b, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), floating=st.booleans())
def test_chain_of_any_arm_ends_where_the_site_is(seed: int, floating: bool) -> None:
    """Random offsets, axes, joint anchors, reference angles and two joints in one body."""
    rng = np.random.default_rng(seed)

    def vector() -> str:
        return " ".join(str(x) for x in rng.normal(size=3))

    def quat() -> str:
        return " ".join(str(x) for x in rng.normal(size=4))

    def joint(name: str) -> str:
        return f'<joint name="{name}" axis="{vector()}" pos="{vector()}" ref="{rng.normal()}"/>'

    mass = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
    xml = f"""<mujoco><compiler angle="radian"/><worldbody>
      <body name="base" pos="{vector()}" quat="{quat()}">{"<freejoint/>" if floating else ""}{mass}
        <body pos="{vector()}" quat="{quat()}">{joint("a")}{joint("b")}{mass}
          <body pos="{vector()}" quat="{quat()}">{mass}
            <body pos="{vector()}" quat="{quat()}">{joint("c")}{mass}
              <site name="ee" pos="{vector()}" quat="{quat()}"/></body></body></body></body>
      </worldbody></mujoco>"""
    model = compiled(xml)
    qpos = rng.uniform(-3.0, 3.0, size=int(model.nq))
    if floating:
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
    check_chain(model, kinematic_chain(model, "ee"), qpos)


def test_a_chain_whose_root_turns_starts_at_the_world() -> None:
    xml = """<mujoco><worldbody><body name="base" pos="0 0 1"><joint name="j" axis="0 1 0"/><geom size="1"/>
      <site name="ee" pos="0 0 2"/></body></worldbody></mujoco>"""
    position, _ = evaluate(kinematic_chain(compiled(xml), "ee"), {"j": np.pi / 2})
    np.testing.assert_allclose(position, [2.0, 0.0, 1.0], atol=1e-12)


def test_chain_errors() -> None:
    xml = """<mujoco><worldbody><body name="base"><body><joint name="lift" type="slide"/><geom size="1"/>
      <site name="ee"/></body></body></worldbody></mujoco>"""
    with pytest.raises(ModelError, match="passes joint lift, which is not a hinge"):
        kinematic_chain(compiled(xml), "ee")
    with pytest.raises(ModelError, match="no site named 'tool'"):
        kinematic_chain(compiled(xml), "tool")


def test_loading_leaves_no_log_behind(tmp_path: Path) -> None:
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        file = Path("arm.xml")
        file.write_text(arm(HINGE))
        load_robot(file)
        assert [p.name for p in tmp_path.iterdir()] == ["arm.xml"]
    finally:
        os.chdir(before)
