"""Tables of the service. A change here needs a migration in `migrations`; a test compares the two."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Sha256 = String(64)
Identifier = String(32)
# SQLite counts up only a primary key of type INTEGER.
Counter = BigInteger().with_variant(Integer, "sqlite")


class ServiceTable(DeclarativeBase):
    """Metadata of all tables."""


class JobRow(ServiceTable):
    """A job from its submission on; kept after its end."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("jobs_by_state", "state", "created"),
        Index("jobs_by_time", "created", "id"),
        Index("jobs_by_policy", "policy", "kind", "state"),
    )

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    spec: Mapped[str] = mapped_column(Text)
    """JSON of the kind's specification."""
    policy: Mapped[str | None] = mapped_column(Sha256)
    """The policy that the specification names."""
    state: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    """Number of times a worker took the job; what a worker writes counts only for its own attempt."""
    crashes: Mapped[int] = mapped_column(Integer, default=0)
    """Attempts in which the job's own process died."""
    worker: Mapped[str | None] = mapped_column(String(128))
    lease_until: Mapped[float | None] = mapped_column(Float)
    """When another worker may take the job unless its worker reports before [s since 1970]."""
    cancel: Mapped[bool] = mapped_column(Boolean, default=False)
    created: Mapped[float] = mapped_column(Float)
    started: Mapped[float | None] = mapped_column(Float)
    ended: Mapped[float | None] = mapped_column(Float)
    result: Mapped[str | None] = mapped_column(Text)
    error: Mapped[str | None] = mapped_column(Text)
    submitted_by: Mapped[str] = mapped_column(String(64), default="")


class JobEventRow(ServiceTable):
    """A line of a job's progress."""

    __tablename__ = "job_events"

    id: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    time: Mapped[float] = mapped_column(Float)
    kind: Mapped[str] = mapped_column(String(16))
    """`state` or `progress`."""
    text: Mapped[str] = mapped_column(Text)


class ArtefactRow(ServiceTable):
    """A file that a job produced."""

    __tablename__ = "artefacts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(256), primary_key=True)
    sha256: Mapped[str] = mapped_column(Sha256)
    size: Mapped[int] = mapped_column(BigInteger)


class EntryRow(ServiceTable):
    """A registered robot model, twin, policy, verdict or bundle: content by hash, with what lists show of it."""

    __tablename__ = "entries"
    __table_args__ = (Index("entries_by_kind", "kind", "name", "version"),)

    sha256: Mapped[str] = mapped_column(Sha256, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    version: Mapped[int] = mapped_column(Integer)
    """Counts the entries of one kind and name, from 1."""
    facts: Mapped[str] = mapped_column(Text)
    """JSON object."""
    size: Mapped[int] = mapped_column(BigInteger)
    created: Mapped[float] = mapped_column(Float)
    created_by: Mapped[str] = mapped_column(String(64), default="")


class InstallationRow(ServiceTable):
    """One flash of one robot as it was reported; added and at last deleted, never changed."""

    __tablename__ = "installations"
    __table_args__ = (Index("installations_by_unit", "unit", "id"),)

    id: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=True)
    unit: Mapped[str] = mapped_column(String(300))
    bundle: Mapped[str] = mapped_column(Sha256)
    policy: Mapped[str] = mapped_column(Sha256)
    task: Mapped[str] = mapped_column(String(64))
    version: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    since: Mapped[float] = mapped_column(Float)
    """First report in a row by which the unit runs this bundle [s since 1970]."""
    runs: Mapped[int | None] = mapped_column(Counter)
    """The report of what the unit runs from this report on: this one, an earlier one or none."""
    time: Mapped[float] = mapped_column(Float)
    reported_by: Mapped[str] = mapped_column(String(64))
    """Name of the token."""


class UnitDocumentRow(ServiceTable):
    """A signed document about one robot; added and at last deleted, never changed."""

    __tablename__ = "unit_documents"
    __table_args__ = (
        UniqueConstraint("robot", "kind", "digest"),
        Index("unit_documents_by_rank", "robot", "kind", "rank", "id"),
    )

    id: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=True)
    robot: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(16))
    role: Mapped[str] = mapped_column(String(16))
    """Of the key that signed it."""
    signer: Mapped[str] = mapped_column(Sha256)
    """Id of that key."""
    issued: Mapped[float] = mapped_column(Float)
    rank: Mapped[int] = mapped_column(BigInteger)
    """Orders the documents of a kind: the newest has the greatest."""
    digest: Mapped[str] = mapped_column(Sha256)
    """SHA-256 of what was signed."""
    facts: Mapped[str] = mapped_column(Text)
    """JSON object."""
    document: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    received: Mapped[float] = mapped_column(Float)
    received_by: Mapped[str] = mapped_column(String(64))
    """Name of the token."""


class UnitRecordingRow(ServiceTable):
    """A recording that a robot has uploaded."""

    __tablename__ = "unit_recordings"
    __table_args__ = (UniqueConstraint("robot", "sha256"),)

    id: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=True)
    robot: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(128))
    sha256: Mapped[str] = mapped_column(Sha256)
    size: Mapped[int] = mapped_column(BigInteger)
    received: Mapped[float] = mapped_column(Float)
    received_by: Mapped[str] = mapped_column(String(64))
    """Name of the token."""


class StoreRow(ServiceTable):
    """The store that this database and one data folder are the two halves of; one row."""

    __tablename__ = "store"

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    holder: Mapped[str | None] = mapped_column(Text)
    """The service that has the store's lock; workers of another one take no jobs."""


class TokenRow(ServiceTable):
    """An access token; only its hash is stored."""

    __tablename__ = "tokens"

    sha256: Mapped[str] = mapped_column(Sha256, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[str] = mapped_column(String(8))
    """`read`, `run` or `admin`; each includes those before it."""
    created: Mapped[float] = mapped_column(Float)
    expires: Mapped[float | None] = mapped_column(Float)


class AuditRow(ServiceTable):
    """A request that changed something, or was refused for lack of rights."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=True)
    time: Mapped[float] = mapped_column(Float)
    request_id: Mapped[str] = mapped_column(String(32))
    token: Mapped[str] = mapped_column(String(64))
    method: Mapped[str] = mapped_column(String(8))
    path: Mapped[str] = mapped_column(String(512))
    status: Mapped[int] = mapped_column(Integer)
