"""HTTP server for Prometheus on localhost, in its own thread."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer

from physai.deploy_jetson.telemetry.exposition import CONTENT_TYPE
from physai.sdk.base.errors import PhysaiError

HOST = "127.0.0.1"
PATH = "/metrics"

# Timeout of a request [s]; the server handles one at a time.
TIMEOUT_S = 2.0

_POLL_S = 0.2


class MetricsError(PhysaiError):
    """The metrics cannot be served."""


class _Server(TCPServer):
    """Like HTTPServer, but without its reverse DNS lookup of 127.0.0.1."""

    # A restarted runtime may take the port at once, while old connections still time out.
    allow_reuse_address = True


class MetricsServer:
    """Serves `http://127.0.0.1:PORT/metrics`."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        """Bind the port.

        Args:
            port: 0 for any free one.
            text: returns the exposition; called in the server's thread.

        Raises:
            MetricsError: the port is out of range, taken or forbidden.
        """
        if not 0 <= port <= 65535:
            raise MetricsError(f"`metrics` takes a port in 0 … 65535, got {port}")
        try:
            self._server = _Server((HOST, port), _handler(text))
        except OSError as error:
            raise MetricsError(
                f"{HOST}:{port}: no metrics can be served there: {error.strerror or error}; take another port, or 0"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="physai-metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """URL of the metrics."""
        return f"http://{HOST}:{self._server.server_address[1]}{PATH}"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and release the port."""
        if self._thread.is_alive():
            # `shutdown` would wait forever for a loop that never began.
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S

        def do_GET(self) -> None:
            # A scraper may add a query, which has no meaning here.
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, "only " + PATH)
                return
            data = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        # Without this, every request would be printed to the terminal of the control loop.
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler
