"""URDF files with the oddities of published ones are imported as meant, or refused with a way out that works."""

import re
import struct
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tests.support.foreign_arm import box_stl

from physai.sdk.base.errors import ModelError
from physai.sdk.contract.robot import MAX_JOINTS
from physai.sim.robots.checks.check import check_robot
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot

INERTIA = '<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/>'
BODY = f'<inertial><mass value="1"/>{INERTIA}</inertial>'
LIMIT = '<limit lower="-1" upper="1" effort="20" velocity="2"/>'


def joint(name: str, parent: str, child: str, more: str = LIMIT, kind: str = "revolute") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="0 0 .3"/><axis xyz="0 1 0"/><parent link="{parent}"/>'
        f'<child link="{child}"/>{more}</joint>'
    )


def robot(*joints: str, shapes: str = "", links: str = "abc", body: str = BODY) -> str:
    listed = "".join(f'<link name="{link}">{body}{shapes if link == "b" else ""}</link>' for link in links)
    return f'<robot name="r"><link name="base"/>{listed}{"".join(joints)}</robot>'


ARM = (joint("j1", "base", "a"), joint("j2", "a", "b"), joint("j3", "b", "c"))


def imported(tmp_path: Path, text: str, options: ImportOptions | None = None) -> Imported:
    (tmp_path / "r.urdf").write_text(text)
    return import_robot(tmp_path / "r.urdf", tmp_path / "out", options)


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


def mesh(filename: str, more: str = "") -> str:
    return f'<visual><geometry><mesh filename="{filename}" {more}/></geometry></visual>'


class TestCounterbalance:
    """A level arm of 1 kg at 0.5 m: 9.81 · 0.5 N·m, with a motor of 4 N·m."""

    TEXT = robot(
        joint("j1", "base", "a", '<limit lower="-1" upper="1" effort="4" velocity="2"/>'),
        links="a",
        body=f'<inertial><origin xyz=".5 0 0"/><mass value="1"/>{INERTIA}</inertial>',
    )

    def test_springs_carry_what_the_motor_cannot(self, tmp_path: Path) -> None:
        result = imported(tmp_path, self.TEXT)
        assert "j1: its weight of 4.91 N·m at home exceeds the stated effort limit of 4, so springs" in said(result)
        assert "[--no-counterbalance]" in said(result)
        model = result.robot.model
        data = mujoco.MjData(model)
        data.qpos[:] = 0.3
        mujoco.mj_forward(model, data)
        assert data.qfrc_passive[0] == pytest.approx(-9.81 * 0.5 * np.cos(0.3), rel=1e-5)
        # The motor's own limit stays as it is stated.
        assert result.robot.spec.joints[0].effort_limit == 4.0
        check = check_robot(result.robot)
        assert check.stable
        assert check.moved == 1
        assert [finding.text for finding in check.findings] == [
            "its weight needs 4.91 N·m at home, its effort limit is 4: the model lets springs or the like carry it, so "
            "the robot must have them"
        ]

    @pytest.mark.parametrize("options", [ImportOptions(counterbalance=False), ImportOptions(compensate=False)])
    def test_the_user_says_that_there_are_none(self, options: ImportOptions, tmp_path: Path) -> None:
        check = check_robot(imported(tmp_path, self.TEXT, options).robot)
        assert not check.stable
        assert "its weight needs 4.91 N·m at home, its effort limit is 4" in check.findings[0].text

    def test_a_strong_motor_carries_it_itself(self, tmp_path: Path) -> None:
        result = imported(tmp_path, self.TEXT.replace('effort="4"', 'effort="5"'))
        assert "springs" not in said(result)
        assert result.robot.model.jnt_actgravcomp.all()


class TestNames:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [("my joint", "my_joint"), ("関節", "__"), ("1st", "_1st"), ("a,b", "a_b"), ("x" * 70, "x" * 64)],
    )
    def test_a_joint_gets_a_name_that_contracts_allow(self, name: str, expected: str, tmp_path: Path) -> None:
        result = imported(tmp_path, robot(joint(name, "base", "a"), ARM[1], ARM[2]))
        assert [one.name for one in result.robot.spec.joints] == [expected, "j2", "j3"]
        assert f"{expected}: was {name!r}" in said(result)

    def test_names_that_would_be_equal_stay_apart(self, tmp_path: Path) -> None:
        names = [joint("a b", "base", "a"), joint("a_b", "a", "b"), joint("a:b", "b", "c")]
        result = imported(tmp_path, robot(*names))
        assert [one.name for one in result.robot.spec.joints] == ["a_b_2", "a_b", "a_b_3"]

    def test_a_mimic_follows_its_renamed_leader(self, tmp_path: Path) -> None:
        follower = joint("j 2", "a", "b", f'{LIMIT}<mimic joint="j 1" multiplier="-2"/>')
        model = imported(tmp_path, robot(joint("j 1", "base", "a"), follower, ARM[2])).robot.model
        assert (model.joint(int(model.eq_obj1id[0])).name, model.joint(int(model.eq_obj2id[0])).name) == ("j_2", "j_1")
        assert model.eq_data[0, 1] == -2.0


class TestMimics:
    @pytest.mark.parametrize(
        ("leader", "words"),
        [("gone", "j2: mimics 'gone', which the file does not have"), ("j2", "j2: mimics itself")],
    )
    def test_of_nothing_is_driven(self, leader: str, words: str, tmp_path: Path) -> None:
        follower = joint("j2", "a", "b", f'{LIMIT}<mimic joint="{leader}"/>')
        result = imported(tmp_path, robot(ARM[0], follower, ARM[2]))
        assert words in said(result)
        assert check_robot(result.robot).moved == 3

    def test_of_a_joint_that_is_held_still_is_held_too(self, tmp_path: Path) -> None:
        """Also of one that mimics such a joint."""
        second = joint("j2", "a", "b", f'{LIMIT}<mimic joint="j1"/>')
        third = joint("j3", "b", "c", f'{LIMIT}<mimic joint="j2"/>')
        last = joint("j4", "c", "d")
        result = imported(tmp_path, robot(ARM[0], second, third, last, links="abcd"), ImportOptions(fixed=("j1",)))
        assert [one.name for one in result.robot.spec.joints] == ["j4"]
        assert "j3: mimics j2, which does not move, so it does not either" in said(result)


class TestShapes:
    @pytest.mark.parametrize(
        ("shape", "words"),
        [
            ("<capsule radius='1' length='1'/>", "<capsule> is none of box, cylinder, sphere and mesh"),
            ("<sphere radius='0'/>", "<sphere radius='0'>; expected 1 positive number"),
            ("<box size='1 -1 1'/>", "<box size='1 -1 1'>; expected 3 positive numbers"),
            ("<box size='1 1'/>", "<box size='1 1'>; expected 3 positive numbers"),
            ("<cylinder radius='x' length='1'/>", "<cylinder radius='x'>; expected 1 positive number"),
            ("<mesh filename='m.stl' scale='0 0 0'/>", "<mesh scale='0 0 0'>; expected 3 numbers other than 0"),
            ("<mesh/>", "<mesh> without a filename"),
            ("", "it has no <geometry>"),
        ],
    )
    def test_those_without_a_size_are_left_out(self, shape: str, words: str, tmp_path: Path) -> None:
        good = "<visual><geometry><box size='.1 .1 .1'/></geometry></visual>"
        bad = f"<collision><geometry>{shape}</geometry></collision>"
        result = imported(tmp_path, robot(*ARM, shapes=good + bad))
        assert f"b: a shape is left out: {words}" in said(result)
        model = result.robot.model
        assert int((model.geom_type == mujoco.mjtGeom.mjGEOM_BOX).sum()) == 1

    def test_one_number_scales_all_axes(self, tmp_path: Path) -> None:
        (tmp_path / "m.stl").write_bytes(box_stl((30.0, 30.0, 100.0)))
        model = imported(tmp_path, robot(*ARM, shapes=mesh("m.stl", 'scale="0.001"'))).robot.model
        vertices = model.mesh_vert
        assert np.sort(vertices.max(0) - vertices.min(0)) == pytest.approx([0.06, 0.06, 0.2], rel=1e-5)

    def test_a_mesh_in_millimetres_is_noted(self, tmp_path: Path) -> None:
        (tmp_path / "m.stl").write_bytes(box_stl((30.0, 30.0, 100.0)))
        check = check_robot(imported(tmp_path, robot(*ARM, shapes=mesh("m.stl"))).robot)
        found = [finding for finding in check.findings if finding.about == "size"]
        assert len(found) == 1
        assert not found[0].severe
        scale = re.search(r'scale="[^"]*"', found[0].next_step)
        assert scale is not None
        check = check_robot(imported(tmp_path, robot(*ARM, shapes=mesh("m.stl", scale[0]))).robot)
        assert not check.findings

    def test_a_humanoid_without_shapes_stands_on_rods(self, tmp_path: Path) -> None:
        legs = "".join(
            joint(f"{side}_hip", "base", f"{side}_thigh").replace('xyz="0 0 .3"', f'xyz="0 {y} -.1"')
            + joint(f"{side}_knee", f"{side}_thigh", f"{side}_foot").replace('xyz="0 0 .3"', 'xyz="0 0 -.3"')
            for side, y in (("left", 0.1), ("right", -0.1))
        )
        links = "".join(
            f'<link name="{side}_{part}"><inertial><origin xyz="0 0 -.2"/><mass value="1"/>{INERTIA}</inertial></link>'
            for side in ("left", "right")
            for part in ("thigh", "foot")
        )
        text = f'<robot name="h"><link name="base">{BODY}</link>{links}{legs}</robot>'
        result = imported(tmp_path, text)
        assert "shapes: the file has none, so rods from joint to joint stand for the links" in said(result)
        assert result.robot.spec.base == "floating"
        check = check_robot(result.robot)
        assert check.stable, check.findings


def stl(*values: float) -> bytes:
    """Four triangles whose corners have these coordinates, in turn."""
    triangle = struct.pack("<12fH", *[(values * 12)[n] for n in range(12)], 0)
    return bytes(80) + struct.pack("<I", 4) + 4 * triangle


class TestMeshes:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("m.stl", b""),
            ("m.stl", bytes(80) + struct.pack("<I", 0)),
            ("m.stl", stl(0.0)),
            ("m.stl", stl(float("nan"))),
            ("m.stl", stl(1e30, -1e30)),
            ("m.stl", box_stl((1e-12, 1e-12, 1e-12))),
            ("m.stl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n"),
            ("m.obj", b""),
            ("m.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 99\n"),
            ("m.dae", b"<COLLADA"),
            ("m.ply", b"ply\n"),
            ("m.glb", b""),
        ],
    )
    def test_broken_ones_are_left_out(self, name: str, content: bytes, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(content)
        (tmp_path / "good.stl").write_bytes(box_stl())
        result = imported(tmp_path, robot(*ARM, shapes=mesh(name) + mesh("good.stl")))
        assert re.search(rf"meshes: .*{name}.*left out|meshes: 1 left out, as {name}", said(result))
        assert result.robot.model.nmesh == 1

    @pytest.mark.parametrize(
        ("filename", "place"),
        [
            ("package://mine/meshes/m.stl", "mine/meshes/m.stl"),
            ("package://mine/meshes/m.stl", "meshes/m.stl"),
            ("model://mine/m.stl", "mine/m.stl"),
            ("my%20mesh.stl", "my mesh.stl"),
            ("mesh ü.stl", "mesh ü.stl"),
            ("meshes\\m.stl", "meshes/m.stl"),
        ],
    )
    def test_are_found_where_they_are(self, filename: str, place: str, tmp_path: Path) -> None:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(box_stl())
        assert imported(tmp_path, robot(*ARM, shapes=mesh(filename))).robot.model.nmesh == 1

    def test_a_missing_package_is_found_once_it_is_where_the_importer_says(self, tmp_path: Path) -> None:
        text = robot(*ARM, shapes=mesh("package://mine/m.stl") + mesh("package://mine/m.stl"))
        result = imported(tmp_path, text)
        lines = [line for line in result.decisions.lines() if line.startswith("meshes")]
        assert len(lines) == 1  # not one for each shape
        way_out = re.search(r"\[put the folder mine into (.*)\]", lines[0])
        assert way_out is not None
        package = Path(way_out[1]) / "mine"
        package.mkdir()
        (package / "m.stl").write_bytes(box_stl())
        assert imported(tmp_path, text).robot.model.nmesh == 1


class TestLimits:
    def test_far_too_large_ones_are_none(self, tmp_path: Path) -> None:
        huge = '<limit lower="-1e308" upper="1e308" effort="1e300" velocity="1e300"/>'
        text = robot(joint("j1", "base", "a", huge), joint("j2", "a", "b", huge, "prismatic"), ARM[2])
        first, second, _ = imported(tmp_path, text).robot.spec.joints
        assert (first.kind, first.velocity_limit) == ("continuous", 2.0)
        assert (second.position_lower, second.position_upper) == (-1000.0, 1000.0)


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (robot(ARM[0].replace("0 1 0", "0 0 0"), *ARM[1:]), "joint 'j1': axis '0 0 0' is no direction"),
            (robot(ARM[0].replace("0 1 0", "0 1"), *ARM[1:]), "joint 'j1': axis '0 1' is no direction"),
            (robot(*ARM, body=BODY.replace('"1"', '"-1"')), "has mass -1 kg; it must not be negative"),
            (robot(*ARM, body=BODY.replace('"1"', '"1e300"')), r"has mass 1e\+300 kg, at most 1e\+06; check its unit"),
            (
                robot(joint("j", "a", "world"), ARM[0]).replace("</robot>", '<link name="world"/></robot>'),
                "joint 'j' moves the link 'world', which stands for the ground; rename it",
            ),
            (robot(*ARM, joint("j4", "c", "lost"), links="abc"), "refers to link 'lost', which does not exist; add"),
            (
                robot(*ARM, joint("j4", "Base", "d"), links="abcd"),
                "link 'Base', which does not exist; did you mean 'base'",
            ),
            # "aa" has no near name without a parent.
            (robot(*ARM, joint("j4", "c", "aa")), "refers to link 'aa', which does not exist; add <link name=\"aa\"/>"),
            (robot(*ARM, links="abcd"), "2 links without a parent, base, d; .*: connect them by fixed joints"),
            (robot(joint("j1", "base", "a", kind="fixed"), links="a"), "no joint of the model can be driven"),
            ("<robot xmlns:xacro='x'><xacro:include filename='y'/></robot>", r"xacro file; rename it to r\.xacro"),
            ("<mujocoinclude/>", "import the file that includes it"),
        ],
    )
    def test_with_the_reason_and_without_a_trace(self, text: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=message):
            imported(tmp_path, text)
        assert not (tmp_path / "out").exists()

    def test_extensions_of_simulators_are_no_xacro(self, tmp_path: Path) -> None:
        text = robot(*ARM).replace("<link", '<sensor:camera xmlns:sensor="s"/><link', 1)
        assert "<sensor:camera>: 1 left out: not used" in said(imported(tmp_path, text))

    def test_no_joint_to_drive_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="`drive` names no joint"):
            imported(tmp_path, robot(*ARM), ImportOptions(driven=()))

    def test_the_pattern_that_is_advised_leaves_enough_joints_still(self, tmp_path: Path) -> None:
        """Two hands of 30 joints and an arm of 10: 70 joints, of which each hand alone is enough."""
        links = [f"{side}_hand_{n}" for side in ("left", "right") for n in range(30)] + [f"arm_{n}" for n in range(10)]
        joints = [joint(f"{link}_joint", "base", link) for link in links]
        listed = "".join(f'<link name="{link}">{BODY}</link>' for link in links)
        text = f'<robot name="r"><link name="base"/>{listed}{"".join(joints)}</robot>'
        with pytest.raises(ModelError, match=f"70 joints, policies command at most {MAX_JOINTS}; hold some") as error:
            imported(tmp_path, text)
        way_out = re.search(r"`fix` '(.*)'", str(error.value))
        assert way_out is not None
        result = imported(tmp_path, text, ImportOptions(fixed=(way_out[1],)))
        # The arm is the smallest group that is large enough.
        assert way_out[1] == "arm_*"
        assert len(result.robot.spec.joints) == 60

    def test_a_folder_with_another_model_in_it(self, tmp_path: Path) -> None:
        imported(tmp_path, robot(*ARM))
        (tmp_path / "out").rename(tmp_path / "renamed")
        with pytest.raises(ModelError, match=r"has out\.xml, and a robot's folder has one model; delete it or"):
            import_robot(tmp_path / "r.urdf", tmp_path / "renamed")
        (tmp_path / "renamed" / "out.xml").unlink()
        assert import_robot(tmp_path / "r.urdf", tmp_path / "renamed").robot.name == "renamed"

    def test_a_link_to_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "out").symlink_to("gone")
        with pytest.raises(ModelError, match="is a link to nothing"):
            imported(tmp_path, robot(*ARM))

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ('<xacro:include filename="r.xacro"/>', "include each other in a circle"),
            ('<xacro:macro name="m"><xacro:m/></xacro:macro><xacro:m/>', "include each other in a circle"),
            ('<xacro:arg name="n"/><link name="$(arg n)"/>', "expand it with its arguments, and import the result"),
            ('<xacro:include filename="$(find robots)/a.xacro"/>', r"source ROS's setup.bash for \$\(find"),
            ('<link name="${1/0}"/>', "xacro: division by zero"),
        ],
    )
    def test_xacro_files_that_do_not_expand(self, body: str, message: str, tmp_path: Path) -> None:
        pytest.importorskip("xacro", reason="pip install xacro")
        path = tmp_path / "r.xacro"
        path.write_text(f'<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">{body}</robot>')
        with pytest.raises(ModelError, match=message):
            import_robot(path, tmp_path / "out")
