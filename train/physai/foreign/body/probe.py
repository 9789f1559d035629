"""Run a policy's graph and find out what it does with its inputs; see `physai.foreign.body.apart`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.foreign.errors import ForeignPolicyError

Floats = npt.NDArray[np.float32]

ROWS = 16
"""Random states in which both graphs are compared, and in which columns are moved."""
STEP = 0.5
"""By how much a column is moved."""
NARROW = 1
"""Width of an input that may be a counter, such as a time step: it gets whole numbers."""
NO_EFFECT = 1e-9


def session(data: bytes) -> Any:
    """Load a graph on one thread.

    Raises:
        ForeignPolicyError: onnxruntime cannot load it.
    """
    import onnxruntime

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        raise ForeignPolicyError(f"onnxruntime cannot load it: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def states(widths: Mapping[str, int], rows: int = ROWS) -> dict[str, Floats]:
    """Return random inputs, the same ones in each call."""
    random = np.random.default_rng(0)
    return {
        name: np.arange(rows, dtype=np.float32)[:, None]
        if width == NARROW
        else random.standard_normal((rows, width)).astype(np.float32)
        for name, width in widths.items()
    }


def run(graph: Any, inputs: Mapping[str, Floats]) -> list[Floats]:
    """Return the outputs of a graph.

    Raises:
        ForeignPolicyError: onnxruntime cannot compute them.
    """
    try:
        return [np.asarray(output) for output in graph.run(None, dict(inputs))]
    except Exception as error:  # as above
        raise ForeignPolicyError(f"onnxruntime cannot compute it: {first_line(error)}") from None


def row_by_row(graph: Any, inputs: Mapping[str, Floats]) -> list[Floats]:
    """Return the outputs of a graph that gets one row at a time, in the shapes that it declares.

    If the graph has more inputs than given, the last one given holds the values of all further ones, one after the
    other, and the outputs after the first are joined accordingly.
    """
    declared, given = graph.get_inputs(), list(inputs.values())
    shapes = [_of_one_row(value.shape) for value in declared]
    joined = len(declared) > len(given)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes[len(given) - 1 :]])
    parts: list[list[Floats]] = []
    for row in range(len(given[0])):
        values = [value[row] for value in given]
        if joined:
            values = [*values[:-1], *np.split(values[-1], ends[:-1])]
        feed = {value.name: part.reshape(shape) for value, part, shape in zip(declared, values, shapes, strict=True)}
        parts.append([output.reshape(1, -1) for output in run(graph, feed)])
    outputs = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return [outputs[0], np.concatenate(outputs[1 : len(declared)], axis=1)] if joined else outputs


def _of_one_row(shape: list[Any]) -> list[int]:
    """Shape of an input for one row: axes without a size have 1 element, and the last one all others."""
    sizes = [size if isinstance(size, int) and size > 0 else 1 for size in shape]
    return [*sizes[:-1], sizes[-1] if isinstance(shape[-1], int) and shape[-1] > 0 else -1]


def difference(one: list[Floats], other: list[Floats]) -> float:
    """Return the greatest difference of two lists of outputs; infinite if their shapes differ or one is not finite."""
    if [a.shape for a in one] != [b.shape for b in other]:
        return float("inf")
    found = max((float(np.abs(a - b).max(initial=0.0)) for a, b in zip(one, other, strict=True)), default=0.0)
    return found if np.isfinite(found) else float("inf")


def unused_columns(graph: Any, inputs: Mapping[str, Floats]) -> dict[str, list[int]]:
    """Return the columns of each input that change no output in any of the states."""
    base = run(graph, inputs)
    unused: dict[str, list[int]] = {}
    for name, values in inputs.items():
        found: list[int] = []
        for column in range(values.shape[1]):
            moved = values.copy()
            moved[:, column] += 1.0 if values.shape[1] == NARROW else STEP
            if difference(base, run(graph, {**inputs, name: moved})) <= NO_EFFECT:
                found.append(column)
        unused[name] = found
    return unused
