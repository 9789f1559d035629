"""Whether the head of a Ray cluster still answers."""

import socket
import time

from physai.sim.workers.cluster import ClusterError

PATIENCE_S = 20.0
"""How long the head may not answer before the run ends [s]."""
PAUSE_S = 2.0
"""Between two looks at it, and how long one may take [s]."""


class Head:
    """Looks at the port of a cluster's head (its global control service).

    Ray's own calls wait for a lost head, and then end the process; this says so before.
    """

    def __init__(self, address: str) -> None:
        """Of HOST:PORT."""
        self.address = address
        self._looked_s = -PAUSE_S

    def answers(self) -> bool:
        """Whether it accepts a connection now."""
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PAUSE_S).close()
        except OSError:
            return False
        return True

    def require(self) -> None:
        """Returns when the head answers; waits `PATIENCE_S` for it.

        Raises:
            ClusterError: it does not answer.
        """
        if time.monotonic() - self._looked_s < PAUSE_S:
            return
        begun = time.monotonic()
        while not self.answers():
            silent_s = time.monotonic() - begun
            if not silent_s <= PATIENCE_S:
                raise ClusterError(
                    f"the head of the cluster, {self.address}, has not answered for {silent_s:.0f} s: it ended, or the "
                    "network between it and this computer did; start it again with `ray start --head`, then continue "
                    "from the last checkpoint with --resume RUN"
                )
            time.sleep(0.2)
        self._looked_s = time.monotonic()
