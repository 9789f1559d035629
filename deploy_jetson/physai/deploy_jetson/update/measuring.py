"""Tick times of a policy on this machine, as evidence for its latency gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.update.robot_tree import Backend, RobotTree, TreeOption, agent_of, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.evidence.latency import LatencyEvidence
    from physai.sdk.evidence.origin import Origin

DEFAULT_TICKS = 12_000


@dataclass(frozen=True)
class TickTimes:
    """Measured tick times of a policy."""

    path: Path
    """File of the evidence."""
    evidence: LatencyEvidence
    deadline_s: float
    """Deadline of the policy's contract [s]."""


def measure_ticks(
    policy: Annotated[Path | str, Option(metavar="POLICY")],
    *,
    out: Annotated[Path | str, Option(flags=("-o",), old=("--output",))] = Path("latency.json"),
    ticks: int = DEFAULT_TICKS,
    backend: Backend = "auto",
    tree: TreeOption = None,
    progress: Callable[[int], None] = lambda done: None,
) -> TickTimes:
    """Time a policy's ticks on this machine, for its latency gate.

    Args:
        policy: exported policy.onnx, next to its golden.npz.
        out: file to write, JSON.
        ticks: number of ticks to time.
        backend: engine that runs the policy.
        tree: the robot's tree, whose name the evidence carries; a computer without one is no robot.
        progress: receives the number of ticks done.

    Raises:
        PhysaiError: the policy cannot be read or is malformed, or a number is out of range.
        EngineError: the engine fails.
    """
    from physai.deploy_jetson.inference import backend as backends
    from physai.deploy_jetson.inference.evidence import measure_evidence
    from physai.deploy_jetson.inference.onnx import OnnxEngine
    from physai.sdk.evidence.latency import save_evidence
    from physai.sdk.onnx.trial import try_policy
    from physai.sdk.policy.golden import read_golden
    from physai.sdk.policy.header import GOLDEN_FILE

    robot, path = tree_of(tree), Path(policy)
    if robot.root is not None:
        robot.existing()
    data, golden_data = _read(path), _read(path.parent / GOLDEN_FILE)
    # In another process, because a malformed graph may crash onnxruntime.
    try_policy(data, source=str(path))
    reference = OnnxEngine(data, source=str(path))
    golden = read_golden(golden_data, reference.header)
    built = backends.build(data, reference, source=str(path), choice=backend)
    evidence = measure_evidence(data, built, golden, ticks=ticks, origin=_origin(robot), progress=progress)
    save_evidence(evidence, Path(out))
    return TickTimes(Path(out), evidence, reference.header.contract.timing.deadline_s)


def _origin(tree: RobotTree) -> Origin | None:
    """Origin of this robot; None on a computer that was never set up as one."""
    config = agent_of(tree).config
    return config.identity().origin if config.exists() else None


def _read(path: Path) -> bytes:
    from physai.sdk.base.files import read_plain
    from physai.sdk.policy.header import MAX_POLICY_BYTES

    try:
        return read_plain(path, limit=MAX_POLICY_BYTES)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be read: {error.strerror}") from None
