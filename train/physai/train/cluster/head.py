"""Whether the Ray cluster that this process is connected with still answers."""

import socket
import time
from typing import Any

from physai.sim.workers.cluster import ClusterError, answers

PATIENCE_S = 20.0
"""How long the head may not answer before the run ends [s]; less than the 60 s after which Ray ends this process."""
PAUSE_S = 2.0
"""Between two looks at it, and how long one may take [s]."""
_WAY_OUT = "then continue from the last checkpoint with --resume RUN"


class Head:
    """Looks at Ray's process on this computer (the raylet), and at the port of the cluster's head.

    Ray's own calls wait for a lost head, and end this process without a word if the raylet is gone, so ask here before.
    """

    def __init__(self, ray: Any) -> None:
        """Of the cluster that the module is connected with."""
        about = ray.get_runtime_context()
        self.address: str = about.gcs_address
        """HOST:PORT."""
        mine = next(node for node in ray.nodes() if node["NodeID"] == about.get_node_id())
        self._raylet = socket.socket(socket.AF_UNIX)
        self._raylet.connect(mine["RayletSocketName"])
        self._raylet.setblocking(False)
        self._looked_s = -PAUSE_S

    def _raylet_lives(self) -> bool:
        try:
            return bool(self._raylet.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def usable(self) -> bool:
        """Whether calls of Ray can be made now."""
        return self._raylet_lives() and answers(self.address, timeout_s=PAUSE_S)

    def require(self) -> None:
        """Returns when the head answers; waits `PATIENCE_S` for it.

        Raises:
            ClusterError: it does not answer, or Ray ended on this computer.
        """
        begun = time.monotonic()
        while True:
            if not self._raylet_lives():
                raise ClusterError(
                    f"Ray's process on this computer ended, and with it the connection to the cluster {self.address}; "
                    f"start it again with `ray start`, {_WAY_OUT}"
                )
            if time.monotonic() - self._looked_s < PAUSE_S:
                return
            if answers(self.address, timeout_s=PAUSE_S):
                self._looked_s = time.monotonic()
                return
            silent_s = time.monotonic() - begun
            if not silent_s <= PATIENCE_S:
                raise ClusterError(
                    f"the head of the cluster, {self.address}, has not answered for {silent_s:.0f} s: it ended, or the "
                    "network between it and this computer did; start it again with `ray start --head`, and the other "
                    f"computers with `ray start --address`, {_WAY_OUT}"
                )
            time.sleep(0.2)

    def close(self) -> None:
        """Does not look any more."""
        self._raylet.close()
