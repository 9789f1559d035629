"""The record of a run: what it was given and every episode it played, so that its verdict can be derived anew.

`physai bundle sign` never believes a verdict's JSON. It judges the bytes of the bundle again by the record: all
decisions from the recorded episodes, and batches drawn at random played once more, which must come out bit for bit.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain, write_atomic
from physai.sdk.evidence.latency import LatencyEvidence, load_evidence, save_evidence
from physai.sdk.evidence.origin import OriginKind, parse_accepted
from physai.sdk.evidence.verdict import VERDICT_FILE, GateResult, Verdict, load_verdict
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, POLICY_FILE
from physai.sim.gates.checks.gate import Context
from physai.sim.gates.execution.batch import Arm, Batch, BatchResult
from physai.sim.gates.execution.store import Store
from physai.sim.gates.execution.subject import QUANTISED_FILE, ValidationSubject
from physai.sim.gates.execution.workers import play
from physai.sim.gates.judgement import judge
from physai.sim.gates.runner import all_gates, find_all
from physai.sim.gates.settings import parse_gates
from physai.sim.policies.resolve import choose_task_source
from physai.sim.twin.twin import load_twin, save_twin

FOLDER = "record"
"""Folder of the record inside a report folder."""
REPLAYS = 3
"""Batches that are played once more before a verdict is signed."""

_INPUTS_FILE, _TWIN_FILE, _LATENCY_FILE, _BASELINE_FILE = "inputs.json", "twin.json", "latency.json", "baseline.onnx"
_MAX_INPUTS_BYTES = 1 << 18


class RecordError(PhysaiError):
    """The record of a run is missing or damaged, or what is derived from it is another verdict."""


def write_record(report: Path, store: Store, context: Context, evidence: LatencyEvidence | None) -> None:
    """Keeps what a finished run was given with the episodes it played.

    Raises:
        RecordError: it cannot be written.
        TwinError, EvidenceError: see there.
    """
    folder, subject = report / FOLDER, context.subject
    inputs = {
        "task": subject.origin.task,
        "robot": subject.origin.robot,
        "preset": subject.origin.preset,
        "seed": subject.seed,
        "accept": list(context.accept),
        "gates": context.settings.model_dump(mode="json"),
    }
    try:
        write_atomic(store.folder / _INPUTS_FILE, json.dumps(inputs, indent=2).encode())
        save_twin(subject.twin, store.folder / _TWIN_FILE)
        if evidence is not None:
            save_evidence(evidence, store.folder / _LATENCY_FILE)
        if "baseline" in subject.arms:
            write_atomic(store.folder / _BASELINE_FILE, subject.arms["baseline"])
        store.move(folder)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be written: {error.strerror}") from None


def rederive(
    report: Path,
    members: Mapping[str, bytes],
    *,
    task: str | None = None,
    robot: str | None = None,
    replays: int | None = REPLAYS,
    tell: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """The verdict of a report folder, derived anew from its record for the policies of a bundle.

    Args:
        report: folder of `physai sim validate`.
        members: of the bundle, by name; these bytes are judged.
        task: built-in name or Python file that the user named, because no file may.
        robot: built-in name, MJCF or URDF file that the user named.
        replays: batches to play once more; None for all.
        tell: gets what is being done.

    Raises:
        RecordError: there is no record, a batch comes out otherwise, or the verdict is another.
        PhysaiError: what the record holds is malformed.
    """
    stated = load_verdict(report)
    folder = report / FOLDER
    if not folder.is_dir():
        raise RecordError(
            f"{folder}: no record of the run; a verdict is signed on the computer that validated, with the folder that "
            "`physai sim validate` wrote"
        )
    context, evidence = _context(folder, members, stated, task, robot)
    for data in context.subject.arms.values():
        try_policy(data, source=str(report))
    store = _Recorded(folder, len(list(folder.glob("*.npz"))), batches=[])
    tell("deriving the verdict from the recorded episodes")
    gates = all_gates(evidence)
    findings = find_all(context, gates, report, jobs=1, tell=lambda lines: None, store=store)
    derived = judge(context, gates, findings, None)
    _compare(stated, derived)
    for number, batch in enumerate(drawn := _draw(store.batches, replays)):
        tell(f"playing batch {number + 1} of {len(drawn)} once more")
        _replay(context.subject, store, batch)
    return stated


@dataclass(frozen=True)
class _Recorded(Store):
    """The recorded batches; one that is asked for must be there."""

    batches: list[Batch]
    """What was asked for."""

    def get(self, batch: Batch) -> BatchResult | None:
        found = super().get(batch)
        if found is None:
            raise RecordError(
                f"{self.folder}: lacks episodes of the run, or they were changed; validate again: physai sim validate"
            )
        self.batches.append(batch)
        return found


def _context(
    folder: Path, members: Mapping[str, bytes], stated: Verdict, task: str | None, robot: str | None
) -> tuple[Context, LatencyEvidence | None]:
    inputs = _inputs(folder / _INPUTS_FILE)
    source = str(folder / _INPUTS_FILE)
    said = {name: cast("str | None", inputs.get(name)) for name in ("task", "robot", "preset")}
    origin = choose_task_source(said, source=source, task=task, robot=robot)
    latency, baseline = folder / _LATENCY_FILE, folder / _BASELINE_FILE
    arms = _arms(members, stated.policy_sha256)
    if baseline.is_file():
        arms["baseline"] = _read(baseline, MAX_POLICY_BYTES)
    subject = ValidationSubject(
        path=folder.parent / POLICY_FILE,
        origin=origin,
        twin=load_twin(folder / _TWIN_FILE),
        arms=arms,
        seed=inputs["seed"],
        golden=members.get(GOLDEN_FILE),
    )
    accept: tuple[OriginKind, ...] = parse_accepted(",".join(inputs["accept"]), option=source)
    settings = parse_gates(inputs["gates"], source=source)
    return Context(subject, settings, accept), load_evidence(latency) if latency.is_file() else None


def _arms(members: Mapping[str, bytes], sha256: str) -> dict[Arm, bytes]:
    """The graphs of a bundle by the part they play."""
    from physai.sdk.base.canonical import sha256_hex

    judged = [data for name, data in members.items() if name.endswith(".onnx") and sha256_hex(data) == sha256]
    if not judged:
        raise RecordError(f"the verdict is on a policy of SHA-256 {sha256[:12]}, which the bundle does not hold")
    arms: dict[Arm, bytes] = {"policy": judged[0]}
    if QUANTISED_FILE in members and judged[0] in (members[QUANTISED_FILE], members[POLICY_FILE]):
        arms["quantised"], arms["float"] = members[QUANTISED_FILE], members[POLICY_FILE]
    return arms


def _inputs(path: Path) -> dict[str, Any]:
    try:
        document: Any = json.loads(_read(path, _MAX_INPUTS_BYTES))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON: {error}") from None
    record = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    kinds: dict[str, type | tuple[type, ...]] = {"seed": int, "accept": list, "gates": dict, "task": str}
    for name, kind in kinds.items():
        if not isinstance(record.get(name), kind) or isinstance(record.get(name), bool):
            raise RecordError(f"{path}: {name} is missing or malformed; validate again")
    if not 0 <= record["seed"] < 1 << 20 or not all(isinstance(one, str) for one in record["accept"]):
        raise RecordError(f"{path}: seed or accept is malformed; validate again")
    return record


def _read(path: Path, limit: int) -> bytes:
    try:
        data = read_plain(path, limit=limit)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    if not len(data) <= limit:
        raise RecordError(f"{path}: more than {limit} bytes")
    return data


def _compare(stated: Verdict, derived: Verdict) -> None:
    """Refuses a verdict that says anything else than what its record does; times and file names aside."""
    for name in Verdict.model_fields:
        if name in ("created", "gates"):
            continue
        if getattr(stated, name) != getattr(derived, name):
            raise RecordError(
                f"{VERDICT_FILE} says {name} {getattr(stated, name)!s:.80}, its record {getattr(derived, name)!s:.80}; "
                "validate again, here: physai sim validate"
            )
    found = {gate.gate: _bare(gate) for gate in derived.gates}
    for gate in stated.gates:
        if found.get(gate.gate) != _bare(gate):
            raise RecordError(f"{VERDICT_FILE} says of gate {gate.gate} what its record does not; validate again, here")
    if len(found) != len(stated.gates):
        raise RecordError(f"{VERDICT_FILE} has other gates than its record; validate again, here")


def _bare(gate: GateResult) -> GateResult:
    return gate.model_copy(update={"counterexample": None})


def _draw(batches: Sequence[Batch], count: int | None) -> list[Batch]:
    """Batches to play once more: unpredictable, as who forged a record must not know which."""
    unique = list({batch.key: batch for batch in batches}.values())
    return unique if count is None else secrets.SystemRandom().sample(unique, min(count, len(unique)))


def _replay(subject: ValidationSubject, store: Store, batch: Batch) -> None:
    recorded, again = store.get(batch), play(subject, batch)
    if recorded is None:
        raise RecordError(f"{store.folder}: lacks a batch")
    for field in fields(BatchResult):
        before, now = getattr(recorded, field.name), getattr(again, field.name)
        same = (
            before.keys() == now.keys() and all(np.array_equal(before[key], now[key], equal_nan=True) for key in before)
            if field.name == "visits"
            else np.array_equal(before, now, equal_nan=before.dtype.kind == "f")
        )
        if not same:
            raise RecordError(
                f"{store.folder}: a batch of {len(again)} episodes comes out otherwise when played again "
                f"({field.name}): it was changed, or played on another computer; validate again, here"
            )
