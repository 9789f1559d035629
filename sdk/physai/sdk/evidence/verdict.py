"""Verdicts of `physai sim validate`: the gates, their results, and whether the policy may be flashed.

A verdict is serialised as canonical JSON (RFC 8785), so that it can be signed. Robots read verdicts too, so
`parse_verdict` checks untrusted input against size limits before it parses it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.process.software import Software
from physai.sdk.contract.robot import Finite, Frozen, Label, Name, require_unique
from physai.sdk.contract.robot import Sha256 as Sha256
from physai.sdk.evidence.exam_facts import ExamFacts
from physai.sdk.evidence.origin import Accepted, Origin
from physai.sdk.evidence.preferences import Preferences

FORMAT_VERSION = 2
"""Increased when an older reader could misinterpret a newer verdict."""

MAX_VERDICT_BYTES = 1 << 22
"""Maximum size of a verdict; one of ten gates takes about 20 kB."""

VERDICT_FILE = "verdict.json"
"""Name of the verdict in a report folder."""

_PRINTABLE = r"^[^\u0000-\u0009\u000b-\u001f\u007f-\u009f]*$"
Text = Annotated[str, Field(max_length=4096, pattern=_PRINTABLE)]
"""Prose for a person: line feeds, but no other control characters, because it is printed on terminals."""
VerdictLine = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\u0000-\u001f\u007f-\u009f]+$")]
"""One line for a person, not empty."""

NOT_APPLICABLE = "not applicable"
"""How a gate that had nothing to examine is shown: non-inferiority without anything to compare with."""

Share = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**9)]


class VerdictError(PhysaiError):
    """A verdict is malformed, too large or inconsistent."""


class VerdictOutcome(StrEnum):
    """Result of a gate, or of all of them together."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    """The evidence decides neither way; never to be read as a pass."""

    @property
    def exit_code(self) -> int:
        """Exit status of `physai sim validate`: 0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE."""
        return {VerdictOutcome.PASS: 0, VerdictOutcome.FAIL: 1, VerdictOutcome.INCONCLUSIVE: 2}[self]


class Cause(StrEnum):
    """Suspected place of a fault."""

    CONTRACT = "contract"
    """Two sides disagree about what is sensed, commanded or timed."""
    NUMERICS = "numerics"
    """The exported or quantised graph computes something else than what was trained."""
    TWIN = "twin"
    """The twin does not explain the robot's logs."""
    POLICY = "policy"
    """The policy itself does not do the task, or not safely."""
    TIMING = "timing"
    """It is too slow, or not robust to the delay and jitter of the target."""


def combine(outcomes: Iterable[VerdictOutcome]) -> VerdictOutcome:
    """Combine outcomes: FAIL if any failed, else INCONCLUSIVE if any is inconclusive or there are none, else PASS."""
    distinct = set(outcomes)
    if VerdictOutcome.FAIL in distinct:
        return VerdictOutcome.FAIL
    return VerdictOutcome.PASS if distinct == {VerdictOutcome.PASS} else VerdictOutcome.INCONCLUSIVE


def _is_seed(text: str) -> str:
    if not int(text) < 1 << 64:
        raise ValueError(f"seed {text} does not fit 64 bits")
    return text


Seed = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,19})$"), AfterValidator(_is_seed)]
"""A 64-bit seed in decimal digits: numbers in JSON are exact up to 2^53 only."""


class SeedRange(Frozen):
    """Episodes `first` to `first + count - 1` of a stream of seeds."""

    stream: Seed
    """Seed of the stream."""
    first: Count = 0
    count: Count


class Measurement(Frozen):
    """One number a gate measured."""

    name: Name
    """`success_rate`, `rmse.joint1`"""
    value: Finite
    unit: Label = ""
    lower: Finite | None = None
    """Lower bound of the confidence interval; None where there is none."""
    upper: Finite | None = None
    """Upper bound of the confidence interval; None where there is none."""
    confidence: Share | None = None
    """Probability with which the interval covers the true value."""
    threshold: Finite | None = None
    """What the value or its bound is held against; None where it only informs."""

    @model_validator(mode="after")
    def _interval_is_one(self) -> Self:
        if self.lower is not None and self.upper is not None and not self.lower <= self.upper:
            raise ValueError(f"measurement {self.name}: lower {self.lower} is above upper {self.upper}")
        bounded = self.lower is not None or self.upper is not None
        if bounded != (self.confidence is not None):
            raise ValueError(f"measurement {self.name}: an interval and its confidence come together")
        return self


class Counterexample(Frozen):
    """The smallest known case that fails; `physai play --counterexample N` shows it again."""

    index: Count
    """N."""
    description: VerdictLine
    """What happens in it."""
    episode_seed: Seed | None = None
    """Seed that draws the episode; None where the case is no episode (a contract, a tensor)."""
    step: Count | None = None
    """Control period in which it goes wrong."""
    parameters: Annotated[dict[Name, Finite], Field(max_length=256)] = Field(default_factory=dict[str, float])
    """Parameters of the twin and perturbations in this episode, SI units."""
    recording: VerdictLine | None = None
    """File of the recording, relative to the folder of the verdict."""

    @model_validator(mode="after")
    def _recording_lies_in_the_folder(self) -> Self:
        parts = (self.recording or "-").replace("\\", "/").split("/")
        if "" in parts or ".." in parts or ":" in parts[0]:
            raise ValueError(f"recording {self.recording!r} is not a path inside the verdict's folder")
        return self


class GateResult(Frozen):
    """Result of one gate. Every outcome but PASS says why and what to do next; FAIL also names its cause."""

    gate: Name
    outcome: VerdictOutcome
    question: VerdictLine
    """What the gate asks."""
    method: Text
    """How it was answered: statistics, twin, perturbations."""
    threshold: Text
    """The rule in words: `lower 95 % bound of the success rate at least 0.90`."""
    measured: Annotated[tuple[Measurement, ...], Field(max_length=256)] = ()
    """The deciding number first."""
    episodes: Count = 0
    """Episodes played."""
    seeds: Annotated[tuple[SeedRange, ...], Field(max_length=64)] = ()
    """Seeds of these episodes."""
    cause: Cause | None = None
    message: Text = ""
    """Why, in a sentence or two."""
    next_step: Text = ""
    """What to do: `record this excitation`, `573 more episodes`."""
    counterexample: Counterexample | None = None

    @property
    def applies(self) -> bool:
        """Whether the gate had anything to examine: False for a PASS without a measurement and without an episode."""
        return self.outcome is not VerdictOutcome.PASS or bool(self.measured) or self.episodes > 0

    @property
    def shown(self) -> str:
        """The outcome for people: `PASS`, `FAIL`, `INCONCLUSIVE`, or `not applicable`."""
        return self.outcome.value if self.applies else NOT_APPLICABLE

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        require_unique(f"gate {self.gate}: measurement", (m.name for m in self.measured))
        if self.outcome is VerdictOutcome.PASS:
            if self.cause is not None or self.counterexample is not None:
                raise ValueError(f"gate {self.gate}: passes, yet names a cause or a counterexample")
            return self
        if self.outcome is VerdictOutcome.FAIL and self.cause is None:
            raise ValueError(f"gate {self.gate}: a FAIL names its cause")
        for label, text in (("message", self.message), ("next_step", self.next_step)):
            if not text.strip():
                raise ValueError(f"gate {self.gate}: {self.outcome} needs a {label}")
        return self


def _is_time(text: str) -> str:
    datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    return text


Utc = Annotated[
    str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"), AfterValidator(_is_time)
]
"""A moment, UTC, to the second: `2026-11-21T12:00:00Z`."""


def utc_text(moment: datetime) -> str:
    """Format a time as in a verdict; `moment` must have a time zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


EvidenceKind = Literal["effort replay", "command replay", "closed loop"]
"""What a twin was tested with: held-out recordings replayed from measured efforts or from commands, or a policy's runs
on the robot that the same policy reproduces in the twin."""


class Evidence(Frozen):
    """Evidence of the gates besides the policy, and its origin."""

    twin: Origin = Origin()
    """Of the recordings that the twin was fitted to and tested with."""
    kinds: Annotated[tuple[EvidenceKind, ...], Field(max_length=3, exclude_if=lambda kinds: not kinds)] = ()
    """What the twin was tested with; left out of the document if nothing."""
    latency: Origin = Origin()
    """Of the ticks that the latency gate judged."""
    latency_sha256: Sha256 | None = None
    """Of the canonical JSON of these ticks; None where there were none."""
    accepted: Accepted = ("robot",)
    """Origins that the validator accepted."""


Device = Annotated[str, Field(pattern=r"^(cuda|tensorrt):[0-9]{1,3}$")]
"""What computed a policy, if not the CPU."""


class Verdict(Frozen):
    """All gates and what they were held over: change one byte of any of the four and the verdict is of another."""

    format_version: Literal[2] = FORMAT_VERSION
    policy_sha256: Sha256
    """Of the bytes of the ONNX file that was judged."""
    contract_fingerprint: Sha256
    twin_hash: Sha256
    """Hash that `twin.json` states, or of the nominal twin."""
    gates_sha256: Sha256
    """Of the canonical JSON of the gate settings."""
    evidence: Evidence = Evidence()
    """Where twin and latency come from."""
    created: Utc
    gates: Annotated[tuple[GateResult, ...], Field(max_length=64)]
    outcome: VerdictOutcome
    """`combine` of the gates'."""
    versions: Annotated[dict[Name, VerdictLine], Field(max_length=64)]
    """Versions of the packages that took part: mujoco, onnxruntime, numpy."""
    physai_version: VerdictLine
    device: Device | None = Field(default=None, exclude_if=lambda device: device is None)
    """What computed the policy; left out of the document for the CPU."""
    run: Sha256 | None = Field(default=None, exclude_if=lambda run: run is None)
    """Id of the run that made the policy, proven by its signature; left out if it names none."""
    preferences: Preferences | None = Field(default=None, exclude_if=lambda preferences: preferences is None)
    """What the policy states of preferences that it learned from; left out if it states none."""
    software: Software | None = Field(default=None, exclude_if=lambda software: software is None)
    """What the policy was judged with."""
    exam: ExamFacts | None = Field(default=None, exclude_if=lambda exam: exam is None)
    """The exam whose episodes decided; left out for a rehearsal, whose episodes everybody can know beforehand."""

    @model_validator(mode="after")
    def _outcome_follows(self) -> Self:
        require_unique("gate", (gate.gate for gate in self.gates))
        expected = combine(gate.outcome for gate in self.gates)
        if self.outcome is not expected:
            raise ValueError(f"outcome {self.outcome}, but its gates make it {expected}")
        return self

    @property
    def foreign_evidence(self) -> tuple[str, ...]:
        """Origins of its evidence other than a robot, sorted: no robot accepts these unless its owner does."""
        return tuple(sorted({origin.kind for origin in (self.evidence.twin, self.evidence.latency)} - {"robot"}))

    @property
    def condition(self) -> str:
        """Evidence that robots must accept for a PASS to be of use: `accepting computer, stand-in`; empty if none."""
        if self.outcome is not VerdictOutcome.PASS or not self.foreign_evidence:
            return ""
        return f"accepting {', '.join(self.foreign_evidence)}"

    @property
    def shown(self) -> str:
        """The outcome for people, with its condition: `PASS, only accepting computer, stand-in`."""
        return f"{self.outcome.value}, only {self.condition}" if self.condition else self.outcome.value

    @property
    def passed(self) -> str:
        """Count of the gates that pass, of those with anything to examine: `9 of 9 gates pass over 832 episodes`."""
        examined = [gate for gate in self.gates if gate.applies]
        count = sum(gate.outcome is VerdictOutcome.PASS for gate in examined)
        idle = [gate.gate for gate in self.gates if not gate.applies]
        episodes = sum(gate.episodes for gate in examined)
        text = f"{count} of {len(examined)} gates pass" + (f" over {episodes} episodes" if episodes else "")
        return f"{text}; {NOT_APPLICABLE}: {', '.join(idle)}" if idle else text

    @property
    def episodes(self) -> str:
        """Source of its episodes, for people: `exam 2 of 3`, or `rehearsal`."""
        return "rehearsal" if self.exam is None else self.exam.shown

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
        return sha256_hex(canonical_json(self))


_KIND = DocumentKind(
    name="verdict", format_version=FORMAT_VERSION, max_bytes=MAX_VERDICT_BYTES, max_depth=16, error=VerdictError
)


def parse_verdict(data: bytes | str, *, source: str) -> Verdict:
    """Parse a verdict from a JSON document.

    Args:
        data: the document, UTF-8.
        source: origin of the document, for messages.

    Raises:
        VerdictError: the document is too large, malformed, of another format, or inconsistent.
    """
    return _KIND.parse(Verdict, data, source=source)


def load_verdict(path: Path | str) -> Verdict:
    """Load a verdict from a JSON file, or from `verdict.json` in a folder.

    Raises:
        VerdictError: it cannot be read, or is invalid.
    """
    path = Path(path)
    if path.is_dir():
        path = path / VERDICT_FILE
    with oserror_as(VerdictError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_VERDICT_BYTES)
    return parse_verdict(data, source=str(path))


def save_verdict(verdict: Verdict, path: Path | str) -> None:
    """Write the verdict as canonical JSON, atomically.

    Raises:
        VerdictError: the file cannot be written.
    """
    with oserror_as(VerdictError, f"{path}: cannot be written"):
        write_atomic(Path(path), canonical_json(verdict))
