"""Recurrent layers and normalisations of checkpoints are found in their places, or refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.checkpoint_actors import ACTIONS, OBSERVATIONS, Recurrent, layers, named, seeded
from torch import Tensor, nn

from physai.foreign.body.checkpoints.actor import WeightsActor
from physai.foreign.body.checkpoints.layouts import actor_weights
from physai.foreign.errors import ForeignPolicyError


def flat(content: dict[str, Any]) -> dict[str, Tensor]:
    return {f"{part}.{name}": value for part, tensors in content.items() for name, value in tensors.items()}


def actor_of(content: dict[str, Any]) -> WeightsActor:
    weights = actor_weights(flat(content))
    return WeightsActor(weights, activation="elu", squash="none", bound=1.0, observation_clip=None).eval()


def rows(calls: int = 40) -> Tensor:
    return torch.tensor(np.random.default_rng(1).standard_normal((calls, OBSERVATIONS)) * 3.0, dtype=torch.float32)


def run(actor: WeightsActor, observations: Tensor) -> Any:
    """Actions for rows, which a memory sees one after the other."""
    hidden, found = torch.zeros(1, actor.remembered), list[Tensor]()
    with torch.no_grad():
        for row in observations:
            made: Any = actor(row[None], hidden)
            if actor.remembered:
                made, hidden = made
            found.append(made[0])
    return torch.stack(found).numpy()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("place", [{"before": True}, {}, {"given": True}, {"separate": True}, {"norms": True}])
def test_a_memory_of_rl_games_is_found_in_its_place(
    kind: type[nn.LSTM | nn.GRU], norm: bool, joined: bool, place: dict[str, bool]
) -> None:
    network = Recurrent(kind, norm=norm, joined=joined, **place)
    actor = actor_of(network.checkpoint())
    with torch.no_grad():
        wanted = network(rows()).numpy()
    np.testing.assert_allclose(run(actor, rows()), wanted, atol=2e-5)


def memory_of(read: int, units: int, first: int, final: int) -> dict[str, Any]:
    """A checkpoint of rl_games with a memory between layers of these widths."""
    network = {**named("actor_mlp", layers(first, 16, 12, last=False)), **named("mu", nn.Linear(final, ACTIONS))}
    network |= {**named("rnn.rnn", nn.GRU(read, units)), "sigma": torch.ones(ACTIONS)}
    return {"model": {f"a2c_network.{name}": value for name, value in network.items()}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # The observation may be read by the first layer, or by the memory.
        (memory_of(12, 12, 12, 12), "read 12 and give 12 numbers fit 2 places among layers from 12 to 12 and from 12"),
        (memory_of(9, 8, 11, 8), "read 9 and give 8 numbers fit 0 places among layers from 11 to 12 and from 8"),
    ],
)
def test_a_memory_whose_place_is_not_clear_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ForeignPolicyError, match=message):
        actor_weights(flat(content))


def normalised(*kinds: Callable[[int], list[nn.Module]], last: bool = True) -> nn.Sequential:
    """Layers of 11, 16, 12 and, if `last`, 4 numbers with what each kind puts after the first ones."""
    seeded(5)
    widths, found = [OBSERVATIONS, 16, 12], list[nn.Module]()
    for before, after, kind in zip(widths, widths[1:], kinds, strict=False):
        found += [nn.Linear(before, after), *kind(after)]
    made = nn.Sequential(*found, *([nn.Linear(12, ACTIONS)] if last else []))
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def late(width: int) -> list[nn.Module]:
    return [nn.ELU(), nn.LayerNorm(width)]


def early(width: int) -> list[nn.Module]:
    return [nn.LayerNorm(width), nn.ELU()]


def without_norm(width: int) -> list[nn.Module]:
    del width
    return [nn.ELU()]


@pytest.mark.parametrize("kinds", [(late, late), (early, early), (late, without_norm), (without_norm, early)])
def test_layer_normalisations_are_where_the_numbers_of_the_layers_say(kinds: tuple[Any, Any]) -> None:
    network = normalised(*kinds)
    actor = actor_of({"model_state_dict": {**named("actor", network), "std": torch.ones(ACTIONS)}})
    with torch.no_grad():
        wanted = network(rows()).numpy()
    np.testing.assert_allclose(run(actor, rows()), wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            named("actor", normalised(late, late, last=False)),
            r"layers \[0, 2, 3, 5\] of .*: expected every second one, with an activation after each, or every third",
        ),
        (
            {**named("actor", normalised(late, late)), "actor.2.bias": torch.ones(4)},
            r"actor\.2\.bias has shape \[4\], expected \[16\]",
        ),
        (
            {**named("actor", normalised(late, late)), "actor.2.running_var": torch.ones(4)},
            r"others, whose use is not known: model_state_dict\.actor\.2\.running_var",
        ),
    ],
)
def test_normalisations_that_are_not_clear_are_refused(model: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ForeignPolicyError, match=message):
        actor_weights(flat({"model_state_dict": {**model, "std": torch.ones(ACTIONS)}}))


def test_a_normalisation_of_a_memory_that_is_not_there_is_refused() -> None:
    content = memory_of(16, 8, 11, 8)
    left = {name: value for name, value in content["model"].items() if ".rnn." not in name}
    left |= {"a2c_network.layer_norm.weight": torch.ones(8), "a2c_network.layer_norm.bias": torch.ones(8)}
    with pytest.raises(ForeignPolicyError, match="layer_norm is of recurrent layers, of which there are none"):
        actor_weights(flat({"model": {**left, "a2c_network.mu.weight": torch.ones(ACTIONS, 12)}}))
