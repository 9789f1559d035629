"""Triangles of a model's geoms fill the boxes that MuJoCo computed for them, wherever the geoms are."""

import mujoco
import numpy as np
import pytest

from physai.service.view.scene import BodyPoses, shapes
from physai.sim.tasks.registry import load_task, task_names

ALL = """<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 2 0  0 0 3"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="2 3 1"/>
    <body pos="1 2 3" quat="0.5 0.5 0.5 0.5"><freejoint/>
      <geom name="box" type="box" size="0.1 0.2 0.3" pos="1 0 0" euler="30 40 50"/>
      <geom name="ball" type="sphere" size="0.4"/>
      <geom name="egg" type="ellipsoid" size="0.1 0.2 0.3" euler="10 20 30"/>
      <geom name="rod" type="cylinder" size="0.1 0.5" pos="0 1 0" euler="90 0 0"/>
      <geom name="pill" type="capsule" fromto="0 0 0 1 1 1" size="0.05"/>
      <geom name="mesh" type="mesh" mesh="wedge" pos="0 0 1" euler="0 0 90"/>
      <geom name="hull" type="box" size="1 1 1" group="3"/>
      <geom name="ghost" type="box" size="1 1 1" rgba="1 1 1 0"/>
    </body>
  </worldbody>
</mujoco>"""


def check(model: mujoco.MjModel) -> None:
    """Corners of every shape, seen from the geom, lie in its bounding box and touch all six sides."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    positions, orientations = BodyPoses(model).at(data.qpos)
    for shape in shapes(model):
        geom = next(g for g in range(model.ngeom) if (model.geom(g).name or f"geom{g}") == shape.name)
        body = np.zeros(9)
        mujoco.mju_quat2Mat(body, orientations[shape.body])
        world = shape.vertices @ body.reshape(3, 3).T + positions[shape.body]
        local = (world - data.geom_xpos[geom]) @ data.geom_xmat[geom].reshape(3, 3)
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
            half = [size or 10.0 for size in model.geom_size[geom][:2]]
            assert np.abs(local).max(axis=0) == pytest.approx((*half, 0.0), abs=1e-9)
            continue
        centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        # Spheres of triangles fall short of round ones by up to 2 % of the greatest half side.
        short = 0.02 * half.max()
        assert np.all(local.max(axis=0) <= centre + half + 1e-6), shape.name
        assert np.all(local.min(axis=0) >= centre - half - 1e-6), shape.name
        assert np.all(local.max(axis=0) >= centre + half - short), shape.name
        assert np.all(local.min(axis=0) <= centre - half + short), shape.name
        assert shape.faces.max() < len(shape.vertices)


def test_every_kind_of_geom_has_its_place() -> None:
    model = mujoco.MjSpec.from_string(ALL).compile()
    assert [shape.name for shape in shapes(model)] == ["floor", "box", "ball", "egg", "rod", "pill", "mesh"]
    check(model)


@pytest.mark.parametrize("name", task_names())
def test_robots_are_where_the_simulation_has_them(name: str) -> None:
    model = load_task(name).model
    assert shapes(model)
    check(model)


def test_an_infinite_plane_is_drawn_in_part() -> None:
    xml = '<mujoco><worldbody><geom type="plane" size="0 0 1"/></worldbody></mujoco>'
    (shape,) = shapes(mujoco.MjSpec.from_string(xml).compile())
    assert np.abs(shape.vertices).max() == 10.0


def test_a_material_colours_a_geom_that_has_no_colour() -> None:
    xml = """<mujoco><asset><material name="red" rgba="1 0 0 1"/></asset><worldbody>
      <geom name="a" size="1" material="red"/><geom name="b" size="1" material="red" rgba="0 1 0 0.5"/>
      <geom name="c" size="1"/></worldbody></mujoco>"""
    colours = {shape.name: shape.colour for shape in shapes(mujoco.MjSpec.from_string(xml).compile())}
    assert colours == {"a": (1.0, 0.0, 0.0, 1.0), "b": (0.0, 1.0, 0.0, 0.5), "c": (0.5, 0.5, 0.5, 1.0)}
