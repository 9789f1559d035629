"""A real PostgreSQL for a service, and the processes that run its jobs."""

import contextlib
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

from physai.sdk.cli.main import main
from physai.sim.service.process import ServiceProcess, free_port


def job_pids(data: Path) -> list[int]:
    """Processes that run jobs of the service with this data folder: workers and the jobs' own."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if any(b"service.jobs" in word for word in words) and any(bytes(data) in word for word in words):
                found.append(int(entry.parent.name))
    return found


def postgres_folder() -> Path | None:
    """Folder of PostgreSQL's programs, or None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    which = shutil.which("initdb")
    return found[-1].parent if found else Path(which).parent if which else None


@contextlib.contextmanager
def postgres(folder: Path, programs: Path) -> Generator[str]:
    """A PostgreSQL of its own in a folder directly below /tmp; yields its SQLAlchemy URL."""
    # PostgreSQL refuses to run as root; the tests of CI do.
    as_user: list[str] = []
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        os.chown(folder, user.pw_uid, user.pw_gid)
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


def trained_policy(service: ServiceProcess, *, task: str = "cartpole-swingup", seed: int = 0) -> str:
    """Uploads a policy that was trained for one iteration; returns its hash."""
    return service.client.upload(_policy(task, seed))


@functools.cache
def _policy(task: str, seed: int) -> bytes:
    # Here rather than in a job, whose process would import torch and its exporter first.
    with tempfile.TemporaryDirectory() as folder:
        assert main(["train", task, "--num-envs", "16", "--iterations", "1", "--seed", str(seed), "--out", folder]) == 0
        assert main(["export", folder]) == 0
        return (Path(folder) / "export" / "policy.onnx").read_bytes()
