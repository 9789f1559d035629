"""Records on disk: the marker of a slot, the state of the slots, the robot's identity and its health limits."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from physai.deploy_jetson.update.slots.layout import MAX_RECORD_BYTES, seal, unseal
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import MAX_JOINTS, Frozen, Name, NonNegative
from physai.sdk.evidence.origin import Origin, machine_text
from physai.sdk.evidence.verdict import Count, Sha256, Text, Utc, VerdictLine

FORMAT_VERSION = 1
"""Incremented when an older reader could misinterpret a newer record."""

MAX_EVENTS = 32
"""Number of events kept; the oldest are dropped first."""

MAX_REJECTED = 32
"""Number of rolled-back bundles kept."""

SLOTS = ("a", "b")
SlotName = Literal["a", "b"]

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a file in a slot: no separators, no leading dot."""

Version = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
"""Version of a bundle; increases with every release."""


class SlotFile(Frozen):
    """Hash and size of a file in a slot."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]


class InferenceRuntime(Frozen):
    """Engine and variant that run the policy on this machine."""

    backend: Literal["onnxruntime", "tensorrt"]
    member: Name
    """Member of the bundle that runs: `policy.int8.onnx`."""
    versions: Annotated[dict[Name, VerdictLine], Field(max_length=16)]
    """Versions it was built and tested with: onnxruntime, tensorrt, driver, gpu."""
    engine: FileName | None = None
    """File name of the built engine; None if the member itself is loaded."""
    engine_key: Sha256 | None = None
    """Hash of everything the engine depends on: graph, TensorRT, driver, GPU, options."""


class SelfTest(Frozen):
    """Result of the self-test on this machine."""

    golden_states: Annotated[int, Field(ge=0)]
    golden_worst: NonNegative
    """Maximum error relative to the recorded outputs, in units of the tolerance; at most 1."""
    ticks: Annotated[int, Field(ge=0)]
    tick_p50_s: NonNegative
    tick_p99_s: NonNegative
    tick_max_s: NonNegative
    deadline_s: NonNegative
    """The contract's deadline."""


class Marker(Frozen):
    """The last file written to a slot: a slot without a marker counts as empty."""

    format_version: Literal[1] = FORMAT_VERSION
    bundle_sha256: Sha256
    """SHA-256 of the verified bundle file."""
    bundle_id: Sha256
    """SHA-256 of its manifest."""
    version: Version
    task: Name
    robot: Name
    contract_fingerprint: Sha256
    control_dt: Annotated[float, Field(gt=0.0, le=10.0)]
    """Control period of the contract [s]."""
    signers: Annotated[tuple[VerdictLine, ...], Field(max_length=64)]
    """Roles and ids of the signing keys: `publisher 3f…`."""
    verdict_expires: Utc | None
    """Expiry of the verdict; None without a valid verdict."""
    unsafe_no_verdict: bool
    """Whether it was installed without a valid verdict, by explicit override."""
    installed: Utc
    runtime: InferenceRuntime
    self_test: SelfTest
    files: Annotated[dict[FileName, SlotFile], Field(min_length=1, max_length=16)]
    """All other files of the slot."""


class VersionTrial(Frozen):
    """A version that is active but not yet committed."""

    slot: SlotName
    previous: SlotName | None
    """Slot to roll back to; None if the robot had no policy."""
    bundle_sha256: Sha256
    version: Version
    started: Utc
    boot_id: VerdictLine
    """Id of the latest boot during the trial."""
    boots: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of boots during the trial."""
    rollback_reason: Text | None = None
    """Set once a rollback is decided; recovery completes it."""


EventKind = Literal["activated", "committed", "rolled-back", "interrupted", "install-failed", "unsafe", "repaired"]


class SlotEvent(Frozen):
    """An event in the history of the slots."""

    time: Utc
    kind: EventKind
    bundle_sha256: Sha256 | None = None
    version: Version | None = None
    reason: Text = ""


class State(Frozen):
    """State that outlives the contents of the slots."""

    format_version: Literal[1] = FORMAT_VERSION
    generation: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] = 0
    """Write counter; of the two copies the one with the higher value is current."""
    floor: Version = 0
    """Lowest version that may be installed; only a commit raises it, nothing lowers it."""
    committed: SlotName | None = None
    """Slot that was committed last; the link `current` defines the active one."""
    trial: VersionTrial | None = None
    latest_time: Utc = "1970-01-01T00:00:00Z"
    """The time floor, see `physai.sdk.signing.time_statement`. Signed statements and verdicts raise it at once, the
    clock by at most a day per write."""
    corrections: Annotated[Count, Field(exclude_if=lambda corrections: corrections == 0)] = 0
    """How often an owner set the time floor back; only statements that name this count are accepted."""
    rejected: Annotated[tuple[Sha256, ...], Field(max_length=MAX_REJECTED)] = ()
    """Bundles that were rolled back; activated again only with `--retry`."""
    events: Annotated[tuple[SlotEvent, ...], Field(max_length=MAX_EVENTS)] = ()
    """Oldest first."""

    @property
    def last_rollback(self) -> SlotEvent | None:
        """The latest rollback; None if there was none."""
        return next((event for event in reversed(self.events) if event.kind == "rolled-back"), None)


class RobotIdentity(Frozen):
    """Identity of this robot, written by `physai robot setup`."""

    format_version: Literal[1] = FORMAT_VERSION
    robot: Name
    """Robot model or unit, as in contracts and verdicts."""
    joints: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)] | None = None
    """Joints of this robot; None accepts those of any contract."""
    runtime_unit: VerdictLine | None = None
    """systemd unit to restart when the active version changes."""
    stand_in: bool = False
    """Whether a simulation stands in for the robot, so that measurements made here are not a robot's."""

    @property
    def origin(self) -> Origin:
        """Origin of evidence measured on this robot."""
        return Origin(kind="stand-in" if self.stand_in else "robot", robot=self.robot, machine=machine_text())


class HealthLimits(Frozen):
    """Limits that a version on trial must meet before it is committed."""

    format_version: Literal[1] = FORMAT_VERSION
    window_s: Annotated[float, Field(gt=0.0, le=86400.0)] = 30.0
    """Time that the policy must run without interruption [s]."""
    max_missed_share: Annotated[float, Field(ge=0.0, le=1.0)] = 1e-3
    """Maximum fraction of ticks that miss the contract's deadline."""
    max_interventions: Annotated[int, Field(ge=0)] = 0
    """Maximum number of ticks in which the guard replaced an invalid command of the policy."""
    start_timeout_s: Annotated[float, Field(gt=0.0, le=3600.0)] = 60.0
    """Timeout for the runtime's first heartbeat [s]."""
    alive_timeout_s: Annotated[float, Field(gt=0.0, le=600.0)] = 2.0
    """Timeout between heartbeats of the runtime [s]."""
    max_restarts: Annotated[int, Field(ge=0, le=100)] = 2
    """Maximum number of restarts of the runtime during the trial."""
    # A power cut is not the policy's fault, but a policy that causes a reboot loop is.
    max_boots: Annotated[int, Field(ge=1, le=100)] = 8
    """Maximum number of boots during the trial."""


Record = Marker | State | RobotIdentity | HealthLimits
AnyRecord = TypeVar("AnyRecord", Marker, State, RobotIdentity, HealthLimits)

_NAMES: dict[type[Record], str] = {
    Marker: "slot marker",
    State: "slot state",
    RobotIdentity: "robot identity",
    HealthLimits: "set of health limits",
}


def encode(record: Record) -> bytes:
    """Encodes a record as canonical JSON with a checksum."""
    return seal(canonical_json(record))


def decode(model: type[AnyRecord], data: bytes, *, source: str) -> AnyRecord:
    """Decodes a record written by `encode`.

    Raises:
        SlotError: the record is damaged, too large, inconsistent, or in another format.
    """
    text = unseal(data, source=source)
    kind = DocumentKind(
        name=_NAMES[model], format_version=FORMAT_VERSION, max_bytes=MAX_RECORD_BYTES, max_depth=8, error=SlotError
    )
    return kind.parse(model, text, source=source)
