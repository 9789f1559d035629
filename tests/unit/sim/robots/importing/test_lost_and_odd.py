"""What an import drops of a file, and numbers in it that no robot has, are said."""

import math
import re
from pathlib import Path

import pytest

from physai.sdk.base.errors import ModelError
from physai.sim.robots import load_robot
from physai.sim.robots.checks.check import check_robot
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot

ARM = """<robot name="r"><link name="base"/>
<link name="a">{shape}<inertial><mass value="{mass}"/>
  <inertia ixx="{inertia}" iyy="{inertia}" izz="{inertia}" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="j" type="revolute"><origin xyz="0 0 .3"/><axis xyz="0 0 1"/><parent link="base"/><child link="a"/>
  <limit lower="{lower}" upper="{upper}" effort="20" velocity="{velocity}"/>{more}</joint></robot>"""
PLAIN = {"mass": "1", "inertia": ".01", "lower": "-1", "upper": "1", "velocity": "2", "more": "", "shape": ""}
BOX = '<visual><geometry><box size=".1 .1 .3"/></geometry></visual>'


def imported(folder: Path, **changes: str) -> Imported:
    (folder / "r.urdf").write_text(ARM.format(**{**PLAIN, "shape": BOX, **changes}))
    return import_robot(folder / "r.urdf", folder / "out")


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


@pytest.mark.parametrize(
    ("changes", "words", "stable"),
    [
        ({"lower": "-90", "upper": "90"}, "j: limits of -90 and 90 rad look like degrees; -1.571 and 1.571", True),
        ({"velocity": "180"}, "j: a velocity limit of 180 rad/s looks like degrees; 3.142", True),
        ({"lower": "-12.566", "upper": "12.566", "velocity": "31.4"}, "", True),
        # A ring of 31.6 m about a rod of 0.3 m.
        ({"inertia": "1000"}, "a: 1000 kg·m² on 1 kg are a ring's of 31.6 m; the robot has", False),
        # 0.003 m³ of osmium are 68 kg.
        ({"mass": "1000", "inertia": "10"}, "a: 1000 kg in a box of 3 l; no matter is denser than 25000 kg/m³", True),
        ({"mass": "5", "shape": BOX.replace(".1 .1 .3", ".02 .02 .3")}, "", True),
        ({"velocity": "1000"}, "", True),
        ({"mass": "20", "inertia": ".2"}, "", True),
    ],
)
def test_numbers_that_no_robot_has(changes: dict[str, str], words: str, stable: bool, tmp_path: Path) -> None:
    check = check_robot(imported(tmp_path, **changes).robot)
    texts = [f"{finding.about}: {finding.text}; {finding.next_step}" for finding in check.findings]
    assert any(words in text for text in texts) if words else texts == []
    assert check.stable is stable


def test_an_mjcf_in_radians_with_degrees_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(
        """<mujoco><compiler angle="radian"/><worldbody><body name="a"><joint name="j" axis="0 0 1" range="-90 90"/>
        <geom type="box" size=".1 .1 .1" mass="1"/></body></worldbody>
        <actuator><position name="j" joint="j" kp="10" kv="1" forcerange="-5 5"/></actuator></mujoco>"""
    )
    assert "limits of -90 and 90 rad look like degrees" in check_robot(load_robot(tmp_path / "r.xml")).findings[0].text


@pytest.mark.parametrize(
    ("soft", "limits"),
    [
        (("-0.8", "0.7"), (-0.8, 0.7)),
        (("-1", "0.5"), (-1.0, 0.5)),
        (("-2", "2"), (-1.0, 1.0)),
        (("0", "0"), (-1.0, 1.0)),
        (("-1", "1"), (-1.0, 1.0)),
    ],
)
def test_soft_limits_are_used_where_they_are_narrower(
    soft: tuple[str, str], limits: tuple[float, float], tmp_path: Path
) -> None:
    more = f'<safety_controller soft_lower_limit="{soft[0]}" soft_upper_limit="{soft[1]}" k_velocity="10"/>'
    result = imported(tmp_path, more=more)
    (spec,) = result.robot.spec.joints
    assert (spec.position_lower, spec.position_upper) == pytest.approx(limits)
    assert ("its soft limits; the hard ones are -1 and 1 [delete <safety_controller>]" in said(result)) is (
        limits != (-1.0, 1.0)
    )


def test_a_urdf_has_no_actuators_to_be_replaced(tmp_path: Path) -> None:
    text = said(imported(tmp_path))
    assert "actuators: position servos for the 1 joints with an effort limit [--drive JOINT,…]" in text
    assert "of the file are replaced" not in text


HAND = """<mujoco><worldbody><body name="palm"><geom size=".05" mass="1"/>
  <body name="f1" pos=".1 0 0"><joint name="j1" axis="0 1 0" range="-90 90"/><geom size=".03" mass=".2"/>
    <body name="f2" pos=".1 0 0"><joint name="j2" axis="0 1 0" range="-90 90"/><geom size=".03" mass=".1"/></body>
  </body><body name="f3" pos="0 .1 0"><joint name="j3" axis="1 0 0" range="-90 90"/><geom size=".03" mass=".1"/></body>
</body></worldbody><tendon><fixed name="both"><joint joint="j1" coef="1"/><joint joint="j2" coef="1"/></fixed></tendon>
<actuator><general name="curl" tendon="both" ctrlrange="-1 1"/>
  <general name="slow" joint="j3" dyntype="filter" dynprm="0.05" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_tendons_and_time_constants_that_are_lost_are_said(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(HAND)
    text = said(import_robot(tmp_path / "r.xml", tmp_path / "out"))
    assert "actuators: 2 of the file are replaced by position servos [--servo none]" in text
    assert "curl: drove j1 and j2 together by a tendon; now each moves by itself" in text
    assert "slow: the time constant of 0.05 s is not kept: servos act at once" in text


GRIPPER = HAND.replace("<actuator>", '<equality><joint joint1="j1" joint2="j2"/></equality><actuator>').replace(
    'tendon="both"', 'tendon="both" gainprm="100" biastype="affine" biasprm="20 -50" forcerange="-30 30"'
)


def test_a_coupled_gripper_that_a_tendon_moved_gets_one_servo(tmp_path: Path) -> None:
    """As Menagerie's Panda: the finger that follows has no servo, the other one the force of the tendon."""
    (tmp_path / "r.xml").write_text(GRIPPER)
    result = import_robot(tmp_path / "r.xml", tmp_path / "out")
    line = "curl: drove j1 and j2 together by a tendon; now j2 gets a servo, and the rest follows by a constraint"
    assert line in said(result).splitlines()
    model = result.robot.model
    assert [model.actuator(row).name for row in range(model.nu)] == ["j2", "j3"]
    assert list(model.actuator_forcerange[0]) == [-30.0, 30.0]


@pytest.mark.parametrize("text", [HAND, GRIPPER])
def test_a_tendon_s_actuator_is_no_joint_s(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(text)
    with pytest.raises(ModelError, match=r"'curl' does not drive a joint; .* without `servo` none the import replaces"):
        import_robot(tmp_path / "r.xml", tmp_path / "out", ImportOptions(servos=Servos(keep=True)))


def test_added_servos_take_nothing_from_the_defaults_of_the_file(tmp_path: Path) -> None:
    """A gear of 50 and a control of ±1 are of the file's motors; 50 N·m per control are 50 N·m."""
    defaults = '<default><motor gear="50" ctrllimited="true" ctrlrange="-1 1"/></default>'
    motors = '<actuator><motor name="m1" joint="j1"/><motor name="m2" joint="j2"/></actuator></mujoco>'
    head = HAND[: HAND.index("<tendon>")].replace("<mujoco>", f"<mujoco>{defaults}")
    # j2 has no limits, so its servo has none.
    (tmp_path / "r.xml").write_text(head.replace('name="j2" axis="0 1 0" range="-90 90"', 'name="j2"') + motors)
    model = import_robot(tmp_path / "r.xml", tmp_path / "out").robot.model
    assert model.actuator_gear[:, 0].tolist() == [1.0, 1.0]
    assert model.actuator_forcerange[:, 1].tolist() == [50.0, 50.0]
    assert model.actuator_ctrllimited.tolist() == [1, 0]
    assert model.actuator_ctrlrange[0, 1] == pytest.approx(math.pi / 2, rel=1e-5)


def test_motors_push_nothing_at_home(tmp_path: Path) -> None:
    """An effort of 0 N·m, whatever the angle: the keyframe has joint j1 at 0.5 rad."""
    key = '<keyframe><key name="home" qpos="0.5 0 0"/></keyframe></mujoco>'
    (tmp_path / "r.xml").write_text(HAND.replace("</mujoco>", key))
    options = ImportOptions(servos=Servos(effort=True))
    model = import_robot(tmp_path / "r.xml", tmp_path / "out", options).robot.model
    assert model.key_ctrl[0].tolist() == [0.0] * model.nu
    servos = import_robot(tmp_path / "r.xml", tmp_path / "out").robot.model
    assert servos.key_ctrl[0].tolist() == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("text", ["$(arg mass)", "${2*m}"])
def test_what_xacro_should_have_replaced_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"r\.urdf:2: <mass value='{re.escape(text)}'> has .*, which xacro replaces"):
        imported(tmp_path, mass=text)


def test_casters_are_no_arm_and_a_tool_behind_a_slide_is_named(tmp_path: Path) -> None:
    """A caster has two hinges, a SCARA two hinges, a slide and then its tool."""
    shape = '<geom size=".05" mass="1"/>'
    caster = f"""<body name="c1"><joint name="caster_1" axis="0 0 1"/>{shape}
      <body name="c2" pos=".1 0 0"><joint name="caster_2" axis="0 1 0"/>{shape}</body></body>"""
    (tmp_path / "r.xml").write_text(f"<mujoco><worldbody>{caster}</worldbody></mujoco>")
    text = said(import_robot(tmp_path / "r.xml", tmp_path / "out"))
    assert "end effector: none: no chain of two or more hinges [--ee LINK]" in text
    scara = f"""<body name="a" pos="0 0 1"><joint name="j1"/>{shape}
      <body name="b" pos=".3 0 0"><joint name="j2"/>{shape}
      <body name="quill" pos=".3 0 0"><joint name="z" type="slide" range="0 .2"/>{shape}
      <body name="tool"><joint name="r"/>{shape}</body></body></body></body>"""
    (tmp_path / "r.xml").write_text(f"<mujoco><worldbody>{caster}{scara}</worldbody></mujoco>")
    text = said(import_robot(tmp_path / "r.xml", tmp_path / "out"))
    assert "end effector: b, the last link behind 2 hinges; not tool, as joint z before it is no hinge, and " in text
