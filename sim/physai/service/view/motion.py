"""Motion of a session's worlds, as files that other programs open: MCAP for Foxglove, OpenUSD for Omniverse."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import foxglove
import mujoco
import numpy as np
from foxglove.channels import FrameTransformsChannel, SceneUpdateChannel
from foxglove.messages import (
    Color,
    Duration,
    FrameTransform,
    FrameTransforms,
    Point3,
    Pose,
    Quaternion,
    SceneEntity,
    SceneUpdate,
    Timestamp,
    TriangleListPrimitive,
    Vector3,
)
from pxr import Gf, Usd, UsdGeom, Vt

from physai.service.view.scene import BodyPoses, Floats, shapes

SCENE_TOPIC = "/scene"
TRANSFORMS_TOPIC = "/tf"
ROOT = "world"


@dataclass(frozen=True)
class WorldPose:
    """Positions of one world."""

    time: float
    """Simulated time since the recording began [s]."""
    qpos: Floats


class MotionRecorder:
    """The latest moments of a session's first world; may be used from any thread."""

    def __init__(self, moments: int, *, step_dt: float) -> None:
        """Keeps at most so many moments, `step_dt` seconds apart."""
        self._lock = threading.Lock()
        self._moments: deque[WorldPose] = deque(maxlen=moments)
        self._step_dt = step_dt
        self._count = 0

    def add(self, qpos: Floats) -> None:
        """Appends the positions after one more step."""
        with self._lock:
            self._moments.append(WorldPose(self._count * self._step_dt, qpos.copy()))
            self._count += 1

    def moments(self) -> list[WorldPose]:
        """The kept moments, oldest first."""
        with self._lock:
            return list(self._moments)


def frame(model: mujoco.MjModel, body: int) -> str:
    """Name of a body's frame."""
    return ROOT if body == 0 else model.body(body).name or f"body{body}"


def scene_update(model: mujoco.MjModel) -> SceneUpdate:
    """The geometry, each shape in the frame of its body."""
    return SceneUpdate(
        entities=[
            SceneEntity(
                id=f"{number}/{shape.name}",
                frame_id=frame(model, shape.body),
                frame_locked=True,
                lifetime=Duration(0, 0),
                triangles=[
                    TriangleListPrimitive(
                        points=[Point3(x=x, y=y, z=z) for x, y, z in shape.vertices.tolist()],
                        indices=shape.faces.ravel().tolist(),
                        color=Color(r=shape.colour[0], g=shape.colour[1], b=shape.colour[2], a=shape.colour[3]),
                        pose=Pose(
                            position=Vector3(x=0.0, y=0.0, z=0.0), orientation=Quaternion(x=0.0, y=0.0, z=0.0, w=1.0)
                        ),
                    )
                ],
            )
            for number, shape in enumerate(shapes(model))
        ]
    )


def transforms(model: mujoco.MjModel, poses: BodyPoses, moment: WorldPose) -> FrameTransforms:
    """Poses of all bodies in the world."""
    positions, orientations = poses.at(moment.qpos)
    stamp = Timestamp.from_epoch_secs(moment.time)
    return FrameTransforms(
        transforms=[
            FrameTransform(
                timestamp=stamp,
                parent_frame_id=ROOT,
                child_frame_id=frame(model, body),
                translation=Vector3(x=position[0], y=position[1], z=position[2]),
                rotation=Quaternion(w=quat[0], x=quat[1], y=quat[2], z=quat[3]),
            )
            for body, (position, quat) in enumerate(zip(positions.tolist(), orientations.tolist(), strict=True))
            if body > 0
        ]
    )


def write_mcap(path: Path, model: mujoco.MjModel, moments: Sequence[WorldPose]) -> None:
    """Writes geometry and motion with Foxglove's schemas; `log_time` is simulated time."""
    # A context of its own, so that what is sent live does not come into the file.
    context = foxglove.Context()
    scene = SceneUpdateChannel(SCENE_TOPIC, context=context)
    tf = FrameTransformsChannel(TRANSFORMS_TOPIC, context=context)
    poses = BodyPoses(model)
    with foxglove.open_mcap(path, context=context):
        scene.log(scene_update(model), log_time=0)
        for moment in moments:
            tf.log(transforms(model, poses, moment), log_time=round(1e9 * moment.time))


def write_usd(path: Path, model: mujoco.MjModel, moments: Sequence[WorldPose], *, step_dt: float) -> None:
    """Writes geometry and motion as an OpenUSD stage with z up, in metres; one time code per step of the task."""
    stage = Usd.Stage.CreateNew(str(path))
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    root = UsdGeom.Xform.Define(stage, "/World")
    stage.SetDefaultPrim(root.GetPrim())
    stage.SetTimeCodesPerSecond(1.0 / step_dt)
    if moments:
        stage.SetStartTimeCode(moments[0].time / step_dt)
        stage.SetEndTimeCode(moments[-1].time / step_dt)
    bodies = [UsdGeom.Xform.Define(stage, f"/World/body{body}") for body in range(model.nbody)]
    for body, prim in enumerate(bodies):
        prim.GetPrim().SetDisplayName(frame(model, body))
    for number, shape in enumerate(shapes(model)):
        mesh = UsdGeom.Mesh.Define(stage, f"/World/body{shape.body}/shape{number}")
        mesh.GetPrim().SetDisplayName(shape.name)
        mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(shape.vertices.astype(np.float32)))
        mesh.CreateFaceVertexCountsAttr([3] * len(shape.faces))
        mesh.CreateFaceVertexIndicesAttr(shape.faces.ravel().tolist())
        mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
        mesh.CreateDisplayColorAttr([Gf.Vec3f(*shape.colour[:3])])
        mesh.CreateDisplayOpacityAttr([shape.colour[3]])
    moves = [
        (prim.AddTranslateOp(UsdGeom.XformOp.PrecisionDouble), prim.AddOrientOp(UsdGeom.XformOp.PrecisionDouble))
        for prim in bodies
    ]
    poses = BodyPoses(model)
    for moment in moments:
        code = Usd.TimeCode(moment.time / step_dt)
        for (translate, orient), position, quat in zip(moves, *poses.at(moment.qpos), strict=True):
            translate.Set(Gf.Vec3d(*position.tolist()), code)
            orient.Set(Gf.Quatd(*quat.tolist()), code)
    stage.GetRootLayer().Save()
