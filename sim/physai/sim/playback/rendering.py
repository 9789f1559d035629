"""Offscreen rendering of images and videos.

MuJoCo's `Renderer` selects the OpenGL backend by MUJOCO_GL when mujoco is first imported, long before it is needed.
This module opens its own context on demand: EGL if it works, otherwise OSMesa.
"""

import functools
import importlib
import math
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import DeviceError
from physai.sdk.base.files import oserror_as, require_replaceable, write_atomic
from physai.sim.playback.closing import Closing
from physai.sim.playback.markers import Stroke, draw
from physai.sim.robots.shapes import shape_corners
from physai.sim.robots.spec import has_floating_base, home_qpos

Backend = Literal["egl", "osmesa"]
Image = NDArray[np.uint8]
Array = NDArray[np.float64]
Labels = Sequence[tuple[str, str]]

WIDER = 1.2
"""How much wider a robot must look from the other side to be shown from there."""
MAX_PIXELS = 4096
"""Greatest width or height of a picture."""

NO_OPENGL = "no OpenGL on this machine: neither EGL nor OSMesa works; apt-get install libegl1 libgl1-mesa-dri"

_PROBE = """
import mujoco
from mujoco.{0} import GLContext
context = GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100.value)
"""
_PROBE_TIMEOUT_S = 60.0


@functools.cache
def rendering_backend() -> Backend:
    """The OpenGL backend that works on this machine; MUJOCO_GL restricts the choice.

    Raises:
        DeviceError: no backend works.
    """
    # Probe in a subprocess: a broken driver may crash the process.
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    candidates: tuple[Backend, ...] = ("egl", "osmesa")
    for backend in candidates:
        if wanted in candidates and backend != wanted:
            continue
        environment = {**os.environ, "MUJOCO_GL": backend}
        try:
            probe = subprocess.run(
                [sys.executable, "-c", _PROBE.format(backend)],
                env=environment,
                capture_output=True,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            return backend
    raise DeviceError(NO_OPENGL)


class OffscreenRenderer(Closing):
    """Renders states of one model into images of one size.

    Use it as a context manager, in one thread. `camera` may be changed between frames.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        *,
        width: int = 960,
        height: int = 720,
        poses: Sequence[Array] | None = None,
        points: Array | None = None,
        fine: bool = False,
    ) -> None:
        """Open the OpenGL context and aim the camera.

        Args:
            model: the compiled model.
            width: of the image [pixels].
            height: of the image [pixels].
            poses: generalised positions, each of shape (nq,), that the image must hold; by default, where the robot
                can get to from its home pose.
            points: of the world [m], shape (n, 3), that it must hold too.
            fine: sharp shadows and smooth edges, at five times the time per frame where the CPU draws (0.4 s against
                0.08 s for 960x720 pixels on two cores).

        Raises:
            DeviceError: no OpenGL backend works here.
        """
        if not (1 <= width <= MAX_PIXELS and 1 <= height <= MAX_PIXELS):
            raise DeviceError(f"image size {width}x{height}: each side must lie in 1..{MAX_PIXELS} pixels")
        self._model = model
        self._context: Any = open_context(rendering_backend(), width, height)
        self._resources = _load_resources(model, fine=fine)
        mujoco.mjr_resizeOffscreen(width, height, self._resources)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._resources)
        self._scene = mujoco.MjvScene(model, 4096)
        self._options = mujoco.MjvOption()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._image: Image = np.empty((height, width, 3), dtype=np.uint8)
        self.camera = free_camera(model, poses or reachable_poses(model), aspect=width / height, points=points)
        """The free camera; of a robot with a floating base, it follows the base."""
        self._data = mujoco.MjData(model)
        self._data.qpos[:] = home_qpos(model)
        _update(model, self._data)
        self._floor_z = missing_floor(model, self._data.qpos)
        self._camera_offset = np.array(self.camera.lookat) - _base_position(model, self._data)

    def render(self, qpos: Array, strokes: Sequence[Stroke] = (), labels: Labels = ()) -> Image:
        """Image of one pose.

        Args:
            qpos: generalised position, shape (nq,).
            strokes: strokes to draw in addition to the model.
            labels: names and values to write in the upper left corner; ASCII only.

        Returns:
            RGB, shape (height, width, 3), owned by the caller.
        """
        self._data.qpos[:] = qpos
        _update(self._model, self._data)
        if has_floating_base(self._model):
            self.camera.lookat[:2] = (_base_position(self._model, self._data) + self._camera_offset)[:2]
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, self._options, None, self.camera, everything, self._scene)
        draw(self._scene, strokes, floor_z=self._floor_z)
        mujoco.mjr_render(self._viewport, self._scene, self._resources)
        if labels:
            names, values = ("\n".join(column) for column in zip(*labels, strict=True))
            font, corner = mujoco.mjtFont.mjFONT_NORMAL.value, mujoco.mjtGridPos.mjGRID_TOPLEFT.value
            mujoco.mjr_overlay(font, corner, self._viewport, names, values, self._resources)
        mujoco.mjr_readPixels(self._image, None, self._viewport, self._resources)
        # OpenGL's first row is the bottom one.
        return np.ascontiguousarray(self._image[::-1])

    def close(self) -> None:
        """Free the OpenGL resources; further calls do nothing."""
        if self._context is not None:
            self._context.make_current()
            self._resources.free()
            self._context.free()
            self._context = None


def open_context(backend: Backend, width: int, height: int) -> Any:
    """Open an OpenGL context without a window and make it the thread's own.

    Raises:
        DeviceError: the backend does not work here.
    """
    try:
        context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
        context.make_current()
    except (ImportError, RuntimeError, AttributeError) as error:
        raise DeviceError(f"{NO_OPENGL} ({error})") from error
    return context


def _load_resources(model: mujoco.MjModel, *, fine: bool) -> Any:
    """Upload the model's meshes and textures, at the quality asked for; the model keeps its own settings."""
    settings, lights = model.vis.quality, model.vis.map
    own = int(settings.shadowsize), int(settings.offsamples), float(lights.shadowclip)
    settings.shadowsize, settings.offsamples = (8192, 4) if fine else (2048, 0)
    # At the edge of what a light's shadow map covers the floor is speckled; MuJoCo's default has it in the picture.
    lights.shadowclip = max(lights.shadowclip, 1.5)
    try:
        return mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
    finally:
        settings.shadowsize, settings.offsamples, lights.shadowclip = own


def render_png(
    model: mujoco.MjModel,
    qpos: Array,
    path: str | Path,
    *,
    width: int = 1280,
    height: int = 960,
    strokes: Sequence[Stroke] = (),
) -> None:
    """Write a picture of one pose, as large as it fits.

    Args:
        model: the compiled model.
        qpos: generalised position, shape (nq,).
        path: of the PNG file.
        width: of the picture [pixels].
        height: of the picture [pixels].
        strokes: strokes to draw in addition to the model.

    Raises:
        DeviceError: no OpenGL backend works here, or the file cannot be written.
    """
    ends = np.array([end for stroke in strokes for end in (stroke.start, stroke.end)]).reshape(-1, 3)
    poses = [np.asarray(qpos)]
    with OffscreenRenderer(model, width=width, height=height, poses=poses, points=ends, fine=True) as renderer:
        image = renderer.render(qpos, strokes)
    with oserror_as(DeviceError, f"{path}: cannot write the picture"):
        write_atomic(Path(path), png_bytes(image))


def png_bytes(image: Image) -> bytes:
    """PNG file (RFC 2083, 8-bit RGB, no filter) of an image of shape (height, width, 3)."""
    height, width, _ = image.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    body = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def _update(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Place bodies, lights and tendons where the positions put them."""
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_tendon(model, data)
    mujoco.mj_camlight(model, data)


def missing_floor(model: mujoco.MjModel, home: Array) -> float | None:
    """Height [m] at which to draw a floor below a robot that stands on none; None if it needs none.

    A robot that can fall gets none: it would fall through what is only drawn.
    """
    if mujoco.mjtGeom.mjGEOM_PLANE in model.geom_type or has_floating_base(model) or model.ngeom == 0:
        return None
    return float(shape_corners(model, [home])[:, 2].min())


def reachable_poses(model: mujoco.MjModel, count: int = 32) -> list[Array]:
    """The home pose and, for a robot with a fixed base, poses drawn around it.

    A hinge without limits is drawn from the full circle, one with limits from half a radian to each side, a slide from
    its whole range.

    Args:
        model: the compiled model.
        count: number of poses drawn.
    """
    home = home_qpos(model)
    poses = [home]
    # A fixed seed: the same model always gets the same view.
    rng = np.random.default_rng(0)
    for _ in range(0 if has_floating_base(model) else count):
        pose = home.copy()
        for joint in range(model.njnt):
            address, limited = int(model.jnt_qposadr[joint]), bool(model.jnt_limited[joint])
            low, high = (float(x) for x in model.jnt_range[joint])
            if int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_HINGE:
                reach = 0.5 if limited else math.pi
                pose[address] += rng.uniform(-reach, reach)
            if limited:
                pose[address] = min(max(pose[address], low), high)
                if int(model.jnt_type[joint]) == mujoco.mjtJoint.mjJNT_SLIDE:
                    pose[address] = rng.uniform(low, high)
        poses.append(pose)
    return poses


def free_camera(
    model: mujoco.MjModel, poses: Sequence[Array], *, aspect: float, points: Array | None = None
) -> mujoco.MjvCamera:
    """A free camera in whose image the robot fits in every one of the poses.

    The direction is the model's own (`<visual><global azimuth elevation>`). Where the model has MuJoCo's default, it
    is slightly from above, from the front right, or from the front left where the robot looks wider from there: an arm
    that reaches towards the camera hides its base. Planes do not count.

    Args:
        model: the compiled model.
        poses: generalised positions, each of shape (nq,).
        aspect: width of the image over its height.
        points: further points of the world [m], shape (n, 3), that must fit.
    """
    settings = model.vis.global_
    azimuth, elevation = float(settings.azimuth), float(settings.elevation)
    # MuJoCo's defaults: the model does not ask for a view of its own.
    corners = shape_corners(model, poses)
    if (azimuth, elevation) == (90.0, -45.0):
        # To the right in the pictures at azimuths of 135° and 225° are (1, 1) and (-1, 1).
        one, other = (float(np.ptp(corners @ np.array([x, 1.0, 0.0]))) for x in (1.0, -1.0))
        azimuth, elevation = (225.0 if other > WIDER * one else 135.0), -20.0
    a, e = math.radians(azimuth), math.radians(elevation)
    forward = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([math.sin(a), -math.cos(a), 0.0])
    # One column per image axis: right, up, forward.
    axes = np.stack([right, np.cross(right, forward), forward], axis=1)
    view = (corners if points is None else np.concatenate([corners, points])) @ axes
    centre = (view.min(axis=0) + view.max(axis=0)) / 2.0
    offset = view - centre
    half_height = math.tan(math.radians(float(settings.fovy)) / 2.0)
    needed = np.maximum(np.abs(offset[:, 0]) / (half_height * aspect), np.abs(offset[:, 1]) / half_height)
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE.value
    camera.azimuth, camera.elevation = azimuth, elevation
    camera.lookat[:] = axes @ centre
    camera.distance = 1.12 * float(np.max(needed - offset[:, 2]))
    return camera


def _base_position(model: mujoco.MjModel, data: mujoco.MjData) -> Array:
    return np.array(data.xpos[model.jnt_bodyid[0]]) if has_floating_base(model) else np.zeros(3)


class VideoWriter(Closing):
    """Writes frames as an MP4 film: H.264 where the codec is there, MPEG-4 otherwise. Use it as a context manager."""

    def __init__(self, path: str | Path, *, fps: float) -> None:
        """Open the file.

        Args:
            path: of the film; its name should end in .mp4.
            fps: frames per second of the film.

        Raises:
            DeviceError: the file cannot be written, or fps is not a positive number.
        """
        import av

        if not (math.isfinite(fps) and 0.0 < fps <= 1000.0):
            raise DeviceError(f"film {path}: fps {fps} is not within 0..1000")
        self._path = path
        self._rate = Fraction(fps).limit_denominator(1000)
        self._stream: Any = None
        with self._writing():
            # PyAV opens the file at the first frame only; fail before any slow work.
            require_replaceable(Path(path))
            Path(path).write_bytes(b"")
        self._container: Any = av.open(str(path), mode="w", format="mp4", options={"movflags": "faststart"})

    def add(self, frame: Image) -> None:
        """Append one frame, shape (height, width, 3), RGB; the codec wants even sizes, so an odd row is cut off.

        Raises:
            DeviceError: the frame's size differs from the first one's, or the disk is full.
        """
        import av

        # The colour planes of yuv420p have half the resolution.
        height, width = frame.shape[0] & ~1, frame.shape[1] & ~1
        if self._stream is None:
            self._stream = self._open_stream(width, height)
        if (self._stream.width, self._stream.height) != (width, height):
            first = f"{self._stream.width}x{self._stream.height}"
            raise DeviceError(f"film: frame of {width}x{height} pixels after frames of {first}")
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]), format="rgb24")
        with self._writing():
            self._container.mux(self._stream.encode(picture))

    def _writing(self) -> AbstractContextManager[None]:
        return oserror_as(DeviceError, f"{self._path}: cannot write the film")

    def _open_stream(self, width: int, height: int) -> Any:
        import av

        h264 = "libx264" in av.codecs_available
        stream: Any = self._container.add_stream("libx264" if h264 else "mpeg4", rate=self._rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        if h264:
            stream.options = {"crf": "20", "preset": "veryfast"}
        else:
            stream.bit_rate = 8 * width * height
        return stream

    def close(self) -> None:
        """Write what the codec still holds and close the file.

        Raises:
            DeviceError: the disk is full.
        """
        with self._writing():
            if self._stream is not None:
                self._container.mux(self._stream.encode())
            self._container.close()
