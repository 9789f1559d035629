"""Shows a player in a window in real time."""

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import mujoco
import numpy as np

from physai.sdk.base.errors import DeviceError
from physai.service.view.playing.counterexample import RecordedPlayer
from physai.sim.playback.closing import Closing
from physai.sim.playback.markers import draw
from physai.sim.playback.moment import Moment
from physai.sim.playback.picture_subject import Scene, framing, markers_of
from physai.sim.playback.player import EpisodePlayer
from physai.sim.playback.rendering import free_camera, missing_floor
from physai.sim.robots.spec import has_floating_base, home_qpos

FRAME_S = 1.0 / 60.0
"""Time between two pictures [s]."""
GREATEST_LAG_S = 0.25
"""Greatest lag behind real time that is caught up; a greater lag is skipped."""

NO_DISPLAY = "no display on this machine; film it: `video` play.mp4, or show it in a browser: `web`"

_PROBE = """
import sys, glfw
glfw.init() or sys.exit(1)
glfw.window_hint(glfw.VISIBLE, 0)
glfw.create_window(16, 16, "", None, None) or sys.exit(1)
"""
_PROBE_TIMEOUT_S = 60.0
_CLOSING_TIMEOUT_S = 5.0


def require_display() -> None:
    """Checks that a window can be opened.

    Raises:
        DeviceError: there is no display, or no OpenGL on it.
    """
    # Probe in a subprocess: MuJoCo's viewer hangs if it cannot open a window.
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise DeviceError(NO_DISPLAY)
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        probe = None
    if probe is None or probe.returncode != 0:
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        raise DeviceError(f"no window can be opened on display {display!r}; film it: `video` play.mp4")


class RealTimePacer:
    """Keeps simulated time in step with real time, with absolute deadlines so that errors do not accumulate."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Starts the clock.

        Args:
            clock: returns the time [s].
            sleep: waits for so long [s].
        """
        self._clock, self._sleep = clock, sleep
        self._start = clock()

    def wait(self, time_s: float) -> None:
        """Waits until so much simulated time may have passed [s]."""
        ahead = self._start + time_s - self._clock()
        if ahead > 0.0:
            self._sleep(ahead)
        # Catching up with a long lag would play a burst of motion too fast.
        elif -ahead > GREATEST_LAG_S:
            self._start -= ahead


class Window(Closing):
    """MuJoCo's viewer on a task or a team; use it as a context manager.

    A robot can be pulled with the mouse: double-click a body, then drag with Ctrl and the right button.
    """

    def __init__(self, scene: Scene) -> None:
        """Opens the window.

        Raises:
            DeviceError: no window can be opened here.
        """
        require_display()
        viewer: Any = importlib.import_module("mujoco.viewer")
        self._model: Any = scene.model
        self._data = mujoco.MjData(scene.model)
        self._markers = markers_of(scene)
        self._floor_z = missing_floor(scene.model, home_qpos(scene.model))
        before = set(threading.enumerate())
        self._handle: Any = viewer.launch_passive(self._model, self._data, show_left_ui=False, show_right_ui=False)
        self._threads = set(threading.enumerate()) - before
        self._aim(scene)

    def _aim(self, scene: Scene) -> None:
        """Points the camera as a film's; it follows a robot that walks."""
        camera = self._handle.cam
        poses, points = framing(scene, self._markers)
        aimed = free_camera(self._model, poses, aspect=4.0 / 3.0, points=points)
        with self._handle.lock():
            if has_floating_base(self._model):
                camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING.value
                camera.trackbodyid = int(self._model.jnt_bodyid[0])
            camera.lookat[:] = aimed.lookat
            camera.distance, camera.azimuth, camera.elevation = aimed.distance, aimed.azimuth, aimed.elevation

    @property
    def is_open(self) -> bool:
        """Whether the user has not closed it."""
        return bool(self._handle.is_running())

    def show(self, moment: Moment, forces: Any) -> None:
        """Shows a moment, and takes over the forces the user pulls with.

        Args:
            moment: what to show.
            forces: of the world that is played, shape (nbody, 6); see `Player.forces`.
        """
        with self._handle.lock():
            self._data.time = moment.start_s + moment.time_s
            self._data.qpos[:], self._data.qvel[:] = moment.qpos, moment.qvel
            mujoco.mj_forward(self._model, self._data)
            self._handle.user_scn.ngeom = 0
            strokes = self._markers.at(moment.qpos, moment.commands) if self._markers else ()
            draw(self._handle.user_scn, strokes, floor_z=self._floor_z)
            # Clears the force of a pull that has ended.
            self._data.xfrc_applied[:] = 0.0
            mujoco.mjv_applyPerturbForce(self._model, self._data, self._handle.perturb)
            forces[...] = self._data.xfrc_applied
        self._handle.sync()

    def close(self) -> None:
        """Closes the window."""
        self._handle.close()
        # Exiting while the viewer's thread is still rendering crashes in the graphics driver.
        for thread in self._threads:
            thread.join(_CLOSING_TIMEOUT_S)


class Screen(Protocol):
    """A display of moments."""

    @property
    def is_open(self) -> bool:
        """Whether the user still looks."""
        ...

    def show(self, moment: Moment, forces: Any) -> None:
        """Shows a moment, and writes the forces the user pulls with, shape (nbody, 6)."""
        ...


def watch(player: EpisodePlayer | RecordedPlayer, window: Screen, pacer: RealTimePacer) -> None:
    """Plays until the player has finished or the window is closed."""
    shown = -np.inf
    for moment in player:
        now = moment.start_s + moment.time_s
        if now - shown < FRAME_S and moment.outcome is None:
            continue
        shown = now
        if not window.is_open:
            player.stop()
            continue
        window.show(moment, player.forces)
        pacer.wait(now)
