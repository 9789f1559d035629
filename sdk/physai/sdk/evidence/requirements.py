"""What a robot asks of a verdict before it takes a policy: which gates, under which settings, on whose evidence.

The robot's owner writes it down (`physai robot setup --settings`); the validator checks the same before signing, and
the robot asks again.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from physai.sdk.base.documents import DocumentKind
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain, write_atomic
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.origin import Accepted, Origin, OriginKind, is_unit_of, model_of
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
"""SHA-256 of the gate settings that `physai sim validate` has without `--gates`."""


class Requirement(StrEnum):
    """What a verdict lacks."""

    GATES = "gates"
    SETTINGS = "settings"
    EVIDENCE = "evidence"


class RequirementsError(PhysaiError):
    """Requirements are malformed, or a verdict does not meet them."""

    def __init__(self, message: str, requirement: Requirement | None = None) -> None:
        super().__init__(message)
        self.requirement = requirement
        """What is not met; None where the requirements themselves are malformed."""


class Requirements(Frozen):
    """What a robot asks of a verdict."""

    format_version: Literal[1] = FORMAT_VERSION
    gates: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ALL_GATES
    """Gates that must have been asked, and passed."""
    gate_settings: Annotated[tuple[Sha256, ...], Field(min_length=1, max_length=MAX_ACCEPTED_SETTINGS)] = (
        DEFAULT_GATES_SHA256,
    )
    """SHA-256 of the gate settings it accepts; `physai sim validate` prints that of its own."""
    accept: Accepted = ("robot",)
    """Origins of evidence it accepts."""
    unsafe_no_verdict: bool = False
    """Whether `physai flash --unsafe-no-verdict` may bring a bundle without a verdict; `physai robot install` on the
    robot itself may in any case."""

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The requirements in a JSON file; what it leaves out keeps its default.

        Raises:
            RequirementsError: it cannot be read, or is malformed.
        """
        path = Path(path)
        try:
            data = read_plain(path, limit=MAX_SETTINGS_BYTES)
        except OSError as error:
            raise RequirementsError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.parse(data, source=str(path))

    @classmethod
    def parse(cls, data: bytes | str, *, source: str) -> Self:
        """The requirements in a JSON document; RequirementsError if it is none."""
        return _KIND.parse(cls, data, source=source)

    def encode(self) -> bytes:
        """The requirements as a JSON document for a person to read."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def save(self, path: Path | str) -> None:
        """Writes the JSON file.

        Raises:
            RequirementsError: it cannot be written.
        """
        try:
            write_atomic(Path(path), self.encode())
        except OSError as error:
            raise RequirementsError(f"{path}: cannot be written: {error.strerror}") from None

    def check(self, verdict: Verdict, *, robot: str, machine: str | None = None) -> None:
        """Asks all of it of a verdict.

        Args:
            verdict: what was found.
            robot: the robot that is to run the policy, a model or one unit of it.
            machine: that robot's computer, `physai.sdk.evidence.origin.machine_text`; None if unknown, which skips
                the comparison.

        Raises:
            RequirementsError: the first that it does not meet.
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
"""How to get evidence that is accepted everywhere, by what it is evidence of."""


def accepting(kinds: tuple[OriginKind, ...]) -> Requirements:
    """The default requirements, but for the origins that are accepted."""
    return Requirements(accept=kinds)


_KIND = DocumentKind(
    name="robot's settings",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_SETTINGS_BYTES,
    max_depth=4,
    error=RequirementsError,
)
