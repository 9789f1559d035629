"""Position commands inside speed and acceleration limits, as a stage of the policy graph.

A joint that makes a step d in a control period, and then one that is smaller by the greatest change a in each period,
travels S(d) = n·d - a·n·(n - 1)/2 in all, with n = ceil(d / a). A step is allowed if S of it fits into the room before
the bound, so a joint can always stop before it: braking by a is allowed after every allowed step. That is why the
limits on position, speed and acceleration never contradict each other.
"""

import torch
from torch import Tensor, nn

from physai.sdk.contract.position_limits import PositionLimits


class PositionLimiter(nn.Module):
    """Brings wanted steps of commanded positions inside their limits."""

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
        """The position that counts as sent last before the first command, for measured positions."""
        return measured.clamp(self.lower, self.upper)

    def forward(self, step: Tensor, last: Tensor, before: Tensor) -> Tensor:
        """The position to command.

        Args:
            step: wanted change of the commanded position.
            last: position sent last.
            before: its change from the one sent before; read only if there are acceleration limits.
        """
        if self.accelerates:
            step = step.clamp(-self._largest_step(last - self.stop_lower), self._largest_step(self.stop_upper - last))
            step = step.clamp(before - self.change, before + self.change)
        step = step.clamp(-self.step, self.step)
        return (last + step).clamp(self.lower, self.upper)

    def _largest_step(self, room: Tensor) -> Tensor:
        """The largest d with S(d) <= room; the room itself where it is negative."""
        periods = torch.ceil(0.5 * (torch.sqrt(1.0 + 8.0 * room.clamp(min=0.0) / self.change) - 1.0)).clamp(min=1.0)
        return torch.where(room > 0.0, room / periods + self.change * (0.5 * (periods - 1.0)), room)
