"""Thread that renews the runtime's lease on its robot, independently of the loop."""

import threading

from physai.sdk.transport.lease import RENEW_S
from physai.sdk.transport.protocol import Exclusive


class LeaseKeeper:
    """Renews the claim of one transport from `start` to `close`."""

    def __init__(self, transport: Exclusive) -> None:
        """Initialize without starting the thread.

        Args:
            transport: open until after `close`.
        """
        self._transport = transport
        self.problem = ""
        """Why the last renewal failed; empty if it succeeded."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="physai-lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and release the robot."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        # After the thread has ended, so that no renewal follows the release.
        self._transport.release()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                self._transport.renew()
                self.problem = ""
            except Exception as error:
                # A driver may raise anything; without this thread the lease is lost for good.
                self.problem = f"the lease of the robot cannot be renewed: {str(error) or type(error).__name__}"
