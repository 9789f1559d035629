"""Thread that renews the runtime's lease on its robot, independent of the loop and the terminal do."""

import threading
from collections.abc import Callable

from physai.sdk.transport.lease import RENEW_S
from physai.sdk.transport.protocol import Exclusive


class LeaseKeeper:
    """Renews the claim of one transport from `start` to `close`."""

    def __init__(self, transport: Exclusive, prepare: Callable[[], None]) -> None:
        """Does nothing yet.

        Args:
            transport: open until after `close`.
            prepare: called first in the thread.
        """
        self._transport, self._prepare = transport, prepare
        self.problem = ""
        """Why the claim could not be renewed last; empty where it was."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="physai-lease", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def close(self) -> None:
        """Gives the robot up."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._transport.release()

    def _renew(self) -> None:
        self._prepare()
        while not self._over.wait(RENEW_S):
            try:
                self._transport.renew()
                self.problem = ""
            except Exception as error:  # whatever a driver raises: without this thread the robot is never had again
                self.problem = f"the lease of the robot cannot be renewed: {str(error) or type(error).__name__}"
