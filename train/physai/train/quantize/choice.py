"""Mixed precision: which layers to quantise within the contract's bound, and which to leave in float32."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.policy.parity import JointError, command_errors, greatest_error, joint_errors
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.quantize.formats import Variant
from physai.train.quantize.network import Layer
from physai.train.quantize.paired_evaluation import Pairs
from physai.train.quantize.states import Arrays

HEADROOM = 0.8
"""Fraction of the contract's `safety.parity_tolerance` that the errors measured here may use.

The bound is on the maximum error, which grows with the number of states; the gate compares in other states than these,
and the robot's engine rounds differently."""

FLOAT = "float32"

Make = Callable[[Collection[Layer]], bytes]
"""Returns the policy file with these layers in the variant's precision."""

ComparePairs = Callable[[bytes], Pairs]
"""Evaluates a policy file and the float graph in the same episodes."""


@dataclass(frozen=True)
class LayerReport:
    """Precision chosen for one layer of the network."""

    name: str
    inputs: int
    outputs: int
    error_alone: float
    """Greatest error of any joint's command with only this layer quantised [joint unit]."""
    precision: str
    """The variant's, or float32."""


@dataclass(frozen=True)
class Choice:
    """Precision of each layer of a variant, and the resulting errors of the commands."""

    layers: tuple[LayerReport, ...]
    joints: tuple[JointError, ...]
    """Errors with the chosen layers quantised; with all of them if the variant is refused."""
    bound: float
    """The contract's bound [joint unit]."""
    allowed: float
    """HEADROOM of the bound [joint unit]."""
    pairs: Pairs | None = None
    """Paired episodes with the chosen layers quantised; None without paired evaluation."""
    refused: str = ""
    """Why no layer can be quantised; empty if one can."""

    @property
    def error(self) -> float:
        """The greatest error of any joint [joint unit]."""
        return max(joint.max for joint in self.joints)


class FormatComparison:
    """Command errors of quantised policies relative to the float graph, in the same states."""

    def __init__(self, original: OnnxPolicy, states: Arrays) -> None:
        """Evaluates the float graph.

        Args:
            original: the float graph.
            states: its inputs, shape (n, size).
        """
        self._contract = original.contract
        self._states = states
        self._expected = original.evaluate(states)

    def errors(self, data: bytes) -> dict[str, Array]:
        """Errors of a file's commands [joint unit] by output name, shape (n, joints of the term)."""
        actual = OnnxPolicy(data, source="the quantised policy").evaluate(self._states)
        return dict(command_errors(self._contract, self._expected, actual))

    def greatest(self, data: bytes) -> float:
        """Greatest error of a file's commands [joint unit]."""
        return greatest_error(self.errors(data))

    def joints(self, data: bytes) -> tuple[JointError, ...]:
        """Errors of a file's commands by joint."""
        return joint_errors(self._contract, self.errors(data))


def choose(
    variant: Variant,
    layers: Collection[Layer],
    make: Make,
    comparison: FormatComparison,
    bound: float,
    compare: ComparePairs | None = None,
) -> Choice:
    """Starts with all layers quantised and returns the most sensitive one to float32 until the rest is acceptable.

    Acceptable means within the bound and, in paired episodes, not inferior to the float graph. The sensitivity of a
    layer is the greatest error of a command with only that layer quantised.

    Args:
        variant: the precision.
        layers: layers that can be quantised.
        make: see `Make`.
        comparison: measures the errors.
        bound: the contract's `safety.parity_tolerance` [joint unit].
        compare: see `ComparePairs`; None to check only the bound.
    """
    alone = {layer.name: comparison.greatest(make([layer])) for layer in layers}
    kept, allowed, pairs = list(layers), HEADROOM * bound, None
    first = joints = comparison.joints(make(kept))
    while kept:
        data = make(kept)
        joints = comparison.joints(data)
        if _worst(joints) <= allowed:
            pairs = None if compare is None else compare(data)
            if pairs is None or pairs.outcome is VerdictOutcome.PASS:
                break
        kept.remove(max(kept, key=lambda layer: alone[layer.name]))
    names = {layer.name for layer in kept}
    reports = tuple(
        LayerReport(
            layer.name, layer.inputs, layer.outputs, alone[layer.name], variant if layer.name in names else FLOAT
        )
        for layer in layers
    )
    if kept:
        return Choice(reports, joints, bound, allowed, pairs)
    reason = _out_of_bound(min(alone.values()), allowed, bound) if pairs is None else _inferior(pairs)
    refused = f"no layer can be {variant}: {reason}; use another variant, or float32"
    return Choice(reports, first, bound, allowed, pairs, refused)


def _out_of_bound(least: float, allowed: float, bound: float) -> str:
    return (
        f"the least sensitive one changes a command by {least:.3g}, {allowed:.3g} is allowed ({HEADROOM:.0%} of the "
        f"contract's parity_tolerance {bound:g} [joint unit])"
    )


def _inferior(pairs: Pairs) -> str:
    return (
        f"with the least sensitive one alone, {pairs.worse} of {pairs.pairs} episodes fail that succeed with the float "
        f"graph, and {pairs.better} succeed that fail with it"
    )


def _worst(joints: tuple[JointError, ...]) -> float:
    return float(np.max([joint.max for joint in joints]))
