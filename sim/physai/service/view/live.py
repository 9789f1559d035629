"""A live 3-D view of one session: a viser server on this machine's loopback, which the service passes on."""

import math
from collections.abc import Sequence

import mujoco
import numpy as np
import numpy.typing as npt
import rich
import viser

from physai.service.view.scene import BodyPoses, Floats, shapes
from physai.sim.playback.markers import Stroke

HOST = "127.0.0.1"
SPACING = 2.5
"""Distance between worlds, in extents of the model."""


class LiveView:
    """Draws some worlds of a model in a grid."""

    def __init__(self, model: mujoco.MjModel, labels: Sequence[str], *, port: int = 0) -> None:
        """Starts a server with a world for each label, which may be empty.

        Args:
            model: what is drawn.
            labels: a name for each world, or the empty string.
            port: port on loopback, or the next one that is free; 0 for any.
        """
        self.worlds = worlds = len(labels)
        self._poses = BodyPoses(model)
        self._drawn: npt.NDArray[np.float32] | None = None
        # viser announces itself on standard output, whatever `verbose` says.
        rich.get_console().quiet = True
        self._server = viser.ViserServer(host=HOST, port=port, verbose=False)
        self._server.gui.configure_theme(control_layout="floating", show_logo=False, show_share_button=False)
        scene = self._server.scene
        # Its default light is a picture from the network.
        scene.configure_environment_map(None)
        scene.configure_default_lights()
        scene.add_grid("/grid", cell_size=0.25, section_size=1.0, infinite_grid=True, fade_distance=30.0)
        columns = math.ceil(math.sqrt(worlds))
        spacing = SPACING * float(model.stat.extent)
        self._offsets = [np.array([w % columns, w // columns, 0.0]) * spacing for w in range(worlds)]
        self._frames = [
            [scene.add_frame(f"/world{w}/body{body}", show_axes=False) for body in range(model.nbody)]
            for w in range(worlds)
        ]
        for number, shape in enumerate(shapes(model)):
            for w in range(worlds):
                scene.add_mesh_simple(
                    f"/world{w}/body{shape.body}/{number}",
                    shape.vertices.astype(np.float32),
                    shape.faces.astype(np.uint32),
                    color=shape.colour[:3],
                    opacity=shape.colour[3] if shape.colour[3] < 1.0 else None,
                    flat_shading=True,
                )
        above = np.array([0.0, 0.0, 0.75]) * float(model.stat.extent) + model.stat.center
        for offset, label in zip(self._offsets, labels, strict=True):
            if label:
                scene.add_label(f"/label/{label}", label, position=tuple(offset + above))
        middle = np.mean(self._offsets, axis=0) + model.stat.center
        distance = (0.6 + 0.9 * columns) * float(model.stat.extent)
        self._server.initial_camera.position = tuple(middle + distance * np.array([0.9, -0.9, 0.6]))
        self._server.initial_camera.look_at = tuple(middle)

    @property
    def port(self) -> int:
        """Port of the server on loopback."""
        return self._server.get_port()

    @property
    def watched(self) -> bool:
        """Whether a browser shows it."""
        return bool(self._server.get_clients())

    def show(self, qpos: Sequence[Floats], strokes: Sequence[Stroke] | None = None) -> None:
        """Moves the worlds to their positions.

        Args:
            qpos: generalised positions of each world, shape (nq,).
            strokes: lines to draw in the first world; None for those of before.
        """
        with self._server.atomic():
            if strokes is not None:
                self._draw(strokes)
            for frames, offset, row in zip(self._frames, self._offsets, qpos, strict=True):
                positions, orientations = self._poses.at(row)
                for body, frame in enumerate(frames):
                    frame.position = tuple(positions[body] + offset)
                    frame.wxyz = tuple(orientations[body])

    def _draw(self, strokes: Sequence[Stroke]) -> None:
        points = np.array([(stroke.start, stroke.end) for stroke in strokes], np.float32).reshape(-1, 2, 3)
        colours = np.array([(stroke.colour[:3],) * 2 for stroke in strokes], np.float32).reshape(-1, 2, 3)
        # Sent again only if something changed: every browser gets every message.
        if self._drawn is None or not np.array_equal(points, self._drawn):
            self._drawn = points
            self._server.scene.add_line_segments("/commands", points, (255 * colours).astype(np.uint8))

    def stop(self) -> None:
        """Stops the server."""
        self._server.stop()
