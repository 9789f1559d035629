"""Segments as what a browser draws: triangles that move with bodies, and the bodies' poses at each step."""

import base64
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.rlhf.answers.segment import PreferenceError, Segment, SegmentLayout
from physai.service.view.scene import BodyPoses, shapes
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import BUILT_IN, load_task


def drawn_model(layout: SegmentLayout, robot: Path | None) -> mujoco.MjModel:
    """The model whose positions a database's segments hold.

    Args:
        layout: the database's.
        robot: file of the robot; None for that of a built-in task.

    Raises:
        PreferenceError: the task is not built in and no robot is given, or the model has other positions.
    """
    if robot is not None:
        model = load_robot(str(robot)).model
    elif layout.task in BUILT_IN:
        model = load_task(layout.task).model
    else:
        # The name in a database must not choose a file that is run.
        raise PreferenceError(
            f"the task {layout.task!r} is not built in; add --preferences-model FILE to draw its robot"
        )
    if model.nq != layout.qpos:
        raise PreferenceError(
            f"the segments hold {layout.qpos} positions of {layout.task}, the model has {model.nq}; add "
            "--preferences-model FILE with the robot that was recorded"
        )
    return model


def scene(model: mujoco.MjModel) -> dict[str, Any]:
    """The visible shapes, each in the frame of its body: arrays as base64 of float32 and uint32."""
    return {
        "shapes": [
            {
                "body": shape.body,
                "colour": list(shape.colour),
                "vertices": _encoded(shape.vertices.astype("<f4")),
                "faces": _encoded(shape.faces.astype("<u4")),
            }
            for shape in shapes(model)
        ]
    }


def motion(model: mujoco.MjModel, segment: Segment, *, step_dt: float) -> dict[str, Any]:
    """Poses of all bodies at each step, shape (steps, bodies, 7): position [m], then quaternion (wxyz)."""
    poses = BodyPoses(model)
    found = np.empty((len(segment.qpos), model.nbody, 7), "<f4")
    for step, qpos in enumerate(segment.qpos):
        position, orientation = poses.at(qpos.astype(np.float64))
        found[step, :, :3], found[step, :, 3:] = position, orientation
    return {"dt": step_dt, "frames": len(found), "bodies": int(model.nbody), "poses": _encoded(found)}


def _encoded(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).data).decode("ascii")
