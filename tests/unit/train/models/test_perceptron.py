"""The perceptron's hand-written gradient, against torch's own."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from physai.train.models.numpy_policy import seed_torch
from physai.train.models.perceptron import TanhPerceptron


def pair(widths: list[int], seed: int) -> tuple[TanhPerceptron, nn.Sequential]:
    seed_torch(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, dtype=torch.float64), nn.Tanh()]
    fast, plain = TanhPerceptron(*layers[:-1]), nn.Sequential(*layers[:-1])
    return fast, plain


@settings(max_examples=40, deadline=None)
@given(
    widths=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    rows=st.integers(1, 7),
    seed=st.integers(0, 2**31),
)
def test_output_and_every_gradient_are_those_of_tanh_layers(widths: list[int], rows: int, seed: int) -> None:
    fast, plain = pair(widths, seed)
    x = torch.randn(rows, widths[0], dtype=torch.float64, requires_grad=True)
    weight = torch.randn(rows, widths[-1], dtype=torch.float64)
    wanted = [x, *plain.parameters()]
    expected = torch.autograd.grad((plain(x) * weight).sum(), wanted)
    answer = torch.autograd.grad((fast(x) * weight).sum(), wanted)
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(answer, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_leading_axes_are_kept() -> None:
    fast, plain = pair([3, 5, 2], 0)
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(fast(x), plain(x))


@pytest.mark.parametrize("size", [1e-6, 1e-3, 30.0, 1e4])
def test_float32_stays_within_rounding(size: float) -> None:
    """From the linear middle of tanh to saturation, where float32 has lost the input's last digits anyway."""
    fast, plain = pair([4, 64, 64, 1], 1)
    x = size * torch.randn(100, 4)
    reference = plain(x.double())
    fast.float()
    rounding = float((plain.float()(x).double() - reference).abs().max())
    torch.testing.assert_close(fast(x).double(), reference, rtol=0.0, atol=4.0 * rounding + 1e-6)


def test_evaluation_is_the_plain_sequence() -> None:
    fast, plain = pair([3, 5, 2], 0)
    x = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(fast.eval()(x), plain(x))
    assert list(fast.state_dict()) == list(plain.state_dict())
