"""Reduces the triangles of meshes that are only looked at, so that robots load and are drawn faster."""

import importlib
import io
from pathlib import Path
from typing import Any

import mujoco

from physai.sdk.base.errors import ModelError
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.meshes.assets import mesh_problem, model_file

LEAST_FACES = 16
"""Fewest triangles that still show what a part is."""
_FORMATS = (".stl", ".obj")


def decimated(spec: mujoco.MjSpec, folder: Path, faces: int, decisions: Decisions) -> dict[str, bytes]:
    """Binary STLs of the visual meshes that have more than so many triangles, with about as many, by mesh name.

    Vertices are merged where that changes the surface least (quadric error metrics, Garland and Heckbert 1997). What
    collides, gives a body its mass or has a texture stays as it is.

    Args:
        spec: the model.
        folder: where its relative names begin.
        faces: triangles that a mesh may have.
        decisions: takes what is reduced.

    Raises:
        ModelError: a library is missing, or a file cannot be read.
    """
    trimesh = _library("trimesh")
    _library("fast_simplification")
    reduced: dict[str, bytes] = {}
    before = after = 0
    looked_at = _visual(spec)
    for mesh in spec.meshes:
        suffix = Path(mesh.file).suffix.lower()
        if mesh.name not in looked_at or suffix not in _FORMATS:
            continue
        try:
            loaded = trimesh.load(io.BytesIO(model_file(spec, folder, mesh)), file_type=suffix[1:], force="mesh")
            smaller = loaded.simplify_quadric_decimation(face_count=faces) if len(loaded.faces) > faces else loaded
        except ModelError:
            raise
        except Exception as error:  # whatever an odd mesh makes the libraries raise
            decisions.add("meshes", f"{mesh.name} is not decimated: {' '.join(str(error).split())[:160]}")
            continue
        content = bytes(smaller.export(file_type="stl"))
        if len(smaller.faces) < len(loaded.faces) and not mesh_problem(mesh, content, "mesh.stl"):
            reduced[mesh.name] = content
            before, after = before + len(loaded.faces), after + len(smaller.faces)
    what = f"no visual one has more than {faces} triangles"
    if reduced:
        what = f"{len(reduced)} visual ones reduced from {before} to {after} triangles, as asked"
    decisions.add("meshes", what, "leave out --decimate")
    return reduced


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"`decimate` needs {name}: pip install trimesh fast-simplification") from error


def _visual(spec: mujoco.MjSpec) -> set[str]:
    """Names of meshes that are drawn and nothing else."""
    drawn, needed = set[str](), set[str]()
    paired = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    textured = {material.name for material in spec.materials if any(material.textures)}
    from_shapes = spec.compiler.inertiafromgeom == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    for body in spec.bodies:
        weighs = body.name != "world" and (from_shapes or not body.explicitinertial)
        for geom in body.geoms:
            collides = geom.contype or geom.conaffinity or geom.name in paired
            heavy = weighs and (geom.density > 0.0 or geom.mass > 0.0)
            if geom.type != mujoco.mjtGeom.mjGEOM_MESH or collides or heavy or geom.material in textured:
                needed.add(geom.meshname)
            else:
                drawn.add(geom.meshname)
    return drawn - needed - {""}
