"""Imports a policy that was trained elsewhere: one graph with a contract, in a run folder like a trained one."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from physai.foreign.body.apart import read_body
from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.fitted_robot import fitted_robot
from physai.foreign.foreign_contract import foreign_contract
from physai.foreign.import_page import PolicyImport, import_page
from physai.foreign.parity import target_parity
from physai.foreign.reading import PolicySource, Reading, read
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import oserror_as, read_bounded, write_atomic
from physai.sdk.base.parameters.option import Option
from physai.sdk.base.process.isolation import JsonFacts
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import EXPORT_FOLDER
from physai.sim.policies.saved_task import keep_task
from physai.sim.tasks.foreign_contract import following
from physai.sim.tasks.registry import load_task
from physai.train.onnx_export.export import golden_file
from physai.train.onnx_export.parity import visited_states
from physai.train.onnx_export.spliced import splice

TASK = "velocity"
REPORT_FILE, RECORD_FILE = "import.md", "import.json"
STATES = 500


def import_policy(
    policy: Annotated[str | Path, Option(metavar="FILE")],
    *,
    model: str | Path,
    out: str | Path,
    family: str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> PolicyImport:
    """Import a walking policy that was trained elsewhere.

    Nothing is guessed: what no file states has to be stated in `settings`, and what is stated twice must agree.

    Args:
        policy: the ONNX file, where its framework keeps it, or a description in YAML that names one.
        model: MJCF or URDF file of the robot, as its maker publishes it, or a built-in robot.
        out: folder of the run; must not exist or be empty.
        family: reader of the policy's family; None to find it out.
        settings: fields of the policy's description that no file states.
        progress: called with the share of the work done.

    Raises:
        ForeignPolicyError: the policy cannot be read, contradicts itself, leaves something open, or does not fit.
        PhysaiError: the robot cannot be loaded, or the folder cannot be written.
    """
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise ForeignPolicyError(f"{folder}: exists and is not empty; choose another folder")
    reading = _read(Path(policy).expanduser(), family)
    described = reading.complete(settings or {})
    data, facts, network = _network(reading)
    progress(0.1)
    with tempfile.TemporaryDirectory() as scratch:
        robot, notes = fitted_robot(model, described, Path(scratch))
        contract = foreign_contract(described, robot)
        task = following(load_task(TASK, robot=str(robot.path)), contract)
        progress(0.3)
        record = _record(reading, described, facts, notes, model)
        provenance = {
            "task": TASK,
            "robot": f"{robot.name}.xml",
            "foreign": reading.family,
            "foreign_sha256": hashlib.sha256(data).hexdigest(),
            "import_sha256": hashlib.sha256(record).hexdigest(),
            **({"licence": described.licence} if described.licence else {}),
        }
        made = splice(contract, network, provenance=provenance)
        progress(0.5)
        joined = OnnxPolicy(made, source=POLICY_FILE)
        visits = visited_states(
            joined.header, joined.evaluate, task, states=STATES, progress=lambda share: progress(0.5 + 0.4 * share)
        )
        parity = target_parity(visits, network)
        with oserror_as(ForeignPolicyError, f"cannot write {folder}"):
            (folder / EXPORT_FOLDER).mkdir(parents=True, exist_ok=True)
            write_atomic(folder / RECORD_FILE, record)
            write_atomic(folder / EXPORT_FOLDER / GOLDEN_FILE, golden_file(visits)[0])
            write_atomic(folder / EXPORT_FOLDER / POLICY_FILE, made)
        left = keep_task(folder, task, task=TASK, robot=str(robot.path), foreign=True)
        if left:
            raise ForeignPolicyError("; ".join(left))
    found = PolicyImport(
        folder=folder,
        family=reading.family,
        contract=contract,
        policy_sha256=hashlib.sha256(made).hexdigest(),
        sources=dict(reading.sources),
        values=dict(reading.values),
        changes=tuple(facts.get("changes", ())),
        notes=tuple(notes),
        parity=parity,
    )
    with oserror_as(ForeignPolicyError, f"cannot write {folder}"):
        write_atomic(folder / REPORT_FILE, import_page(found).encode())
    return found


def _read(file: Path, family: str | None) -> Reading:
    metadata: Mapping[str, str] = {}
    if file.suffix.lower() not in (".yaml", ".yml"):
        data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
        facts, _ = read_body(data, source=file.name, folder=file.parent)
        metadata = facts["metadata"]
    return read(PolicySource(file=file, metadata=metadata), family)


def _network(reading: Reading) -> tuple[bytes, JsonFacts, bytes]:
    """The network's file, facts about it, and the graph that is admitted."""
    file = reading.network
    data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    facts, network = read_body(data, source=file.name, folder=file.parent)
    if facts.get("refused"):
        raise ForeignPolicyError(f"{file}: its graph is not one that a policy may have: {facts['refused']}")
    return data, facts, network


def _record(
    reading: Reading, described: PolicyDescription, facts: JsonFacts, notes: list[str], model: str | Path
) -> bytes:
    """What was read from where, as the run folder keeps it."""
    files = sorted({reading.network, *reading.files})
    record = {
        "format_version": 1,
        "family": reading.family,
        "description": described.model_dump(mode="json"),
        "sources": reading.sources,
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "changes": facts.get("changes", []),
        "model": Path(model).name,
        "robot": notes,
    }
    return json.dumps(record, indent=2, ensure_ascii=False).encode()
