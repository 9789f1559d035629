"""Actors as libraries build them, and the checkpoints that they keep of them."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

OBSERVATIONS, ACTIONS, UNITS = 11, 4, 12


def seeded(seed: int) -> None:
    library: Any = torch
    library.manual_seed(seed)


def layers(*widths: int, activation: Callable[[], nn.Module] = nn.ELU, last: bool = True) -> nn.Sequential:
    """Layers with an activation after each; `last`: without one after the last."""
    seeded(sum(widths))
    found: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        found += [nn.Linear(before, after), activation()]
    return nn.Sequential(*(found[:-1] if last else found))


def named(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    state: dict[str, Tensor] = module.state_dict()
    return {f"{prefix}.{name}": value for name, value in state.items()}


class Recurrent(nn.Module):
    """An actor as rl_games builds one with `rnn` (`A2CBuilder.Network.forward`)."""

    def __init__(
        self,
        kind: type[nn.LSTM | nn.GRU],
        *,
        before: bool = False,
        norm: bool = False,
        given: bool = False,
        joined: bool = False,
        separate: bool = False,
        norms: bool = False,
    ) -> None:
        super().__init__()
        seeded(3)
        self.before, self.given, self.joined = before, given, joined
        more = OBSERVATIONS if joined else 0
        self.actor_mlp = layers(UNITS + more if before else OBSERVATIONS, 16, 14, last=False)
        if norms:
            first, act, second, last = self.actor_mlp
            self.actor_mlp = nn.Sequential(first, act, nn.LayerNorm(16), second, last, nn.LayerNorm(14))
        self.mu = nn.Linear(14 if before else UNITS + more, ACTIONS)
        read = OBSERVATIONS if before else 14 + (OBSERVATIONS if given else 0)
        self.memory, self.norm = kind(read, UNITS, 2), nn.LayerNorm(UNITS) if norm else None
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)
        self.names = ("a_rnn", "a_layer_norm") if separate else ("rnn", "layer_norm")

    def forward(self, rows: Tensor) -> Tensor:
        seen = rows.clamp(-5.0, 5.0)
        value = seen if self.before else self.actor_mlp(seen)
        value = torch.cat([value, seen], dim=1) if self.given else value
        value = self.memory(value)[0]
        value = value if self.norm is None else self.norm(value)
        value = torch.cat([value, seen], dim=1) if self.joined else value
        return self.mu(self.actor_mlp(value) if self.before else value)

    def checkpoint(self) -> dict[str, Any]:
        network = {**named("actor_mlp", self.actor_mlp), **named("mu", self.mu), "sigma": torch.ones(ACTIONS)}
        for name in (self.names[0], *(["c_rnn"] if self.names[0] == "a_rnn" else [])):
            network |= named(f"{name}.rnn", self.memory)
        if self.norm is not None:
            network |= named(self.names[1], self.norm)
        model = {f"a2c_network.{name}": value for name, value in network.items()}
        one = {"running_mean": torch.zeros(OBSERVATIONS), "running_var": torch.ones(OBSERVATIONS) - 1e-5}
        return {"model": model | {f"running_mean_std.{name}": value for name, value in one.items()}}
