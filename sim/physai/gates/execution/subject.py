"""Subject of a validation: a policy's bytes and sibling files, its task and the twin."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

from physai.sdk.base.errors import ContractError, PhysaiError
from physai.sdk.base.files import oserror_as
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.preferences import Preferences, StatedPreferencesError
from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, POLICY_FILE, PolicyError
from physai.sdk.policy.run_identity import named_run
from physai.sdk.signing.exam import Exam
from physai.sim.policies.devices import make_policy
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import REFERENCE_FOLDER, TaskSource, find_policy, find_reference
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Arm, stream_seed

QUANTISED_FILE = "policy.int8.onnx"
"""File name of the quantised policy next to the float one."""


@dataclass(frozen=True)
class ValidationSubject:
    """All inputs of the gates; picklable for worker processes."""

    path: Path
    """The policy's file."""
    origin: TaskSource
    twin: Twin
    arms: dict[Arm, bytes]
    """ONNX files by role; `policy` is the one under test."""
    seed: int = 0
    exam: Exam | None = None
    """From which the seeds of the episodes follow; None for a rehearsal, where they follow from `seed`."""
    golden: bytes | None = None
    """The reference outputs that were exported with the policy."""
    device: PolicyDevice = CPU
    """What computes the policies."""
    preferences: Preferences | None = None
    """What the policy under test states of preferences that it learned from; see `stated_preferences`."""
    _policies: dict[Arm, OnnxPolicy] = field(default_factory=dict[Arm, OnnxPolicy], compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without caches: an inference session cannot be pickled."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "_policies": {}}

    @cached_property
    def task(self) -> Task:
        """The task the policy plays."""
        return self.origin.load()

    def stream(self, stream: int) -> int:
        """Seed of one of the streams of episodes, such as `VERDICT_STREAM`."""
        return stream_seed(stream, self.seed) if self.exam is None else self.exam.seed(stream)

    @property
    def policy_sha256(self) -> str:
        """SHA-256 of the policy under test."""
        return sha256_hex(self.arms["policy"])

    @property
    def run(self) -> str | None:
        """Id of the run that made the policy under test; None if it is malformed, names none, or nothing proves it.

        Raises:
            PolicyError: a quantised policy names another run than its float policy.
        """
        original = None
        try:
            header = self.policy().header
            if "float" in self.arms:
                original = self.policy("float").header, sha256_hex(self.arms["float"])
        except (PolicyError, ContractError):
            return None  # the contract gate says why
        run = named_run(header, source=str(self.path), original=original)
        return None if run is None else run.id

    @property
    def identity(self) -> dict[str, str]:
        """Hashes by name that identify the subject of stored batches."""
        return {
            **{f"policy.{arm}": sha256_hex(data) for arm, data in sorted(self.arms.items())},
            "twin": self.twin.hash,
            "task": repr(self.origin),
            "contract": self.task.contract.fingerprint,
            "seed": str(self.seed) if self.exam is None else self.exam.facts.id,
            "device": str(self.device),
        }

    def policy(self, arm: Arm = "policy") -> OnnxPolicy:
        """Return one of the graphs; loaded once per process.

        Raises:
            DeviceError: the device cannot compute all of it.
            PolicyError: the file is invalid.
            ContractError: its contract is malformed.
        """
        if arm not in self._policies:
            name = str(self.path) if arm == "policy" else f"{self.path.parent} ({arm})"
            self._policies[arm] = make_policy(self.arms[arm], source=name, device=self.device)
        return self._policies[arm]


def stated_preferences(arms: Mapping[Arm, bytes], *, source: str) -> Preferences | None:
    """Preferences that the policy under test states, after checking that the reference is the one that it names.

    Args:
        arms: ONNX files by role.
        source: origin of the policy, for messages.

    Returns:
        None for a policy that states nothing, or that is malformed, which the contract gate reports.

    Raises:
        StatedPreferencesError: an entry is missing or malformed, a quantised policy and its float policy state
            different ones, or the reference is another policy.
    """
    try:
        headers = {arm: check_policy(arms[arm], source=source) for arm in ("policy", "float") if arm in arms}
    except (PolicyError, ContractError):
        return None
    stated = [Preferences.stated(header.provenance, source=source) for header in headers.values()]
    if stated[-1] != stated[0]:
        raise StatedPreferencesError(
            f"{source} states {stated[0]!r:.300} of preferences, its float policy {stated[-1]!r:.300}: run physai "
            "quantize again"
        )
    named = None if stated[0] is None else stated[0].reference
    if "reference" in arms and (given := sha256_hex(arms["reference"])) != named:
        raise StatedPreferencesError(
            f"{source} was not fine-tuned by preferences; to compare it with {given}, give that as `baseline`"
            if named is None
            else f"{source} was fine-tuned from the policy with SHA-256 {named}, the reference has {given}; give "
            f"{REFERENCE_FOLDER}/{POLICY_FILE} of the fine-tuned run folder as `reference`"
        )
    return stated[0]


def open_subject(
    path: Path,
    twin: Twin,
    *,
    origin: TaskSource,
    baseline: Path | None = None,
    reference: Path | None = None,
    seed: int = 0,
    exam: Exam | None = None,
    device: PolicyDevice = CPU,
) -> ValidationSubject:
    """Read the policy and its sibling files.

    Args:
        path: the policy's file.
        twin: the twin to play in.
        origin: the task to play, see `find_origin`.
        baseline: run folder or file of an older policy to compare with.
        reference: run folder or file of the policy that it was fine-tuned from; None for that in its run folder.
        seed: selects the episodes of a rehearsal.
        exam: selects those of an exam; None for a rehearsal.
        device: what computes the policies.

    Raises:
        PolicyError: a file cannot be read or is too large.
        StatedPreferencesError: see `stated_preferences`.
    """
    arms: dict[Arm, bytes] = {"policy": _read(path)}
    sibling = path.parent / (POLICY_FILE if path.name == QUANTISED_FILE else QUANTISED_FILE)
    # Only files with the names of an export belong together; others may lie next to each other by chance.
    if path.name in (POLICY_FILE, QUANTISED_FILE) and sibling.is_file():
        quantised, original = (path, sibling) if path.name == QUANTISED_FILE else (sibling, path)
        arms["quantised"], arms["float"] = _read(quantised), _read(original)
    if baseline is not None:
        arms["baseline"] = _read(find_policy(baseline))
    stated = stated_preferences(arms, source=str(path))
    reference = find_reference(path, reference)
    if reference is not None:
        arms["reference"] = _read(reference)
        stated_preferences(arms, source=str(path))
    golden = path.parent / GOLDEN_FILE
    return ValidationSubject(
        path=path,
        origin=origin,
        twin=twin,
        arms=arms,
        seed=seed,
        exam=exam,
        golden=_read(golden) if golden.is_file() else None,
        device=device,
        preferences=stated,
    )


def _read(path: Path) -> bytes:
    with oserror_as(PhysaiError, f"{path}: cannot be read"), path.open("rb") as file:
        # One byte more than allowed tells a file of the maximum size from a larger one.
        data = file.read(MAX_POLICY_BYTES + 1)
    if not len(data) <= MAX_POLICY_BYTES:
        raise PolicyError(f"{path}: more than {MAX_POLICY_BYTES} bytes, the maximum size of a policy")
    return data
