"""How long a robot takes to refuse a policy whose graph computes for years."""

import io
import tempfile
import time
from pathlib import Path

import numpy as np

from physai.deploy_jetson.bench.onnx_writer import GraphWriter
from physai.deploy_jetson.bench.sample import Workshop, sample_contract
from physai.deploy_jetson.bench.site import Site
from physai.deploy_jetson.slots.errors import InstallError
from physai.sdk.bench import WorkloadError
from physai.sdk.golden import FINGERPRINT_NAME
from physai.sdk.policy_file import GOLDEN_FILE, POLICY_FILE, PolicyHeader

STEPS = 10**15
"""Of the loop in the graph: some decades."""


def hang_seconds() -> float:
    """From the call of `Agent.install` to its refusal [s].

    Raises:
        WorkloadError: the policy is installed, or refused for another reason than that it hangs.
    """
    workshop = Workshop()
    with tempfile.TemporaryDirectory() as folder:
        site = Site.make(Path(folder) / "robot", workshop, {}, now=workshop.created)
        agent = site.on(apart=True)
        try:
            agent.install(_bundle(workshop, steps=1, version=1))
        except InstallError as error:
            raise WorkloadError(f"the same policy with a single step is refused, too: {error}") from error
        begun = time.monotonic()
        try:
            agent.install(_bundle(workshop, steps=STEPS, version=2))
        except InstallError:
            return time.monotonic() - begun
    raise WorkloadError(f"a policy of {STEPS} steps was installed")


def _bundle(workshop: Workshop, *, steps: int, version: int) -> bytes:
    """A signed bundle whose golden states are those of a single step: tanh of the angle."""
    header = PolicyHeader(sample_contract(), {}, {"seed": "0"})
    graph = GraphWriter()
    graph.repeated_tanh("joint_pos", steps, output="joint_effort_target", width=1)
    angles = np.linspace(-2.0, 2.0, 4, dtype=np.float32)[:, None]
    golden = io.BytesIO()
    arrays = {"joint_pos": angles, "joint_effort_target": np.tanh(angles)}
    np.savez(golden, allow_pickle=False, **arrays, **{FINGERPRINT_NAME: np.array(header.contract.fingerprint)})
    members = {POLICY_FILE: graph.model(header), GOLDEN_FILE: golden.getvalue()}
    return workshop.validated(workshop.published(members, version=version))
