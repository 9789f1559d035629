"""A policy graph with a numpy interface that keeps its state between calls."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from physai.sdk.contract.policy_contract import PolicyContract
from physai.train.models.policy_graph import PolicyGraph, State


def as_tensor(array: Any) -> Tensor:
    """Torch view of a numpy array."""
    return torch.as_tensor(array)


def seeded(seed: int, device: str = "cpu") -> torch.Generator:
    """A separate random number generator with a seed, for tensors on a device."""
    generator: Any = torch.Generator(device)
    generator.manual_seed(seed)
    return generator


def seed_torch(seed: int) -> None:
    """Seeds torch's global generator, which weight initialisation uses."""
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Torch views of numpy arrays."""
    return {name: torch.as_tensor(array) for name, array in arrays.items()}


class GraphPolicy:
    """Plays a policy graph without exploration; see `physai.sim.policies.evaluate.Policy`."""

    def __init__(self, graph: PolicyGraph) -> None:
        """Wraps a graph; call `reset` before the first command."""
        self.graph = graph
        self.state: State = {}

    @property
    def contract(self) -> PolicyContract:
        """The contract of the graph."""
        return self.graph.contract

    def reset(self, num_worlds: int) -> None:
        """Resets the state, for `num_worlds` worlds."""
        self.state = self.graph.initial_state(num_worlds)

    def reset_worlds(self, mask: npt.NDArray[np.bool_]) -> None:
        """Resets the state of the masked worlds, shape (num_worlds,)."""
        ended = torch.as_tensor(mask)[:, None]
        # Not in place: a state may share its tensor with the commands that were returned.
        self.state = {name: memory.masked_fill(ended, 0.0) for name, memory in self.state.items()}

    @torch.no_grad()
    def __call__(self, sensors: Mapping[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
        """Joint commands of one control period by output name, shape (num_worlds, joints of the term)."""
        targets, self.state = self.graph(as_tensors(sensors), as_tensors(commands), self.state)
        return {name: target.numpy() for name, target in targets.items()}
