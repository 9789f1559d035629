"""A service in a process of its own, for benchmarks, tests and programs that bring their own service."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path

import httpx

from physai.sdk.base.errors import PhysaiError
from physai.service.client.service import ServiceClient

START_S = 120.0
STOP_S = 60.0
_PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


def free_port() -> int:
    """A port of this computer that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServiceProcess:
    """`physai sim serve` on a free port; may be killed and started again."""

    def __init__(
        self,
        data: Path,
        *,
        database: str | None = None,
        workers: int = 1,
        ray: str | None = None,
        preferences: Path | None = None,
        trust: Path | None = None,
        rewards: Mapping[str, Path] | None = None,
    ) -> None:
        """A service that is not running yet; see `physai sim serve --help`."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = data
        self.log = data.with_name(data.name + ".log")
        self.process: subprocess.Popen[bytes] | None = None
        self.client = ServiceClient(self.url)
        self._command = [sys.executable, "-c", _PROGRAM, "sim", "serve", "--port", str(self.port)]
        self._command += ["--data", str(data), "--workers", str(workers)]
        self._command += ["--db", database] if database else []
        self._command += ["--ray", ray] if ray else []
        self._command += ["--preferences", str(preferences)] if preferences else []
        self._command += ["--trust", str(trust)] if trust else []
        self._command += [f"--reward={task}={file}" for task, file in (rewards or {}).items()]

    def start(self) -> None:
        """Starts the service and waits until it answers.

        Raises:
            PhysaiError: it ended instead, or does not answer.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5.0).is_success:
                    return
            time.sleep(0.1)
        self.kill()
        raise PhysaiError(f"the service did not answer: {self.log.read_text('utf-8', 'replace')[-2000:]}")

    def kill(self) -> None:
        """Kills the service with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stops the service as Ctrl-C does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()


@contextlib.contextmanager
def running_service(
    data: Path, *, workers: int = 1, rewards: Mapping[str, Path] | None = None
) -> Generator[ServiceProcess]:
    """A service for as long as the block lasts."""
    service = ServiceProcess(data, workers=workers, rewards=rewards)
    service.start()
    try:
        yield service
    finally:
        service.stop()
