"""URDF files: what is read, what is added, and what is refused."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

from physai.sdk.base.errors import ModelError
from physai.sim.robots import Robot, load_robot

INERTIAL = """<inertial><origin xyz="0 0 0.1"/><mass value="2"/>
  <inertia ixx="0.02" iyy="0.02" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>"""
LIMIT = '<limit lower="-1" upper="2" effort="7" velocity="3"/>'


def link(name: str, content: str = INERTIAL) -> str:
    return f'<link name="{name}">{content}</link>\n'


def joint(name: str, parent: str, child: str, kind: str = "revolute", content: str = LIMIT) -> str:
    return f"""<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>
      <origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>{content}</joint>\n"""


ARM = link("base", "") + link("upper") + link("lower") + link("tool", "")
ELBOW = joint("elbow", "upper", "lower", "continuous", "")
ARM_JOINTS = joint("shoulder", "base", "upper") + ELBOW
FLANGE = joint("flange", "lower", "tool", "fixed", "")


def load(folder: Path, content: str) -> Robot:
    file = folder / "arm.urdf"
    file.write_text(f'<robot name="arm">\n{content}</robot>')
    return load_robot(file)


def refusal(folder: Path, content: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder, content)
    message = str(caught.value)
    assert "\n" not in message
    assert "arm.urdf" in message
    return message


def test_limits_friction_and_inertia_are_read(tmp_path: Path) -> None:
    dynamics = '<dynamics damping="0.4" friction="0.3"/>'
    joints = joint("shoulder", "base", "upper", content=LIMIT + dynamics) + ELBOW
    robot = load(tmp_path, ARM + joints + FLANGE)
    shoulder, elbow = robot.spec.joints
    assert (shoulder.kind, shoulder.position_lower, shoulder.position_upper) == ("revolute", -1.0, 2.0)
    assert (shoulder.effort_limit, shoulder.velocity_limit) == (7.0, 3.0)
    assert (elbow.kind, elbow.effort_limit, elbow.velocity_limit) == ("continuous", 0.0, None)
    assert float(robot.model.dof_damping[0]) == 0.4
    assert float(robot.model.dof_frictionloss[0]) == 0.3
    np.testing.assert_allclose(robot.model.body("upper").ipos, [0, 0, 0.1])
    assert float(robot.model.body("upper").mass[0]) == 2.0
    assert robot.description == "from arm.urdf"


def test_motors_are_added_and_push_with_the_joints_effort(tmp_path: Path) -> None:
    robot = load(tmp_path, ARM + ARM_JOINTS + FLANGE)
    assert [robot.model.actuator(i).name for i in range(robot.model.nu)] == ["shoulder"]
    data = mujoco.MjData(robot.model)
    data.ctrl[0] = 100.0
    mujoco.mj_forward(robot.model, data)
    assert float(data.qfrc_actuator[0]) == 7.0


def test_an_unbranched_arm_gets_its_last_link_as_tip(tmp_path: Path) -> None:
    robot = load(tmp_path, ARM + ARM_JOINTS + FLANGE)
    (chain,) = robot.spec.chains
    assert (chain.name, [s.joint for s in chain.segments]) == ("ee", ["shoulder", "elbow", None])
    data = mujoco.MjData(robot.model)
    mujoco.mj_forward(robot.model, data)
    # Three joints of 0.3 m each, stretched upwards.
    np.testing.assert_allclose(data.site("ee").xpos, [0, 0, 0.9], atol=1e-12)


def test_a_branching_robot_gets_no_chain(tmp_path: Path) -> None:
    branch = link("left") + link("right")
    joints = joint("a", "base", "left") + joint("b", "base", "right")
    assert load(tmp_path, link("base", "") + branch + joints).spec.chains == ()


def test_velocity_limits_follow_the_order_of_the_model(tmp_path: Path) -> None:
    """The file lists the joints from the tip to the base; the model goes the other way."""
    slow = '<limit lower="-1" upper="1" effort="1" velocity="0.5"/>'
    joints = FLANGE + joint("elbow", "upper", "lower", content=slow) + joint("shoulder", "base", "upper")
    robot = load(tmp_path, ARM + joints)
    assert [(j.name, j.velocity_limit) for j in robot.spec.joints] == [("shoulder", 3.0), ("elbow", 0.5)]


def test_missing_meshes_become_rods_and_a_note(tmp_path: Path) -> None:
    mesh = '<visual><geometry><mesh filename="package://nowhere/{}.dae"/></geometry></visual>'
    links = link("base", "") + link("upper", INERTIAL + mesh.format("a")) + link("lower", INERTIAL + mesh.format("b"))
    robot = load(tmp_path, links + link("tool", "") + ARM_JOINTS + FLANGE)
    assert robot.description == "from arm.urdf, without 2 meshes that could not be read"
    capsules = [g for g in range(robot.model.ngeom) if robot.model.geom_type[g] == mujoco.mjtGeom.mjGEOM_CAPSULE]
    # Each link is 0.3 m long, so half a rod is 0.15 m.
    np.testing.assert_allclose([robot.model.geom_size[g, 1] for g in capsules], [0.15, 0.15])
    assert float(robot.model.body("upper").mass[0]) == 2.0


TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


@pytest.mark.parametrize("filename", ["meshes/a.obj", "package://my_arm/meshes/a.obj"])
def test_meshes_beside_the_file_are_read(tmp_path: Path, filename: str) -> None:
    package = tmp_path / "my_arm"
    (package / "urdf" / "meshes").mkdir(parents=True)
    (package / "meshes").mkdir()
    for folder in (package / "meshes", package / "urdf" / "meshes"):
        (folder / "a.obj").write_text(TETRAHEDRON)
    mesh = f'<visual><geometry><mesh filename="{filename}" scale="2 2 2"/></geometry></visual>'
    robot = load(package / "urdf", link("base", "") + link("upper", INERTIAL + mesh) + joint("j", "base", "upper"))
    assert robot.model.nmesh == 1
    # A tetrahedron between the axes, scaled by 2, spans 2 m; its box is centred on its own centre.
    spans = np.ptp(np.asarray(robot.model.mesh_vert), axis=0)
    assert float(np.linalg.norm(spans)) > 2.0


def test_a_link_called_world_need_not_be_defined(tmp_path: Path) -> None:
    joints = joint("w", "world", "base", "fixed", "") + joint("j", "base", "upper")
    robot = load(tmp_path, link("base", "") + link("upper") + joints)
    assert robot.spec.joint_names == ("j",)
    assert robot.spec.base == "fixed"


def test_a_floating_joint_makes_a_floating_base(tmp_path: Path) -> None:
    box = '<collision><geometry><box size="0.2 0.2 0.2"/></geometry></collision>'
    content = link("world", "") + link("base", INERTIAL + box) + link("upper")
    joints = joint("free", "world", "base", "floating", "") + joint("j", "base", "upper")
    robot = load(tmp_path, content + joints)
    assert (robot.spec.base, robot.spec.joint_names) == ("floating", ("j",))
    data = mujoco.MjData(robot.model)
    for _ in range(500):
        mujoco.mj_step(robot.model, data)
    floor = float(robot.model.geom("physai_floor").pos[2])
    # The box stands on the floor; its links do not touch each other.
    assert data.xpos[robot.model.body("base").id][2] == pytest.approx(floor + 0.1, abs=0.01)


def test_a_mimic_joint_is_coupled_and_has_no_motor(tmp_path: Path) -> None:
    mimic = LIMIT + '<mimic joint="shoulder" multiplier="0.5" offset="0"/>'
    joints = joint("shoulder", "base", "upper") + joint("elbow", "upper", "lower", content=mimic)
    robot = load(tmp_path, ARM + joints + FLANGE)
    assert robot.model.nu == 1
    assert robot.model.neq == 1


# What is refused: each with the place, the name and the numbers.


def inertia(ixx: str, iyy: str, izz: str, ixy: str = "0", mass: str = "2") -> str:
    return f"""<inertial><mass value="{mass}"/>
      <inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="{ixy}" ixz="0" iyz="0"/></inertial>"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (inertia("0.01", "0.01", "0.03"), "0.01 + 0.01 is less than 0.03"),
        (inertia("0.01", "0.01", "-0.01"), "principal moments -0.01, 0.01, 0.01"),
        # Eigenvalues of [[1, 2], [2, 1]] are -1 and 3.
        (inertia("1", "1", "1", ixy="2"), "principal moments -1, 1, 3 kg·m²: all three must be positive"),
        (inertia("0.01", "0.01", "0.01", mass="-1"), "has mass -1 kg"),
        (inertia("0.01", "0.01", "0.01", mass="0"), "has mass 0 kg, but joint 'j' moves it"),
        ("", "has mass 0 kg, but joint 'j' moves it"),
        (inertia("0.01", "heavy", "0.01"), "<inertia iyy=…> is 'heavy', not a number"),
        ('<inertial><mass value="1"/></inertial>', "<inertia ixx=…> is missing"),
        (inertia("nan", "1", "1"), "ixx='nan' is not a finite number"),
        (inertia("1e999", "1", "1"), "ixx='1e999' is not a finite number"),
    ],
)
def test_inertia_that_no_body_has_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    message = refusal(tmp_path, link("base", "") + link("forearm", content) + joint("j", "base", "forearm"))
    assert expected in message
    assert "forearm" in message or "inertia" in message
    if "less than" in expected:
        assert "about the centre of mass" in message


def test_a_flat_body_is_not_refused(tmp_path: Path) -> None:
    """For a lamina A + B = C holds exactly, and 0.1 + 0.2 is not 0.3 in binary."""
    load(tmp_path, link("base", "") + link("plate", inertia("0.1", "0.2", "0.3")) + joint("j", "base", "plate"))


def test_a_massless_link_may_carry_a_fixed_one_with_mass(tmp_path: Path) -> None:
    content = link("base", "") + link("rotor", "") + link("disc") + joint("j", "base", "rotor")
    robot = load(tmp_path, content + joint("f", "rotor", "disc", "fixed", ""))
    assert float(np.sum(robot.model.body_mass)) == 2.0


TWO = link("base", "") + link("upper")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TWO + link("upper") + joint("j", "base", "upper"), ":5: link 'upper' is already defined in line 3"),
        (TWO + joint("j", "base", "upper") + joint("j", "base", "upper"), "joint 'j' is already defined"),
        (TWO + joint("j", "base", "uper"), "refers to link 'uper', which does not exist"),
        (TWO + joint("j", "base", "upper", "planar"), "has type 'planar'; known: revolute"),
        (TWO + joint("j", "base", "upper", content=""), "revolute joint 'j' has no <limit"),
        (TWO + joint("j", "base", "upper", content='<limit lower="0" upper="1"/>'), "<limit effort=…> is missing"),
        (
            TWO + joint("j", "base", "upper", content='<limit lower="1" upper="1" effort="1" velocity="1"/>'),
            "lower limit 1 is not below upper 1",
        ),
        (
            TWO + joint("j", "base", "upper", content='<limit lower="0" upper="1" effort="-1" velocity="1"/>'),
            "effort limit -1",
        ),
        (TWO, "2 links without a parent, base, upper"),
        (TWO + joint("j", "base", "upper") + joint("k", "base", "upper"), "link 'upper' has two parents"),
        (TWO + joint("j", "base", "upper") + joint("k", "upper", "base"), "base, upper form a loop"),
        (
            TWO
            + link("a")
            + link("b")
            + joint("j", "base", "upper")
            + joint("k", "a", "b", "fixed", "")
            + joint("l", "b", "a", "fixed", ""),
            "a, b form a loop",
        ),
        (TWO + joint("j", "base", "upper", "fixed", ""), "no hinge or slide joint"),
        (link("base", "") + "<link/>", "<link> without a name"),
        ('<xacro:include xmlns:xacro="x" filename="y"/>', "convert it with xacro"),
        (TWO + '<joint name="j" type="fixed"><child link="upper"/></joint>', "joint 'j' has no <parent link=…>"),
    ],
)
def test_structure_that_is_no_robot_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    assert expected in refusal(tmp_path, content)
