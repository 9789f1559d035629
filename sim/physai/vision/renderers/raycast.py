"""MuJoCo Warp's ray caster: many states at once, without OpenGL, on a CPU or a GPU."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import CameraSpec
from physai.sim.engines.warp import modules
from physai.vision.appearance import Appearance
from physai.vision.renderers.renderer import Floats, Pixels, camera_ids, encoded, moved_cameras


class RaycastRenderer:
    """Renders a fixed number of states at a time."""

    def __init__(
        self,
        model: mujoco.MjModel,
        cameras: Sequence[CameraSpec],
        *,
        worlds: int = 16,
        shadows: bool = False,
        device: str = "cpu",
    ) -> None:
        """Put a scene on a device.

        Args:
            model: scene with the cameras and with `even_light`.
            cameras: to render, each in the model.
            worlds: number of states that are rendered at once.
            shadows: whether lights of the model that cast shadows do.
            device: name of a Warp device.

        Raises:
            VisionError: a camera is not in the model.
            MissingExtraError: MuJoCo Warp is not installed.
        """
        warp, mujoco_warp = self._warp, self._mjw = modules()
        self._worlds, self._device = worlds, device
        self._host = model
        self._plain = True
        ids = camera_ids(model, cameras)
        self._ids = sorted(ids)
        # The context numbers its cameras by their order in the model.
        self._cameras = [camera for _, camera in sorted(zip(ids, cameras, strict=True), key=lambda pair: pair[0])]
        with warp.ScopedDevice(device):
            self._model: Any = mujoco_warp.put_model(model)
            self._data: Any = mujoco_warp.make_data(model, nworld=worlds)
            self._context: Any = mujoco_warp.create_render_context(
                model,
                nworld=worlds,
                cam_res=[(camera.width, camera.height) for camera in self._cameras],
                render_rgb=True,
                cam_active=sorted(ids),
                use_shadows=shadows,
                enable_specular=False,
                enable_emission=False,
                shadow_light_fraction=0.0,
                deterministic=True,
            )
            self._images = [
                warp.zeros((worlds, camera.height, camera.width), dtype=warp.vec3f) for camera in self._cameras
            ]

    def render(self, qpos: Floats, appearance: Appearance | None = None) -> dict[str, Pixels]:
        """See `CameraRenderer`."""
        parts: dict[str, list[Pixels]] = {camera.name: [] for camera in self._cameras}
        for begin in range(0, len(qpos), self._worlds):
            states = qpos[begin : begin + self._worlds]
            self._show(None if appearance is None else appearance.rows(begin, begin + len(states)))
            for camera, image in zip(self._cameras, self._batch(states), strict=True):
                parts[camera.name].append(image)
        return {
            camera.name: encoded(np.concatenate(parts[camera.name]), camera)
            if parts[camera.name]
            else encoded(np.zeros((0, camera.height, camera.width, 3), np.uint8), camera)
            for camera in self._cameras
        }

    def _show(self, appearance: Appearance | None) -> None:
        """Set the poses of the cameras and the light of a batch."""
        if appearance is None and self._plain:
            return
        self._plain = appearance is None
        host, model = self._host, self._model
        fields = ("cam_pos", "cam_quat", "light_ambient", "light_diffuse", "light_dir")
        # A copy for each world: the model has one that all share.
        values = {name: np.repeat(getattr(host, name)[None], self._worlds, axis=0) for name in fields}
        if appearance is not None:
            rows = self._rows(len(appearance.ambient))
            for number, camera in zip(self._ids, self._cameras, strict=True):
                positions, quats = moved_cameras(host, number, camera.name, appearance)
                values["cam_pos"][:, number], values["cam_quat"][:, number] = positions[rows], quats[rows]
            values["light_ambient"][:] = appearance.ambient[rows][:, None, None]
            values["light_diffuse"][:] = appearance.direct[rows][:, None, None]
            values["light_dir"][:] = appearance.direction[rows][:, None]
        with self._warp.ScopedDevice(self._device):
            for name, value in values.items():
                kind = getattr(model, name).dtype
                setattr(model, name, self._warp.array(value.astype(np.float32), dtype=kind))

    def _rows(self, count: int) -> npt.NDArray[np.intp]:
        """Return the rows of a batch; the last one is repeated to fill it."""
        return np.minimum(np.arange(self._worlds), count - 1)

    def _batch(self, states: Floats) -> list[Pixels]:
        rows = self._rows(len(states))
        with self._warp.ScopedDevice(self._device):
            self._data.qpos.assign(states[rows].astype(np.float32))
            self._mjw.kinematics(self._model, self._data)
            self._mjw.camlight(self._model, self._data)
            self._mjw.refit_bvh(self._model, self._data, self._context)
            self._mjw.render(self._model, self._data, self._context)
            images: list[Pixels] = []
            for number, image in enumerate(self._images):
                self._mjw.get_rgb(self._context, number, image)
                whole = np.floor(np.clip(image.numpy(), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
                images.append(whole[: len(states)])
        return images

    def close(self) -> None:
        """See `CameraRenderer`."""
        self._images = []
