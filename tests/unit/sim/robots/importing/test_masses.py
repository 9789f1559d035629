"""An imported robot has the masses of its file: the sum of a URDF's <mass>; of an MJCF, what plain MuJoCo reads."""

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import fromstring

import mujoco
import pytest
from tests.support.foreign_arm import write_foreign_arm
from tests.support.foreign_biped import write_foreign_biped
from tests.support.foreign_quadruped import write_foreign_quadruped

from physai.sim.robots import load_robot
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot

INERTIA = '<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/>'
SHAPE = '<collision><geometry><box size=".2 .2 .2"/></geometry></collision>'


def link(name: str, kg: float | None, shape: str = SHAPE) -> str:
    inertial = "" if kg is None else f'<inertial><mass value="{kg}"/>{INERTIA}</inertial>'
    return f'<link name="{name}">{inertial}{shape}</link>'


def joint(parent: str, child: str, kind: str = "revolute") -> str:
    limit = '<limit lower="-1" upper="1" effort="20" velocity="2"/>' if kind == "revolute" else ""
    return (
        f'<joint name="to_{child}" type="{kind}"><origin xyz="0 0 -.3"/><parent link="{parent}"/>'
        f'<child link="{child}"/><axis xyz="0 1 0"/>{limit}</joint>'
    )


# As ANYmal B: shells, feet and a root of a dummy mass with shapes, none of which has an <inertial>.
LEGGED = f"""<robot name="legged">{link("base", None)}{link("trunk", 10)}{joint("base", "trunk", "fixed")}
{
    "".join(
        link(f"{s}_thigh", 2)
        + link(f"{s}_cover", None)
        + link(f"{s}_shank", 0.5)
        + link(f"{s}_foot", 1e-9)
        + joint("trunk", f"{s}_thigh")
        + joint(f"{s}_thigh", f"{s}_cover", "fixed")
        + joint(f"{s}_thigh", f"{s}_shank")
        + joint(f"{s}_shank", f"{s}_foot", "fixed")
        for s in ("left", "right")
    )
}</robot>"""


def imported(tmp_path: Path, text: str, name: str = "r.urdf", options: ImportOptions | None = None) -> Imported:
    (tmp_path / name).write_text(text)
    return import_robot(tmp_path / name, tmp_path / "out", options)


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


def in_file(text: str) -> float:
    return sum(float(mass.get("value", "nan")) for mass in fromstring(text).iterfind("link/inertial/mass"))


def test_links_without_inertial_have_no_mass(tmp_path: Path) -> None:
    result = imported(tmp_path, LEGGED)
    assert result.robot.spec.base == "floating"
    assert in_file(LEGGED) == pytest.approx(15.0)
    # Plain MuJoCo reads the folder's model, as users do.
    plain = mujoco.MjSpec.from_file(str(tmp_path / "out" / "out.xml")).compile()
    assert plain.body_mass.sum() == pytest.approx(15.0, rel=1e-5)
    assert plain.body("left_shank").mass[0] == pytest.approx(0.5)
    assert "mass: 15 kg move, as much as in the file" in said(result)
    assert "base, left_cover, left_foot, right_cover and 1 more: collision shapes but no <inertial>" in said(result)


def test_a_urdf_that_is_loaded_without_an_import_has_its_masses_too(tmp_path: Path) -> None:
    (tmp_path / "r.urdf").write_text(LEGGED)
    # The trunk is fixed to the world here, so the legs alone move.
    assert load_robot(tmp_path / "r.urdf").model.body_mass.sum() == pytest.approx(5.0, rel=1e-6)


def test_a_base_that_floats_without_any_mass_gets_a_gram(tmp_path: Path) -> None:
    text = re.sub(r'<mass value="10"/>', '<mass value="0"/>', LEGGED)
    result = imported(tmp_path, text)
    assert "base: floats but has no mass; 0.001 kg and 1e-06 kg·m² are used" in said(result)
    assert "mass: 5.001 kg move, as much as in the file" in said(result)


def test_mass_that_the_import_adds_is_said(tmp_path: Path) -> None:
    text = f'<robot name="r"><link name="base"/>{link("a", 0.01)}{link("b", None)}{joint("base", "a")}{joint("a", "b")}'
    result = imported(tmp_path, text + "</robot>")
    assert result.robot.model.body_mass.sum() == pytest.approx(0.011)
    assert "b: moves but has no mass; 0.001 kg" in said(result)
    assert "mass: 0.011 kg move; in the file it is 0.01 kg" in said(result)


@pytest.mark.parametrize("write", [write_foreign_arm, write_foreign_biped, write_foreign_quadruped])
def test_foreign_robots_keep_their_mass(write: Callable[[Path], Path], tmp_path: Path) -> None:
    source = write(tmp_path)
    result = import_robot(source, tmp_path / "out")
    fixed = {"base_link", "base"} if result.robot.spec.base == "fixed" else set[str]()
    masses = {
        one.get("name", ""): float(mass.get("value", "nan"))
        for one in fromstring(source.read_text()).findall("link")
        if (mass := one.find("inertial/mass")) is not None
    }
    expected = sum(kg for name, kg in masses.items() if name not in fixed and kg > 1e-4)
    moving = result.robot.model.body_weldid != 0
    assert result.robot.model.body_mass[moving].sum() == pytest.approx(expected, rel=1e-3)


CUBE = " ".join(str(number) for x in (0, 0.1) for y in (0, 0.1) for z in (0, 0.1) for number in (x, y, z))
TWO = """<mujoco><compiler {compiler}/><asset><mesh name="cube" vertex="{cube}"/>{asset}</asset>
  <worldbody><body name="a"><joint name="j1" axis="0 1 0" range="-1 1"/><geom type="mesh" mesh="cube" group="1"/>
    {more}<body name="b" pos="0 0 .3"><joint name="j2" axis="0 1 0" range="-1 1"/>
    <geom size=".05" mass=".4" group="1"/><geom size=".06" contype="0" conaffinity="0" group="2" mass="3"/></body>
  </body></worldbody></mujoco>"""


@pytest.mark.parametrize("compiler", ["", 'inertiagrouprange="0 1"', 'settotalmass="7"', 'inertiafromgeom="true"'])
def test_an_mjcf_has_the_masses_that_plain_mujoco_reads(compiler: str, tmp_path: Path) -> None:
    text = TWO.format(compiler=compiler, cube=CUBE, asset="", more="")
    plain = mujoco.MjSpec.from_string(text).compile()
    result = imported(tmp_path, text, "r.xml")
    model = result.robot.model
    for name in ("a", "b"):
        assert model.body(name).mass[0] == pytest.approx(plain.body(name).mass[0], rel=1e-5)
        assert model.body(name).inertia == pytest.approx(plain.body(name).inertia, rel=1e-4)


def test_a_flat_mesh_leaves_the_mass_of_the_others(tmp_path: Path) -> None:
    asset = '<mesh name="flat" vertex="0 0 0 1 0 0 0 1 0 1 1 0" face="0 1 2 1 3 2"/>'
    flat = '<geom type="mesh" mesh="flat" contype="0" conaffinity="0" mass="0"/>'
    result = imported(tmp_path, TWO.format(compiler="", cube=CUBE, asset=asset, more=flat), "r.xml")
    # 1e-3 m³ of water; the cube's surface would weigh 60 kg.
    assert result.robot.model.body("a").mass[0] == pytest.approx(1.0, rel=1e-5)
    assert "meshes: flat: no volume enclosed, so mass that follows from it is that of its shell" in said(result)


def test_masses_that_the_file_lacks_are_named(tmp_path: Path) -> None:
    """2 kg of the arm move, and 1 g of the tip, which has none in the file: within 0.1 %, and still not the file's."""
    text = f"""<robot name="r">{link("base", 5)}{link("arm", 2)}{link("tip", None)}{joint("base", "arm")}
    {joint("arm", "tip")}</robot>"""
    line = "mass: 2.001 kg move, as much as in the file; the file has no mass of tip: 0.001 kg each [edit the file]"
    assert line in said(imported(tmp_path, text)).splitlines()


def test_a_total_mass_that_the_file_asks_for_is_named(tmp_path: Path) -> None:
    """7 kg of 5 kg + 2 kg that are scaled to 14 kg: the 2 kg that move become 4 kg."""
    text = f"""<robot name="r"><mujoco><compiler settotalmass="14" fusestatic="false"/></mujoco>{link("base", 5)}
    {link("arm", 2)}{joint("base", "arm")}</robot>"""
    said_of = said(imported(tmp_path, text)).splitlines()
    assert (
        "mass: 4 kg move; in the file it is 2 kg, scaled by its <compiler settotalmass> [see decisions.json]" in said_of
    )
