"""Record of a run: its inputs and every episode played, from which its verdict can be derived again.

`physai bundle sign` does not trust a verdict's JSON. It judges the bytes of the bundle again: it derives all decisions
from the recorded episodes, and replays randomly chosen batches, which must match bit for bit.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.gates.checks.gate import Context
from physai.gates.execution.shadow_facts import read_shadows, require_shadows_of
from physai.gates.execution.store import BatchStore
from physai.gates.execution.subject import QUANTISED_FILE, ValidationSubject, stated_preferences
from physai.gates.execution.workers import play
from physai.gates.judgement import judge
from physai.gates.runner import all_gates, find_all
from physai.gates.settings import parse_gates
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_bounded, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.field_episodes import load_field_episodes, save_field_episodes
from physai.sdk.evidence.latency import LatencyEvidence, load_evidence, save_evidence
from physai.sdk.evidence.origin import Origin, OriginKind, parse_accepted
from physai.sdk.evidence.shadow import save_shadow_evidence
from physai.sdk.evidence.verdict import VERDICT_FILE, GateResult, Verdict, VerdictOutcome, load_verdict
from physai.sdk.onnx.device import PolicyDevice
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, POLICY_FILE
from physai.sdk.signing.ed25519 import PublicKey
from physai.sdk.signing.evidence import EvidenceFile, unsigned_remedy
from physai.sdk.signing.exam import load_exam
from physai.sim.policies.devices import choose_policy_device
from physai.sim.policies.resolve import choose_task_source, run_folder_of
from physai.twin.model.credibility import lag_doubt
from physai.twin.model.twin import load_twin, save_twin
from physai.twin.rollouts.batch import Arm, Batch, BatchResult

FOLDER = "record"
"""Folder of the record inside a report folder."""
REPLAYS = 3
"""Batches replayed before a verdict is signed."""

_INPUTS_FILE, _TWIN_FILE, _LATENCY_FILE, _EXAM_FILE = "inputs.json", "twin.json", "latency.json", "exam.json"
_FIELD_FILE, _SHADOW_PREFIX = "field.json", "shadow-"
_COMPARED: dict[Arm, str] = {"baseline": "baseline.onnx", "reference": "reference.onnx"}
"""Files of policies that are not in the bundle."""
_MAX_INPUTS_BYTES = 1 << 18


class RecordError(PhysaiError):
    """The record of a run is missing, damaged or inconsistent with its verdict."""


def write_record(report: Path, store: BatchStore, context: Context, evidence: LatencyEvidence | None) -> None:
    """Store the inputs of a finished run with its episodes.

    Raises:
        RecordError: the record cannot be written.
        TwinError: the twin cannot be written.
        EvidenceError: the latency evidence cannot be written.
        FieldEpisodesError: the field episodes cannot be written.
        ShadowEvidenceError: the shadow evidence cannot be written.
    """
    folder, subject = report / FOLDER, context.subject
    inputs = {
        "task": subject.origin.task,
        "robot": subject.origin.robot,
        "preset": subject.origin.preset,
        "seed": subject.seed,
        "accept": list(context.accept),
        "gates": context.settings.model_dump(mode="json"),
        "arms": sorted(subject.arms),
        "doubts_lags": True,
    }
    with oserror_as(RecordError, f"{folder}: cannot be written"):
        write_atomic(store.folder / _INPUTS_FILE, json.dumps(inputs, indent=2).encode())
        save_twin(subject.twin, store.folder / _TWIN_FILE)
        if evidence is not None:
            save_evidence(evidence, store.folder / _LATENCY_FILE)
        if context.field is not None:
            save_field_episodes(context.field, store.folder / _FIELD_FILE)
        for run in context.shadows:
            save_shadow_evidence(run, store.folder / f"{_SHADOW_PREFIX}{run.run}.json")
        if subject.exam is not None:
            write_atomic(store.folder / _EXAM_FILE, subject.exam.encode())
        for arm, name in _COMPARED.items():
            if arm in subject.arms:
                write_atomic(store.folder / name, subject.arms[arm])
        store.move(folder)


def rederive(
    report: Path,
    members: Mapping[str, bytes],
    *,
    task: str | None = None,
    robot: str | None = None,
    replays: int | None = REPLAYS,
    device: str = "cpu",
    validators: tuple[PublicKey, ...] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Derive the verdict of a report folder again from its record, for the policies of a bundle.

    Args:
        report: report folder of `physai sim validate`.
        members: the bundle's files by name; these bytes are judged.
        task: built-in name or Python file given by the user; a file must never choose code to run.
        robot: built-in name, MJCF or URDF file given by the user.
        replays: number of batches to replay; None for all.
        device: what computes the policies, given by the user as for `choose_policy_device`; must be that of the run.
        validators: validators whose signatures vouch for a robot's twin and tick times.
        tell: called with a line of progress.

    Raises:
        RecordError: the record is missing, a replayed batch differs, or the verdict differs.
        ExamError: the exam is of something else, or of a validator who is not trusted.
        DeviceError: this machine lacks the device.
        PhysaiError: the record is malformed.
    """
    stated, here = load_verdict(report), choose_policy_device(device)
    played_on = stated.device or "cpu"
    if played_on != str(here):
        raise RecordError(
            f"{VERDICT_FILE} was computed on {played_on} and would be replayed on {here}, which may round otherwise; "
            f"give `device` {played_on}"
        )
    folder = report / FOLDER
    if not folder.is_dir():
        raise RecordError(
            f"{folder}: no record of the run; sign on the computer that validated, with the folder that "
            "`physai sim validate` wrote"
        )
    context, evidence = _context(folder, members, stated, task, robot, here, validators)
    for data in context.subject.arms.values():
        try_policy(data, source=str(report))
    store = _Recorded(folder, len(list(folder.glob("*.npz"))), batches=[])
    tell("deriving the verdict from the recorded episodes")
    gates = all_gates(evidence, context.settings.further)
    _require_vouched(stated, context, evidence)
    if (exam := context.subject.exam) is not None:
        exam.require_signed(validators)
        exam.require_subject(context.examined)
    findings = find_all(context, gates, report, jobs=1, progress=lambda lines: None, store=store)
    derived = judge(context, gates, findings, None)
    _compare(stated, derived)
    for number, batch in enumerate(drawn := _draw(store.batches, replays)):
        tell(f"replaying batch {number + 1} of {len(drawn)}")
        _replay(context.subject, store, batch)
    # It was judged anew, by this software.
    return stated.model_copy(update={"software": derived.software})


@dataclass(frozen=True)
class _Recorded(BatchStore):
    """Read-only store of a record; every requested batch must exist."""

    batches: list[Batch]
    """Batches requested so far."""

    def get(self, batch: Batch) -> BatchResult | None:
        result = super().get(batch)
        if result is None:
            raise RecordError(
                f"{self.folder}: episodes of the run are missing or were modified; validate again: physai sim validate"
            )
        self.batches.append(batch)
        return result


def _context(
    folder: Path,
    members: Mapping[str, bytes],
    stated: Verdict,
    task: str | None,
    robot: str | None,
    device: PolicyDevice,
    validators: tuple[PublicKey, ...],
) -> tuple[Context, LatencyEvidence | None]:
    inputs = _inputs(folder / _INPUTS_FILE)
    source = str(folder / _INPUTS_FILE)
    recorded = {name: cast("str | None", inputs.get(name)) for name in ("task", "robot", "preset")}
    run = run_folder_of(folder.parent)
    origin = choose_task_source(recorded, source=source, task=task, robot=robot, run=run)
    latency = folder / _LATENCY_FILE
    arms = _arms(members, stated.policy_sha256, compared="quantised" in inputs.get("arms", ["quantised"]))
    for arm, name in _COMPARED.items():
        if (folder / name).is_file():
            arms[arm] = read_bounded(folder / name, limit=MAX_POLICY_BYTES, error=RecordError)
    subject = ValidationSubject(
        path=folder.parent / POLICY_FILE,
        origin=origin,
        twin=load_twin(folder / _TWIN_FILE),
        arms=arms,
        seed=inputs["seed"],
        exam=load_exam(folder / _EXAM_FILE) if (folder / _EXAM_FILE).is_file() else None,
        golden=members.get(GOLDEN_FILE),
        device=device,
        preferences=stated_preferences(arms, source=str(folder.parent)),
    )
    accept: tuple[OriginKind, ...] = parse_accepted(",".join(inputs["accept"]), option=source)
    settings = parse_gates(inputs["gates"], source=source)
    doubts = inputs.get("doubts_lags") is True
    if not doubts and stated.outcome is VerdictOutcome.PASS and lag_doubt(subject.twin) != (0.0, 0.0):
        raise RecordError(
            f"{source}: recorded by a version that took the twin's command lag for tested, and no held-out recording "
            "tests it; validate again: physai sim validate"
        )
    field = load_field_episodes(folder / _FIELD_FILE) if (folder / _FIELD_FILE).is_file() else None
    shadows = read_shadows(sorted(folder.glob(f"{_SHADOW_PREFIX}*.json")))
    require_shadows_of(shadows, subject, accept)
    context = Context(subject, settings, accept, validators, doubts_lags=doubts, field=field, shadows=shadows)
    return context, load_evidence(latency) if latency.is_file() else None


def _arms(members: Mapping[str, bytes], sha256: str, *, compared: bool) -> dict[Arm, bytes]:
    """Return the graphs of a bundle by role.

    Args:
        members: the bundle's files.
        sha256: of the policy that the verdict is for.
        compared: whether the float graph was compared with a quantised one. One that was made later, and lies in the
            bundle, is not what the verdict is for, and no robot runs it.
    """
    judged = [data for name, data in members.items() if name.endswith(".onnx") and sha256_hex(data) == sha256]
    if not judged:
        raise RecordError(f"the verdict is for a policy with SHA-256 {sha256[:12]}, which is not in the bundle")
    # By hash, not by file name: the bundle may hold the judged graph under another name.
    arms: dict[Arm, bytes] = {"policy": judged[0]}
    quantised = members.get(QUANTISED_FILE)
    if quantised is not None and (judged[0] == quantised or (compared and judged[0] == members[POLICY_FILE])):
        arms["quantised"], arms["float"] = quantised, members[POLICY_FILE]
    return arms


def _inputs(path: Path) -> dict[str, Any]:
    try:
        document: Any = json.loads(read_bounded(path, limit=_MAX_INPUTS_BYTES, error=RecordError))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON: {error}") from None
    record = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    kinds: dict[str, type | tuple[type, ...]] = {"seed": int, "accept": list, "gates": dict, "task": str}
    for name, kind in kinds.items():
        if not isinstance(record.get(name), kind) or isinstance(record.get(name), bool):
            raise RecordError(f"{path}: {name} is missing or malformed; validate again")
    arms: object = record.get("arms", [])
    if not isinstance(arms, list):
        raise RecordError(f"{path}: arms is malformed; validate again")
    if not 0 <= record["seed"] < 1 << 20 or not all(isinstance(one, str) for one in record["accept"]):
        raise RecordError(f"{path}: seed or accept is malformed; validate again")
    return record


def _require_vouched(stated: Verdict, context: Context, ticks: LatencyEvidence | None) -> None:
    """Raise RecordError if the verdict counts on evidence of a robot that no validator known here signed."""
    latency = Origin() if ticks is None else context.latency_origin(ticks)
    found: dict[EvidenceFile, Origin] = {"twin": context.twin_origin, "latency": latency}
    for what, here in found.items():
        origin: Origin = getattr(stated.evidence, what)
        if origin.kind == "robot" and here.kind == "unknown":
            raise RecordError(
                f"{VERDICT_FILE} states that the {what} is from {origin}, but no validator that you trust signed it: "
                f"{unsigned_remedy(what)}, and validate again"
            )


def _compare(stated: Verdict, derived: Verdict) -> None:
    """Raise RecordError if a verdict differs from that of its record in more than times and file names."""
    for name in Verdict.model_fields:
        # Time and software of the judgement may differ, and gates are compared below without their file names.
        if name in ("created", "gates", "software"):
            continue
        if getattr(stated, name) != getattr(derived, name):
            raise RecordError(
                f"{VERDICT_FILE} states {name} {getattr(stated, name)!s:.80}, its record gives "
                f"{getattr(derived, name)!s:.80}; validate again on this computer: physai sim validate"
            )
    results = {gate.gate: _without_counterexample(gate) for gate in derived.gates}
    for gate in stated.gates:
        if results.get(gate.gate) != _without_counterexample(gate):
            raise RecordError(
                f"{VERDICT_FILE} and its record differ in gate {gate.gate}; validate again on this computer"
            )
    if len(results) != len(stated.gates):
        raise RecordError(f"{VERDICT_FILE} and its record have different gates; validate again on this computer")


def _without_counterexample(gate: GateResult) -> GateResult:
    return gate.model_copy(update={"counterexample": None})


def _draw(batches: Sequence[Batch], count: int | None) -> list[Batch]:
    # Unpredictable: a forger must not know which batches are replayed.
    unique = list({batch.key: batch for batch in batches}.values())
    return unique if count is None else secrets.SystemRandom().sample(unique, min(count, len(unique)))


def _replay(subject: ValidationSubject, store: BatchStore, batch: Batch) -> None:
    recorded, again = store.get(batch), play(subject, batch)
    if recorded is None:
        raise RecordError(f"{store.folder}: a batch is missing")
    for field in fields(BatchResult):
        before, now = getattr(recorded, field.name), getattr(again, field.name)
        same = (
            before.keys() == now.keys() and all(np.array_equal(before[key], now[key], equal_nan=True) for key in before)
            if field.name == "visits"
            else np.array_equal(before, now, equal_nan=before.dtype.kind == "f")
        )
        if not same:
            raise RecordError(
                f"{store.folder}: a batch of {len(again)} episodes differs in {field.name} when replayed: it was "
                "modified or played on another computer; validate again on this computer"
            )
