"""How far the commands of a quantised policy may lie from the float one's: one rule for quantiser, twin and robot.

In every state that is compared, every joint command must lie within the contract's `safety.parity_tolerance` of the
float command, in the command's own unit. Both graphs get the same inputs, memory included; what they hand on as memory
is not compared, because only commands have a unit in which "near" means something.
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
"""Provenance entry of a quantised policy: SHA-256 of the float graph's file it was made of."""

NO_NUMBER = 1e9
"""Error of an answer that is not finite [joint unit]; beyond every tolerance, and it can be written as JSON."""


@dataclass(frozen=True)
class JointError:
    """Differences of one joint's command over the states that were compared [its unit]."""

    joint: str
    unit: str
    """rad, m, N·m or N."""
    max: float
    p99: float
    """Exceeded in one state of a hundred."""
    mean: float


def command_errors(
    contract: PolicyContract, wanted: Mapping[str, npt.NDArray[Any]], found: Mapping[str, npt.NDArray[Any]]
) -> dict[str, Floats]:
    """Absolute difference of every joint command [rad, m, N·m or N] by output name, shape (n, joints of the term).

    Args:
        contract: names the outputs and their joints.
        wanted: what the float graph answers, by output name, shape (n, size).
        found: what the other graph answers.
    """
    errors: dict[str, Floats] = {}
    for term in contract.action.terms:
        name = term.target_name
        error = np.abs(found[name].astype(np.float64) - wanted[name].astype(np.float64))
        errors[name] = np.where(np.isfinite(error), error, NO_NUMBER)
    return errors


def greatest_error(errors: Mapping[str, Floats]) -> float:
    """The greatest of all joints' errors, which the contract bounds [joint unit]."""
    return max(float(error.max(initial=0.0)) for error in errors.values())


def joint_errors(contract: PolicyContract, errors: Mapping[str, Floats]) -> tuple[JointError, ...]:
    """The errors joint by joint, in the order of the action terms."""
    kinds = {joint.name: joint.kind for joint in contract.robot.joints}
    found: list[JointError] = []
    for term in contract.action.terms:
        for column, joint in enumerate(term.joints):
            values = errors[term.target_name][:, column]
            p99 = float(np.quantile(values, 0.99))
            unit = _unit(kinds[joint] == "prismatic", term.kind.startswith("joint_pos"))
            found.append(JointError(joint, unit, float(values.max()), p99, float(values.mean())))
    return tuple(found)


def require_made_of(quantised: PolicyHeader, float_sha256: str, *, source: str) -> None:
    """Reject a quantised policy that was made from a float graph other than the one in its folder.

    Args:
        quantised: the header of the quantised policy.
        float_sha256: of the float graph's file.
        source: where the quantised policy came from, for messages.

    Raises:
        PolicyError: with both hashes.
    """
    stated = quantised.provenance.get(SOURCE_KEY)
    if stated != float_sha256:
        made_of = "does not say of which float graph it was made" if stated is None else f"was made of {stated[:12]}"
        raise PolicyError(
            f"{source} {made_of}; the float graph beside it is {float_sha256[:12]}: run physai quantize again"
        )


def _unit(slides: bool, commands_position: bool) -> str:
    if commands_position:
        return "m" if slides else "rad"
    return "N" if slides else "N·m"
