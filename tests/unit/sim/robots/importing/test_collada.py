"""COLLADA meshes have the size and the direction that their files state."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sim.robots.importing.importer import Imported, import_robot
from physai.sim.robots.importing.meshes.collada import metres, up_axis

pytest.importorskip("collada")
trimesh: Any = pytest.importorskip("trimesh")

INERTIA = '<inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/>'
ROBOT = """<robot name="r"><link name="base"/><link name="a">
  <visual><origin rpy="{rpy}" xyz="{xyz}"/><geometry><mesh filename="m.dae" {scale}/></geometry></visual>
  <inertial><origin xyz="{mass}"/><mass value="1"/>{inertia}</inertial></link>
  <joint name="j" type="revolute"><parent link="base"/><child link="a"/><axis xyz="0 1 0"/>
  <limit lower="-1" upper="1" effort="20" velocity="2"/></joint></robot>"""


def dae(size: tuple[float, float, float], offset: tuple[float, float, float], head: str) -> bytes:
    """A box around a point; `head` stands for <up_axis> in its <asset>."""
    box = trimesh.creation.box(size, transform=trimesh.transformations.translation_matrix(offset))
    text = bytes(trimesh.exchange.dae.export_collada(box))
    assert text.count(b"<up_axis>Y_UP</up_axis>") == 1
    return text.replace(b"<up_axis>Y_UP</up_axis>", head.encode())


def imported(folder: Path, content: bytes, *, mass: str = "0 0 0", scale: str = "", xyz: str = "0 0 0") -> Imported:
    (folder / "m.dae").write_bytes(content)
    text = ROBOT.format(mass=mass, inertia=INERTIA, scale=scale, rpy="0 0 0", xyz=xyz)
    (folder / "r.urdf").write_text(text)
    return import_robot(folder / "r.urdf", folder / "out")


def extent(result: Imported) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest corner of the mesh in the link, at home [m]."""
    model = result.robot.model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    (geom,) = [g for g in range(model.ngeom) if int(model.geom_type[g]) == int(mujoco.mjtGeom.mjGEOM_MESH)]
    points = data.geom_xpos[geom] + model.mesh_vert @ data.geom_xmat[geom].reshape(3, 3).T
    return points.min(axis=0), points.max(axis=0)


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


CENTIMETRES = '<unit name="centimeter" meter="0.01"/>'


@pytest.mark.parametrize(("scale", "factor"), [("", 1.0), ('scale="2 2 2"', 2.0)])
def test_a_box_in_centimetres(scale: str, factor: float, tmp_path: Path) -> None:
    result = imported(tmp_path, dae((10, 20, 40), (0, 0, 0), f"{CENTIMETRES}<up_axis>Z_UP</up_axis>"), scale=scale)
    low, high = extent(result)
    assert high - low == pytest.approx(factor * np.array([0.1, 0.2, 0.4]), rel=1e-5)
    assert "meshes: 1 in units of 0.01 m, as m.dae says" in said(result)


@pytest.mark.parametrize(
    ("axis", "size", "low"),
    [
        ("Z", (0.1, 0.2, 0.4), (-0.05, -0.1, 0.0)),
        # The file's box reaches from 0 to 0.4 along its z; with y up that is backwards, along -y.
        ("Y", (0.1, 0.4, 0.2), (-0.05, -0.4, -0.1)),
        # With x up, y goes to -x, and z to -y.
        ("X", (0.2, 0.4, 0.1), (-0.1, -0.4, -0.05)),
    ],
)
def test_the_axis_that_is_up(axis: str, size: tuple[float, ...], low: tuple[float, ...], tmp_path: Path) -> None:
    content = dae((0.1, 0.2, 0.4), (0, 0, 0.2), f"<up_axis>{axis}_UP</up_axis>")
    result = imported(tmp_path, content, mass="0 -0.2 0" if axis != "Z" else "0 0 0.2")
    lowest, highest = extent(result)
    assert lowest == pytest.approx(np.array(low), abs=1e-6)
    assert highest - lowest == pytest.approx(np.array(size), rel=1e-5)
    assert (f"say that {axis.lower()} is up, turned so that z is" in said(result)) is (axis != "Z")


def test_centres_of_mass_speak_against_an_axis_that_a_program_wrote_by_default(tmp_path: Path) -> None:
    content = dae((0.1, 0.2, 0.4), (0, 0, 0.2), "<up_axis>Y_UP</up_axis>")
    result = imported(tmp_path, content, mass="0 0 0.7", xyz="0 0 0.5")
    assert extent(result)[0] == pytest.approx(np.array([-0.05, -0.1, 0.5]), abs=1e-6)
    assert "1 say that y is up, taken as they are, as RViz does: so they are " in said(result)


@pytest.mark.parametrize("unit", ["", "0", "-1", "nan", "inf", "one", "1e999"])
def test_units_that_are_no_length_are_metres(unit: str) -> None:
    assert metres(f'<asset><unit meter="{unit}"/></asset>'.encode()) == 1.0
    assert metres(b"<asset/>") == 1.0
    assert up_axis(b"<up_axis>W_UP</up_axis>") == up_axis(b"") == "Z"
