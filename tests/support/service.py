"""A real PostgreSQL for a service, and the processes that run its jobs."""

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from physai.sdk.cli.main import main
from physai.sdk.policy.header import PolicyHeader
from physai.service.serving.process import ServiceProcess, free_port
from physai.sim.tasks.registry import load_task


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


class PostgresServer:
    """A PostgreSQL in a folder directly below /tmp; not running yet."""

    def __init__(self, folder: Path, programs: Path) -> None:
        """Creates the files of the server."""
        # PostgreSQL refuses to run as root; the tests of CI do.
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            os.chown(folder, user.pw_uid, user.pw_gid)
        self._port = free_port()
        self._folder, self._data = folder, folder / "data"
        self._control = (str(programs / "pg_ctl"), "-D", str(self._data), "-w")
        initdb = str(programs / "initdb")
        self._run(initdb, "-D", str(self._data), "-U", "physai", "--auth=trust", "-E", "UTF8", "--no-sync")
        self.url = f"postgresql+psycopg://physai@127.0.0.1:{self._port}/postgres"

    def _run(self, *command: str) -> None:
        subprocess.run([*self._as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1"
        self._run(*self._control, "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stops it as a crash does: what is open breaks off, and the next start recovers from the log."""
        self._run(*self._control, "-m", "immediate", "stop")

    def _signal(self, number: signal.Signals) -> None:
        postmaster = int((self._data / "postmaster.pid").read_text("utf-8").split()[0])
        children = [
            int(status.parent.name) for status in Path("/proc").glob("[0-9]*/stat") if _parent(status) == postmaster
        ]
        for pid in (postmaster, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def freeze(self) -> None:
        """Stops its processes as they are: connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)


def _parent(status: Path) -> int:
    try:
        return int(status.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextlib.contextmanager
def running_postgres(folder: Path, programs: Path) -> Generator[PostgresServer]:
    """A PostgreSQL of its own for as long as the block lasts."""
    server = PostgresServer(folder, programs)
    server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            server.thaw()
            server.stop()


@contextlib.contextmanager
def postgres(folder: Path, programs: Path) -> Generator[str]:
    """A PostgreSQL of its own in a folder directly below /tmp; yields its SQLAlchemy URL."""
    with running_postgres(folder, programs) as server:
        yield server.url


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for the name `twins`, and its private key."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=twins", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def resting_policy(task: str = "cartpole-swingup") -> bytes:
    """A policy for a built-in task that never moves, written without training."""
    header = PolicyHeader(load_task(task).contract, {}, {"task": task})
    (first, size), (target, width) = next(iter(header.inputs.items())), next(iter(header.outputs.items()))
    graph = helper.make_graph(
        [helper.make_node("MatMul", [first, "weight"], [target])],
        "policy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.outputs.items()],
        [onnx.numpy_helper.from_array(np.zeros((size, width), np.float32), "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, header.metadata())
    return model.SerializeToString()


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
