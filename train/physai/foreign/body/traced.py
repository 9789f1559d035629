"""Record a TorchScript module as a graph of plain operators, with its memory as an input and an output.

Everything here runs in a child process: the module is a stranger's program.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functionalize  # pyright: ignore[reportPrivateImportUsage]
from torch.fx.experimental.proxy_tensor import make_fx

from physai.foreign.body.memory import Memory
from physai.foreign.errors import ForeignPolicyError

ROWS = (3, 5)
"""Numbers of rows for which the module is recorded; whole numbers that differ accordingly are the number of rows."""

_aten: Any = torch.ops.aten


class _Step(nn.Module):
    """One call of a module, from an observation and its memory to the output and the memory after the call."""

    def __init__(self, module: Any, memories: Sequence[Memory]) -> None:
        super().__init__()
        self._held = [module]  # In a list: it is called, and none of its parameters is one of this module.
        self._memories = memories

    def forward(self, observation: Tensor, *hidden: Tensor) -> tuple[Tensor, ...]:
        """The output, shape (n, outputs), and the memory, shape (n, width) each, less its initial value."""
        module = self._held[0]
        for memory, value in zip(self._memories, hidden, strict=True):
            memory.write(module, value)
        output = first(module(observation))
        return output, *(memory.read(module) for memory in self._memories)


def first(output: Any) -> Tensor:
    """Return the first tensor of a module's output."""
    while isinstance(output, tuple | list) and output:
        output = output[0]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(output, Tensor) or output.dim() != 2:
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__  # pyright: ignore[reportUnknownArgumentType]
        raise ForeignPolicyError(f"the program returns {shape} for one row, expected a tensor of shape [1, outputs]")
    return output


def prepare() -> None:
    """Have torch load what it needs to record operators, for which it writes temporary files."""
    make_fx(functionalize(torch.neg))(torch.zeros(1))


def traced(module: Any, width: int, memories: Sequence[Memory]) -> fx.GraphModule:
    """Return a module that computes one step for any number of rows.

    Args:
        module: TorchScript module.
        width: number of elements of its observation.
        memories: buffers in which it remembers.

    Raises:
        ForeignPolicyError: its operators depend on values or on the number of rows in another way.
    """
    recorded = [_recorded(module, width, memories, rows) for rows in ROWS]
    _unify(*recorded)
    return recorded[0]


def _recorded(module: Any, width: int, memories: Sequence[Memory], rows: int) -> fx.GraphModule:
    step = _Step(module, memories)
    example = (torch.zeros(rows, width), *(torch.zeros(rows, memory.width) for memory in memories))
    # MKL-DNN computes a whole recurrent layer in one operator that has no equivalent in ONNX.
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        graph: fx.GraphModule = make_fx(functionalize(step.forward), tracing_mode="real")(*example)
    graph.graph.eliminate_dead_code()
    # A policy's graph has no double precision; whether that matters is found by running both.
    for node in graph.graph.nodes:
        if node.op == "get_attr" and getattr(graph, str(node.target)).dtype == torch.float64:
            setattr(graph, str(node.target), getattr(graph, str(node.target)).float())
    graph.recompile()
    return graph


def _unify(one: fx.GraphModule, other: fx.GraphModule) -> None:
    """Replace in the first graph what depends on the number of rows."""
    nodes, others = list(one.graph.nodes), list(other.graph.nodes)
    if [node.target for node in nodes] != [node.target for node in others]:
        raise ForeignPolicyError("the program does something else for another number of rows")
    rows: list[fx.Node] = []

    def size() -> fx.Node:
        """The number of rows, of the observation."""
        if not rows:
            inputs = [node for node in nodes if node.op == "placeholder"]
            with one.graph.inserting_after(inputs[-1]):
                rows.append(one.graph.call_function(_aten.sym_size.int, (inputs[0], 0)))
        return rows[0]

    def unified(mine: Any, theirs: Any) -> Any:
        if isinstance(mine, list | tuple):
            if not isinstance(theirs, list | tuple) or len(mine) != len(theirs):  # pyright: ignore[reportUnknownArgumentType]
                raise ForeignPolicyError("the program does something else for another number of rows")
            return type(mine)(unified(a, b) for a, b in zip(mine, theirs, strict=True))  # pyright: ignore
        if isinstance(mine, fx.Node) or mine == theirs or (mine != mine and theirs != theirs):
            return mine
        if (mine, theirs) == ROWS:
            return size()
        raise ForeignPolicyError(f"a value is {mine} for {ROWS[0]} rows and {theirs} for {ROWS[1]}")

    for node, twin in zip(nodes, others, strict=True):
        if node.op == "get_attr":
            _require_equal(one, other, node, twin)
        elif node.op == "call_function":
            node.args = unified(node.args, twin.args)
            node.kwargs = {key: unified(value, twin.kwargs[key]) for key, value in node.kwargs.items()}
    one.graph.lint()
    one.recompile()


def _require_equal(one: fx.GraphModule, other: fx.GraphModule, node: fx.Node, twin: fx.Node) -> None:
    mine, theirs = getattr(one, str(node.target)), getattr(other, str(twin.target))
    if not torch.equal(mine, theirs):
        raise ForeignPolicyError("the program keeps values that depend on the number of rows")
