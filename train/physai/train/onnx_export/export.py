"""Exports a trained policy as one ONNX file, after checking that both compute the same."""

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from physai.sdk.base.errors import ExportError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader
from physai.sdk.policy.run_identity import sign_policy
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.onnx_export.onnx_graph import OPSET, build_onnx
from physai.train.onnx_export.parity import PolicyVisits, check_sequence, check_states, rounding, visit

GOLDEN_STATES = 256
FINGERPRINT_NAME = "fingerprint"
"""Entry of the golden file that holds the contract's fingerprint."""


@dataclass(frozen=True)
class ExportReport:
    """The written files, and how closely the exported policy matches the trained one."""

    folder: str
    fingerprint: str
    """Fingerprint of the contract in both files."""
    policy_sha256: str
    policy_bytes: int
    golden_bytes: int
    golden_states: int
    opset: int
    operators: int
    """Nodes of the graph."""
    states: int
    """Visited states in which both were compared."""
    differences: dict[str, float]
    """Greatest relative difference of each output over the visited states; see `physai.train.onnx_export.parity`."""
    sequence_differences: dict[str, float]
    """The same over up to 200 periods in which each keeps its own state."""
    memory_restarts: int
    """How often the states were synchronised in that time because rounding alone had driven them apart."""
    rounding: dict[str, float]
    """Greatest relative difference of the trained policy in float32 to itself in float64."""


def export_policy(
    graph: PolicyGraph,
    task: Task,
    folder: Path,
    *,
    provenance: Mapping[str, str],
    key: Ed25519PrivateKey | None = None,
    states: int = 1000,
    progress: Callable[[float], None] | None = None,
) -> ExportReport:
    """Writes `policy.onnx` and `golden.npz` if the exported policy matches the trained one.

    The same policy, provenance and versions give the same bytes.

    Args:
        graph: the trained policy.
        task: its task; the task's twin provides the states to compare in.
        folder: output folder; created if missing.
        provenance: where the policy comes from, for the metadata.
        key: private key of the run that the provenance names.
        states: visited states to compare in.
        progress: called with the fraction of the work done, in (0, 1].

    Raises:
        ExportError: the graph cannot be written as ONNX, or the ONNX file computes something else; nothing is written.
        ContractMismatchError: the contracts of policy and task differ.
        PolicyError: two inputs or outputs would have the same name, or there is too much provenance.
    """
    require_same(graph.contract, task.contract, left="the policy", right=f"the task {task.name}")
    header = PolicyHeader(graph.contract, graph.state_sizes, dict(provenance))
    if FINGERPRINT_NAME in header.inputs:
        raise ExportError(f"the name {FINGERPRINT_NAME!r} is reserved in {GOLDEN_FILE}; rename the sensor or command")

    def report(share: float) -> None:
        if progress is not None:
            progress(share)

    visits = visit(graph, task, states=states, progress=lambda share: report(0.5 * share))
    model = build_onnx(graph, header)
    data = model.SerializeToString(deterministic=True)
    if key is not None:
        data = sign_policy(data, key)
    report(0.9)
    policy = OnnxPolicy(data, source=POLICY_FILE)
    differences = check_states(policy, graph, visits)
    sequence = check_sequence(policy, graph, visits)
    golden, golden_states = golden_file(visits)
    # The policy last, to keep the time short in which it is paired with the golden states of another one.
    _write(folder, {GOLDEN_FILE: golden, POLICY_FILE: data})
    report(1.0)
    return ExportReport(
        folder=str(folder),
        fingerprint=policy.fingerprint,
        policy_sha256=sha256(data).hexdigest(),
        policy_bytes=len(data),
        golden_bytes=len(golden),
        golden_states=golden_states,
        opset=OPSET,
        operators=len(model.graph.node),
        states=states,
        differences=differences,
        sequence_differences=sequence.differences,
        memory_restarts=sequence.restarts,
        rounding=rounding(graph, visits),
    )


def golden_file(visits: PolicyVisits) -> tuple[bytes, int]:
    """Inputs and expected outputs of evenly spaced visited states, as a .npz file, and their number."""
    arrays = {**visits.inputs, **visits.outputs}
    count = len(next(iter(arrays.values())))
    rows = np.linspace(0, count - 1, min(count, GOLDEN_STATES)).astype(int)
    named = {name: np.ascontiguousarray(array[rows], np.float32) for name, array in arrays.items()}
    return npz({**named, FINGERPRINT_NAME: np.array(visits.header.contract.fingerprint)}), len(rows)


def npz(arrays: Mapping[str, Array]) -> bytes:
    """The arrays as an uncompressed .npz file with reproducible bytes."""
    # Not numpy.savez: it takes names as keyword arguments and reserves some of them.
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return data.getvalue()


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files in the given order."""
    with oserror_as(ExportError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomic(folder / name, data)
