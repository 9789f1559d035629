"""Time until a robot rejects a policy whose graph computes for minutes per state."""

import io
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks.measure import WorkloadError
from tests.harness.fixtures.onnx_writer import GraphWriter
from tests.harness.fixtures.sample import SampleSigners, sample_contract
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.sdk.policy.golden import FINGERPRINT_NAME
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader

STEPS, WIDTH = 3000, 2048
"""Matrix products in the graph, and their size: many minutes on one core."""


def hang_seconds() -> float:
    """Time from the call of `UpdateAgent.install` to its error [s].

    Raises:
        WorkloadError: the policy is installed, or rejected for another reason.
    """
    workshop = SampleSigners()
    with tempfile.TemporaryDirectory() as folder:
        site = Site.make(Path(folder) / "robot", workshop, {}, now=workshop.created)
        agent = site.on(apart=True)
        try:
            agent.install(_bundle(workshop, steps=1, width=8, version=1))
        except InstallError as error:
            raise WorkloadError(f"the same policy with a single matrix product is rejected, too: {error}") from error
        begun = time.monotonic()
        try:
            agent.install(_bundle(workshop, steps=STEPS, width=WIDTH, version=2))
        except InstallError:
            return time.monotonic() - begun
    raise WorkloadError(f"a policy of {STEPS} matrix products was installed")


def _bundle(workshop: SampleSigners, *, steps: int, width: int, version: int) -> bytes:
    """A signed bundle; the matrices are zero, so that its golden outputs are tanh of the angle."""
    header = PolicyHeader(sample_contract(), {}, {"seed": "0"})
    graph = GraphWriter()
    nothing = graph.node(
        "ReduceMax", graph.node("Mul", "joint_pos", graph.constant(np.zeros((), np.float32))), keepdims=1
    )
    square = graph.node("Expand", nothing, graph.constant(np.array([width, width], np.int64)))
    product = square
    for _ in range(steps):
        product = graph.node("MatMul", product, square)
    idle = graph.node("ReduceMax", product, keepdims=0)
    graph.node("Add", graph.node("Tanh", "joint_pos"), idle, output="joint_effort_target")
    angles = np.linspace(-2.0, 2.0, 4, dtype=np.float32)[:, None]
    golden = io.BytesIO()
    arrays = {"joint_pos": angles, "joint_effort_target": np.tanh(angles)}
    np.savez(golden, allow_pickle=False, **arrays, **{FINGERPRINT_NAME: np.array(header.contract.fingerprint)})
    members = {POLICY_FILE: graph.model(header), GOLDEN_FILE: golden.getvalue()}
    return workshop.validated(workshop.published(members, version=version))
