"""The policy as one graph: sensors and commands in, joint commands out, all in SI units.

Stages: `observe` (sensors, commands, state) → normalise → network → `command`. The learner calls the same stages that
the exported ONNX graph contains, so there is one implementation for training and deployment.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from physai.sdk.contract.interface import (
    PREVIOUS_ACTION,
    last_memory,
    remembers_target,
    step_memory,
)
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import POSITION_TARGET, position_limits
from physai.sdk.contract.terms import ActionTerm
from physai.train.models.kinematics import Pick
from physai.train.models.moments import Peers, moments
from physai.train.models.observation_terms import ObservationTerms, State
from physai.train.models.perceptron import TanhPerceptron
from physai.train.models.position_limits import PositionLimiter


class Actor(Protocol):
    """A network from normalised observations to the mean of the action distribution."""

    state_size: int
    """Width of the recurrent state; 0 for a feed-forward network."""

    def __call__(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean action, shape (n, actions), and the next hidden state, shape (n, state_size)."""
        ...


class Normaliser(nn.Module):
    """Scales observations to zero mean and unit variance by running statistics, clipped to ±10."""

    mean: Tensor
    variance: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, size: int) -> None:
        """Starts as the identity for vectors of `size` elements."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("_shift", torch.zeros(size), persistent=False)
        self.register_buffer("_scale", torch.ones(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised observations, shape (n, size)."""
        return ((x - self._shift) * self._scale).clamp(-10.0, 10.0)

    @torch.no_grad()
    def update(self, x: Tensor, peers: Peers | None = None) -> None:
        """Merges a batch, shape (n, size), and those of all peers into the statistics (Chan, Golub, LeVeque 1983)."""
        count = float(x.shape[0] * (peers.size if peers else 1))
        mean, variance = moments(x, peers)
        total = self.count + count
        delta = mean - self.mean
        self.variance.copy_(
            (self.variance * self.count + variance * count + delta * delta * self.count * count / total) / total
        )
        self.mean.add_(delta * count / total)
        self.count.copy_(total)
        self.refresh()

    def refresh(self) -> None:
        """Recomputes the constants `forward` uses, after the statistics changed or were loaded."""
        # In place and without a look at the count: a CUDA graph keeps the addresses, and a look would wait.
        seen = self.count > 0
        self._shift.copy_(torch.where(seen, self.mean, 0.0))
        self._scale.copy_(torch.where(seen, 1.0 / torch.sqrt(self.variance + 1e-4), 1.0))


def limited(output: Tensor, term: ActionTerm) -> Tensor:
    """Outputs of the network for one action term, within their limit."""
    return output if term.output_limit is None else output.clamp(-term.output_limit, term.output_limit)


class ActionTerms(nn.Module):
    """The contract's action terms: network outputs within their limits to joint commands."""

    def __init__(self, contract: PolicyContract) -> None:
        """Registers bounds and scales as constants."""
        super().__init__()
        self._terms = contract.action.terms
        robot = contract.robot
        position = [t.joints for t in self._terms if t.target_name == POSITION_TARGET]
        self._measured = Pick(robot.joint_index(position[0] if position else ()), len(robot.joints))
        limits = position_limits(contract)
        self._limiter = PositionLimiter(limits) if limits else None
        observed = remembers_target(contract)
        self._remembered = [
            t for t in self._terms if observed or t.kind.endswith("incremental") or self._limited(t) is not None
        ]
        for term in self._terms:
            for label in ("scale", "offset", "lower", "upper"):
                self.register_buffer(
                    f"{term.target_name}_{label}", torch.tensor(getattr(term, label)), persistent=False
                )

    def limited(self, action: Tensor) -> Tensor:
        """The network's output, shape (n, outputs), within the limits of its terms."""
        parts: list[Tensor] = []
        start = 0
        for term in self._terms:
            parts.append(limited(action[:, start : start + len(term.joints)], term))
            start += len(term.joints)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def origin(self, term: ActionTerm, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
        """Action of zero commands, shape (n, joints) or (joints,): the offset, or the last command."""
        if not term.kind.endswith("incremental"):
            return self.get_buffer(f"{term.target_name}_offset")
        last = state[last_memory(term.target_name)]
        if term.target_name != POSITION_TARGET:
            return last
        measured = self._measured(sensors["joint_pos"])
        limiter = self._limited(term)
        return torch.where(state["started"] > 0.5, last, measured if limiter is None else limiter.reference(measured))

    def _limited(self, term: ActionTerm) -> PositionLimiter | None:
        return self._limiter if term.target_name == POSITION_TARGET else None

    def memory_sizes(self) -> dict[str, int]:
        """Widths of the state inputs that hold the last command of a term, and the last change of it, where needed."""
        sizes = {last_memory(t.target_name): len(t.joints) for t in self._remembered}
        for term in self._terms:
            limiter = self._limited(term)
            if limiter is not None and limiter.accelerates:
                sizes[step_memory(term.target_name)] = len(term.joints)
        return sizes

    def forward(
        self, action: Tensor, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], State]:
        """Joint commands by output name, shape (n, joints), and the memory after this command."""
        targets: dict[str, Tensor] = {}
        memory: State = {}
        start = 0
        for term in self._terms:
            name = term.target_name
            part = limited(action[:, start : start + len(term.joints)], term)
            start += len(term.joints)
            limiter = self._limited(term)
            if limiter is not None:
                target, last = self._within_limits(term, limiter, part, sensors, state)
                if limiter.accelerates:
                    memory[step_memory(name)] = target - last
            else:
                target = self._bounded(term, part, sensors, state)
            if term in self._remembered:
                memory[last_memory(name)] = target
            targets[name] = target
        return targets, memory

    def _bounded(
        self, term: ActionTerm, part: Tensor, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> Tensor:
        """Commands clipped to the term's bounds."""
        scale, _, lower, upper = self._constants(term)
        return (self.origin(term, sensors, state) + scale * part).clamp(lower, upper)

    def _within_limits(
        self,
        term: ActionTerm,
        limiter: PositionLimiter,
        part: Tensor,
        sensors: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Position commands within velocity and acceleration limits, and the last ones (before the first: measured)."""
        scale, offset, _, _ = self._constants(term)
        started = state["started"] > 0.5
        measured = limiter.reference(self._measured(sensors["joint_pos"]))
        last = torch.where(started, state[last_memory(POSITION_TARGET)], measured)
        step = scale * part if term.kind.endswith("incremental") else offset + scale * part - last
        before = torch.zeros_like(last)
        if limiter.accelerates:
            before = torch.where(started, state[step_memory(POSITION_TARGET)], before)
        return limiter(step, last, before), last

    def _constants(self, term: ActionTerm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scale, offset, lower, upper = (
            self.get_buffer(f"{term.target_name}_{label}") for label in ("scale", "offset", "lower", "upper")
        )
        return scale, offset, lower, upper


class PolicyGraph(nn.Module):
    """Observation terms, normaliser, network and action terms of one policy."""

    def __init__(self, contract: PolicyContract, actor: nn.Module) -> None:
        """Connects an actor network (see `Actor`) to the contract's observation and action terms."""
        super().__init__()
        self.contract = contract
        self.observation = ObservationTerms(contract)
        self.normaliser = Normaliser(self.observation.size)
        self.actor = actor
        self.action = ActionTerms(contract)
        self._remembers_action = any(t.kind == PREVIOUS_ACTION for t in contract.observation.terms)

    @property
    def state_sizes(self) -> dict[str, int]:
        """Names and widths of the state inputs and outputs, in graph order."""
        sizes = {"started": 1, **self.observation.history_sizes(), **self.action.memory_sizes()}
        if self._remembers_action:
            sizes[PREVIOUS_ACTION] = self.contract.action.size
        hidden = int(getattr(self.actor, "state_size", 0))
        if hidden:
            sizes["hidden"] = hidden
        return sizes

    def initial_state(self, num_worlds: int) -> State:
        """State before the first call: all zeros, where the graph's constants are."""
        device = self.normaliser.mean.device
        return {name: torch.zeros(num_worlds, size, device=device) for name, size in self.state_sizes.items()}

    def observe(
        self, sensors: Mapping[str, Tensor], commands: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[Tensor, State]:
        """Observation vector before normalisation, shape (n, observation.size), and the histories after it."""
        return self.observation(sensors, commands, state)

    def command(
        self, action: Tensor, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], State]:
        """Joint commands and the memory after them; `action` is the network's output or a sample around it."""
        targets, memory = self.action(action, sensors, state)
        memory["started"] = torch.ones_like(state["started"])
        if self._remembers_action:
            memory[PREVIOUS_ACTION] = self.action.limited(action)
        return targets, memory

    def forward(
        self, sensors: Mapping[str, Tensor], commands: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], State]:
        """One control period without exploration, as on the robot."""
        observation, histories = self.observe(sensors, commands, state)
        hidden = state.get("hidden", observation[:, :0])
        action, hidden = self.actor(self.normaliser(observation), hidden)
        targets, memory = self.command(action, sensors, state)
        after: State = {**histories, **memory}
        if "hidden" in state:
            after["hidden"] = hidden
        return targets, {name: after[name] for name in self.state_sizes}


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Initialises a layer with an orthogonal matrix of the given gain and zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "elu": nn.ELU, "relu": nn.ReLU}


def mlp(sizes: list[int], activation: str, output_gain: float) -> nn.Sequential:
    """A multilayer perceptron of the given widths, orthogonal weights, linear output."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes[:-1]):
        layers += [orthogonal(nn.Linear(inputs, outputs), math.sqrt(2.0)), ACTIVATIONS[activation]()]
    layers.append(orthogonal(nn.Linear(sizes[-2], sizes[-1]), output_gain))
    return TanhPerceptron(*layers) if activation == "tanh" else nn.Sequential(*layers)


class ActorMLP(nn.Module):
    """Feed-forward actor."""

    state_size = 0

    def __init__(self, observations: int, actions: int, hidden: tuple[int, ...], activation: str) -> None:
        """Builds `observations` → hidden layers → `actions`."""
        super().__init__()
        self.layers = mlp([observations, *hidden, actions], activation, 0.01)

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean action; the empty hidden state is passed through."""
        return self.layers(observation), hidden


class ActorGRU(nn.Module):
    """Recurrent actor: one GRU cell, then a perceptron. Its memory is an explicit input and output."""

    def __init__(
        self, observations: int, actions: int, hidden: tuple[int, ...], activation: str, state_size: int
    ) -> None:
        """Builds `observations` → GRU of `state_size` → hidden layers → `actions`."""
        super().__init__()
        self.state_size = state_size
        self.input = nn.Linear(observations, 3 * state_size)
        self.recurrent = nn.Linear(state_size, 3 * state_size)
        self.layers = mlp([state_size, *hidden, actions], activation, 0.01)

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean action, shape (n, actions), and the next hidden state, shape (n, state_size).

        The cell is written out (Cho et al. 2014, in torch's arrangement) because it exports to plain MatMul nodes.
        """
        reset_in, update_in, new_in = self.input(observation).chunk(3, dim=1)
        reset_h, update_h, new_h = self.recurrent(hidden).chunk(3, dim=1)
        reset, update = torch.sigmoid(reset_in + reset_h), torch.sigmoid(update_in + update_h)
        hidden = (1.0 - update) * torch.tanh(new_in + reset * new_h) + update * hidden
        return self.layers(hidden), hidden
