"""`physai robots import`, `check` and `show`: the way of a foreign arm into a folder that trains."""

import json
import re
from pathlib import Path

import pytest
from tests.support.foreign_arm import box_stl, write_foreign_arm

from physai.sdk.cli.main import main
from physai.sim.robots import load_robot

Captured = pytest.CaptureFixture[str]

DAE = """<?xml version="1.0"?><COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset/>
<library_geometries><geometry id="g"><mesh><source id="p"><float_array id="a" count="12">0 0 0 .2 0 0 0 .2 0 0 0 .2
</float_array><technique_common><accessor source="#a" count="4" stride="3"><param name="X" type="float"/>
<param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices><triangles count="4">
<input semantic="VERTEX" source="#v" offset="0"/><p>0 2 1 0 1 3 0 3 2 1 2 3</p></triangles></mesh></geometry>
</library_geometries><library_visual_scenes><visual_scene id="s"><node id="n"><instance_geometry url="#g"/></node>
</visual_scene></library_visual_scenes><scene><instance_visual_scene url="#s"/></scene></COLLADA>"""


def test_a_foreign_arm_becomes_a_folder(tmp_path: Path, capsys: Captured) -> None:
    urdf, folder = write_foreign_arm(tmp_path), tmp_path / "my_arm"
    (tmp_path / "foreign" / "meshes" / "visual").mkdir()
    (tmp_path / "foreign" / "meshes" / "visual" / "base.dae").write_text(DAE)
    assert main(["robots", "import", str(urdf), "-o", str(folder), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["robot"], record["base"], record["chains"]) == ("my_arm", "fixed", ["ee"])
    assert record["check"]["stable"]
    assert not any("base.dae" in decision["text"] for decision in record["decisions"])
    # The tetrahedron of the .dae, and the box of all other links.
    assert load_robot(folder).model.nmesh == 2
    assert (folder / "preview.png").read_bytes().startswith(b"\x89PNG")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert names == ["assets/mesh0.stl", "assets/mesh1.stl", "decisions.json", "my_arm.xml", "preview.png"]
    assert main(["robots", "check", f"{folder}/"]) == 0
    assert "stable: my_arm holds still, 5 of 6 joints moved as told; 1 without a servo" in capsys.readouterr().out
    assert main(["robots", "show", f"{folder}/"]) == 0
    assert "joint4" in capsys.readouterr().out


def test_it_says_what_to_do_next_and_in_which_units(tmp_path: Path, capsys: Captured) -> None:
    urdf, folder = write_foreign_arm(tmp_path), tmp_path / "arm"
    assert main(["robots", "import", str(urdf), "-o", str(folder), "--verbose"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"next: physai train reach --model {folder}/"
    assert re.search(r"joint1: servo kp [\d.]+ N·m/rad, kd [\d.]+ N·m·s/rad, at most [\d.]+ N·m \(", said)
    assert main(["robots", "import", str(urdf), "-o", str(folder), "--servo", "effort"]) == 0
    assert f"next: physai train swingup --model {folder}/" in capsys.readouterr().out


def test_meshes_that_mujoco_does_not_read_are_converted_or_named(tmp_path: Path, capsys: Captured) -> None:
    urdf = write_foreign_arm(tmp_path)
    (tmp_path / "foreign" / "meshes" / "visual").mkdir()
    (tmp_path / "foreign" / "meshes" / "visual" / "base.dae").write_text("<COLLADA")
    text = "solid box\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
    text += "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 0 1\nendloop\nendfacet\n"
    text += (
        "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 0 1 0\nvertex 0 0 1\nendloop\nendfacet\nendsolid box\n"
    )
    (tmp_path / "foreign" / "meshes" / "box.STL").write_text(text)
    assert main(["robots", "import", str(urdf), "-o", str(tmp_path / "a"), "--verbose"]) == 0
    assert "1 left out, as package://foreign/meshes/visual/base.dae" in capsys.readouterr().out
    assert load_robot(tmp_path / "a").model.nmesh == 1
    (tmp_path / "foreign" / "meshes" / "box.STL").write_bytes(box_stl()[:-7])
    assert main(["robots", "import", str(urdf), "-o", str(tmp_path / "b"), "--verbose"]) == 0
    assert "box.STL is left out" in capsys.readouterr().out


def test_check_ends_with_1_for_what_is_not_stable(tmp_path: Path, capsys: Captured) -> None:
    urdf, folder = write_foreign_arm(tmp_path), tmp_path / "arm"
    assert main(["robots", "import", str(urdf), "-o", str(folder), "--servo", "none"]) == 0
    assert "commanded by effort" in capsys.readouterr().out
    path = folder / "arm.xml"
    path.write_text(path.read_text().replace('timestep="', 'timestep="0.04" other="').replace(' other="0.004"', ""))
    assert main(["robots", "import", str(urdf), "-o", str(folder), "--servo", "90000,1"]) == 0
    path.write_text(path.read_text().replace('timestep="0.00025"', 'timestep="0.02"'))
    capsys.readouterr()
    assert main(["robots", "check", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["stable"]
    assert any("too stiff for a physics step of 0.02 s" in finding["text"] for finding in found["findings"])


def test_the_last_lines_say_what_stands(tmp_path: Path, capsys: Captured) -> None:
    urdf = write_foreign_arm(tmp_path)
    urdf.write_text(re.sub(r'effort="[^"]*"', 'effort="4000"', urdf.read_text()))
    assert main(["robots", "import", str(urdf), "-o", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    assert "not stable: out, see above" in lines
    assert any("decisions in decisions.json (--verbose prints them)" in line for line in lines)
    record = json.loads((tmp_path / "out" / "decisions.json").read_bytes())
    assert not record["check"]["stable"]
    assert len(record["decisions"]) > 10
    assert main(["robots", "import", str(urdf), "-o", str(tmp_path / "out"), "--verbose"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 15


def test_a_robot_that_sinks_does_not_stand(tmp_path: Path, capsys: Captured) -> None:
    legs = "".join(
        f'<body name="{s}_thigh" pos="0 {y} 0"><joint name="{s}_hip" axis="0 1 0" range="-90 90"/>'
        f'<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass="1"/><body name="{s}_foot" pos="0 0 -.3">'
        f'<joint name="{s}_knee" axis="0 1 0" range="-90 90"/>'
        f'<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass="1"/></body></body>'
        for s, y in (("left", 0.1), ("right", -0.1))
    )
    text = f"""<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="trunk" pos="0 0 .7"><freejoint/>
      <geom type="box" size=".1 .1 .1" mass="20"/>{legs}</body></worldbody>
      <keyframe><key name="home" qpos="0 0 .65 1 0 0 0 .6 -1.2 .6 -1.2"/></keyframe></mujoco>"""
    (tmp_path / "r.xml").write_text(text)
    assert main(["robots", "import", str(tmp_path / "r.xml"), "-o", str(tmp_path / "out"), "--servo", "5,1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    assert "not stable: out, it does NOT stand, see above" in lines
    assert any(line.startswith("unstable base: sinks while its joints are held: ") for line in lines)
    assert "train velocity" not in lines[-1]
    assert main(["robots", "check", f"{tmp_path / 'out'}/"]) == 1
    (tmp_path / "many").mkdir()
    (tmp_path / "r.xml").rename(tmp_path / "many" / "r.xml")
    words = ["robots", "import", str(tmp_path / "many"), "-o", str(tmp_path / "robots"), "--servo", "5,1"]
    assert main(words) == 0
    assert "does not stand, " in capsys.readouterr().out


def test_wheels_of_an_mjcf_are_noticed_and_are_no_legs(tmp_path: Path, capsys: Captured) -> None:
    """The base's origin lies on the floor, as a base_footprint does: its height says nothing of whether it stands."""
    wheels = "".join(
        f'<body name="{s}" pos="0 {y} .1"><joint name="{s}_wheel" axis="0 1 0"/>'
        '<geom type="cylinder" size=".1 .02" euler="90 0 0" mass="1"/></body>'
        for s, y in (("left", 0.3), ("right", -0.3))
    )
    text = f"""<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="base">FREE
      <geom type="box" size=".2 .2 .06" pos="0 0 .12" mass="10"/><geom size=".05" pos=".2 0 .05"/>
      <geom size=".05" pos="-.2 0 .05"/>{wheels}</body></worldbody></mujoco>"""
    (tmp_path / "r.xml").write_text(text.replace("FREE", "<freejoint/>"))
    assert main(["robots", "import", str(tmp_path / "r.xml"), "-o", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        "  base: floats and has wheels, which servos hold at an angle, not at a speed: left_wheel, right_wheel" in lines
    )
    assert any(line.endswith("; it stands") for line in lines)
    assert lines[-1].startswith("next: physai robots show ")
    (tmp_path / "r.xml").write_text(text.replace("FREE", ""))
    assert main(["robots", "import", str(tmp_path / "r.xml"), "-o", str(tmp_path / "out")]) == 0
    fixed = "  base: is fixed to the world, although it has wheels: left_wheel, right_wheel [--floating]"
    assert fixed in capsys.readouterr().out.splitlines()
    assert main(["robots", "import", str(tmp_path / "r.xml"), "-o", str(tmp_path / "out"), "--floating"]) == 0
    assert "base floating" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "nothing.urdf"], "nothing.urdf: no such file or directory"),
        (["import", "nothing.urdf", "--servo", "a,b"], "--servo a,b: expected auto, effort, none, or two numbers"),
        (["import", "nothing.urdf", "--servo", "nan,1"], "--servo KP must lie in"),
        (["import", "nothing.urdf", "--bandwidth", "inf"], "--bandwidth: expected a finite number, got 'inf'"),
        (["import", "nothing.urdf", "--floating", "--fixed-base"], "not allowed with"),
        (["check", "nothing"], "no robot named 'nothing'"),
    ],
)
def test_bad_arguments(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["robots", *words]) == 2
    assert message in capsys.readouterr().err


PASSIVE = """<robot name="pendubot"><link name="base"/>{links}{joints}</robot>"""
LINK = """<link name="{0}"><inertial><origin xyz="0 0 -0.1"/><mass value="0.5"/>
<inertia ixx="0.01" iyy="0.01" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>"""
JOINT = """<joint name="{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><axis xyz="0 1 0"/>
<origin xyz="0 0 -0.2"/><limit lower="-3" upper="3" effort="5" velocity="10"/></joint>"""


@pytest.mark.parametrize("servo", ["none", "effort"])
def test_a_joint_that_is_not_asked_for_has_no_motor(tmp_path: Path, servo: str) -> None:
    """Both joints state an effort limit; the second one is passive."""
    urdf, folder = tmp_path / "pendubot.urdf", tmp_path / "out"
    links = "".join(map(LINK.format, ("upper", "lower")))
    joints = JOINT.format("shoulder", "base", "upper") + JOINT.format("elbow", "upper", "lower")
    urdf.write_text(PASSIVE.format(links=links, joints=joints))
    words = ["robots", "import", str(urdf), "-o", str(folder), "--drive", "shoulder", "--servo", servo]
    assert main([*words, "--fixed-base"]) == 0
    robot = load_robot(folder)
    assert [str(robot.model.actuator(number).name) for number in range(robot.model.nu)] == ["shoulder"]
    assert [joint.effort_limit > 0.0 for joint in robot.spec.joints] == [True, False]


def test_kept_actuators_are_not_chosen_by_joint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "arm.xml"
    file.write_text(
        '<mujoco><worldbody><body name="a"><joint name="j" axis="0 1 0"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor name="j" joint="j" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    assert main(["robots", "import", str(file), "-o", str(tmp_path / "out"), "--drive", "j", "--servo", "none"]) == 2
    assert "--servo none keeps the actuators of the file, so --drive cannot choose" in capsys.readouterr().err


def test_stated_gains_that_are_replaced_are_said_without_a_word(tmp_path: Path, capsys: Captured) -> None:
    """A servo without a limit of its effort, as a drive of USD without maxForce, is not one that contracts take."""
    text = """<mujoco><worldbody><body name="a"><joint name="j" axis="0 0 1" range="-90 90"/>
      <geom type="box" size=".1 .1 .1" mass="1"/></body></worldbody>
      <actuator><position name="j" joint="j" kp="10" kv="1"{limit}/></actuator></mujoco>"""
    source, line = tmp_path / "r.xml", "  gains: those that the file states for 1 joints are replaced [--servo none]"
    for limit, folder, expected in (("", "without", True), (' forcerange="-5 5"', "with", False)):
        source.write_text(text.format(limit=limit))
        assert main(["robots", "import", str(source), "-o", str(tmp_path / folder)]) == 0
        assert (line in capsys.readouterr().out.splitlines()) is expected
    source.write_text(text.format(limit=""))
    assert main(["robots", "import", str(source), "-o", str(tmp_path / "kept"), "--servo", "none"]) == 2
    assert "give it a forcerange (in OpenUSD: physics:maxForce of the drive) from" in capsys.readouterr().err
