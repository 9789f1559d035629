"""Somebody else's robot becomes a folder that physai and plain MuJoCo load, with every decision said."""

import json
import math
import re
import shutil
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_arm import write_foreign_arm

from physai.sdk.base.errors import ModelError, PhysaiError
from physai.sim.robots import load_robot
from physai.sim.robots.checks.check import check_robot
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot
from physai.sim.robots.spec import home_qpos

MOTORS = """<mujoco model="motors"><option timestep="0.01"/><worldbody>
  <body name="a" pos="0 0 1"><joint name="j1" axis="0 1 0" range="-90 90"/>
    <geom type="capsule" size=".05" fromto="0 0 0 0 0 .3"/>
    <body name="b" pos="0 0 .3"><joint axis="0 1 0"/><geom type="capsule" size=".04" fromto="0 0 0 0 0 .3"/>
      <site name="tcp" pos="0 0 .3" euler="0 30 0"/></body></body>
</worldbody><actuator><motor name="first" joint="j1" gear="50" ctrlrange="-1 1"/></actuator></mujoco>"""

LEG = """<link name="{s}_thigh"><inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0"
  iyz="0"/></inertial></link>
  <joint name="{s}_hip" type="revolute"><origin xyz="0 {y} 0"/><axis xyz="0 1 0"/><parent link="trunk"/>
    <child link="{s}_thigh"/><limit lower="-1" upper="1" effort="0" velocity="10"/></joint>
  <link name="{s}_foot"><collision><origin xyz="0 0 -.3"/><geometry><sphere radius=".05"/></geometry></collision>
    <inertial><mass value=".5"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="{s}_knee" type="revolute"><origin xyz="0 0 -.3"/><axis xyz="0 1 0"/><parent link="{s}_thigh"/>
    <child link="{s}_foot"/><limit lower="-1" upper="1" effort="20" velocity="10"/></joint>"""
WALKER = f"""<robot name="walker"><link name="trunk"><collision><geometry><box size=".3 .2 .1"/></geometry></collision>
  <inertial><mass value="5"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  {LEG.format(s="left", y=0.1)}{LEG.format(s="right", y=-0.1)}</robot>"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("arm")
    return import_robot(write_foreign_arm(folder), folder / "mine")


def said(imported: Imported) -> str:
    return "\n".join(imported.decisions.lines())


def imported_text(
    tmp_path: Path, text: str, options: ImportOptions | None = None, name: str = "robot.urdf"
) -> Imported:
    (tmp_path / name).write_text(text)
    return import_robot(tmp_path / name, tmp_path / "out", options)


class TestForeignArm:
    def test_what_it_decides_is_said_and_kept(self, arm: Imported) -> None:
        for words in (
            "base.dae",
            "tool0: 1e-09 kg fixed to another link, taken as a frame without mass",
            "<transmission>: 1 left out: limits of a URDF are the joint's",
            "finger_joint: an effort limit, but no <transmission> as other joints have: taken as driven [--drive",
            "<gazebo>: 1 left out",
            "end effector: tool0, because of its name [--ee LINK]",
            "home: is the zero pose, but joint3, finger_joint, mimicking_joint within the limits",
            "mimicking_joint: follows another joint by a constraint, so it has no servo",
            "joint1: servo kp ",
        ):
            assert words in said(arm)
        record = json.loads((arm.folder / "decisions.json").read_bytes())
        assert record["decisions"] == arm.decisions.records()

    def test_it_is_the_robot_of_the_file(self, arm: Imported) -> None:
        spec = arm.robot.spec
        names = [joint.name for joint in spec.joints]
        assert names == [*(f"joint{n}" for n in range(1, 5)), "finger_joint", "mimicking_joint"]
        assert [joint.effort_limit for joint in spec.joints] == pytest.approx(
            [100.0, 50.0, 100 / 3, 25.0, 20.0, 0.0], rel=1e-5
        )
        assert [joint.velocity_limit for joint in spec.joints] == [2.0] * 4 + [0.2] * 2
        # 4/1 + 4/2 + 4/3 + 4/4 kg and two fingers; the base is part of the world.
        model = arm.robot.model
        assert model.body_subtreemass[0] == pytest.approx(25.0 / 3.0 + 0.04, rel=1e-5)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        # Four links of 0.21 m and a flange of 0.08 m, turned by 0.3 rad about y.
        assert data.site("ee").xpos == pytest.approx([0.0, 0.0, 0.92], abs=1e-9)
        angle = [math.cos(0.3), 0.0, math.sin(0.3), 0.0, 1.0, 0.0, -math.sin(0.3), 0.0, math.cos(0.3)]
        assert data.site("ee").xmat == pytest.approx(angle, abs=1e-6)
        # The elbow's range is [0.2, 2.5]: home is 5 % of it inside.
        assert spec.joints[2].default_pos == pytest.approx(0.2 + 0.05 * 2.3)

    def test_servos_are_as_fast_as_stated_or_as_strong_as_the_motor(self, arm: Imported) -> None:
        model = arm.robot.model
        data, full = mujoco.MjData(model), np.zeros((model.nv, model.nv))
        data.qpos[:] = home_qpos(model)
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, full)
        for place, joint in enumerate(arm.robot.spec.joints[:4]):
            fastest = full[place, place] * (2.0 * math.pi * 5.0) ** 2
            assert joint.stiffness == pytest.approx(min(fastest, joint.effort_limit / 0.25), rel=0.01)
            assert joint.damping == pytest.approx(2.0 * math.sqrt(joint.stiffness * full[place, place]), rel=0.01)

    def test_it_is_stable_and_every_driven_joint_moves(self, arm: Imported) -> None:
        check = check_robot(arm.robot)
        assert check.stable, check.findings
        assert (check.joints, check.moved) == (6, 5)

    def test_the_folder_needs_nothing_else(self, arm: Imported, tmp_path: Path) -> None:
        shutil.copytree(arm.folder, tmp_path / "elsewhere")
        moved = load_robot(f"{tmp_path}/elsewhere/")
        assert moved.spec == arm.robot.spec
        plain = mujoco.MjSpec.from_file(str(tmp_path / "elsewhere" / "mine.xml")).compile()
        assert plain.nmesh == moved.model.nmesh == 1

    def test_what_the_user_decides(self, tmp_path: Path) -> None:
        options = ImportOptions(
            end_effector="link3",
            servos=Servos(kp=77.0, kd=7.0),
            driven=("joint1", "joint2"),
            fixed=("*finger_joint", "mimick*"),
            compensate=False,
        )
        robot = import_robot(write_foreign_arm(tmp_path), tmp_path / "mine", options).robot
        assert [joint.name for joint in robot.spec.joints] == ["joint1", "joint2", "joint3", "joint4"]
        assert [(joint.stiffness, joint.damping) for joint in robot.spec.joints] == [(77.0, 7.0)] * 2 + [(0.0, 0.0)] * 2
        assert len(robot.spec.chains[0].segments) == 4  # three joints and the site
        assert not robot.model.body_gravcomp.any()


class TestMjcf:
    def test_motors_become_servos_and_passive_joints_stay(self, tmp_path: Path) -> None:
        imported = imported_text(tmp_path, MOTORS, name="motors.xml")
        first, second = imported.robot.spec.joints
        # Gear 50 times a control of 1.
        assert (first.name, first.effort_limit, first.stiffness > 0.0) == ("j1", 50.0, True)
        assert (second.name, second.effort_limit) == ("b_joint", 0.0)
        assert "b_joint: had no name" in said(imported)
        assert "b_joint: has no actuator and no effort limit, so it is passive [--drive b_joint,…]" in said(imported)
        assert "end effector: tcp" in said(imported)
        data = mujoco.MjData(imported.robot.model)
        mujoco.mj_forward(imported.robot.model, data)
        assert data.site("ee").xpos == pytest.approx(data.site("tcp").xpos)
        assert data.site("ee").xmat == pytest.approx(data.site("tcp").xmat)
        assert imported.robot.model.opt.timestep <= 0.008

    def test_good_servos_are_kept(self, tmp_path: Path) -> None:
        good = MOTORS.replace(
            '<motor name="first" joint="j1" gear="50" ctrlrange="-1 1"/>',
            '<position name="j1" joint="j1" kp="31" kv="3" forcerange="-9 9"/>',
        )
        imported = imported_text(tmp_path, good, name="good.xml")
        joint = imported.robot.spec.joints[0]
        assert (joint.stiffness, joint.damping, joint.effort_limit) == (31.0, 3.0, 9.0)
        assert "the file's position servos are kept" in said(imported)


class TestLegs:
    def test_a_walker_floats_and_stands_on_its_feet(self, tmp_path: Path) -> None:
        driven = tuple(f"{side}_{joint}" for side in ("left", "right") for joint in ("hip", "knee"))
        imported = imported_text(tmp_path, WALKER, ImportOptions(driven=driven))
        model = imported.robot.model
        assert imported.robot.spec.base == "floating"
        assert "base: floats, it has legs: left_foot, right_foot [--fixed-base]" in said(imported)
        data = mujoco.MjData(model)
        data.qpos[:] = home_qpos(model)
        mujoco.mj_forward(model, data)
        # Hip to foot 0.6 m, and its radius.
        assert data.qpos[2] == pytest.approx(0.65)
        assert model.geom("physai_floor").pos[2] == 0.0
        # No limit stated: 8 kg at 0.1 m.
        hip = next(joint for joint in imported.robot.spec.joints if joint.name == "left_hip")
        assert hip.effort_limit == pytest.approx(8.0 * 9.81 * 0.1, rel=0.05)
        assert check_robot(imported.robot).stable

    def test_its_base_is_fixed_if_asked(self, tmp_path: Path) -> None:
        assert imported_text(tmp_path, WALKER, ImportOptions(floating=False)).robot.spec.base == "fixed"

    def test_without_collision_shapes_the_drawn_ones_touch(self, tmp_path: Path) -> None:
        imported = imported_text(tmp_path, WALKER.replace("collision", "visual"))
        assert "the file has no collision shapes, so the drawn ones touch the floor" in said(imported)
        assert check_robot(imported.robot).stable


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (ImportOptions(end_effector="nope"), "no link or site named 'nope'"),
            (ImportOptions(end_effector="left_finger"), "a joint before it is no hinge"),
            (ImportOptions(driven=("nope",)), "`drive` nope: no such joint; known: finger_joint"),
            (ImportOptions(fixed=("nope_*",)), r"`fix` nope_\*: no joint of that name"),
        ],
    )
    def test_names_that_the_file_does_not_have(self, options: ImportOptions, message: str, tmp_path: Path) -> None:
        with pytest.raises(PhysaiError, match=message):
            import_robot(write_foreign_arm(tmp_path), tmp_path / "mine", options)

    @pytest.mark.parametrize(
        ("text", "name", "message"),
        [
            ("<robot name='x'><link name='a'/></robot>", "x.urdf", "no joint|no hinge"),
            ("<html/>", "x.xml", "root element <html>"),
            ("<robot", "x.urdf", "not well-formed"),
            ("<!DOCTYPE a []><robot/>", "x.urdf", "DOCTYPE"),
            ("<!DOCTYPE a []><robot/>", "x.xacro", "DOCTYPE"),
            (
                "<mujoco><worldbody><body><joint type='ball'/><geom size='1'/></body></worldbody></mujoco>",
                "x.xml",
                "ball",
            ),
        ],
    )
    def test_files_that_are_no_robot(self, text: str, name: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=message):
            imported_text(tmp_path, text, name=name)
        assert not (tmp_path / "out").exists()

    def test_a_folder_that_holds_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("")
        urdf = write_foreign_arm(tmp_path)
        with pytest.raises(ModelError, match="is not empty and no earlier import"):
            import_robot(urdf, tmp_path / "mine")
        import_robot(urdf, tmp_path / "other")
        import_robot(urdf, tmp_path / "other")
        with pytest.raises(ModelError, match="is a file"):
            import_robot(urdf, urdf)

    def test_a_source_in_the_folder_that_the_import_would_write(self, arm: Imported) -> None:
        source, before = arm.robot.path, arm.record.read_bytes()
        with pytest.raises(ModelError) as caught:
            import_robot(source, arm.folder, ImportOptions(servos=Servos(effort=True)))
        assert str(caught.value) == (
            f"{source}: is in {arm.folder}, which the import would write; name another with -o OTHER"
        )
        assert arm.record.read_bytes() == before

    def test_an_import_becomes_one_with_motors(self, arm: Imported, tmp_path: Path) -> None:
        """Its servos are replaced, and what they carried is heavy again."""
        assert np.any(arm.robot.model.body_gravcomp > 0.0)
        made = import_robot(arm.robot.path, tmp_path / "motors", ImportOptions(servos=Servos(effort=True)))
        assert {joint.stiffness for joint in made.robot.spec.joints} == {0.0}
        assert made.robot.model.nu == arm.robot.model.nu
        assert not np.any(made.robot.model.body_gravcomp)
        assert "gravity: nothing carries the links' weight, which the file's servos did [--servo auto]" in said(made)
        kept = import_robot(arm.robot.path, tmp_path / "servos")
        assert "actuators: the file's position servos are kept" in said(kept)

    def test_impossible_inertia_of_a_heavy_link_needs_a_word(self, tmp_path: Path) -> None:
        bad = WALKER.replace('ixx=".1" iyy=".1" izz=".1"', 'ixx=".1" iyy=".1" izz=".5"')
        with pytest.raises(ModelError, match=r"not physical.*or import with `balance`"):
            imported_text(tmp_path, bad)
        imported = imported_text(tmp_path, bad, ImportOptions(balance=True))
        assert "trunk: no body has moments of inertia 0.1, 0.1, 0.5 kg·m²" in said(imported)


def test_a_folder_needs_one_model(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="has no MJCF file; name the file, or make a folder with: physai robots import"
    ):
        load_robot(tmp_path)
    for name in ("a.xml", "b.xml"):
        (tmp_path / name).write_text(MOTORS)
    with pytest.raises(ModelError, match="has 2 MJCF files"):
        load_robot(f"{tmp_path}/")


def test_a_walker_that_touches_nothing_keeps_its_home_pose(tmp_path: Path) -> None:
    """Its meshes are lost, and no link is long enough for a rod, so there is no height at which it stands."""
    bare = re.sub(r"<(collision|visual)>.*?</\1>", "", WALKER, flags=re.DOTALL)
    bare = re.sub(r'<origin xyz="[^"]*"/>', "", bare)
    imported = imported_text(tmp_path, bare, ImportOptions(floating=True))
    assert imported.robot.spec.base == "floating"
    assert np.isfinite(imported.robot.model.key_qpos).all()
    assert "height" not in said(imported)


def test_a_mesh_of_no_known_format_is_named(tmp_path: Path) -> None:
    shape = '<visual><geometry><mesh filename="../../../etc/passwd"/></geometry></visual>'
    imported = imported_text(tmp_path, WALKER.replace('<link name="trunk">', f'<link name="trunk">{shape}'))
    assert "meshes: ../../../etc/passwd ends in none of .stl, .obj, .dae, .ply, .glb; left out" in said(imported)
