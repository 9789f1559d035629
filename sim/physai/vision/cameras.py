"""Cameras of a contract in a MuJoCo model, and where they see a point.

The optical frame of a contract has x to the right of the image, y down and z forward; MuJoCo's camera has y up and
looks along -z. The centre of the pixel in column u and row v has the image coordinates (u, v), as in OpenCV.
"""

from collections.abc import Sequence

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.contract.robot import CameraSpec

Floats = npt.NDArray[np.float64]

SENSOR_M = 1e-3
"""Width of a camera's sensor in the model [m]; only its ratio to the focal length counts."""

PREFIX = "camera_"
"""Of the names of these cameras in a model, which may have cameras of its own."""


class VisionError(PhysaiError):
    """A camera that the scene cannot carry, or images that do not fit their camera."""


def add_cameras(spec: mujoco.MjSpec, cameras: Sequence[CameraSpec]) -> None:
    """Add the cameras of a contract to a scene.

    Args:
        spec: changed in place.
        cameras: each mounted on a body of the scene, or on `world`.

    Raises:
        VisionError: there is no such body, the lens distorts, or it is a depth camera.
    """
    bodies = {body.name: body for body in spec.bodies}
    for camera in cameras:
        mount, lens = camera.mount, camera.lens
        if mount.frame not in bodies:
            raise VisionError(f"camera {camera.name}: {unknown_name('body', mount.frame, bodies)}")
        if any(lens.d):
            raise VisionError(f"camera {camera.name}: a lens with distortion {list(lens.d)} is not rendered; 0 is")
        if camera.encoding == "16UC1":
            raise VisionError(f"camera {camera.name}: images of encoding 16UC1 are not rendered; rgb8, bgr8, mono8 are")
        added = bodies[mount.frame].add_camera(name=PREFIX + camera.name, pos=list(mount.translation))
        # A half turn about x: from the optical frame to MuJoCo's.
        w, x, y, z = mount.quat
        added.quat = [-x, w, z, -y]
        fx, fy, cx, cy = lens.k
        added.resolution = [camera.width, camera.height]
        added.focal_pixel = [fx, fy]
        added.principal_pixel = [(camera.width - 1) / 2 - cx, (camera.height - 1) / 2 - cy]
        added.sensor_size = [SENSOR_M, SENSOR_M * camera.height / camera.width]


def project(camera: CameraSpec, points: Floats, *, mount_pos: Floats, mount_rot: Floats) -> Floats:
    """Return the image coordinates of points.

    Args:
        camera: without distortion.
        points: in the world [m], shape (n, 3).
        mount_pos: origin of the body that carries the camera, in the world [m], shape (3,).
        mount_rot: its orientation, shape (3, 3).

    Returns:
        Column and row [pixels], shape (n, 2); NaN for a point behind the camera.
    """
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, np.array(camera.mount.quat))
    origin = mount_pos + mount_rot @ np.array(camera.mount.translation)
    seen = (points - origin) @ (mount_rot @ rotation.reshape(3, 3))
    fx, fy, cx, cy = camera.lens.k
    depth = np.where(seen[:, 2] > 0.0, seen[:, 2], np.nan)
    return np.column_stack([fx * seen[:, 0] / depth + cx, fy * seen[:, 1] / depth + cy])
