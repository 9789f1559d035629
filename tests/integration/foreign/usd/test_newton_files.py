"""Newton's own USD files: each is read with all of its joints, bodies and drives, or refused with a prim."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import pytest

from physai.sdk.base.errors import ModelError

FOLDER = os.environ.get("NEWTON_FILES", "")
MOVING = {"PhysicsRevoluteJoint": mujoco.mjtJoint.mjJNT_HINGE, "PhysicsPrismaticJoint": mujoco.mjtJoint.mjJNT_SLIDE}
GAINS = [f"drive:{axis}:physics:{name}" for axis in ("angular", "linear") for name in ("stiffness", "damping")]


def number_of(prim: Any) -> Callable[[str], float]:
    """Numbers of a prim's attributes; 0 of those that it does not have."""
    return lambda name: prim.GetAttribute(name).Get() or 0.0 if prim.HasAttribute(name) else 0.0


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="NEWTON_FILES names no checkout of newton-physics/newton")
def test_no_joint_body_or_drive_of_newtons_files_is_lost(stages: Any) -> None:
    usd: Any = importlib.import_module("pxr.Usd")
    physics: Any = importlib.import_module("pxr.UsdPhysics")
    read, refused = 0, list[str]()
    for path in sorted(Path(FOLDER).rglob("*.usd*")):
        try:
            model = stages.load(path).model
        except ModelError as error:
            refused.append(str(error))
            continue
        read += 1
        stage = usd.Stage.Open(str(path))
        prims = list(usd.PrimRange.Stage(stage, usd.TraverseInstanceProxies()))
        for kind, sort in MOVING.items():
            assert sum(prim.GetTypeName() == kind for prim in prims) == int((model.jnt_type == sort).sum()), path
        joints = [prim for prim in prims if prim.IsA(physics.Joint)]
        assert {str(prim.GetTypeName()) for prim in joints} <= {*MOVING, "PhysicsFixedJoint"}, path
        assert sum(prim.HasAPI(physics.RigidBodyAPI) for prim in prims) == model.nbody - 1, path
        driven = [prim for prim in joints if any(map(number_of(prim), GAINS))]
        assert model.nu == len(driven) + sum(prim.GetTypeName() == "MjcActuator" for prim in prims), path
    assert read > 20
    assert [message for message in refused if not message.startswith("/")] == []
