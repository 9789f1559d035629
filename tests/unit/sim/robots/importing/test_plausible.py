"""An import keeps arms above their base, and says what cannot be meant: placeholders, wheels, arms that are as long."""

from pathlib import Path

import mujoco
import pytest

from physai.sdk.base.errors import ModelError
from physai.sdk.cli.main import main
from physai.sim.robots import load_robot
from physai.sim.robots.checks.check import RobotCheck, check_robot
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot
from physai.sim.robots.shapes import shape_corners
from physai.sim.robots.spec import home_qpos

INERTIA = '<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/>'


def link(name: str, shape: str = "", kg: float = 1.0) -> str:
    return f'<link name="{name}">{shape}<inertial><mass value="{kg}"/>{INERTIA}</inertial></link>'


def rod(middle: str) -> str:
    return (
        f'<visual><origin rpy="0 1.5708 0" xyz="{middle} 0 0"/>'
        '<geometry><cylinder radius=".04" length=".4"/></geometry></visual>'
    )


def joint(
    name: str,
    parent: str,
    child: str,
    *,
    axis: str = "0 1 0",
    xyz: str = "0 0 .3",
    kind: str = "revolute",
    effort: float = 50.0,
) -> str:
    limit = f'<limit lower="-3.1" upper="3.1" effort="{effort}" velocity="2"/>' if kind != "fixed" else ""
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="{xyz}"/><axis xyz="{axis}"/><parent link="{parent}"/>'
        f'<child link="{child}"/>{limit}</joint>'
    )


BASE = (
    '<link name="base"><visual><origin xyz="0 0 .05"/>'
    '<geometry><cylinder radius=".1" length=".1"/></geometry></visual></link>'
)
# As a UR5: at zero the arm lies level, so that half of the bent poses have the elbow below the base.
LEVEL = f"""<robot name="level">{BASE}{link("s")}{link("u", rod(".2"))}{link("f", rod(".2"))}
{link("w1")}{link("w2")}{link("w3")}
{joint("pan", "base", "s", axis="0 0 1", xyz="0 0 .1")}{joint("lift", "s", "u", xyz="0 .1 0")}
{joint("elbow", "u", "f", xyz=".4 0 0")}{joint("w1", "f", "w1", xyz=".4 0 0")}
{joint("w2", "w1", "w2", axis="0 0 1", xyz="0 .1 0")}{joint("w3", "w2", "w3", xyz="0 0 -.1")}</robot>"""


def imported(folder: Path, text: str, options: ImportOptions | None = None, name: str = "r.urdf") -> Imported:
    (folder / name).write_text(text)
    return import_robot(folder / name, folder / "out", options)


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


def words(check: RobotCheck) -> str:
    return "\n".join(f"{finding.about}: {finding.text}; {finding.next_step}" for finding in check.findings)


class TestHome:
    def test_a_bent_arm_stays_above_its_base(self, tmp_path: Path) -> None:
        result = imported(tmp_path, LEVEL)
        assert "home: bent to" in said(result)
        model = result.robot.model
        assert shape_corners(model, [home_qpos(model)])[:, 2].min() >= -1e-3
        data = mujoco.MjData(model)
        data.qpos[:] = home_qpos(model)
        mujoco.mj_kinematics(model, data)
        assert data.xpos[1:, 2].min() >= 0.0
        assert "below the base" not in words(check_robot(result.robot))

    def test_a_home_below_the_base_is_named(self, tmp_path: Path) -> None:
        result = imported(tmp_path, LEVEL)
        file = tmp_path / "out" / "out.xml"
        spec = mujoco.MjSpec.from_file(str(file))
        spec.keys[0].qpos = [0.0, 0.8, -1.6, 0.0, 1.57, 0.0]
        model = spec.compile()
        spec.keys[0].ctrl = model.key_qpos[0]
        file.write_text(spec.to_xml())
        found = words(check_robot(load_robot(file)))
        # The forearm's end: 0.1 - 0.4 sin 0.8 = -0.19 m, and its radius of 0.04 m.
        assert "below the base at home" in found
        assert result.robot.spec.base == "fixed"


class TestEffort:
    """Arms of 6 kg that reach 1 m: 1000 N·m hold seventeen of them, 5000 N·m nearly a hundred."""

    @pytest.mark.parametrize(("effort", "implausible"), [(50.0, False), (300.0, False), (4000.0, True)])
    def test_a_placeholder_is_not_stable(self, effort: float, implausible: bool, tmp_path: Path) -> None:
        check = check_robot(imported(tmp_path, LEVEL.replace('effort="50.0"', f'effort="{effort}"')).robot)
        assert (f"pan, lift, elbow and 3 more: an effort limit of {effort:g} N·m is implausible" in words(check)) is (
            implausible
        )
        assert check.stable is not implausible

    def test_the_advice_followed_is_stable(self, tmp_path: Path) -> None:
        text = LEVEL.replace('effort="50.0"', 'effort="4000"')
        efforts = (("*", 50.0), ("w?", 10.0))
        result = imported(tmp_path, text, ImportOptions(servos=Servos(efforts=efforts)))
        assert [joint.effort_limit for joint in result.robot.spec.joints] == [50.0, 50.0, 50.0, 10.0, 10.0, 10.0]
        assert check_robot(result.robot).stable
        assert "w1, w2, w3: effort limit 10, as asked [leave out --effort]" in said(result)

    def test_a_joint_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"`effort` knee=5: no joint of that name; known: pan, lift"):
            imported(tmp_path, LEVEL, ImportOptions(servos=Servos(efforts=(("knee", 5.0),))))

    @pytest.mark.parametrize(
        ("text", "message"), [("a", "expected a number"), ("pan=nan", "--effort"), ("0", "--effort")]
    )
    def test_bad_numbers(self, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["robots", "import", "nothing.urdf", "--effort", text]) == 2
        assert message in capsys.readouterr().err


def test_a_base_with_wheels_is_said_to_be_fixed(tmp_path: Path) -> None:
    wheels = "".join(
        link(f"{side}_wheel") + joint(f"{side}_wheel_joint", "base", f"{side}_wheel", xyz=f"0 {y} 0", kind="continuous")
        for side, y in (("left", 0.2), ("right", -0.2))
    )
    text = said(imported(tmp_path, f'<robot name="cart">{BASE}{wheels}</robot>'))
    assert (
        "base: is fixed to the world, although it has wheels: left_wheel_joint, right_wheel_joint [--floating]" in text
    )


def arms(axis_of_torso: str = "revolute") -> str:
    both = "".join(
        link(f"{side}_upper")
        + link(f"{side}_lower")
        + joint(f"{side}_shoulder", "torso", f"{side}_upper", xyz=f"0 {y} .3")
        + joint(f"{side}_elbow", f"{side}_upper", f"{side}_lower")
        for side, y in (("left", 0.2), ("right", -0.2))
    )
    torso = joint("lift", "base", "torso", axis="0 0 1", kind=axis_of_torso)
    return f'<robot name="two">{BASE}{link("torso")}{both}{torso}</robot>'


def test_two_arms_of_equal_length(tmp_path: Path) -> None:
    text = said(imported(tmp_path, arms()))
    assert "end effector: left_lower, the last link behind 3 hinges; other arms are as long, to right_lower" in text


def test_arms_behind_a_slide(tmp_path: Path) -> None:
    text = said(imported(tmp_path, arms("prismatic")))
    assert "end effector: none: joint lift is no hinge, and contracts compute frames behind hinges only" in text
