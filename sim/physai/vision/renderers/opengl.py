"""MuJoCo's OpenGL renderer, with the settings that are fast on a CPU."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import CameraSpec
from physai.sim.playback.closing import Closing
from physai.sim.playback.rendering import open_context, rendering_backend
from physai.vision.appearance import Appearance
from physai.vision.renderers.renderer import Floats, Pixels, camera_ids, encoded, moved_cameras

MAX_GEOMS = 4096
"""Geoms of a scene that are drawn."""


class OpenGlRenderer(Closing):
    """Renders one state after another; use it in the thread that made it."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[CameraSpec], *, shadows: bool = False) -> None:
        """Open an OpenGL context.

        Args:
            model: scene with the cameras and with `even_light`.
            cameras: to render, each in the model.
            shadows: whether lights of the model that cast shadows do.

        Raises:
            VisionError: a camera is not in the model.
            DeviceError: there is no OpenGL on this machine.
        """
        self._context: Any = None
        self._model, self._cameras = model, list(zip(camera_ids(model, cameras), cameras, strict=True))
        self._data = mujoco.MjData(model)
        width = max((camera.width for camera in cameras), default=1)
        height = max((camera.height for camera in cameras), default=1)
        self._context = open_context(rendering_backend(), width, height)
        self._resources = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        mujoco.mjr_resizeOffscreen(width, height, self._resources)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._resources)
        self._scene = mujoco.MjvScene(model, MAX_GEOMS)
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = False
        changed = (model.cam_pos, model.cam_quat, model.light_ambient, model.light_diffuse, model.light_dir)
        self._own = [(values, values.copy()) for values in changed]
        self._options, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED

    def render(self, qpos: Floats, appearance: Appearance | None = None) -> dict[str, Pixels]:
        """See `CameraRenderer`."""
        images = {
            camera.name: np.empty((len(qpos), camera.height, camera.width, 3), np.uint8) for _, camera in self._cameras
        }
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        for index, (state, own) in enumerate(zip(qpos, self._states(len(qpos), appearance), strict=True)):
            self._data.qpos[:] = state
            for values, value in own:
                values[...] = value
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_camlight(self._model, self._data)
            for number, camera in self._cameras:
                self._camera.fixedcamid = number
                mujoco.mjv_updateScene(
                    self._model, self._data, self._options, None, self._camera, everything, self._scene
                )
                viewport = mujoco.MjrRect(0, 0, camera.width, camera.height)
                mujoco.mjr_render(viewport, self._scene, self._resources)
                mujoco.mjr_readPixels(images[camera.name][index], None, viewport, self._resources)
        # OpenGL's first row is the bottom one.
        return {
            camera.name: encoded(np.ascontiguousarray(images[camera.name][:, ::-1]), camera)
            for _, camera in self._cameras
        }

    def _states(
        self, count: int, appearance: Appearance | None
    ) -> Iterator[list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]]:
        """Yield what to set in the model before each picture: the poses of the cameras and the light."""
        model, cameras = self._model, self._cameras
        if appearance is None:
            yield from itertools.repeat(list(self._own), count)
            return
        for values, value in self._own:
            values[...] = value
        moved = [(number, moved_cameras(model, number, camera.name, appearance)) for number, camera in cameras]
        for index in range(count):
            poses = [(model.cam_pos[number], positions[index]) for number, (positions, _) in moved]
            turns = [(model.cam_quat[number], quats[index]) for number, (_, quats) in moved]
            light = [
                (model.light_ambient, appearance.ambient[index]),
                (model.light_diffuse, appearance.direct[index]),
                (model.light_dir, appearance.direction[index]),
            ]
            yield [*poses, *turns, *light]

    def close(self) -> None:
        """Free the OpenGL resources; further calls do nothing."""
        if self._context is not None:
            self._context.make_current()
            self._resources.free()
            self._context.free()
            self._context = None
