"""Joining or starting a Ray cluster: the one place where a process of ours connects with Ray."""

import atexit
import importlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any

from physai.compute.ray.ray_environment import has_token, restored_environment, shared_token
from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.process.ending import end_abruptly

ANSWER_S = 10.0
"""How long the head of a cluster may take to accept a connection [s]."""
FOR_EVER_S = 2**31 - 1
_ASK_S = 60.0
"""How long another process may take to ask the head whether it needs a token [s]."""
TRAINING_PACKAGES = ("physai-sdk", "torch", "mujoco", "numpy")
"""Packages that must have the same version everywhere, because what is learned depends on them."""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""How a connection of gRPC begins, which is Ray's protocol: RFC 9113 section 3.4, with empty settings."""
_ADDRESS = re.compile(r"[\w.-]{1,253}:\d{1,5}|\[[0-9a-fA-F:.]{2,45}\]:\d{1,5}")


class ClusterError(PhysaiError):
    """Work cannot be divided as asked for, or a cluster cannot do it."""


def brief(error: Exception) -> str:
    """The beginning of a message of Ray, which gives many lines."""
    return " ".join(str(error).split()).partition(" class_name:")[0][:200]


def versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of packages in this process."""
    return {name: metadata.version(name) for name in names}


def require_same_versions(host: str, found: Mapping[str, str]) -> None:
    """Raises ClusterError if a package has another version on a computer than here."""
    for name, version in found.items():
        if version != metadata.version(name):
            raise ClusterError(
                f"{host} has {name} {version}, this computer {metadata.version(name)}; numbers would differ, so "
                "install the same version on all"
            )


def check_address(address: str) -> None:
    """Raises ClusterError for what is neither `auto`, `local` nor HOST:PORT."""
    if address in ("auto", "local") or _ADDRESS.fullmatch(address):
        return
    way = "run the command on the cluster, for instance with `ray job submit`" if address.startswith("ray:") else ""
    raise ClusterError(
        f"`ray` {address[:80]!r}: expected auto, local, or HOST:PORT of a cluster that `ray start` began"
        + (f"; {way}" if way else "")
    )


def ray_version() -> str:
    """Version of the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError("`ray` needs ray: pip install 'physai-sdk[cluster]'") from error


@contextmanager
def connected(address: str, *, processors: int, outlives_head: bool = False) -> Generator[Any]:
    """Connects with a Ray cluster while the block runs; yields the module `ray`.

    Args:
        address: `auto` joins the cluster that RAY_ADDRESS names or that runs on this computer, and starts one of this
            computer alone if there is none; `local` always does that; HOST:PORT joins that cluster.
        processors: how many a cluster of this computer alone has at least.
        outlives_head: whether this process goes on when the head of the cluster dies; else Ray ends it a minute later.

    Raises:
        MissingExtraError: ray is not installed.
        ClusterError: no cluster answers, or it has another version.
    """
    check_address(address)
    with restored_environment():
        # No warnings about accelerators that we do not ask for.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Without it Ray ends this process without a word at the first call after its own process here has ended, which
        # it takes for the parent. With it, it asks whether this process lives, and the call raises OSError.
        os.environ.setdefault("RAY_RAYLET_PID", str(os.getpid()))
        if outlives_head:
            os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(FOR_EVER_S))
        try:
            import ray  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtraError(f"`ray` needs {error.name}: pip install 'physai-sdk[cluster]'") from error
        module: Any = ray
        if module.is_initialized():
            # The caller that connected this process also disconnects it.
            yield module
            return
        before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        _connect(module, address, processors)
        # Ray's own handler prints a trace of this process and aborts it, with work still running.
        _on_sigterm(_interrupt if before is signal.SIG_DFL else before)
        head: str = module.get_runtime_context().gcs_address
        try:
            yield module
        finally:
            _disconnect(module, head)
            _on_sigterm(before)


def _on_sigterm(handler: Any) -> None:
    # Python handles signals in the main thread only.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def answers(address: str, *, timeout_s: float) -> bool:
    """Whether a process of Ray answers at HOST:PORT; connecting and answering may take that long each [s]."""
    try:
        _dial(address, timeout_s)
    except OSError:
        return False
    return True


def _dial(address: str, timeout_s: float) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
        # The kernel accepts connections for a process that is stopped, too.
        connection.sendall(_HELLO)
        connection.recv(1)


def _disconnect(ray: Any, head: str) -> None:
    if answers(head, timeout_s=ANSWER_S):
        ray.shutdown()
        return
    # Ray tells the head first, and waits for its answer with no limit; it would so again at the end of this process.
    ending = threading.Thread(target=ray.shutdown, name="ray.shutdown", daemon=True)
    ending.start()
    ending.join(ANSWER_S)
    if ending.is_alive():
        atexit.unregister(ray.shutdown)
        # The interpreter crashes if it ends while that thread waits.
        end_abruptly()


def _require_answer(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself waits for it for minutes, and says nothing meanwhile."""
    check_address(address)
    try:
        _dial(address, ANSWER_S)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"`ray` {address}: no cluster answers there within {ANSWER_S:g} s: {error}; start one with `ray start "
            "--head`, or use `ray` local"
        ) from error


def _require_token(ray: Any, address: str) -> None:
    """Refuses a cluster that refuses this process's token: `ray.init` tries for 20 s, and then does not say why."""
    # What `ray.init` asks the head with; Ray has no public way to ask once.
    client: Any = importlib.import_module("ray._raylet").GcsClient
    try:
        client(address=address)
    except ray.exceptions.AuthenticationError as error:
        mine = "a token that is not its own" if has_token() else "no token"
        raise ClusterError(
            f"`ray` {address}: the cluster refuses this computer, which has {mine}; copy ~/.ray/auth_token of the "
            "cluster's first computer here, or put it into RAY_AUTH_TOKEN"
        ) from error


def _require_no_open_cluster(address: str) -> None:
    """Refuses a cluster without a token if this process presents one: it would refuse the head, and no actor starts."""
    raylet: Any = importlib.import_module("ray._raylet")
    if raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
        return
    # Ray reads the mode when it is imported, so another process asks without the token.
    program = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
    words = [sys.executable, "-c", program, address]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    with suppress(subprocess.TimeoutExpired):  # which `ray.init` says
        asked = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=_ASK_S)
        if asked.returncode == 0:
            raise ClusterError(
                f"`ray` {address}: the cluster asks for no token, and this computer presents one, with which nothing "
                "starts there; give the cluster the token (RAY_AUTH_MODE=token before `ray start` on each computer), "
                "or export RAY_AUTH_MODE=disabled here"
            )


def _running_here() -> str | None:
    """Address of the cluster that runs on this computer; None if there is none, or only the trace of a killed one."""
    # `ray.init` finds it so, and waits for minutes for one that was killed or is stopped.
    services: Any = importlib.import_module("ray._private.services")
    # As `ray.init` does; processes may have begun and ended since.
    services.find_gcs_addresses.cache_clear()
    try:
        found: str = services.get_ray_address_from_environment("auto", None)
        with suppress(TimeoutError):  # which is said when it is joined
            _dial(found, ANSWER_S)
    except OSError:
        return None
    return found


def _connect(ray: Any, address: str, processors: int) -> None:
    # Ray writes what happens to its workers to our standard output, whatever `log_to_driver` is, and has no public way
    # to stop it; that belongs to the results (`--json`).
    ray._private.worker._worker_logs_enabled = False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    named = os.environ.get("RAY_ADDRESS")
    joined = named if address == "auto" and named else address
    if joined == "auto":
        joined = _running_here() or "local"
    if joined != "local":
        _require_answer(joined)
        try:
            _require_token(ray, joined)
            _require_no_open_cluster(joined)
            ray.init(address=joined, **quiet)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise ClusterError(
                f"`ray` {joined}: cannot join this cluster: {brief(error)}; start it with `ray start --head`, or use "
                "`ray` local"
            ) from error
        return
    # For this cluster only; without it Ray writes one into the home folder, which may be read-only.
    os.environ.setdefault("RAY_AUTH_TOKEN", shared_token())
    # Workers have niceness 15 otherwise, and wait for whatever else this computer does.
    os.environ.setdefault("RAY_worker_niceness", "0")
    count = max(processors, len(os.sched_getaffinity(0)))
    try:
        ray.init(address="local", num_cpus=count, include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(f"`ray` {address}: Ray does not start on this computer: {brief(error)}") from error
