"""What is wrong with a robot's model is found by trying it."""

from pathlib import Path

import pytest

from physai.sim.robots import load_robot, robot_names
from physai.sim.robots.checks.check import RobotCheck, check_robot

ROD = """<mujoco><option timestep="{step}" integrator="{integrator}"/><worldbody>
  <body name="a" gravcomp="{gravcomp}"><joint name="j1" axis="0 1 0" range="-90 90" armature=".01"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0" mass="1"/>
    <body name="b" pos=".3 0 0" gravcomp="{gravcomp}"><joint name="j2" axis="0 1 0" range="-90 90" armature=".01"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0" mass="1"/>{more}</body></body>
</worldbody><actuator>{first}<position name="j2" joint="j2" kp="{kp}" kv="{kv}" {range}
  forcerange="-{force} {force}"/></actuator>{more_after}</mujoco>"""
SERVO = '<position name="j1" joint="j1" kp="50" kv="5" forcerange="-{force} {force}"/>'
GOOD = {
    "step": "0.002",
    "integrator": "implicitfast",
    "gravcomp": "1",
    "more": "",
    "kp": "50",
    "kv": "2",
    "force": "40",
    "range": "",
    "more_after": "",
    "first": SERVO,
}


def checked(tmp_path: Path, **changes: str) -> RobotCheck:
    values = {**GOOD, **changes}
    values["first"] = values["first"].format(**values)
    path = tmp_path / "rod.xml"
    path.write_text(ROD.format(**values))
    return check_robot(load_robot(path))


def words(check: RobotCheck) -> str:
    return "\n".join(f"{finding.about}: {finding.text}" for finding in check.findings)


def test_a_good_robot_is_stable(tmp_path: Path) -> None:
    check = checked(tmp_path)
    assert check.stable
    assert (check.findings, check.moved, check.joints) == ([], 2, 2)
    assert check.largest_speed < 0.05


@pytest.mark.parametrize("name", robot_names())
def test_our_own_robots_are_stable(name: str) -> None:
    check = check_robot(load_robot(name))
    assert check.stable, words(check)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        # 1 kg rod of 0.3 m with round ends about its end, and armature; sqrt(kp / M) is 345 rad/s.
        ({"kp": "5000"}, "j2: kp 5000 on 0.042 kg·m² is too stiff for a physics step of 0.002 s"),
        ({"kv": "0", "gravcomp": "0.5", "first": SERVO.replace('"5"', '"0"')}, "j2: does not come to rest"),
        # Two rods of 1 kg with centres at 0.15 and 0.45 m: 9.81 · 0.6 N·m.
        ({"gravcomp": "0", "force": "5"}, "j1: its weight needs 5.89 N·m at home, its effort limit is 5"),
        ({"integrator": "implicit"}, ""),
        # MuJoCo never takes a servo's range for degrees.
        ({"range": 'ctrlrange="30 100"'}, "j2: its servo takes targets from 30 to 100, and home is 0"),
        (
            {"range": 'ctrlrange="-90 90"'},
            "j2: its servo takes targets from -90 to 90, and the joint moves",
        ),
        ({"range": 'ctrlrange="-1 1"'}, ""),
        # Held by 20 N·m/rad, 1 kg at 0.15 m sags by 0.07 rad; by 5 N·m/rad by 0.3 rad, which is no holding still.
        ({"gravcomp": "0", "kp": "5"}, "j2: held at home it moves by 0.2"),
    ],
)
def test_what_is_severe(changes: dict[str, str], found: str, tmp_path: Path) -> None:
    check = checked(tmp_path, **changes)
    assert found in words(check)
    assert check.stable is not bool(found)


def test_a_joint_that_ends_where_it_was_not_sent_is_named(tmp_path: Path) -> None:
    # Upright, 1 kg at 0.15 m tips with 1.47 N·m/rad; 0.5 N·m/rad hold that at 0 alone, where nothing tips.
    path = tmp_path / "pole.xml"
    path.write_text(
        """<mujoco><worldbody><body name="a"><joint name="j" axis="0 1 0" range="-90 91" armature=".01"/>
        <geom type="capsule" size=".02" fromto="0 0 0 0 0 .3" mass="1"/></body></worldbody>
        <actuator><position name="j" joint="j" kp="0.5" kv="0.05" forcerange="-5 5"/></actuator></mujoco>"""
    )
    check = check_robot(load_robot(path))
    assert "j: ends 1.6 from where it was when told to move by 0.2 rad" in words(check)
    assert not check.stable
    assert check.moved == 0


def test_a_joint_that_another_one_takes_along_is_named(tmp_path: Path) -> None:
    coupled = '<equality><joint joint1="j2" joint2="j1" solref="0.004 1"/></equality>'
    check = checked(tmp_path, kp="1", kv="0.1", more_after=coupled)
    assert "j2: moves by -0.2 when j1 is told to move" in words(check)


def test_parts_that_collide_at_home(tmp_path: Path) -> None:
    beyond = '<body name="c" pos="-.2 0 0"><joint name="j3" axis="0 1 0"/><geom name="c" size=".05"/></body>'
    check = checked(tmp_path, more=beyond)
    assert "a, c: collide with each other at home" in words(check)
    assert not check.stable


def test_motors_are_noted(tmp_path: Path) -> None:
    check = checked(tmp_path, first='<motor name="j1" joint="j1" ctrlrange="-5 5"/>')
    assert "j1: commanded by effort, so nothing holds the pose" in words(check)
    assert check.moved <= 1


def test_a_weak_servo_is_noted(tmp_path: Path) -> None:
    check = checked(tmp_path, gravcomp="0", kp="20", kv="2")
    # 1 kg at 0.15 m by 20 N·m/rad: 0.074 rad.
    assert "j2: held at home it moves by 0.0" in words(check)
    assert check.stable


def test_a_joint_that_a_contact_or_its_effort_limit_holds_is_not_told_to_be_stiffer(tmp_path: Path) -> None:
    """A spring of 20 N·m/rad needs 4 N·m for 0.2 rad, of which the servo has 1; a wheel is 0.5 mm in the floor."""
    spring = ROD.format(**{**GOOD, "first": SERVO.format(force="1")}).replace(
        'name="j1"', 'name="j1" stiffness="20"', 1
    )
    (tmp_path / "spring.xml").write_text(spring)
    check = check_robot(load_robot(tmp_path / "spring.xml"))
    note = next(finding for finding in check.findings if finding.text.startswith("moves by"))
    assert note.text.endswith("with its whole effort of 1")
    assert "kp" not in note.next_step
    (tmp_path / "wheel.xml").write_text("""<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
      <body name="wheel" pos="0 0 .0995"><joint name="j" axis="0 1 0"/>
      <geom type="cylinder" size=".1 .02" euler="90 0 0" mass="1"/></body></worldbody>
      <actuator><position name="j" joint="j" kp="5" kv="1" forcerange="-5 5"/></actuator></mujoco>""")
    check = check_robot(load_robot(tmp_path / "wheel.xml"))
    note = next(finding for finding in check.findings if finding.about == "j")
    assert note.text.endswith(": wheel touches world")
    assert "home pose" in note.next_step
