"""Commands as a policy sees them: cut to their range, zero below the gate, and changing no faster than the slew.

The twin, the gates' rollouts and the robot's runtime call the same function once per control period, before the policy
is asked. Written with operators that numpy arrays and torch tensors share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from physai.sdk.contract.terms import CommandField


@dataclass(frozen=True, kw_only=True)
class CommandShape:
    """Bounds of one command field, as float32 arrays of shape (size,)."""

    lower: Any
    upper: Any
    gate: float
    """Norm below which the command counts as zero; 0 for none."""
    change: Any
    """Greatest change in one control period; None for none."""

    @classmethod
    def of(cls, field: CommandField, period_s: float, like: Callable[[Any], Any] = lambda values: values) -> Self:
        """Return the bounds of a field.

        Args:
            field: of the contract.
            period_s: time between two calls of `shaped_command` [s].
            like: converts an array, for instance to a tensor.
        """
        change = None if field.slew is None else like(np.array(field.slew, np.float32) * np.float32(period_s))
        lower, upper = (like(np.array(bound, np.float32)) for bound in (field.lower, field.upper))
        return cls(lower=lower, upper=upper, gate=field.gate or 0.0, change=change)


def command_shapes(
    fields: Iterable[CommandField], period_s: float, like: Callable[[Any], Any] = lambda values: values
) -> dict[str, CommandShape]:
    """Return the bounds of the fields that have a slew or a gate, by name; see `CommandShape.of`."""
    return {field.name: CommandShape.of(field, period_s, like) for field in fields if field.shaped}


def shaped_command(asked: Any, before: Any, shape: CommandShape) -> Any:
    """Return the command that the policy sees in this control period, in the shape of `asked`.

    The command is cut to its range, then zero where its norm is below the gate; from `before` it changes by at most
    `change`. A number that is not finite stays so.

    Args:
        asked: command that is asked for, float32, shape (…, size).
        before: command that the policy saw in the control period before, same shape; zeros at its start.
        shape: bounds of the field.
    """
    seen = asked.clip(shape.lower, shape.upper)
    if shape.gate > 0.0:
        seen = seen * ((seen * seen).sum(-1)[..., None] >= shape.gate * shape.gate)
    if shape.change is not None:
        # Not before + clip(difference): that may miss the command that is asked for by a rounding for ever.
        seen = seen.clip(before - shape.change, before + shape.change)
    # Once more: the range may have become narrower since the control period before.
    return seen.clip(shape.lower, shape.upper)
