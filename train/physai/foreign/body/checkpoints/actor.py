"""An actor as a module: what a library computes with its weights, from the observation to the mean action.

Everything here runs in a child process.
"""

import torch
from torch import Tensor, nn

from physai.foreign.body.checkpoints.layouts import LSTM, ActorWeights

_KINDS = (nn.CELU, nn.ELU, nn.GELU, nn.Mish, nn.ReLU, nn.SELU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Softsign, nn.Tanh)
ACTIVATIONS: dict[str, type[nn.Module]] = {
    **{kind.__name__.lower(): kind for kind in _KINDS},
    "leaky_relu": nn.LeakyReLU,
}


class WeightsActor(nn.Module):
    """Normaliser, memory, layers and bound of an actor, in this order."""

    def __init__(
        self, weights: ActorWeights, *, activation: str, squash: str, bound: float, observation_clip: float | None
    ) -> None:
        """Build it; see `convert_weights`."""
        super().__init__()
        self._weights, self._squash, self._bound = weights, squash, bound
        self._observation_clip = observation_clip
        layers: list[nn.Module] = []
        for index, (weight, bias) in enumerate(weights.layers):
            layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
            layer.weight.data = weight
            if bias is not None:
                layer.bias.data = bias
            last = index + 1 == len(weights.layers)
            after = [] if last else [ACTIVATIONS[activation]()]
            if index in weights.norms:
                scale, offset, late = weights.norms[index]
                norm = nn.LayerNorm(len(scale))
                norm.weight.data, norm.bias.data = scale, offset
                after.insert(late, norm)
            layers.append(nn.Sequential(layer, *after))
        self.layers = nn.Sequential(*layers)

    @property
    def remembered(self) -> int:
        """Number of elements of the memory of one robot."""
        states = 2 if self._weights.kind == LSTM else 1
        return sum(states * state.shape[1] for _, state, _, _ in self._weights.memory)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Mean action, and the memory after it if there is one, for an observation and a memory."""
        weights, value = self._weights, inputs[0]
        if self._observation_clip is not None:
            value = torch.clamp(value, -self._observation_clip, self._observation_clip)
        if weights.normaliser:
            value = (value - weights.mean) / weights.divisor
        if weights.clip is not None:
            value = torch.clamp(value, -weights.clip, weights.clip)
        after: list[Tensor] = []
        seen, place, layers = value, weights.place, self.layers
        if weights.memory:
            if place.after:
                value, layers = self.layers[:-1](value), self.layers[-1]
            if place.joins_input:
                value = torch.cat([value, seen], dim=1)
            states = list(torch.chunk(inputs[1], self.remembered // weights.memory[0][1].shape[1], dim=1))
            step = self._lstm if weights.kind == LSTM else self._gru
            for layer in weights.memory:
                value, *kept = step(layer, value, states)
                after += kept
            if weights.memory_norm is not None:
                value = nn.functional.layer_norm(value, value.shape[1:], *weights.memory_norm)
            if place.joins_output:
                value = torch.cat([value, seen], dim=1)
        value = layers(value)
        if self._squash == "tanh":
            value = self._bound * torch.tanh(value)
        elif self._squash == "clip":
            value = torch.clamp(value, -self._bound, self._bound)
        return (value, torch.cat(after, dim=1)) if after else value

    @staticmethod
    def _lstm(layer: tuple[Tensor, ...], value: Tensor, states: list[Tensor]) -> tuple[Tensor, ...]:
        before, cell = states.pop(0), states.pop(0)
        gates = value @ layer[0].T + layer[2] + before @ layer[1].T + layer[3]
        write, keep, new, show = torch.chunk(gates, 4, dim=1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(new)
        output = torch.sigmoid(show) * torch.tanh(cell)
        return output, output, cell

    @staticmethod
    def _gru(layer: tuple[Tensor, ...], value: Tensor, states: list[Tensor]) -> tuple[Tensor, ...]:
        before = states.pop(0)
        seen = torch.chunk(value @ layer[0].T + layer[2], 3, dim=1)
        kept = torch.chunk(before @ layer[1].T + layer[3], 3, dim=1)
        reset, update = torch.sigmoid(seen[0] + kept[0]), torch.sigmoid(seen[1] + kept[1])
        new = torch.tanh(seen[2] + reset * kept[2])
        output = (1.0 - update) * new + update * before
        return output, output
