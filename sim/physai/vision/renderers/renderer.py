"""Interface of the renderers of camera images."""

from collections.abc import Sequence
from typing import Protocol

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import CameraSpec
from physai.vision.appearance import Appearance
from physai.vision.cameras import PREFIX, VisionError

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


class CameraRenderer(Protocol):
    """Images of all cameras of a scene, in many states of it."""

    def render(self, qpos: Floats, appearance: Appearance | None = None) -> dict[str, Pixels]:
        """Return images by the name of their camera, in its encoding.

        Args:
            qpos: states of the model, shape (n, nq).
            appearance: poses of the cameras and the light in each of the n states; None for those of the model.

        Returns:
            Shape (n, height, width, channels) each: 3 channels for rgb8 and bgr8, 1 for mono8.
        """
        ...

    def close(self) -> None:
        """Give up what the images were made with."""
        ...


def camera_ids(model: mujoco.MjModel, cameras: Sequence[CameraSpec]) -> list[int]:
    """Return the numbers of cameras in a model to which `add_cameras` has added them.

    Raises:
        VisionError: the model has no such camera, or one of another size.
    """
    ids: list[int] = []
    for camera in cameras:
        number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, PREFIX + camera.name)
        if number < 0:
            raise VisionError(f"camera {camera.name}: it was not added to the model")
        width, height = model.cam_resolution[number].tolist()
        if (width, height) != (camera.width, camera.height):
            raise VisionError(
                f"camera {camera.name}: {camera.width} by {camera.height} pixels, in the model {width} by {height}"
            )
        ids.append(number)
    return ids


def moved_cameras(model: mujoco.MjModel, number: int, name: str, appearance: Appearance) -> tuple[Floats, Floats]:
    """Return positions (n, 3) and orientations (n, 4) of a camera of the model, moved and turned."""
    offsets, turns = appearance.offsets[name], appearance.turns[name]
    quats = np.empty((len(turns), 4))
    # A turn about the axes of the optical frame, which are MuJoCo's with y and z turned round.
    for quat, turn in zip(quats, turns * np.array([1.0, 1.0, -1.0, -1.0]), strict=True):
        mujoco.mju_mulQuat(quat, model.cam_quat[number], turn)
    return model.cam_pos[number] + offsets, quats


def encoded(rgb: Pixels, camera: CameraSpec) -> Pixels:
    """Return RGB images of shape (..., 3) in the encoding of a camera."""
    if camera.encoding == "bgr8":
        return np.ascontiguousarray(rgb[..., ::-1])
    if camera.encoding == "mono8":
        # ITU-R BT.601, as OpenCV and cv_bridge do.
        grey = rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
        return np.floor(grey + 0.5).astype(np.uint8)[..., None]
    return rgb
