"""Velocity and acceleration limits of position commands, as a stage of the policy graph.

A joint that moves by a step d in one control period and then brakes, each step smaller by the maximum change a, travels
S(d) = n·d - a·n·(n - 1)/2 in total, with n = ceil(d / a). A step d is allowed if S(d) fits into the distance to the
position bound. Braking by a is then always allowed, so the limits on position, velocity and acceleration never
contradict each other.
"""

import torch
from torch import Tensor, nn

from physai.sdk.contract.position_limits import PositionLimits


class PositionLimiter(nn.Module):
    """Limits steps of commanded positions."""

    lower: Tensor
    upper: Tensor
    stop_lower: Tensor
    stop_upper: Tensor
    step: Tensor
    change: Tensor

    def __init__(self, limits: PositionLimits) -> None:
        """Turns the limits into constants."""
        super().__init__()
        self.accelerates = limits.accelerates
        for label in ("lower", "upper", "stop_lower", "stop_upper", "step", "change"):
            self.register_buffer(label, torch.tensor(getattr(limits, label)), persistent=False)

    def reference(self, measured: Tensor) -> Tensor:
        """Stands in for the last commanded position before the first command, from measured positions."""
        return measured.clamp(self.lower, self.upper)

    def forward(self, step: Tensor, last: Tensor, before: Tensor) -> Tensor:
        """The position to command.

        Args:
            step: requested change of the commanded position.
            last: last commanded position.
            before: last change of the commanded position; read only if there are acceleration limits.
        """
        step = self._stoppable(step, last)
        if self.accelerates:
            step = step.clamp(before - self.change, before + self.change)
        step = step.clamp(-self.step, self.step)
        return (last + step).clamp(self.lower, self.upper)

    def first(self, step: Tensor, last: Tensor) -> Tensor:
        """The position to command where no step came before; see `forward`."""
        step = self._stoppable(step, last).clamp(-self.step, self.step)
        return (last + step).clamp(self.lower, self.upper)

    def _stoppable(self, step: Tensor, last: Tensor) -> Tensor:
        """The step, small enough to stop before the bounds."""
        if not self.accelerates:
            return step
        return step.clamp(-self._largest_step(last - self.stop_lower), self._largest_step(self.stop_upper - last))

    def _largest_step(self, room: Tensor) -> Tensor:
        """The largest d with S(d) <= room; `room` itself where it is negative, which moves back inside the bound."""
        periods = torch.ceil(0.5 * (torch.sqrt(1.0 + 8.0 * room.clamp(min=0.0) / self.change) - 1.0)).clamp(min=1.0)
        return torch.where(room > 0.0, room / periods + self.change * (0.5 * (periods - 1.0)), room)
