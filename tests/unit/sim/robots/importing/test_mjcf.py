"""MJCF files: the options of the import apply to them as to URDF files."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sdk.base.errors import ModelError
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot
from physai.sim.robots.importing.mjcf import read_mjcf

HAND = """<mujoco model="hand"><compiler {compiler}/><worldbody>
  <body name="palm" pos="0 0 1">{base}<geom size=".1"/>{inertial}
    <body name="thumb" pos=".1 0 0"><joint name="hand:thumb" axis="0 1 0" range="-90 90"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body>
    <body name="first" pos="0 .1 0"><joint name="first" axis="1 0 0" range="-90 90"/>
      <geom type="capsule" size=".02" fromto="0 0 0 0 .3 0"/></body>
    <body name="second" pos="0 -.1 0"><joint name="second" axis="1 0 0" range="{range}"/>
      <geom type="capsule" size=".02" fromto="0 0 0 0 -.3 0"/></body></body>
</worldbody>
<tendon><fixed name="both"><joint joint="hand:thumb" coef="1"/><joint joint="first" coef="2"/></fixed>
  <fixed name="alone"><joint joint="first" coef="1"/></fixed></tendon>
<equality>{equality}</equality>
<actuator><motor name="m1" joint="hand:thumb" gear="5" ctrlrange="-1 1"/><motor name="m2" joint="first"
  ctrlrange="-2 2"/><motor name="m3" joint="second" ctrlrange="-3 3"/></actuator>
<sensor><jointpos name="s1" joint="hand:thumb"/><jointpos name="s2" joint="first"/>
  <actuatorfrc name="s3" actuator="m2"/><tendonpos name="s4" tendon="alone"/></sensor>
<keyframe><key name="grip" qpos="{qpos}" ctrl="0 0 0"/></keyframe></mujoco>"""
PLAIN = {"base": "", "compiler": "", "inertial": "", "equality": "", "range": "-90 90", "qpos": ".1 .2 .3"}
FREE = {"base": "<freejoint/>", "qpos": "0 0 1 1 0 0 0 .1 .2 .3"}


def imported(tmp_path: Path, options: ImportOptions | None = None, **changes: str) -> Imported:
    (tmp_path / "hand.xml").write_text(HAND.format(**{**PLAIN, **changes}))
    return import_robot(tmp_path / "hand.xml", tmp_path / "out", options)


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


def test_names_of_other_programs_are_replaced_wherever_they_are(tmp_path: Path) -> None:
    result = imported(tmp_path)
    model = result.robot.model
    assert [joint.name for joint in result.robot.spec.joints] == ["hand_thumb", "first", "second"]
    assert "hand_thumb: was 'hand:thumb', which a contract does not allow" in said(result)
    # Gear 5 times a control of 1.
    assert [joint.effort_limit for joint in result.robot.spec.joints] == [5.0, 2.0, 3.0]
    assert int(model.sensor("s1").objid[0]) == int(model.joint("hand_thumb").id)
    assert int(model.wrap_objid[model.tendon_adr[model.tendon("both").id]]) == int(model.joint("hand_thumb").id)
    assert [joint.default_pos for joint in result.robot.spec.joints] == pytest.approx([0.1, 0.2, 0.3])


def test_fix_removes_a_joint_and_what_refers_to_it(tmp_path: Path) -> None:
    result = imported(tmp_path, ImportOptions(fixed=("fir*",)))
    model = result.robot.model
    assert [joint.name for joint in result.robot.spec.joints] == ["hand_thumb", "second"]
    assert [joint.default_pos for joint in result.robot.spec.joints] == pytest.approx([0.1, 0.3])
    assert [model.tendon(n).name for n in range(model.ntendon)] == ["both"]
    assert [model.sensor(n).name for n in range(model.nsensor)] == ["s1"]
    assert "first: does not move, as asked [leave out --fix]" in said(result)


def test_fix_holds_what_an_equality_couples_to_the_joint(tmp_path: Path) -> None:
    coupled = '<joint joint1="second" joint2="first"/>'
    result = imported(tmp_path, ImportOptions(fixed=("first",)), equality=coupled)
    assert [joint.name for joint in result.robot.spec.joints] == ["hand_thumb"]
    assert result.robot.model.neq == 0


def test_a_floating_base_on_request(tmp_path: Path) -> None:
    result = imported(tmp_path, ImportOptions(floating=True))
    assert result.robot.spec.base == "floating"
    assert "base: floats, as asked" in said(result)
    assert [joint.default_pos for joint in result.robot.spec.joints] == pytest.approx([0.1, 0.2, 0.3])


def test_a_fixed_base_on_request(tmp_path: Path) -> None:
    assert imported(tmp_path, None, **FREE).robot.spec.base == "floating"
    result = imported(tmp_path, ImportOptions(floating=False), **FREE)
    assert result.robot.spec.base == "fixed"
    assert "base: is fixed to the world, as asked [leave out --fixed-base]" in said(result)
    assert [joint.default_pos for joint in result.robot.spec.joints] == pytest.approx([0.1, 0.2, 0.3])


def test_impossible_inertia_needs_a_word(tmp_path: Path) -> None:
    """1 + 1 kg·m² is less than 3."""
    bad = {"inertial": '<inertial mass="1" pos="0 0 0" diaginertia="1 1 3"/>', **FREE}
    with pytest.raises(ModelError, match=r"inertia must satisfy A \+ B >= C"):
        imported(tmp_path, None, **bad)
    model = imported(tmp_path, ImportOptions(balance=True), **bad).robot.model
    low, middle, high = np.sort(model.body("palm").inertia)
    assert low + middle >= high


def test_a_pose_outside_of_the_limits_is_moved_into_them(tmp_path: Path) -> None:
    """second is at 0.3 rad, and its range is 30° to 90°; home is 5 % of it inside."""
    result = imported(tmp_path, range="30 90")
    assert "home: second moved into the limits [edit the keyframe home]" in said(result)
    assert result.robot.spec.joints[2].default_pos == pytest.approx(np.radians(33.0), abs=1e-5)
    # One that is at a limit stays there.
    assert imported(tmp_path, qpos="0 0 0", range="0 90").robot.spec.joints[2].default_pos == 0.0


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        (ImportOptions(fixed=("nope_*",)), {}, r"`fix` nope_\*: no joint of that name in .*; known: hand:thumb, first"),
        (
            ImportOptions(floating=True),
            {"base": '<joint name="root"/>', "qpos": "0 .1 .2 .3"},
            "`floating`: the world carries a joint; put the robot into one body without a joint",
        ),
    ],
)
def test_refused(options: ImportOptions, changes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        imported(tmp_path, options, **changes)
    assert not (tmp_path / "out").exists()


def test_what_mujoco_warns_of_is_a_decision(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    result = imported(tmp_path, compiler='settotalmass="3"')
    assert "MuJoCo: compiler attribute 'settotalmass' is deprecated" in said(result)
    assert not recwarn.list


def test_a_body_with_a_second_free_joint_is_named(tmp_path: Path) -> None:
    text = HAND.format(**{**PLAIN, **FREE})
    ball = '<body name="ball" pos="1 0 0"><freejoint name="ball_free"/><geom size=".1"/></body></worldbody>'
    (tmp_path / "two.xml").write_text(text.replace("</worldbody>", ball).replace(".1 .2 .3", ".1 .2 .3 1 0 0 1 0 0 0"))
    with pytest.raises(ModelError, match=r"ball_free is a second free joint.*: delete the body 'ball' or its joint"):
        import_robot(tmp_path / "two.xml", tmp_path / "out")
    (tmp_path / "two.xml").write_text(text)
    model = import_robot(tmp_path / "two.xml", tmp_path / "out").robot.model
    assert int(model.jnt_type[0]) == mujoco.mjtJoint.mjJNT_FREE


SCENE = """<mujoco model="walker"><compiler angle="radian"/>
<default><default class="collision">
  <geom group="3" material="transparent" friction="0.7 0.005 0.0001"/></default></default>
<worldbody><body name="trunk" pos="0 0 0.5"><freejoint/><geom name="box" type="box" size=".2 .1 .05" mass="5"/>
  <body name="leg" pos="0 0 -.05"><joint name="knee" axis="0 1 0" range="-1 1"/>
    <geom name="shin" class="collision" type="capsule" size=".02" fromto="0 0 0 0 0 -.3" mass="1"/>
  </body></body></worldbody>
<contact><pair name="foot_floor" geom1="shin" geom2="floor" friction="1 1"/>
  <pair name="self" geom1="shin" geom2="box"/></contact>
<actuator><motor joint="knee" ctrlrange="-20 20"/></actuator></mujoco>"""


def test_what_a_scene_would_have_defined_is_said_and_left_out(tmp_path: Path) -> None:
    """G1's file in its wheel has contacts with the floor of a scene, T1's and Lite3's a material of no one."""
    (tmp_path / "walker.xml").write_text(SCENE)
    with pytest.raises(ValueError, match=r"floor|transparent"):
        mujoco.MjSpec.from_file(str(tmp_path / "walker.xml")).compile()
    result = import_robot(tmp_path / "walker.xml", tmp_path / "out")
    model = result.robot.model
    assert "material transparent: is named and not defined: a plain one" in said(result)
    assert "contact foot_floor: is with floor, which this file does not have" in said(result)
    assert [model.pair(number).name for number in range(model.npair)] == ["self"]
    # What the file says of the geom itself stays.
    assert model.geom("shin").friction.tolist() == [0.7, 0.005, 0.0001]
    assert float(model.body_mass.sum()) == pytest.approx(6.0)
    # The folder loads in plain MuJoCo.
    (file,) = (tmp_path / "out").glob("*.xml")
    assert mujoco.MjSpec.from_file(str(file)).compile().npair == 1


IMUS = """<mujoco model="walker"><worldbody><body name="trunk" pos="0 0 0.5"><freejoint/>
  <geom type="box" size=".2 .1 .05"/>{trunk}
  <body name="shell" pos="0 0 .1"><geom size=".01" mass=".01"/>{shell}</body>
  <body name="head" pos=".2 0 0"><joint name="neck" axis="0 1 0" range="-1 1"/>
    <geom size=".05" mass=".5"/>{head}</body></body></worldbody>
<actuator><motor joint="neck" ctrlrange="-5 5"/></actuator><sensor>{sensor}</sensor></mujoco>"""
PLACES = {"trunk": "", "shell": "", "head": "", "sensor": ""}


@pytest.mark.parametrize(
    ("places", "site", "told"),
    [
        ({}, "imu", "imu: at the origin of trunk"),
        # A name that the file uses elsewhere was an error of MuJoCo: "repeated name 'imu' in site".
        ({"head": "<site name='imu'/>"}, "base_imu", "imu: at the origin of trunk"),
        ({"shell": "<site name='imu'/>"}, "imu", "imu: at the site of that name"),
        (
            {"shell": "<site name='s'/>", "sensor": "<gyro name='w' site='s'/>"},
            "s",
            "imu: where the file has its sensor w",
        ),
        # That of a head which moves is not the base's.
        ({"head": "<site name='s'/>", "sensor": "<gyro name='w' site='s'/>"}, "imu", "imu: at the origin of trunk"),
        # A part of the IMU under our name: the rest was not added.
        (
            {"shell": "<site name='s'/>", "sensor": "<framequat name='imu_quat' objtype='site' objname='s'/>"},
            "s",
            "imu: where the file has its sensor imu_quat",
        ),
    ],
)
def test_the_imu_is_where_the_file_has_it(places: dict[str, str], site: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "walker.xml").write_text(IMUS.format(**PLACES | places))
    result = import_robot(tmp_path / "walker.xml", tmp_path / "out")
    model = result.robot.model
    assert told in said(result)
    assert [sensor.name for sensor in result.robot.spec.sensors][-3:] == ["imu_quat", "imu_ang_vel_b", "imu_lin_acc_b"]
    assert model.site(int(model.sensor("imu_ang_vel_b").objid[0])).name == site


BASE = """<mujoco><option gravity="0 0 -1"/><default><joint limited="true"/></default><worldbody>
  <body name="trunk" pos=".1 .2 1.5">{base}<geom size=".1 .05 .02" type="box" pos=".02 0 .01"/>
    <body name="leg" pos="0 0 -.1"><joint name="leg" axis="0 1 0" range="-2 2"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .1 0 -.3"/></body></body></worldbody>{keys}</mujoco>"""
SLIDE = '<joint type="slide" axis="{axis}" limited="false" {more}/>'
AXES = ("1 0 0", "0 1 0", "0 0 1")
SLIDES = "".join(SLIDE.format(axis=axis, more="") for axis in AXES)
BALL = '<joint type="ball" limited="false"/>'
HINGES = "".join(f'<joint axis="{axis}" limited="false"/>' for axis in AXES[::-1])


def base_of(tmp_path: Path, base: str, keys: str = "") -> tuple[Any, str]:
    path, decisions = tmp_path / "robot.xml", Decisions()
    path.write_text(BASE.format(base=base, keys=keys))
    return read_mjcf(path, decisions).compile(), "\n".join(decisions.lines())


@pytest.mark.parametrize("turns", [BALL, HINGES])
def test_a_base_on_slides_and_turning_joints_is_a_free_one_that_moves_as_it_did(turns: str, tmp_path: Path) -> None:
    model, told = base_of(tmp_path, SLIDES + turns)
    count = 4 if turns == BALL else 6
    assert f"base: floats: a free joint for its {count} joints, which moves as they do" in told
    assert model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    assert model.nv == 7
    before: Any = mujoco.MjSpec.from_string(BASE.format(base=SLIDES + turns, keys="")).compile()
    places: list[Any] = []
    for one in (before, model):
        data = mujoco.MjData(one)
        data.qvel[:3], data.qvel[-1] = [0.3, -0.2, 0.1], 2.0
        for _ in range(400):
            mujoco.mj_step(one, data)
        places.append(np.concatenate([data.body(name).xpos for name in ("trunk", "leg")]))
    assert np.abs(places[0] - [0.1, 0.2, 1.5, 0.1, 0.2, 1.4]).max() > 0.1
    np.testing.assert_allclose(places[0], places[1], atol=1e-4)


@pytest.mark.parametrize(
    ("base", "keys"),
    [
        (SLIDES, ""),
        (SLIDES + '<joint type="ball" limited="false" damping="1"/>', ""),
        (SLIDES + '<joint type="ball" limited="true" range="0 1"/>', ""),
        (SLIDES + '<joint type="ball" limited="false" pos="0 0 .1"/>', ""),
        ("".join(SLIDE.format(axis=axis, more='frictionloss=".1"') for axis in AXES) + BALL, ""),
        ("".join(SLIDE.format(axis=axis, more="") for axis in ("1 0 0", "0 1 0", "1 0 1")) + BALL, ""),
        ("".join(SLIDE.format(axis=axis, more="") for axis in AXES[::-1]) + BALL, ""),
        (SLIDES + BALL, '<keyframe><key qpos="0 0 0 1 0 0 0 .3"/></keyframe>'),
    ],
)
def test_a_base_that_is_not_free_stays_as_it_is(base: str, keys: str, tmp_path: Path) -> None:
    model, told = base_of(tmp_path, base, keys)
    assert model.jnt_type[0] == mujoco.mjtJoint.mjJNT_SLIDE
    assert "free joint" not in told


def test_a_flag_that_mujoco_dropped_is_refused_with_its_line_and_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    flagged = BASE.replace('gravity="0 0 -1"/>', 'gravity="0 0 -1">\n<flag sensornoise="enable"/></option>')
    path.write_text(flagged.format(base="", keys=""))
    with pytest.raises(
        ModelError, match=r"robot\.xml:2: sensornoise is no flag of MuJoCo .*; delete it: a task states"
    ):
        import_robot(path, tmp_path / "out")
