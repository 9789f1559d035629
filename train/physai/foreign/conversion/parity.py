"""Compares a joined policy with the network that it was made from, in states that it visits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.body import probe
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.policy.header import STATE_PREFIX
from physai.train.onnx_export.parity import PolicyVisits
from physai.train.onnx_export.spliced import HIDDEN, observation_model

TOLERANCE = 1e-5
"""Greatest difference of a target [rad]."""


@dataclass(frozen=True, kw_only=True)
class TargetParity:
    """Targets of the joined policy against those of the network by itself."""

    states: int
    targets: int
    """Number of targets compared: states times joints."""
    greatest: float
    """Greatest difference [rad], apart from targets that are clipped."""
    clipped: int
    """Targets beyond the joint's range."""


def target_parity(visits: PolicyVisits, network: bytes) -> TargetParity:
    """Compute the observations with the terms alone, the outputs with the network's own file, and the targets here.

    Raises:
        ForeignPolicyError: a target differs by more than the tolerance.
    """
    contract = visits.header.contract
    terms = observation_model(contract).SerializeToString()
    fields: Mapping[str, Any] = {name: np.ascontiguousarray(value, np.float32) for name, value in visits.inputs.items()}
    seen = probe.session(terms)
    observation = probe.run(seen, {value.name: fields[value.name] for value in seen.get_inputs()})[0]
    session = probe.session(network)
    memory = {value.name: fields[STATE_PREFIX + HIDDEN] for value in session.get_inputs()[1:]}
    output = probe.run(session, {session.get_inputs()[0].name: observation, **memory})[0]
    action = contract.action.terms[0]
    if action.output_limit is not None:
        output = np.clip(output, -action.output_limit, action.output_limit)
    offset, scale, lower, upper = np.array([action.offset, action.scale, action.lower, action.upper], np.float32)
    wanted = offset + scale * output
    bounded = np.clip(wanted, lower, upper)
    clipped = bounded != wanted
    name = next(iter(graph_interface(contract).targets))
    difference = np.abs(visits.outputs[name] - bounded)
    greatest = float(difference.max())
    if not greatest <= TOLERANCE and all(joint.velocity_limit is None for joint in contract.robot.joints):
        raise ForeignPolicyError(
            f"the joined graph differs from the network by {greatest:.2g} rad, at most {TOLERANCE:g} is right; this "
            "is a fault of physai"
        )
    return TargetParity(
        states=len(wanted), targets=wanted.size, greatest=greatest, clipped=int(np.count_nonzero(clipped))
    )
