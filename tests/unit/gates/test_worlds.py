"""Worlds of a batch for models that have meshes."""

import copy
from pathlib import Path

import numpy as np
from tests.support.robot_zips import GOOD_MJCF, zipped

from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.robots import load_robot
from physai.twin.rollouts.worlds import differing_fields


def test_boxes_around_bodies_differ_and_those_of_meshes_do_not(tmp_path: Path) -> None:
    two_shapes = GOOD_MJCF["bot/parts/arm.xml"].replace(b"</body>", b'<geom size=".1" pos="0 0 1"/></body>')
    (tmp_path / "arm.zip").write_bytes(zipped(GOOD_MJCF | {"bot/parts/arm.xml": two_shapes}))
    nominal = load_robot(tmp_path / "arm.zip").model
    own, every = int(nominal.body_bvhnum.sum()), len(nominal.bvh_aabb)
    # Three boxes for the body with two shapes, and a tree over the four faces of its mesh.
    assert (own, every) == (3, 3 + 7)
    models = [copy.copy(nominal), copy.copy(nominal)]
    models[1].body_ipos[1, 0] += 0.1
    models[1].bvh_aabb[0, 0] += 0.1
    fields = differing_fields(nominal, models)
    assert fields["bvh_aabb"].shape == (2, own, 6)
    engine = MujocoEngine(nominal, 2, parameters=tuple(fields))
    for name, rows in fields.items():
        engine.parameter(name)[...] = rows
        assert np.array_equal(engine.parameter(name), rows)
