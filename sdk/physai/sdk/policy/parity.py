"""Parity of a quantised policy with its float policy: one rule for the quantiser, the twin and the robot.

In every compared state, every joint command must be within the contract's `safety.parity_tolerance` of the float
command, in the command's unit. Both graphs get the same inputs, including memory. Memory outputs are not compared: they
have no physical unit, so no meaningful tolerance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import PolicyError, PolicyHeader

Floats = npt.NDArray[np.float64]

SOURCE_KEY = "quantised.source_sha256"
"""Provenance entry of a quantised policy: SHA-256 of the float policy's file."""

NO_NUMBER = 1e9
"""Error of an output that is not finite [joint unit]: above every tolerance, but representable in JSON."""


@dataclass(frozen=True)
class JointError:
    """Differences of one joint's command over the compared states [`unit`]."""

    joint: str
    unit: str
    """rad, m, N·m or N."""
    max: float
    p99: float
    """99th percentile."""
    mean: float


def command_errors(
    contract: PolicyContract, wanted: Mapping[str, npt.NDArray[Any]], found: Mapping[str, npt.NDArray[Any]]
) -> dict[str, Floats]:
    """Return the absolute errors [rad, m, N·m or N] by output name, shape (n, joints of the term).

    Args:
        contract: contract of both graphs.
        wanted: outputs of the float graph by name, shape (n, size).
        found: outputs of the other graph.
    """
    errors: dict[str, Floats] = {}
    for term in contract.action.terms:
        name = term.target_name
        error = np.abs(found[name].astype(np.float64) - wanted[name].astype(np.float64))
        errors[name] = np.where(np.isfinite(error), error, NO_NUMBER)
    return errors


def greatest_error(errors: Mapping[str, Floats]) -> float:
    """Return the maximum error over all joints [joint unit], which the contract bounds."""
    return max(float(error.max(initial=0.0)) for error in errors.values())


def joint_errors(contract: PolicyContract, errors: Mapping[str, Floats]) -> tuple[JointError, ...]:
    """Summarise the errors of each joint, in the order of the action terms."""
    kinds = {joint.name: joint.kind for joint in contract.robot.joints}
    summaries: list[JointError] = []
    for term in contract.action.terms:
        for column, joint in enumerate(term.joints):
            values = errors[term.target_name][:, column]
            p99 = float(np.quantile(values, 0.99))
            unit = _unit(kinds[joint] == "prismatic", term.kind.startswith("joint_pos"))
            summaries.append(JointError(joint, unit, float(values.max()), p99, float(values.mean())))
    return tuple(summaries)


def require_made_of(quantised: PolicyHeader, float_sha256: str, *, source: str) -> None:
    """Check that a quantised policy was made from this float policy.

    Args:
        quantised: header of the quantised policy.
        float_sha256: SHA-256 of the float policy's file.
        source: origin of the quantised policy, for messages.

    Raises:
        PolicyError: it was made from another one; the message has both hashes.
    """
    stated = quantised.provenance.get(SOURCE_KEY)
    if stated != float_sha256:
        made_from = (
            "does not state which float policy it was made from" if stated is None else f"was made from {stated[:12]}"
        )
        raise PolicyError(
            f"{source} {made_from}; the float policy is {float_sha256[:12]}: run physai policy quantize again"
        )


def _unit(is_prismatic: bool, commands_position: bool) -> str:
    if commands_position:
        return "m" if is_prismatic else "rad"
    return "N" if is_prismatic else "N·m"
