"""A policy as logs are compared with it: its contract, the place of each term, and the motion that it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from physai.foreign.auditing.followed import FollowedMotion
from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.file_names import IMPORT_RECORD_FILE
from physai.sdk.base.files import read_bounded
from physai.sdk.base.formats.documents import DocumentKind

if TYPE_CHECKING:
    from physai.sdk.contract.policy_contract import PolicyContract

_BODY = "net."
"""Prefix of the tensors of a body in a policy's graph; see `physai.train.onnx_export.spliced`."""
_SEEN = f"{_BODY}seen"
_KIND = DocumentKind(
    name="record of an import", format_version=1, max_bytes=4 << 20, max_depth=32, error=ForeignPolicyError
)


class _Record(BaseModel):
    """Part of `import.json` that the audit reads."""

    model_config = ConfigDict(extra="ignore")
    description: PolicyDescription


@dataclass(frozen=True, kw_only=True)
class AuditedPolicy:
    """A policy that logs are compared with."""

    contract: PolicyContract
    columns: Mapping[str, list[int]]
    """Columns of the network's observation by term, all samples of a history in their order."""
    motion: FollowedMotion | None = None
    observing: bytes | None = None
    """ONNX that computes the observation of a policy that follows a motion; None where the contract's terms do."""

    @property
    def observation_size(self) -> int:
        """Number of elements that the network sees."""
        return sum(len(columns) for columns in self.columns.values())


def audited_policy(policy: Path) -> AuditedPolicy:
    """Load a policy.

    Args:
        policy: run folder, policy.onnx or contract.

    Raises:
        ForeignPolicyError: it follows a motion, and its run folder is not as `physai import` writes it.
        PhysaiError: it cannot be read.
    """
    from physai.sdk.contract.io import load_contract
    from physai.sim.policies.resolve import EXPORT_FOLDER, find_policy

    file = policy if policy.suffix == ".json" else find_policy(policy)
    contract = load_contract(file)
    if len(contract.action.terms) != 1:
        raise ForeignPolicyError(f"{policy}: commands positions and efforts, of which the audit knows one kind alone")
    if contract.task != "track":
        return AuditedPolicy(contract=contract, columns=_columns(contract))
    run = file.parent.parent
    if file.parent.name != EXPORT_FOLDER or not (run / IMPORT_RECORD_FILE).is_file():
        raise ForeignPolicyError(
            f"{policy}: follows a motion, whose place in the observation is in {IMPORT_RECORD_FILE}; name the run "
            "folder that `physai import` wrote"
        )
    return _tracking(contract, file, run)


def _columns(contract: PolicyContract) -> dict[str, list[int]]:
    slices, spec = contract.observation_slices, contract.observation
    if spec.layout == "term":
        return {name: list(range(part.start, part.stop)) for name, part in slices.items()}
    sample = max(part.stop for part in slices.values())
    samples = range(spec.terms[0].history)
    return {name: [at * sample + n for at in samples for n in range(p.start, p.stop)] for name, p in slices.items()}


def _tracking(contract: PolicyContract, file: Path, run: Path) -> AuditedPolicy:
    import onnx

    from physai.foreign.conversion.tracking.lookup import subgraph
    from physai.sdk.contract.interface import CLOCK_PREFIX, HISTORY_PREFIX
    from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX
    from physai.sim.policies.onnx import read_policy

    record = run / IMPORT_RECORD_FILE
    data = read_bounded(record, limit=_KIND.max_bytes, error=ForeignPolicyError)
    described = _KIND.parse(_Record, data, source=str(record)).description
    library: Any = onnx
    model = library.load_model_from_string(read_policy(file))
    names = [value.name for value in model.graph.input]
    # What the network and the actions remember comes from the log.
    own = tuple(f"{STATE_PREFIX}{prefix}" for prefix in (HISTORY_PREFIX, CLOCK_PREFIX))
    kept = [name.replace(STATE_PREFIX, NEXT_PREFIX, 1) for name in names if name.startswith(own)]
    observing = subgraph(model, names, [_SEEN, *kept])
    return AuditedPolicy(
        contract=contract,
        columns=_described_columns(described, contract, record),
        motion=_followed(described, model, run),
        observing=observing,
    )


def _described_columns(described: PolicyDescription, contract: PolicyContract, record: Path) -> dict[str, list[int]]:
    """Columns of the network's observation, in which terms of the motion stand between those of the contract."""
    from physai.foreign.conversion.foreign_contract import MOTION

    widths = {"motion": 2 * len(described.joints), "motion_orientation": 6}
    measured = [(term.name, contract.term_width(term) * term.history) for term in contract.observation.terms]
    columns: dict[str, list[int]] = {}
    start = 0
    for term in described.observation:
        if term.of not in MOTION and not measured:
            raise ForeignPolicyError(f"{record}: has more terms than the policy's contract")
        name, width = (term.of, widths[term.of]) if term.of in MOTION else measured.pop(0)
        if name in columns:
            raise ForeignPolicyError(f"{record}: has the term {name} twice, which the audit does not compare")
        columns[name] = list(range(start, start + width))
        start += width
    return columns


def _followed(described: PolicyDescription, model: Any, run: Path) -> FollowedMotion:
    """Frames of the motion as the policy's own graph looks them up."""
    from physai.foreign.body import probe
    from physai.foreign.conversion.tracking.front import REFERENCE
    from physai.foreign.conversion.tracking.lookup import subgraph
    from physai.foreign.conversion.tracking.motion import load_motion
    from physai.sim.policies.saved_task import kept_task

    kept = kept_task(run)
    path = None if kept is None else kept.motion()
    if path is None or described.motion is None:
        raise ForeignPolicyError(f"{run}: follows a motion that the folder does not keep; import the policy again")
    frames = np.arange(load_motion(path).frames, dtype=np.float32)[:, None]
    looked = subgraph(model, [f"{_BODY}index"], [f"{_BODY}{name}" for name in REFERENCE])
    positions, speeds, quat = (
        np.asarray(value, np.float64) for value in probe.run(probe.session(looked), {f"{_BODY}index": frames})
    )
    return FollowedMotion(
        described=described.motion,
        joints=described.joints,
        terms={term.of: term for term in described.observation},
        joint_frames=np.hstack([positions, speeds]),
        quat=quat,
    )
