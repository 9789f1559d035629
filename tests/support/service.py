"""A real `physai sim serve` in a process of its own, and a real PostgreSQL for it."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import httpx

from physai.sim.client.service import ServiceClient


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """A service that a test starts, kills and starts again."""

    def __init__(self, data: Path, *, database: str | None = None, workers: int = 1) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = data
        self.log = data.with_name(data.name + ".log")
        program = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
        self._command = [sys.executable, "-c", program, "sim", "serve", "--port", str(self.port)]
        self._command += ["--data", str(data), "--workers", str(workers)]
        self._command += ["--db", database] if database else []
        self.process: subprocess.Popen[bytes] | None = None
        self.client = ServiceClient(self.url)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200:
                    return
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(f"the service did not answer: {self.log.read_text()}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60.0)

    def worker_pids(self) -> list[int]:
        """Processes that run jobs of this service, workers and the jobs' own."""
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes().split(b"\0")
                if any(b"service.jobs" in word for word in words) and any(bytes(self.data) in word for word in words):
                    found.append(int(entry.parent.name))
        return found


@contextlib.contextmanager
def running_service(data: Path, *, workers: int = 1) -> Generator[Service]:
    """A service for as long as the block lasts."""
    service = Service(data, workers=workers)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def postgres_folder() -> Path | None:
    """Folder of PostgreSQL's programs, or None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    which = shutil.which("initdb")
    return found[-1].parent if found else Path(which).parent if which else None


@contextlib.contextmanager
def postgres(folder: Path, programs: Path) -> Generator[str]:
    """A PostgreSQL of its own in a folder; yields its SQLAlchemy URL."""
    # PostgreSQL refuses to run as root; the tests of CI do.
    as_user: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chown(folder, user.pw_uid, user.pw_gid)
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001 and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
    port = free_port()
    data = folder / "data"

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")

    run(str(programs / "initdb"), "-D", str(data), "-U", "physai", "--auth=trust", "-E", "UTF8", "--no-sync")
    control = (str(programs / "pg_ctl"), "-D", str(data), "-w")
    run(*control, "-l", str(folder / "log"), "-o", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1", "start")
    try:
        yield f"postgresql+psycopg://physai@127.0.0.1:{port}/postgres"
    finally:
        run(*control, "-m", "immediate", "stop")
