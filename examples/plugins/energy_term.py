"""An observation function of one's own, in torch."""

import torch


def energy(velocity: torch.Tensor) -> torch.Tensor:
    """Square of each joint's velocity, and their sum: shape (n, joints) to (n, joints + 1) [(rad/s)²]."""
    squares = velocity.square()
    return torch.cat([squares, squares.sum(dim=1, keepdim=True)], dim=1)
