"""What the slot store writes down: the marker that makes a slot valid, the state beside the slots, who the robot is."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.layout import MAX_RECORD_BYTES, seal, unseal
from physai.sdk.base.canonical import canonical_json
from physai.sdk.base.documents import DocumentKind
from physai.sdk.contract.robot import MAX_JOINTS, Frozen, Name, NonNegative
from physai.sdk.evidence.origin import Origin, machine_text
from physai.sdk.evidence.verdict import Sha256, Text, Utc, VerdictLine

FORMAT_VERSION = 1
"""Changes when an older reader could misunderstand a newer record."""

MAX_EVENTS = 32
"""Events that are remembered; the oldest go first."""

MAX_REJECTED = 32
"""Bundles remembered as rolled back."""

SLOTS = ("a", "b")
SlotName = Literal["a", "b"]

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Name of a file in a slot: no separators, no leading dot."""

Version = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
"""The number a bundle states, greater in every later one."""


class SlotFile(Frozen):
    """A file of a slot, as it was when the slot was found good."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]


class InferenceRuntime(Frozen):
    """What computes the policy here."""

    backend: Literal["onnxruntime", "tensorrt"]
    member: Name
    """Member of the bundle it computes: `policy.int8.onnx`."""
    versions: Annotated[dict[Name, VerdictLine], Field(max_length=16)]
    """Versions of what it was built and tested with: onnxruntime, tensorrt, driver, gpu."""
    engine: FileName | None = None
    """File of the slot with the built engine; None where the member itself is loaded."""
    engine_key: Sha256 | None = None
    """Hash of all the engine depends on: graph, TensorRT, driver, GPU, options."""


class SelfTest(Frozen):
    """What the policy showed on this machine before its slot became valid."""

    golden_states: Annotated[int, Field(ge=0)]
    golden_worst: NonNegative
    """Greatest difference to a recorded answer, in units of its tolerance; at most 1."""
    ticks: Annotated[int, Field(ge=0)]
    tick_p50_s: NonNegative
    tick_p99_s: NonNegative
    tick_max_s: NonNegative
    deadline_s: NonNegative
    """What the contract allows a tick."""


class Marker(Frozen):
    """The last file written into a slot: without it the slot is empty, whatever else lies there."""

    format_version: Literal[1] = FORMAT_VERSION
    bundle_sha256: Sha256
    """Of the bundle file, byte for byte as it was verified."""
    bundle_id: Sha256
    """Of its manifest."""
    version: Version
    task: Name
    robot: Name
    contract_fingerprint: Sha256
    control_dt: Annotated[float, Field(gt=0.0, le=10.0)]
    """Control period of the contract [s]."""
    signers: Annotated[tuple[VerdictLine, ...], Field(max_length=64)]
    """Keys whose signatures were counted: `publisher 3f…`."""
    verdict_expires: Utc | None
    """End of the verdict's validity; None without a valid verdict."""
    unsafe_no_verdict: bool
    """Whether it was let in without a valid verdict, by explicit wish."""
    installed: Utc
    runtime: InferenceRuntime
    self_test: SelfTest
    files: Annotated[dict[FileName, SlotFile], Field(min_length=1, max_length=16)]
    """Every other file of the slot."""


class Trial(Frozen):
    """A version that is active but not yet committed."""

    slot: SlotName
    previous: SlotName | None
    """Slot to roll back to; None where the robot had no policy."""
    bundle_sha256: Sha256
    version: Version
    started: Utc
    boot_id: VerdictLine
    """Of the kernel that ran last while the trial was on."""
    boots: Annotated[int, Field(ge=1, le=1000)] = 1
    """Kernels that have run while the trial was on."""
    rollback_reason: Text | None = None
    """Set once the robot has decided to go back; recovery carries it out."""


EventKind = Literal["activated", "committed", "rolled-back", "interrupted", "install-failed", "unsafe", "repaired"]


class SlotEvent(Frozen):
    """Something that happened to the slots."""

    time: Utc
    kind: EventKind
    bundle_sha256: Sha256 | None = None
    version: Version | None = None
    reason: Text = ""


class State(Frozen):
    """What must outlive the slots."""

    format_version: Literal[1] = FORMAT_VERSION
    generation: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] = 0
    """Number of times it was written; of two copies the greater is right."""
    floor: Version = 0
    """Smallest version that may still be installed; rises at commit only, never falls."""
    committed: SlotName | None = None
    """Slot that was committed last; `current` says which is active."""
    trial: Trial | None = None
    latest_time: Utc = "1970-01-01T00:00:00Z"
    """A moment that has passed for certain, for clocks that cannot be believed. Signed statements and verdicts raise
    it; the clock by a day at most each time this is written."""
    rejected: Annotated[tuple[Sha256, ...], Field(max_length=MAX_REJECTED)] = ()
    """Bundles that were rolled back; not activated again unless asked explicitly."""
    events: Annotated[tuple[SlotEvent, ...], Field(max_length=MAX_EVENTS)] = ()
    """Oldest first."""

    @property
    def last_rollback(self) -> SlotEvent | None:
        """Why the robot last went back to an earlier version; None if it never did."""
        return next((event for event in reversed(self.events) if event.kind == "rolled-back"), None)


class RobotIdentity(Frozen):
    """Which robot this is, written once at setup."""

    format_version: Literal[1] = FORMAT_VERSION
    robot: Name
    """Kind of robot, as contracts and verdicts name it."""
    joints: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)] | None = None
    """Joints this robot has; None takes the contract's word for it."""
    runtime_unit: VerdictLine | None = None
    """systemd unit to restart when the active version changes."""
    stand_in: bool = False
    """Whether a simulation takes the robot's place, so that what is measured here is no robot's."""

    @property
    def origin(self) -> Origin:
        """Where evidence that is measured here comes from."""
        return Origin(kind="stand-in" if self.stand_in else "robot", robot=self.robot, machine=machine_text())


class HealthLimits(Frozen):
    """What a version on trial must show before it is committed."""

    format_version: Literal[1] = FORMAT_VERSION
    window_s: Annotated[float, Field(gt=0.0, le=86400.0)] = 30.0
    """Time the policy must have run without a break [s]."""
    max_missed_share: Annotated[float, Field(ge=0.0, le=1.0)] = 1e-3
    """Greatest share of ticks beyond the contract's deadline."""
    max_interventions: Annotated[int, Field(ge=0)] = 0
    """Most ticks in which the guard changed or withheld a command."""
    start_timeout_s: Annotated[float, Field(gt=0.0, le=3600.0)] = 60.0
    """Longest time until the runtime first reports [s]."""
    alive_timeout_s: Annotated[float, Field(gt=0.0, le=600.0)] = 2.0
    """Longest silence of the runtime [s]."""
    max_restarts: Annotated[int, Field(ge=0, le=100)] = 2
    """Most restarts of the runtime within the trial."""
    max_boots: Annotated[int, Field(ge=1, le=100)] = 8
    """Most kernels within the trial; power cuts are no fault of the policy, endless ones might be."""


Record = Marker | State | RobotIdentity | HealthLimits
AnyRecord = TypeVar("AnyRecord", Marker, State, RobotIdentity, HealthLimits)

_NAMES: dict[type[Record], str] = {
    Marker: "slot marker",
    State: "slot state",
    RobotIdentity: "robot identity",
    HealthLimits: "set of health limits",
}


def encode(record: Record) -> bytes:
    """The record as canonical JSON, sealed."""
    return seal(canonical_json(record))


def decode(model: type[AnyRecord], data: bytes, *, source: str) -> AnyRecord:
    """The record that `encode` wrote.

    Raises:
        SlotError: it is damaged, too big, of another format, or not a consistent record.
    """
    text = unseal(data, source=source)
    kind = DocumentKind(
        name=_NAMES[model], format_version=FORMAT_VERSION, max_bytes=MAX_RECORD_BYTES, max_depth=8, error=SlotError
    )
    return kind.parse(model, text, source=source)
