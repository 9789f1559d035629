"""Requirements of a robot on a verdict: gates, gate settings and origins of evidence.

The robot's owner defines them (`physai robot setup --settings`). They are checked when a verdict is signed, and again
on the robot.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.origin import Accepted, Origin, OriginKind, is_unit_of, model_of
from physai.sdk.evidence.shadow import ShadowRequirement
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.evidence.verdict import Sha256, Verdict, VerdictOutcome

FORMAT_VERSION = 1
MAX_SETTINGS_BYTES = 1 << 16
MAX_ACCEPTED_SETTINGS = 64

ALL_GATES = (
    "contract",
    "twin",
    "parity",
    "success",
    "non-inferiority",
    "safety",
    "robustness",
    "engine",
    "falsification",
    "latency",
)
"""The gates of `physai sim validate`, in the order in which a verdict lists them."""

DEFAULT_GATES_SHA256 = "f1a7fc50e4de96d6f154bf5515c8064cbfaff6744c993425eb8463cdc68cc58e"
"""SHA-256 of the default gate settings of `physai sim validate`."""


class Requirement(StrEnum):
    """Requirement that a verdict does not meet."""

    GATES = "gates"
    SETTINGS = "settings"
    EVIDENCE = "evidence"


class RequirementsError(PhysaiError):
    """Requirements are malformed, or a verdict does not meet them."""

    def __init__(self, message: str, requirement: Requirement | None = None) -> None:
        super().__init__(message)
        self.requirement = requirement
        """The requirement that is not met; None if the requirements themselves are malformed."""


class SegmentRules(Frozen):
    """Scheduled random segments of a flight recorder: one at a random time in each interval of driven time."""

    per_hour: Annotated[float, Field(ge=0.01, le=60.0)] = 6.0
    """Segments in an hour of driven time."""
    seconds: Annotated[float, Field(ge=1.0, le=600.0)] = 60.0
    """Duration of a segment [s]."""
    steps: dict[Name, Annotated[float, Field(gt=0.0, le=1e3)]] = Field(default_factory=dict, max_length=64)
    """Step of a sensor's readings, a command or a target by its name, in the field's unit. What is recorded differs by
    at most half of it; fields without one are exact as float32."""

    @model_validator(mode="after")
    def _leaves_room_for_chance(self) -> Self:
        if not self.per_hour * self.seconds <= 1800.0:
            raise ValueError(
                f"{self.per_hour:g} segments of {self.seconds:g} s are {self.per_hour * self.seconds:g} s in an hour; "
                "at most 1800 s leave a choice of the times"
            )
        return self


class Requirements(Frozen):
    """Requirements of a robot on a verdict."""

    format_version: Literal[1] = FORMAT_VERSION
    gates: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ALL_GATES
    """Gates that must have passed."""
    gate_settings: Annotated[tuple[Sha256, ...], Field(min_length=1, max_length=MAX_ACCEPTED_SETTINGS)] = (
        DEFAULT_GATES_SHA256,
    )
    """SHA-256 of the accepted gate settings; `physai sim validate` prints the one it uses."""
    accept: Accepted = ("robot",)
    """Accepted origins of evidence."""
    exam: Annotated[bool, Field(exclude_if=lambda exam: not exam)] = False
    """Whether only the verdict of an exam counts, and none of a rehearsal; left out of the document if not."""
    unsafe_no_verdict: bool = False
    """Whether `physai flash --unsafe-no-verdict` may bring a bundle without a verdict; `physai robot install` on the
    robot itself may in any case."""

    shadow: Annotated[ShadowRequirement | None, Field(exclude_if=lambda shadow: shadow is None)] = None
    """Shadow evidence that a bundle needs before its trial; None, and left out of the document, for none."""

    status: Annotated[StatusRules | None, Field(exclude_if=lambda status: status is None)] = None
    """Rules for the word of validators on verdicts; None, and left out of the document, for the defaults."""

    segments: Annotated[SegmentRules | None, Field(exclude_if=lambda segments: segments is None)] = None
    """Random segments that the flight recorder keeps; None, and left out of the document, for none."""

    drive_after_boot: bool = False
    """Whether the runtime's service drives the robot when it starts; otherwise it waits for `physai robot command
    activate`. It never drives a robot whose stop was not reset, nor after a revocation (`drive_after_revoked`)."""

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Load requirements from a JSON file; missing fields keep their defaults.

        Raises:
            RequirementsError: it cannot be read, or is malformed.
        """
        path = Path(path)
        with oserror_as(RequirementsError, f"{path}: cannot be read"):
            data = read_plain(path, limit=MAX_SETTINGS_BYTES)
        return cls.parse(data, source=str(path))

    @classmethod
    def parse(cls, data: bytes | str, *, source: str) -> Self:
        """Parse requirements from a JSON document; raises RequirementsError."""
        return _KIND.parse(cls, data, source=source)

    def encode(self) -> bytes:
        """Return the requirements as an indented JSON document."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def save(self, path: Path | str) -> None:
        """Write the JSON file atomically.

        Raises:
            RequirementsError: it cannot be written.
        """
        with oserror_as(RequirementsError, f"{path}: cannot be written"):
            write_atomic(Path(path), self.encode())

    def check(self, verdict: Verdict, *, robot: str, machine: str | None = None) -> None:
        """Check a verdict.

        Args:
            verdict: the verdict.
            robot: robot that is to run the policy, a model or a unit of it.
            machine: that robot's computer, `physai.sdk.evidence.origin.machine_text`; None to skip the comparison.

        Raises:
            RequirementsError: a requirement is not met; reports the first one.
        """
        passed = {gate.gate for gate in verdict.gates if gate.outcome is VerdictOutcome.PASS}
        missing = [name for name in self.gates if name not in passed]
        if missing:
            raise RequirementsError(
                f"the verdict lacks the gates {', '.join(missing)}; it has {', '.join(sorted(passed)) or 'none'}: "
                "validate with `physai sim validate`",
                Requirement.GATES,
            )
        if verdict.gates_sha256 not in self.gate_settings:
            accepted = ", ".join(sha256[:12] for sha256 in self.gate_settings)
            raise RequirementsError(
                f"the gates ran under the settings {verdict.gates_sha256[:12]}, accepted are {accepted}: validate with "
                "those, or the robot's owner adds these to its settings (gate_settings)",
                Requirement.SETTINGS,
            )
        if self.exam and verdict.exam is None:
            raise RequirementsError(
                "the verdict is of a rehearsal, whose episodes everybody can know beforehand, this robot asks for an "
                "exam: physai sim exam open, and validate with --exam",
                Requirement.EVIDENCE,
            )
        evidence = verdict.evidence
        self._check_origin("twin", evidence.twin, robot)
        if "latency" in self.gates:
            self._check_latency(evidence.latency, robot, machine)

    def _check_latency(self, origin: Origin, robot: str, machine: str | None) -> None:
        self._check_origin("latency", origin, robot)
        if origin.kind == "robot" and machine is not None and origin.machine != machine:
            raise RequirementsError(
                f"the latency was measured on {origin.machine or 'an unnamed computer'}, this robot has a {machine}: "
                "measure here with `physai robot measure`, and validate again",
                Requirement.EVIDENCE,
            )

    def _check_origin(self, what: str, origin: Origin, robot: str) -> None:
        model = model_of(robot)
        if origin.kind not in self.accept:
            raise RequirementsError(
                f"the {what} comes from {origin}, accepted is evidence of: {', '.join(self.accept)}. "
                f"{REMEDIES[what]}; or the robot's owner accepts it (settings: accept)",
                Requirement.EVIDENCE,
            )
        if origin.robot is not None and not is_unit_of(origin.robot, model):
            raise RequirementsError(
                f"the {what} comes from {origin}, and this robot is a {model}: validate on its own evidence",
                Requirement.EVIDENCE,
            )


REMEDIES = {
    "twin": "Record the robot and say so: `physai sim calibrate … --recorded-on MODEL/UNIT`",
    "latency": "Measure on the robot: `physai robot measure`",
}
"""How to get evidence of origin `robot`."""


def accepting(kinds: tuple[OriginKind, ...]) -> Requirements:
    """Return the default requirements with these accepted origins."""
    return Requirements(accept=kinds)


_KIND = DocumentKind(
    name="robot's settings",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_SETTINGS_BYTES,
    max_depth=4,
    error=RequirementsError,
)
