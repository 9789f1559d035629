"""Policies that command zeros whatever they sense, for any contract and without torch."""

import io
from pathlib import Path

import numpy as np
from tests.harness.fixtures.onnx_writer import GraphWriter
from tests.harness.fixtures.sample import SampleSigners

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.golden import FINGERPRINT_NAME
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader

ROWS = 2
"""Golden states."""


def untrained(contract: PolicyContract) -> dict[str, bytes]:
    """Members of a bundle."""
    header = PolicyHeader(contract, {}, {"seed": "0"})
    graph = GraphWriter()
    (name, width), *_ = header.inputs.items()
    for target, size in header.outputs.items():
        graph.node("MatMul", name, graph.constant(np.zeros((width, size), np.float32)), output=target)
    data = io.BytesIO()
    golden = {key: np.zeros((ROWS, size), np.float32) for key, size in (header.inputs | header.outputs).items()}
    np.savez(data, allow_pickle=False, **golden, **{FINGERPRINT_NAME: np.array(contract.fingerprint)})
    return {POLICY_FILE: graph.model(header), GOLDEN_FILE: data.getvalue()}


def untrained_slots(contract: PolicyContract, root: Path) -> Path:
    """The tree of a robot with such a policy, which has no verdict and is not on trial."""
    workshop = SampleSigners()
    agent = UpdateAgent(root=root, restart=lambda unit: "", backend="onnxruntime", apart=False)
    agent.setup(RobotIdentity(robot=contract.robot.name), workshop.signed(), HealthLimits())
    agent.install(workshop.published(untrained(contract), version=1), unsafe_no_verdict=True)
    agent.activate()
    agent.commit("healthy")
    return root
