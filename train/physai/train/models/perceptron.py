"""Multilayer perceptrons with tanh layers, computed with sigmoids and a hand-written gradient.

On CPUs torch's tanh takes as long as the matrix product before it (3.3 ns per element with AVX2), its sigmoid a quarter
of that. With tanh(x) = 2 σ(2 x) - 1 the factors and the constant go into the weights of the layers around:

    h_1 = σ(2 (W_1 x + b_1)),  h_{i+1} = σ(2 (2 W_i h_i + b_i - W_i 1)),  y = 2 W_n h_n + b_n - W_n 1

which is the same function up to rounding (1e-7), at the cost of a sigmoid per element. Going back,
∂L/∂W_i = 2 gᵀ h_i - (Σ g) 1ᵀ and g ← (g · 4 W_i) ⊙ h_i (1 - h_i), from ∂tanh/∂z = 4 σ (1 - σ).
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

_FEW = 8
"""Up to this many columns, MKL computes (n, few)ᵀ · (n, many) ten times slower than its transpose."""


class _TanhLayers(torch.autograd.Function):
    """Linear layers with tanh between them; arguments: input (n, inputs), then weight and bias of each layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        inputs: list[Tensor] = []
        for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            inputs.append(x)
            first, last = index == 0, index == len(weights) - 1
            gain = (1.0 if first else 2.0) * (1.0 if last else 2.0)
            shift = bias if first else bias - weight.sum(1)
            x = torch.addmm(shift if last else 2.0 * shift, x, (gain * weight).t())
            if not last:
                x.sigmoid_()
        ctx.save_for_backward(*inputs, *weights)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        saved: tuple[Tensor, ...] = ctx.saved_tensors
        inputs, weights = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        result: list[Tensor | None] = []
        for index in range(len(weights) - 1, -1, -1):
            h, weight = inputs[index], weights[index]
            total = g.sum(0)
            narrow = min(g.shape[1], h.shape[1]) <= _FEW
            product = (h.t() @ g).t() if narrow else g.t() @ h
            result += [total, product if index == 0 else product.mul(2.0).sub_(total[:, None])]
            if index:
                back = g * (4.0 * weight) if g.shape[1] == 1 else g @ (4.0 * weight)
                g = torch.ops.aten.sigmoid_backward(back, h)
        result.append(g @ weights[0] if ctx.needs_input_grad[0] else None)
        return tuple(reversed(result))


class TanhPerceptron(nn.Sequential):
    """`nn.Sequential` of Linear and Tanh modules, Linear first and last.

    In training mode it is computed as described above; in evaluation mode, which is exported, layer by layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Output of shape (..., outputs) for an input of shape (..., inputs)."""
        if not self.training:
            return cast("Any", super()).forward(input)
        parameters = [p for layer in self if isinstance(layer, nn.Linear) for p in (layer.weight, layer.bias)]
        flat: Tensor = cast("Any", _TanhLayers).apply(input.reshape(-1, input.shape[-1]), *parameters)
        return flat.reshape(*input.shape[:-1], flat.shape[-1])
