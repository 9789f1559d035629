"""Ways to corrupt an exported policy: each takes an ONNX model and returns another, its interface still whole."""

import copy
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from physai.sdk.policy.header import NEXT_PREFIX, STATE_KEY, STATE_PREFIX
from physai.sim.policies.onnx import OnnxPolicy

Model = Any
"""An onnx.ModelProto."""
Mutation = Callable[[Model], Model]


def mutated(data: bytes, mutation: Mutation) -> bytes:
    """A corrupted policy file."""
    return mutation(onnx.load_model_from_string(data)).SerializeToString()


def golden_of(data: bytes, golden: bytes) -> bytes:
    """Golden answers that agree with a corrupted policy, as if it had been trained and exported so.

    Args:
        data: the policy.
        golden: of the honest policy, whose inputs are kept; empty for random inputs.
    """
    policy = OnnxPolicy(data, source="mutant")
    old, rows = _arrays(golden), 64
    if old:
        rows = len(next(iter(old.values())))
    random = np.random.default_rng(0)
    fresh = {n: random.uniform(-1.0, 1.0, (rows, s)).astype(np.float32) for n, s in policy.header.inputs.items()}
    inputs = {name: old.get(name, values) for name, values in fresh.items()}
    arrays: dict[str, Any] = {**inputs, **policy.evaluate(inputs), "fingerprint": np.array(policy.fingerprint)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _arrays(golden: bytes) -> dict[str, Any]:
    """What a golden file holds; nothing for no bytes."""
    if not golden:
        return {}
    with np.load(io.BytesIO(golden), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def constant(model: Model, name: str, values: Any) -> str:
    """Adds a float constant to the graph; returns its name."""
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
    return name


def indices(model: Model, name: str, values: Sequence[int]) -> str:
    """Adds an integer constant to the graph; returns its name."""
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
    return name


def before(model: Model, field: str, nodes: Callable[[Model, str, str], list[Any]]) -> Model:
    """Puts nodes between an input of the graph and all that read it; `nodes` gets the model and both names."""
    model = copy.deepcopy(model)
    seen = f"{field}.mutated"
    for node in model.graph.node:
        node.input[:] = [seen if name == field else name for name in node.input]
    added = nodes(model, field, seen)
    for node in reversed(added):
        model.graph.node.insert(0, node)
    return model


def after(model: Model, output: str, nodes: Callable[[Model, str, str], list[Any]]) -> Model:
    """Puts nodes between what computes an output and the output."""
    model = copy.deepcopy(model)
    raw = f"{output}.raw"
    for node in model.graph.node:
        node.output[:] = [raw if name == output else name for name in node.output]
        node.input[:] = [raw if name == output else name for name in node.input]
    model.graph.node.extend(nodes(model, raw, output))
    return model


def permuted(field: str, order: Sequence[int]) -> Mutation:
    """Elements of a field in another order: joints swapped, a quaternion's order mistaken."""

    def nodes(model: Model, given: str, seen: str) -> list[Any]:
        return [helper.make_node("Gather", [given, indices(model, "mutation.order", order)], [seen], axis=1)]

    return lambda model: before(model, field, nodes)


def scaled(field: str, factor: float | Sequence[float]) -> Mutation:
    """A field in another unit, degrees for radians, or with other signs, one factor per element."""

    def nodes(model: Model, given: str, seen: str) -> list[Any]:
        factors = constant(model, "mutation.factor", np.atleast_1d(factor))
        return [helper.make_node("Mul", [given, factors], [seen])]

    return lambda model: before(model, field, nodes)


def shifted(field: str, offset: Sequence[float]) -> Mutation:
    """A field with a constant offset: another default pose, a zero mistaken."""

    def nodes(model: Model, given: str, seen: str) -> list[Any]:
        return [helper.make_node("Add", [given, constant(model, "mutation.offset", [list(offset)])], [seen])]

    return lambda model: before(model, field, nodes)


def late(steps: int, **sizes: int) -> Mutation:
    """Fields, given with their sizes, seen some control periods late, each through a memory of its own."""

    def mutate(model: Model) -> Model:
        for field, size in sizes.items():
            model = before(model, field, _delayed(size, steps))
        return model

    return mutate


def _delayed(size: int, steps: int) -> Callable[[Model, str, str], list[Any]]:
    def nodes(model: Model, given: str, seen: str) -> list[Any]:
        width, name = size * steps, f"late_{given}"
        memory, following = f"{STATE_PREFIX}{name}", f"{NEXT_PREFIX}{name}"
        model.graph.input.append(helper.make_tensor_value_info(memory, TensorProto.FLOAT, ["n", width]))
        model.graph.output.append(helper.make_tensor_value_info(following, TensorProto.FLOAT, ["n", width]))
        _declare_state(model, name, width)
        oldest = indices(model, f"{name}.oldest", range(size))
        newer = indices(model, f"{name}.newer", range(size, width + size))
        return [
            helper.make_node("Gather", [memory, oldest], [seen], axis=1),
            helper.make_node("Concat", [memory, given], [f"{name}.all"], axis=1),
            helper.make_node("Gather", [f"{name}.all", newer], [following], axis=1),
        ]

    return nodes


def _declare_state(model: Model, name: str, width: int) -> None:
    import json

    for entry in model.metadata_props:
        if entry.key == STATE_KEY:
            entry.value = json.dumps({**json.loads(entry.value), name: width})


def negated(output: str) -> Mutation:
    """A command with its sign flipped."""

    def nodes(model: Model, raw: str, out: str) -> list[Any]:
        return [helper.make_node("Neg", [raw], [out])]

    return lambda model: after(model, output, nodes)


def multiplied(output: str, factor: float, lower: float, upper: float) -> Mutation:
    """A command scaled, still within its bounds."""

    def nodes(model: Model, raw: str, out: str) -> list[Any]:
        bounds = constant(model, "mutation.lower", lower), constant(model, "mutation.upper", upper)
        return [
            helper.make_node("Mul", [raw, constant(model, "mutation.gain", factor)], ["mutation.scaled"]),
            helper.make_node("Clip", ["mutation.scaled", *bounds], [out]),
        ]

    return lambda model: after(model, output, nodes)


def poisoned(output: str, field: str, limit: float) -> Mutation:
    """No number wherever an element of a field exceeds a limit: √(limit - |x|) · 0 is added to the command."""

    def nodes(model: Model, raw: str, out: str) -> list[Any]:
        return [
            helper.make_node("Abs", [field], ["mutation.size"]),
            helper.make_node("Sub", [constant(model, "mutation.limit", limit), "mutation.size"], ["mutation.room"]),
            helper.make_node("Sqrt", ["mutation.room"], ["mutation.root"]),
            helper.make_node("ReduceSum", ["mutation.root", indices(model, "mutation.axis", [1])], ["mutation.sum"]),
            helper.make_node("Mul", ["mutation.sum", constant(model, "mutation.zero", 0.0)], ["mutation.nothing"]),
            helper.make_node("Add", [raw, "mutation.nothing"], [out]),
        ]

    return lambda model: after(model, output, nodes)


def reweighted(change: Callable[[str, Any], Any]) -> Mutation:
    """Other weights: `change` gets the name and the values of every float constant of two dimensions."""

    def mutate(model: Model) -> Model:
        model = copy.deepcopy(model)
        for tensor in model.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.ndim == 2 and values.dtype == np.float32:
                tensor.CopyFrom(numpy_helper.from_array(change(tensor.name, values).astype(np.float32), tensor.name))
        return model

    return mutate


def noisy(share: float) -> Mutation:
    """Weights with noise of a share of their own spread."""
    random = np.random.default_rng(5)

    def noised(name: str, weights: Any) -> Any:
        shape: tuple[int, ...] = weights.shape
        return weights + share * weights.std() * random.normal(size=shape)

    return reweighted(noised)


def quantised(bits: int) -> Mutation:
    """Weights rounded to so many bits."""
    levels = 2 ** (bits - 1) - 0.5

    def rounded(name: str, weights: Any) -> Any:
        step = np.abs(weights).max() / levels
        return (np.floor(weights / step) + 0.5) * step

    return reweighted(rounded)


def without_normaliser(model: Model) -> Model:
    """Observations as they are, neither shifted nor scaled by their statistics."""
    model = copy.deepcopy(model)
    neutral = {"normaliser._shift": 0.0, "normaliser._scale": 1.0}
    for tensor in model.graph.initializer:
        if tensor.name in neutral:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(values, neutral[tensor.name]), tensor.name))
    return model


def with_metadata(**entries: str) -> Mutation:
    """Other metadata, underscores in the names standing for dots."""

    def mutate(model: Model) -> Model:
        model = copy.deepcopy(model)
        for entry in model.metadata_props:
            key = entry.key.replace(".", "_")
            entry.value = entries.get(key, entry.value)
        return model

    return mutate
