"""Visual meshes are reduced on request; what collides, weighs or has a texture is not."""

import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import trimesh

from physai.sdk.base.errors import ModelError
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot

MASS = '<inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>'
MJCF = """<mujoco><compiler meshdir="meshes"/><asset><mesh name="fine" file="ball.obj"/><mesh file="other.stl"/>{asset}
</asset><worldbody><body name="a" pos="0 0 1"><joint name="j" axis="0 1 0" range="-90 90"/>{inertial}
<geom type="mesh" mesh="fine" {shape}/><geom type="mesh" mesh="other"/></body></worldbody>
<actuator><motor joint="j" ctrlrange="-9 9"/></actuator></mujoco>"""
DRAWN = 'contype="0" conaffinity="0"'
FACES = 20 * 4**4
"""Of an icosahedron, each of whose faces is cut into four as often as this."""


def imported(
    tmp_path: Path, faces: int | None, *, shape: str = DRAWN, asset: str = "", inertial: str = MASS
) -> Imported:
    meshes = tmp_path / "meshes"
    meshes.mkdir(exist_ok=True)
    creation: Any = trimesh.creation
    ball = creation.icosphere(subdivisions=4, radius=0.1)
    assert len(ball.faces) == FACES
    ball.export(meshes / "ball.obj")
    ball.apply_scale(0.5).export(meshes / "other.stl")
    (tmp_path / "robot.xml").write_text(MJCF.format(asset=asset, inertial=inertial, shape=shape))
    return import_robot(tmp_path / "robot.xml", tmp_path / "out", ImportOptions(faces=faces))


def counts(model: mujoco.MjModel) -> dict[str, int]:
    return {model.mesh(n).name: int(model.mesh_facenum[n]) for n in range(model.nmesh)}


def said(result: Imported) -> str:
    return "\n".join(result.decisions.lines())


def test_what_is_only_looked_at_is_reduced_and_keeps_its_form(tmp_path: Path) -> None:
    result = imported(tmp_path, 500)
    model = result.robot.model
    assert counts(model) == {"fine": 500, "other": FACES}
    assert f"meshes: 1 visual ones reduced from {FACES} to 500 triangles, as asked [leave out --decimate]" in said(
        result
    )
    radii = np.linalg.norm(model.mesh_vert[: model.mesh_vertnum[0]], axis=1)
    # A ball of 0.1 m. 500 equal triangles have sides of 2.4 cm and corners 1.4 cm from their middle, which lies 1 mm
    # below them; of triangles with twice that side it lies 4 mm below.
    assert np.abs(radii - 0.1).mean() < 1e-3
    assert np.abs(radii - 0.1).max() < 4e-3
    assert sorted(path.name for path in (tmp_path / "out" / "assets").iterdir()) == ["ball.stl", "other.stl"]
    assert model.body_mass[1] == 1.0


def test_nothing_is_reduced_without_being_asked(tmp_path: Path) -> None:
    assert counts(imported(tmp_path, None).robot.model) == {"fine": FACES, "other": FACES}


def test_few_triangles_stay(tmp_path: Path) -> None:
    result = imported(tmp_path, FACES)
    assert counts(result.robot.model)["fine"] == FACES
    assert f"no visual one has more than {FACES} triangles" in said(result)


TEXTURE = '<texture name="t" type="2d" builtin="flat" width="8" height="8"/><material name="m" texture="t"/>'


@pytest.mark.parametrize(
    "changes",
    [
        # Without <inertial> the drawn mesh has a mass, which must not change.
        {"inertial": ""},
        {"asset": TEXTURE, "shape": f'{DRAWN} material="m"'},
        {"shape": 'contype="0" conaffinity="1"'},
    ],
)
def test_what_weighs_has_a_texture_or_collides_stays(changes: dict[str, str], tmp_path: Path) -> None:
    assert counts(imported(tmp_path, 500, **changes).robot.model)["fine"] == FACES


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_simplification", None)
    with pytest.raises(
        ModelError, match="`decimate` needs fast_simplification: pip install trimesh fast-simplification"
    ):
        imported(tmp_path, 500)
