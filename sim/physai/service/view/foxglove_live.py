"""A session live in Foxglove: a server of its SDK on this machine's loopback, which the service passes on."""

import time

import foxglove
import mujoco
from foxglove.channels import FrameTransformsChannel, SceneUpdateChannel

from physai.service.view.live import HOST
from physai.service.view.motion import SCENE_TOPIC, TRANSFORMS_TOPIC, WorldPose, scene_update, transforms
from physai.service.view.scene import BodyPoses, Floats

SCENE_S = 1.0
"""How often the geometry is sent again, for clients that came later [s]."""


class FoxgloveView:
    """Publishes the first world of a model."""

    def __init__(self, name: str, model: mujoco.MjModel) -> None:
        """Starts a server on a free port."""
        # A context of its own: every session has the same topics.
        # Its channels close when nobody holds it.
        self._context = context = foxglove.Context()
        self._scene = SceneUpdateChannel(SCENE_TOPIC, context=context)
        self._transforms = FrameTransformsChannel(TRANSFORMS_TOPIC, context=context)
        self._server = foxglove.start_server(name=name, host=HOST, port=0, context=context)
        self._model = model
        self._poses = BodyPoses(model)
        self._sent = 0.0

    @property
    def port(self) -> int:
        """Port of the server on loopback."""
        return self._server.port

    def show(self, qpos: Floats) -> None:
        """Publishes positions, stamped with the present time."""
        now = time.monotonic()
        if now - self._sent >= SCENE_S:
            self._scene.log(scene_update(self._model))
            self._sent = now
        self._transforms.log(transforms(self._model, self._poses, WorldPose(time.time(), qpos)))

    def stop(self) -> None:
        """Stops the server."""
        self._server.stop()
