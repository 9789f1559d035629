"""A player in a browser, for machines without a screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import DeviceError, MissingExtraError
from physai.service.view.playing.viewer import RealTimePacer, watch
from physai.sim.playback.picture_subject import markers_of

if TYPE_CHECKING:
    from physai.service.view.playing.counterexample import RecordedPlayer
    from physai.sim.playback.moment import Moment
    from physai.sim.playback.picture_subject import Scene
    from physai.sim.playback.player import EpisodePlayer

DEFAULT_PORT = 8080
POLL_S = 0.1


class WebScreen:
    """A scene on a port of loopback."""

    is_open = True
    """A browser may come back, so only an interrupt or the last episode ends it."""

    def __init__(self, scene: Scene, port: int) -> None:
        """Starts the server.

        Raises:
            MissingExtraError: viser is not installed.
            DeviceError: the port cannot be used.
        """
        try:
            from physai.service.view.live import HOST, LiveView
        except ModuleNotFoundError as error:
            raise MissingExtraError(f"`web` needs {error.name}: pip install 'physai-sdk[serve]'") from error
        try:
            self._view = LiveView(scene.model, [""], port=port)
        except (OSError, OverflowError) as error:
            raise DeviceError(f"`web` {port}: cannot listen there: {error}") from error
        self._markers = markers_of(scene)
        self.address = f"{HOST}:{self._view.port}"
        """Host and port."""

    def show(self, moment: Moment, forces: Any) -> None:
        """Shows a moment; nobody pulls."""
        forces[...] = 0.0
        strokes = self._markers.at(moment.qpos, moment.commands) if self._markers else ()
        self._view.show([moment.qpos], strokes)

    def wait(self, interrupted: Callable[[], bool]) -> None:
        """Waits until a browser looks, or the user does not want to any more."""
        while not (self._view.watched or interrupted()):
            time.sleep(POLL_S)

    def close(self) -> None:
        """Stops the server."""
        self._view.stop()


def play_in_browser(
    player: EpisodePlayer | RecordedPlayer,
    scene: Scene,
    interrupted: Callable[[], bool],
    *,
    port: int = DEFAULT_PORT,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> None:
    """Wait for a browser of this machine, and play in real time: a `screen` of `physai.service.play`.

    Args:
        player: what is played.
        scene: its task or team.
        interrupted: whether the user does not want to wait any more.
        port: port of loopback; the next that is free if it is taken.
        say: called with the address to open.

    Raises:
        MissingExtraError: viser is not installed.
        DeviceError: the port cannot be used.
    """
    screen = WebScreen(scene, port)
    try:
        tunnel = f"ssh -L {screen.address.rpartition(':')[2]}:{screen.address} THIS_MACHINE"
        say(f"open http://{screen.address} (from another machine, through: {tunnel})")
        screen.wait(interrupted)
        watch(player, screen, RealTimePacer())
    finally:
        screen.close()
