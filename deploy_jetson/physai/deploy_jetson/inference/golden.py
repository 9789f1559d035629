"""Replays golden states to check that this machine reproduces the trained policy."""

from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.inference.engine import Floats, InferenceEngine
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.golden import Golden, GoldenError

RELATIVE_TOLERANCE = 1e-4
"""Greatest difference of the graph that answered, relative to max(|answer|, scale); as in the gate `parity`."""


def replay(
    engine: InferenceEngine, golden: Golden, *, exact: bool, progress: Callable[[float], None] | None = None
) -> float:
    """Asks an engine every golden state, one at a time, and compares its answers.

    Args:
        engine: what computes the policy here.
        golden: what the trained policy answered.
        exact: whether the engine computes the very graph that answered, in float32; then every output must agree to
            `RELATIVE_TOLERANCE`. Otherwise the joint commands must agree to the contract's parity tolerance.
        progress: gets the share of the work that is done.

    Returns:
        The greatest difference in units of its tolerance, at most 1.

    Raises:
        GoldenError: an answer is not finite, or differs by more than its tolerance.
        EngineError: the engine fails.
    """
    contract = engine.header.contract
    worst = 0.0
    for row in range(golden.rows):
        answers = engine.run({name: values[row : row + 1] for name, values in golden.inputs.items()})
        wanted = {name: values[row] for name, values in golden.outputs.items()}
        for name, tolerance in _tolerances(contract, wanted, exact=exact).items():
            share = float(np.max(np.abs(answers[name][0] - wanted[name]) / tolerance))
            if not share <= 1.0:
                raise GoldenError(
                    f"golden state {row}: {name} is {answers[name][0].tolist()} here, the trained policy answered "
                    f"{wanted[name].tolist()}: {share:.3g} times the difference that is allowed"
                )
            worst = max(worst, share)
        if progress is not None:
            progress((row + 1) / golden.rows)
    return worst


def _tolerances(contract: PolicyContract, wanted: Mapping[str, Floats], *, exact: bool) -> dict[str, Floats]:
    """Greatest difference of each element of the outputs that are compared [the output's unit]."""
    scales = {term.target_name: np.asarray(term.scale, np.float32) for term in contract.action.terms}
    if not exact:
        return {name: np.full_like(scale, contract.safety.parity_tolerance) for name, scale in scales.items()}
    one = np.float32(1.0)
    return {
        name: np.float32(RELATIVE_TOLERANCE) * np.maximum(np.abs(values), scales.get(name, one))
        for name, values in wanted.items()
    }
