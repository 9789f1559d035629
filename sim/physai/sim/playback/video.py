"""Writes the moments of a player to a real-time video."""

import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from physai.sdk.base.errors import DeviceError
from physai.sim.engines.protocol import Array
from physai.sim.playback.closing import Closing
from physai.sim.playback.labels import FilmLabels
from physai.sim.playback.moment import Fields, Moment, Vector
from physai.sim.playback.picture_subject import Scene, command_fields, framing, markers_of
from physai.sim.playback.rendering import MAX_PIXELS, Image, Labels, OffscreenRenderer, VideoWriter

MAX_FPS = 120.0
ROUNDING_S = 1e-9
SUPERSAMPLING = 1.5
"""Factor by which frames are rendered larger than shown, against aliasing of edges and shadows. In software rendering
this takes two thirds of the time of OpenGL's multisampling."""
STILL = 5e-4
"""Position changes [rad or m] below this reuse the last frame: an eighth of a pixel for a robot of 1 m."""


class Film(Closing):
    """Writes moments to an MP4 file at real-time speed; use it as a context manager.

    Poses are interpolated between moments, so that motion is smooth at any control rate.
    """

    def __init__(
        self,
        path: str | Path,
        scene: Scene,
        *,
        width: int = 640,
        height: int = 480,
        fps: float = 25.0,
        labelled: bool = True,
    ) -> None:
        """Opens renderer and file.

        Args:
            path: file to write.
            scene: the task that is played, or the team.
            width: width of the video [pixels].
            height: height of the video [pixels].
            fps: frames per second.
            labelled: write time, commands and successes in the upper left corner.

        Raises:
            DeviceError: OpenGL is missing, a size or rate is out of range, or the file cannot be written.
        """
        if not (math.isfinite(fps) and 1.0 <= fps <= MAX_FPS):
            raise DeviceError(f"a film has 1 to {MAX_FPS:g} frames per second, got {fps}")
        self._model: Any = scene.model
        self._fps = fps
        self._markers = markers_of(scene)
        self._labels = FilmLabels(command_fields(scene)) if labelled else None
        if not (1 <= width <= MAX_PIXELS and 1 <= height <= MAX_PIXELS):
            raise DeviceError(f"a film of {width}x{height} pixels: each side must lie in 1..{MAX_PIXELS}")
        self._size = width, height
        poses, points = framing(scene, self._markers)
        # The renderer's own limit applies to the enlarged picture.
        larger = min(SUPERSAMPLING, MAX_PIXELS / max(width, height))
        self._renderer = OffscreenRenderer(
            scene.model, width=round(larger * width), height=round(larger * height), poses=poses, points=points
        )
        try:
            self._writer = VideoWriter(path, fps=fps)
        except DeviceError:
            self._renderer.close()
            raise
        self._before: Moment | None = None
        self._frames_of_episode = 0
        self._drawn: tuple[Vector, Fields, Labels] | None = None
        self.image: Image = np.zeros((height, width, 3), np.uint8)
        """The last picture, shape (height, width, 3), RGB."""

    def add(self, moment: Moment) -> None:
        """Adds the frames up to a moment; an episode of T seconds gets ⌈T · fps⌉ of them, and at least one."""
        before = self._before
        if before is None or before.episode != moment.episode:
            before, self._frames_of_episode = moment, 0
        while (due := self._frames_of_episode / self._fps) < moment.time_s - ROUNDING_S or due == moment.time_s == 0.0:
            span = moment.time_s - before.time_s
            share = (due - before.time_s) / span if span > 0.0 else 0.0
            qpos = pose_between(self._model, before.qpos, moment.qpos, share)
            labels = () if self._labels is None else self._labels.at(before, due)
            self._writer.add(self._picture(qpos, before.commands, labels))
            self._frames_of_episode += 1
        if self._labels is not None:
            self._labels.add(moment)
        self._before = moment

    def _picture(self, qpos: Vector, commands: Fields, labels: Labels) -> Image:
        """Renders a pose, or returns the last frame if the difference is not visible."""
        if self._drawn is not None and _look_alike(self._drawn, (qpos, commands, labels)):
            return self.image
        large = self._renderer.render(qpos, self._markers.at(qpos, commands) if self._markers else (), labels)
        self._drawn, self.image = (qpos, commands, labels), shrunk(large, *self._size)
        return self.image

    def close(self) -> None:
        """Finishes the file."""
        try:
            self._writer.close()
        finally:
            self._renderer.close()


def _look_alike(a: tuple[Vector, Fields, Labels], b: tuple[Vector, Fields, Labels]) -> bool:
    """Whether two poses with their commands and labels make the same picture."""
    if a[2] != b[2] or not np.abs(a[0] - b[0]).max() < STILL:
        return False
    return all(np.array_equal(a[1][name], b[1][name]) for name in a[1])


def shrunk(image: Image, width: int, height: int) -> Image:
    """The image at another size, each pixel the mean of those it covers; shape (height, width, 3)."""
    import av

    frame: Any = av.VideoFrame.from_ndarray(image, format="rgb24")
    return frame.reformat(width=width, height=height, interpolation="AREA").to_ndarray(format="rgb24")


def pose_between(model: mujoco.MjModel, start: Array, end: Array, share: float) -> Vector:
    """The pose at a share in [0, 1] of the way from one to another, orientations along the shortest arc.

    Args:
        model: the compiled model.
        start: generalised positions at share 0, shape (nq,).
        end: generalised positions at share 1, shape (nq,).
        share: how far.
    """
    way, pose = np.zeros(model.nv), np.array(start)
    mujoco.mj_differentiatePos(model, way, 1.0, start, end)
    mujoco.mj_integratePos(model, pose, way, share)
    return pose
