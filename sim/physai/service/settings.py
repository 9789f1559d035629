"""Settings and limits of the service."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ServiceLimits:
    """Limits of one service; a request beyond one is refused and changes nothing."""

    body_bytes: int = 64 * 2**20
    """Greatest size of a request body or WebSocket message."""
    sessions: int = 256
    worlds: int = 4096
    """Worlds of one session."""
    total_worlds: int = 65536
    """Worlds of all sessions together."""
    waiting_jobs: int = 1000
    requests_per_s: float = 500.0
    """Requests of one token on average; messages on a WebSocket do not count."""
    failures_per_s: float = 1.0
    """Requests without a valid token from one address on average."""
    snapshots: int = 8
    """Snapshots kept per session."""
    views: int = 16
    """Sessions that are looked at in 3-D at the same time."""
    simulated_s: float = 60.0
    """Simulated time of one request, per world [s]."""
    idle_s: float = 600.0
    """A session that nobody uses for this long is closed [s]."""
    resume_s: float = 60.0
    """A session whose WebSocket broke off is kept for this long [s]."""


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Settings of a service."""

    data: Path
    """Folder of everything that the service stores."""
    database: str
    """SQLAlchemy URL."""
    host: str = "127.0.0.1"
    port: int = 8800
    workers: int = 1
    """Jobs that run at the same time."""
    device: str = "cpu"
    """What computes the policies of `validate` jobs, as `physai sim validate --device` takes it."""
    ray: str | None = None
    """Ray cluster that runs jobs, see `physai.compute.ray.cluster.connected`; None for processes of this computer."""
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    log: Path | None = None
    """File of a JSON line per request; `-` is standard error, and None a file in the data folder."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trust: Path | None = None
    """Trust file by which documents about robots are verified; None refuses them."""
    preferences: Path | None = None
    """Preference database whose pairs are asked on the page `/prefer`."""
    preferences_robot: Path | None = None
    """File of the robot to draw, for a task that is not built in."""
    threads: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    """Threads that step sessions."""


def default_database(data: Path) -> str:
    """URL of the SQLite database in a data folder."""
    return f"sqlite:///{data / 'service.db'}"
