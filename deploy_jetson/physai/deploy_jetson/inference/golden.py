"""Replays golden states to check that this machine reproduces the trained policy."""

from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.inference.engine import Floats, InferenceEngine
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.golden import Golden, GoldenError

# Tolerance for the reference graph, relative to max(|output|, scale); as in the gate `parity`.
RELATIVE_TOLERANCE = 1e-4


def replay(
    engine: InferenceEngine, golden: Golden, *, exact: bool, progress: Callable[[float], None] | None = None
) -> float:
    """Run an engine on every golden state and compare its outputs.

    Args:
        engine: the engine on this machine.
        golden: inputs and outputs of the trained policy.
        exact: whether the engine runs the same graph in float32; then every output must agree to `RELATIVE_TOLERANCE`.
            Otherwise the joint commands must agree to the contract's parity tolerance.
        progress: called with the share of the work that is done.

    Returns:
        The largest difference in units of its tolerance, at most 1.

    Raises:
        GoldenError: an output is not finite, or differs by more than its tolerance.
        EngineError: the engine fails.
    """
    contract = engine.header.contract
    worst = 0.0
    for row in range(golden.rows):
        outputs = engine.run({name: values[row : row + 1] for name, values in golden.inputs.items()})
        expected = {name: values[row] for name, values in golden.outputs.items()}
        for name, tolerance in _tolerances(contract, expected, exact=exact).items():
            # NaN fails the comparison below, because it is written as `not share <= 1.0`.
            share = float(np.max(np.abs(outputs[name][0] - expected[name]) / tolerance))
            if not share <= 1.0:
                raise GoldenError(
                    f"golden state {row}: {name} is {outputs[name][0].tolist()} here, the trained policy computed "
                    f"{expected[name].tolist()}: the difference is {share:.3g} times the tolerance"
                )
            worst = max(worst, share)
        if progress is not None:
            progress((row + 1) / golden.rows)
    return worst


def _tolerances(contract: PolicyContract, expected: Mapping[str, Floats], *, exact: bool) -> dict[str, Floats]:
    """Return the tolerance of each element of the compared outputs [the output's unit]."""
    scales = {term.target_name: np.asarray(term.scale, np.float32) for term in contract.action.terms}
    # Quantised graphs and TensorRT's kernels round differently, so only the effect on the robot is compared.
    if not exact:
        return {name: np.full_like(scale, contract.safety.parity_tolerance) for name, scale in scales.items()}
    one = np.float32(1.0)
    return {
        name: np.float32(RELATIVE_TOLERANCE) * np.maximum(np.abs(values), scales.get(name, one))
        for name, values in expected.items()
    }
