"""Puts an imported policy together: robot, contract, one graph, golden states, and the run folder."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from physai.foreign.conversion.fitted_robot import fitted_robot
from physai.foreign.conversion.foreign_contract import foreign_contract
from physai.foreign.conversion.import_page import PolicyImport, import_page
from physai.foreign.conversion.parity import target_parity
from physai.foreign.conversion.stages import policy_body
from physai.foreign.conversion.start_envelope import with_start
from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading
from physai.sdk.base.file_names import (
    CONTRACT_FILE,
    GOLDEN_FILE,
    IMPORT_RECORD_FILE,
    IMPORT_REPORT_FILE,
    POLICY_FILE,
)
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sim.policies.foreign_contract import following
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import EXPORT_FOLDER
from physai.sim.policies.saved_task import MOTION_FILE, keep_task
from physai.sim.tasks.registry import load_task
from physai.train.onnx_export.export import golden_file
from physai.train.onnx_export.parity import visited_states
from physai.train.onnx_export.spliced import splice

WALKS, FOLLOWS = "velocity", "track"
"""Tasks of policies that follow a command and of those that follow a motion."""
STATES = 500
"""Visited states in which the joined graph is compared with the network."""


def assembled(
    reading: PolicyReading,
    described: PolicyDescription,
    model: str | Path,
    folder: Path,
    progress: Callable[[float], None],
) -> PolicyImport:
    """Write the run folder of a policy that was read; see `physai.foreign.import_policy`."""
    progress(0.05)
    with _beside(folder) as run, tempfile.TemporaryDirectory() as scratch:
        fitted = fitted_robot(model, described, Path(scratch))
        robot = fitted.robot
        does = WALKS if described.motion is None else FOLLOWS
        contract = foreign_contract(described, fitted, task=does)
        body, motion = policy_body(reading, described, contract, robot)
        contract, described = with_start(contract, described, motion, reading)
        progress(0.2)
        preset = None if motion is None else Path(scratch) / MOTION_FILE
        if preset is not None and motion is not None:
            preset.write_bytes(motion.encoded())
        task = following(load_task(does, robot=str(robot.path), preset=preset and str(preset)), contract)
        progress(0.3)
        record = _record(reading, described, body.changes, fitted.notes, model)
        provenance = {
            "task": does,
            "robot": f"{robot.name}.xml",
            "foreign": reading.family,
            "foreign_sha256": body.sha256,
            "import_sha256": hashlib.sha256(record).hexdigest(),
            **({"licence": described.licence} if described.licence else {}),
        }
        made = splice(contract, body.graph, provenance=provenance)
        progress(0.5)
        joined = OnnxPolicy(made, source=POLICY_FILE)
        visits = visited_states(
            joined.header, joined.evaluate, task, states=STATES, progress=lambda share: progress(0.5 + 0.4 * share)
        )
        found = PolicyImport(
            folder=folder,
            family=reading.family,
            contract=contract,
            policy_sha256=hashlib.sha256(made).hexdigest(),
            sources=dict(reading.sources),
            values=dict(reading.values),
            changes=body.changes,
            notes=fitted.notes,
            unread=tuple(reading.unread),
            parity=target_parity(visits, body.graph),
        )
        files = {
            IMPORT_RECORD_FILE: record,
            IMPORT_REPORT_FILE: _encoded(import_page(found)),
            CONTRACT_FILE: canonical_json(contract),
            f"{EXPORT_FOLDER}/{GOLDEN_FILE}": golden_file(visits)[0],
            f"{EXPORT_FOLDER}/{POLICY_FILE}": made,
        }
        with oserror_as(ForeignPolicyError, f"cannot write {folder}"):
            (run / EXPORT_FOLDER).mkdir()
            for name, content in files.items():
                write_atomic(run / name, content)
        left = keep_task(
            run,
            task,
            task=does,
            robot=f"{robot.name}.xml",
            foreign=True,
            motion=None if motion is None else motion.encoded(),
        )
        if left:
            raise ForeignPolicyError("; ".join(left))
    progress(1.0)
    return found


@contextmanager
def _beside(folder: Path) -> Generator[Path]:
    """Yields a new folder that takes this place once all is written: an import that is interrupted leaves none.

    Raises:
        ForeignPolicyError: the place cannot be written.
    """
    # Around the writing alone: what the body cannot read is another error.
    with oserror_as(ForeignPolicyError, f"cannot write {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=folder.parent, prefix=".import-", ignore_cleanup_errors=True)
    with place:
        made = Path(place.name) / "run"
        made.mkdir()
        yield made
        with oserror_as(ForeignPolicyError, f"cannot write {folder}"):
            made.rename(folder)


def _named(files: list[Path]) -> Iterator[tuple[str, Path]]:
    """Files by their paths below the folder that they have in common: two may have one name."""
    top = Path(os.path.commonpath([path.parent.resolve() for path in files]))
    yield from ((path.resolve().relative_to(top).as_posix(), path) for path in files)


def _encoded(text: str) -> bytes:
    # Names of files may hold bytes that are no text.
    return text.encode("utf-8", "backslashreplace")


def _record(
    reading: PolicyReading,
    described: PolicyDescription,
    changes: tuple[str, ...],
    notes: tuple[str, ...],
    model: str | Path,
) -> bytes:
    """Values, their sources and hashes of files, as the run folder keeps them."""
    networks = [reading.network.parent / network.file for network in described.networks or ()]
    files = sorted({reading.network, *networks, *reading.files})
    record = {
        "format_version": 1,
        "family": reading.family,
        "description": described.model_dump(mode="json"),
        "sources": reading.sources,
        "files": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in _named(files)},
        "changes": list(changes),
        "model": Path(model).name,
        "robot": list(notes),
        "unread": reading.unread,
    }
    return _encoded(json.dumps(record, indent=2, ensure_ascii=False))
