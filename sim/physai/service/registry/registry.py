"""The registry: robots, policies, twins, verdicts and bundles by content, checked when they are registered."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.onnx_metadata import read_onnx_metadata
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.verdict import load_verdict
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import MAX_POLICY_BYTES, POLICY_FILE, PROVENANCE_PREFIX, parse_header
from physai.sdk.signing.sign import read_claims
from physai.service.database.tables import EntryRow
from physai.service.problems import ProblemError, invalid
from physai.service.registry.blobs import BlobStore
from physai.service.registry.robot_trial import CPU_S, SlowRobotError, try_robot
from physai.sim.robots import load_robot, robot_names
from physai.twin.model.twin import load_twin

FileKind = Literal["policy", "twin", "verdict", "bundle"]
"""What a stored file may be registered as."""
EntryKind = Literal["robot", FileKind]
Facts = dict[str, Any]


class Registry:
    """Registered entries; each is found by its hash and never changes."""

    def __init__(self, engine: Engine, blobs: BlobStore) -> None:
        self._engine = engine
        self._blobs = blobs
        self._adding = threading.Lock()

    def register(
        self, kind: FileKind, sha256: str, *, golden: str | None = None, robot: str | None = None, by: str = ""
    ) -> Facts:
        """Registers a stored file after checking that it is what `kind` says; an entry that exists is returned.

        Args:
            kind: what the file is.
            sha256: the file, in the blob store.
            golden: for a policy, its `golden.npz`.
            robot: for a twin of an uploaded robot, that robot.
            by: name of the token.

        Raises:
            ProblemError: the file is not stored, or is not what `kind` says.
        """
        path = self._blobs.path(sha256)
        try:
            name, facts = self._twin(path, robot) if kind == "twin" else _READERS[kind](path)
        except PhysaiError as error:
            text = str(error).replace(str(path), f"the {kind} {sha256[:12]}")
            raise invalid(text) from error
        if golden is not None:
            self._blobs.path(golden)
            facts["golden"] = golden
        return self._add(kind, sha256, name, facts, by)

    def add_robot(self, upload: Path, *, name: str, main: str | None, by: str = "", cpu_s: int = CPU_S) -> Facts:
        """Stores and registers an uploaded robot after compiling it apart; one that exists is returned.

        Args:
            upload: a zip or a single model file; it is left as it is.
            name: of the robot in a single file.
            main: path of the model in a zip that has several.
            by: name of the token.
            cpu_s: processor time that it may take to compile [s].

        Raises:
            SlowRobotError: it takes more than `cpu_s`, which is less than a robot may take.
            ProblemError: it is no robot that the service can hold.
        """
        try:
            facts, archive = try_robot(upload.read_bytes(), name=name, main=main, cpu_s=cpu_s)
        except PhysaiError as error:
            if isinstance(error, SlowRobotError) and cpu_s < CPU_S:
                raise
            raise invalid(str(error)) from error
        return self._add("robot", self._blobs.put(archive), facts["robot"], facts, by)

    def robot_path(self, sha256: str) -> Path:
        """The zip of a registered robot.

        Raises:
            ProblemError: there is none with this hash.
        """
        # Any stored file has a path, but only a registered one was compiled apart.
        self.get("robot", sha256)
        return self._blobs.path(sha256)

    def _twin(self, path: Path, robot: str | None) -> tuple[str, Facts]:
        twin, facts = load_twin(path), {}
        name = twin.robot
        if robot is not None:
            # The path that the twin names is one of another machine, and is never opened.
            loaded = load_robot(self.robot_path(robot))
            twin.require_robot(loaded)
            name, facts = loaded.name, {"robot_sha256": robot}
        elif name not in robot_names():
            raise invalid(
                f"the twin is of {name!r:.80}, which is no robot of the service ({', '.join(robot_names())}); "
                "upload the robot to /v1/robots and register the twin with its hash as `robot`, or validate with "
                "--model FILE"
            )
        credibility = twin.credible()
        facts |= {
            "robot": name,
            "hash": twin.hash,
            "credible": credibility.holds,
            "reasons": list(credibility.reasons),
            "origin": str(twin.origin),
            "recordings": len(twin.logs.train) + len(twin.logs.held_out),
            "parameters": len(twin.parameters),
        }
        return name, facts

    def _add(self, kind: EntryKind, sha256: str, name: str, facts: Facts, by: str) -> Facts:
        # One at a time, so that no two entries get the same version, and none is added twice.
        with self._adding, Session(self._engine) as session, session.begin():
            row = session.get(EntryRow, (sha256, kind))
            if row is None:
                count = select(func.count()).where(EntryRow.kind == kind, EntryRow.name == name)
                row = EntryRow(
                    sha256=sha256,
                    kind=kind,
                    name=name,
                    version=1 + (session.scalar(count) or 0),
                    facts=json.dumps(facts),
                    size=self._blobs.path(sha256).stat().st_size,
                    created=time.time(),
                    created_by=by,
                )
                session.add(row)
            return _as_json(row)

    def all(self, kind: EntryKind, *, prefix: str = "") -> list[Facts]:
        """Entries of a kind whose hash begins with `prefix`, newest first."""
        wanted = select(EntryRow).where(EntryRow.kind == kind, EntryRow.sha256.startswith(prefix, autoescape=True))
        with Session(reading(self._engine)) as session:
            return [_as_json(row) for row in session.scalars(wanted.order_by(EntryRow.created.desc()))]

    def get(self, kind: EntryKind, sha256: str) -> Facts:
        """One entry.

        Raises:
            ProblemError: there is none with this hash.
        """
        with Session(reading(self._engine)) as session:
            row = session.get(EntryRow, (sha256, kind))
            if row is None:
                path = "/v1/robots" if kind == "robot" else f"/v1/registry/{kind}"
                raise ProblemError(404, f"unknown-{kind}", f"no {kind} {sha256[:64]!r} is registered; see {path}")
            return _as_json(row)


def _policy(path: Path) -> tuple[str, Facts]:
    if path.stat().st_size > MAX_POLICY_BYTES:
        raise invalid(f"the policy has {path.stat().st_size} bytes, at most {MAX_POLICY_BYTES} are allowed")
    data = path.read_bytes()
    # In a process of its own: a crafted graph may hang, crash or take all memory.
    try_policy(data, source=str(path))
    metadata = read_onnx_metadata(path)
    contract = parse_header(metadata, source=str(path)).contract
    task = (metadata.get(f"{PROVENANCE_PREFIX}task") or contract.task)[:128]
    return task, {"robot": contract.robot.name, "task": task, "contract": contract.fingerprint}


def _verdict(path: Path) -> tuple[str, Facts]:
    verdict = load_verdict(path)
    facts: Facts = {
        "outcome": verdict.outcome.value,
        "shown": verdict.shown,
        "policy": verdict.policy_sha256,
        "twin_hash": verdict.twin_hash,
        "gates": {gate.gate: gate.shown for gate in verdict.gates},
    }
    return verdict.policy_sha256, facts


def _bundle(path: Path) -> tuple[str, Facts]:
    # Form and consistency only. Each robot verifies the signatures itself, by keys that this service does not have.
    bundle = read_bundle(path)
    manifest, claims = bundle.manifest, read_claims(bundle)
    facts: Facts = {
        "robot": manifest.robot,
        "task": manifest.task,
        "policy": bundle.members.sha256(POLICY_FILE),
        "bundle_version": manifest.version,
        "packed": manifest.created,
        "signers": {"publisher": claims.publishers, "validator": claims.validators},
        "verdict": claims.verdict is not None,
    }
    return manifest.task, facts


_READERS: dict[FileKind, Callable[[Path], tuple[str, Facts]]] = {
    "policy": _policy,
    "verdict": _verdict,
    "bundle": _bundle,
}


def _as_json(row: EntryRow) -> Facts:
    return {
        "sha256": row.sha256,
        "kind": row.kind,
        "name": row.name,
        "version": row.version,
        "size": row.size,
        "created": row.created,
        "created_by": row.created_by,
        **json.loads(row.facts),
    }
