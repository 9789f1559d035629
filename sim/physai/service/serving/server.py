"""Checks what a service needs before it listens, and holds its data folder."""

import contextlib
import fcntl
import os
import socket
import ssl
from collections.abc import Generator, Mapping
from types import FrameType

import uvicorn

from physai.compute.database import hurry
from physai.compute.ray.cluster import connected
from physai.compute.sandbox.reward import UserReward
from physai.sdk.base.errors import PhysaiError
from physai.service.auth.access import is_loopback
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.database.hold import StoreHold, held_store
from physai.service.jobs.executor import JobExecutor
from physai.service.jobs.queue import JobQueue
from physai.service.jobs.ray_executor import RayJobExecutor
from physai.service.observe.logs import log_requests
from physai.service.observe.traces import traced
from physai.service.serving.app import create_app
from physai.service.serving.connections import PatientLoop, PatientProtocol, raise_file_limit
from physai.service.settings import ServiceSettings

LOCK_FILE = "lock"
LOG_FILE = "requests.log"


class Server(uvicorn.Server):
    """uvicorn's server; told to stop, it has the jobs stop at once, and waits no longer for a silent database."""

    def __init__(self, config: uvicorn.Config, executor: JobExecutor) -> None:
        """A server that does not listen yet."""
        super().__init__(config)
        self._executor = executor

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop."""
        hurry()
        self._executor.begin_stop()
        super().handle_exit(sig, frame)


@contextlib.contextmanager
def prepare(settings: ServiceSettings, *, rewards: Mapping[str, UserReward] | None = None) -> Generator[Server]:
    """The server, for as long as this process holds the data folder.

    Raises:
        PhysaiError: another service uses the folder or the store, the address is taken or may not be served without
            tokens and TLS, or the database cannot be used.
    """
    try:
        settings.data.mkdir(parents=True, exist_ok=True)
        lock = os.open(settings.data / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise PhysaiError(f"`data` {settings.data}: {error.strerror}; choose a folder that can be written") from error
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PhysaiError(f"another service uses {settings.data}; stop it, or choose another `data`") from None
        _check_certificate(settings)
        if not is_loopback(settings.host):
            _require_protection(settings)
        _require_free(settings)
        raise_file_limit()
        log_requests(settings.log or settings.data / LOG_FILE)
        hold = stack.enter_context(held_store(settings.database, settings.data))
        app = create_app(settings, hold=hold, executor=_ray_executor(settings, hold, stack), rewards=rewards)
        # Ctrl-C while the application starts or stops must not leave workers behind.
        stack.callback(app.state.executor.stop)
        config = uvicorn.Config(
            traced(app),
            host=settings.host,
            port=settings.port,
            log_level="warning",
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            http=PatientProtocol,
            loop=f"{PatientLoop.__module__}:{PatientLoop.__name__}",
            ws_max_size=settings.limits.body_bytes,
            # Arrays of floats do not compress, and trying costs more than sending.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=5,
        )
        yield Server(config, app.state.executor)


def _ray_executor(settings: ServiceSettings, hold: StoreHold, stack: contextlib.ExitStack) -> JobExecutor | None:
    """Executor of jobs on Ray; None without Ray."""
    if settings.ray is None:
        return None
    ray = stack.enter_context(connected(settings.ray, processors=settings.workers, outlives_head=True))
    jobs = JobQueue(open_database(settings.database))
    return RayJobExecutor(ray, jobs, settings.database, settings.data, settings.workers, hold)


def _check_certificate(settings: ServiceSettings) -> None:
    if settings.tls_cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:
        raise PhysaiError(
            f"`tls_cert` {settings.tls_cert} and `tls_key` {settings.tls_key} cannot be used: {error}; "
            "give a certificate and its private key without a password, both as PEM"
        ) from error


def _require_protection(settings: ServiceSettings) -> None:
    if settings.tls_cert is None:
        raise PhysaiError(
            f"`host` {settings.host} is reachable from other machines, so `tls_cert` and `tls_key` are needed; "
            "or serve 127.0.0.1 behind a proxy or an ssh tunnel"
        )
    if TokenStore(open_database(settings.database)).count() == 0:
        raise PhysaiError(
            f"`host` {settings.host} is reachable from other machines, and there is no token; create one first: "
            f"physai sim tokens create NAME --scope admin --data {settings.data}"
        )


def _require_free(settings: ServiceSettings) -> None:
    try:
        family, kind, *_, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise PhysaiError(
            f"{settings.host}:{settings.port} cannot be served: {error.strerror or error}; choose another `port`"
        ) from error
