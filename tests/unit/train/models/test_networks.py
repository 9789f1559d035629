"""The networks in a policy graph, and the normaliser before them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from physai.train.models.policy_graph import ActorGRU, ActorMLP, Normaliser


@torch.no_grad()
def test_the_gru_is_torchs() -> None:
    actor = ActorGRU(7, 2, (8,), "tanh", 5)
    generator = torch.Generator().manual_seed(1)
    for parameter in actor.parameters():
        nn.init.normal_(parameter, 0.0, 0.5, generator)
    cell = nn.GRUCell(7, 5)
    cell.weight_ih.copy_(actor.input.weight)
    cell.weight_hh.copy_(actor.recurrent.weight)
    cell.bias_ih.copy_(actor.input.bias)
    cell.bias_hh.copy_(actor.recurrent.bias)
    hidden = reference = torch.randn(16, 5, generator=generator)
    for _ in range(10):
        observation = torch.randn(16, 7, generator=generator)
        action, hidden = actor(observation, hidden)
        reference = cell(observation, reference)
        assert torch.allclose(hidden, reference, atol=1e-6)
        assert torch.equal(action, actor.layers(hidden))


Batches = list[list[tuple[float, float]]]
numbers = st.floats(-100.0, 100.0)
batches = st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), min_size=1, max_size=5)


def fed(data: Batches) -> Normaliser:
    normaliser = Normaliser(2)
    for batch in data:
        normaliser.update(torch.tensor(batch))
    return normaliser


@given(batches)
def test_the_normaliser_has_the_statistics_of_all_batches(data: Batches) -> None:
    normaliser = fed(data)
    rows = np.concatenate([np.array(batch, np.float32) for batch in data]).astype(np.float64)
    assert normaliser.mean.numpy() == pytest.approx(rows.mean(axis=0), abs=1e-9)
    assert normaliser.variance.numpy() == pytest.approx(rows.var(axis=0), abs=1e-8)
    assert float(normaliser.count) == len(rows)
    probe = np.array([[3.0, -7.0]])
    expected = np.clip((probe - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-4), -10.0, 10.0)
    assert normaliser(torch.tensor(probe).float()).numpy() == pytest.approx(expected, rel=1e-3, abs=1e-3)


@given(batches.flatmap(lambda data: st.tuples(st.just(data), st.permutations(data))))
def test_the_order_of_batches_does_not_matter(pair: tuple[Batches, Batches]) -> None:
    one, other = fed(pair[0]), fed(pair[1])
    assert torch.allclose(one.mean, other.mean, atol=1e-9)
    assert torch.allclose(one.variance, other.variance, atol=1e-8)


def test_a_fresh_normaliser_changes_nothing_but_bounds() -> None:
    assert Normaliser(3)(torch.tensor([[1.5, -9.0, 30.0]])).numpy().tolist() == [[1.5, -9.0, 10.0]]


def test_loaded_statistics_count_after_a_refresh() -> None:
    source, copy = fed([[(1.0, 2.0), (3.0, 6.0)]]), Normaliser(2)
    copy.load_state_dict(source.state_dict())
    copy.refresh()
    probe = torch.tensor([[2.5, 5.0]])
    assert torch.equal(copy(probe), source(probe))
    assert copy(probe)[0].numpy().tolist() == pytest.approx([0.5, 0.5], rel=1e-3)


@pytest.mark.parametrize(
    ("activation", "at_half"), [("tanh", math.tanh(-0.5)), ("relu", 0.0), ("elu", math.expm1(-0.5))]
)
def test_activations(activation: str, at_half: float) -> None:
    actor = ActorMLP(1, 1, (1,), activation)
    for layer, weight in ((actor.layers[0], 1.0), (actor.layers[2], 2.0)):
        assert isinstance(layer, nn.Linear)
        nn.init.constant_(layer.weight, weight)
    action, _ = actor(torch.tensor([[-0.5]]), torch.zeros(1, 0))
    assert action.item() == pytest.approx(2.0 * at_half, abs=1e-6)
