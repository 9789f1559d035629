"""Which layers may be quantised: as many as the contract's bound on the commands and the task itself allow.

The worst are left in float32.
"""

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
"""Share of the contract's `safety.parity_tolerance` that the states compared here may use.

The bound is on the greatest error, and more states find greater ones; the gate asks in other states than these, and
the robot's engine rounds differently."""

FLOAT = "float32"

Make = Callable[[Collection[Layer]], bytes]
"""The policy file with these layers in the variant's precision."""

ComparePairs = Callable[[bytes], Pairs]
"""Plays a policy file against the float graph."""


@dataclass(frozen=True)
class LayerReport:
    """One layer of the network and its outcome."""

    name: str
    inputs: int
    outputs: int
    error_alone: float
    """Greatest error of any joint's command with this layer alone in the variant's precision [joint unit]."""
    precision: str
    """The variant's, or float32 where the layer was left as it was."""


@dataclass(frozen=True)
class Choice:
    """What a variant makes of each layer, and what that does to the commands."""

    layers: tuple[LayerReport, ...]
    joints: tuple[JointError, ...]
    """Errors of the chosen mixture; of all layers quantised where none may be."""
    bound: float
    """The contract's, in joint units."""
    allowed: float
    """HEADROOM of it."""
    pairs: Pairs | None = None
    """Episodes of the chosen mixture and the float graph; None where none were played."""
    refused: str = ""
    """Why the variant is not to be had; empty if it is."""

    @property
    def error(self) -> float:
        """The greatest error of any joint [joint unit]."""
        return max(joint.max for joint in self.joints)


class Comparison:
    """Asks quantised files in the states the float graph was asked in."""

    def __init__(self, original: OnnxPolicy, states: Arrays) -> None:
        """Asks the float graph.

        Args:
            original: the float graph.
            states: its inputs, shape (n, size).
        """
        self._contract = original.contract
        self._states = states
        self._wanted = original.evaluate(states)

    def errors(self, data: bytes) -> dict[str, Array]:
        """Errors of a file's commands [joint unit] by output name, shape (n, joints of the term)."""
        found = OnnxPolicy(data, source="the quantised policy").evaluate(self._states)
        return dict(command_errors(self._contract, self._wanted, found))

    def greatest(self, data: bytes) -> float:
        """The greatest of them."""
        return greatest_error(self.errors(data))

    def joints(self, data: bytes) -> tuple[JointError, ...]:
        """Them by joint."""
        return joint_errors(self._contract, self.errors(data))


def choose(
    variant: Variant,
    layers: Collection[Layer],
    make: Make,
    comparison: Comparison,
    bound: float,
    compare: ComparePairs | None = None,
) -> Choice:
    """Quantises all layers, then leaves the worst one in float32 again and again until what remains is good enough.

    Good enough is what keeps the bound and, in the same episodes, does the task as well as the float graph. Worst is
    the layer that moves the commands most when it alone is quantised.

    Args:
        variant: names the precision.
        layers: all that could be quantised.
        make: see `Make`.
        comparison: what measures.
        bound: the contract's `safety.parity_tolerance` [joint unit].
        compare: see `ComparePairs`; None to ask for the bound alone.
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
    reason = _too_far(min(alone.values()), allowed, bound) if pairs is None else _too_bad(pairs)
    refused = f"not one layer can be {variant}: {reason}; use another variant, or float32"
    return Choice(reports, first, bound, allowed, pairs, refused)


def _too_far(least: float, allowed: float, bound: float) -> str:
    return (
        f"the best alone moves a command by {least:.3g}, {allowed:.3g} is allowed ({HEADROOM:.0%} of the contract's "
        f"parity_tolerance {bound:g} [joint unit])"
    )


def _too_bad(pairs: Pairs) -> str:
    return (
        f"of {pairs.pairs} episodes the best alone loses {pairs.worse} that the float graph wins, and wins "
        f"{pairs.better} that it loses"
    )


def _worst(joints: tuple[JointError, ...]) -> float:
    return float(np.max([joint.max for joint in joints]))
