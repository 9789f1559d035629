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
    """Return the outputs of a graph that gets one row at a time, in the shape that it declares."""
    flat = {value.name for value in graph.get_inputs() if len(value.shape) == 1}
    rows = len(next(iter(inputs.values())))
    parts = [
        run(graph, {name: values[row] if name in flat else values[row : row + 1] for name, values in inputs.items()})
        for row in range(rows)
    ]
    return [np.concatenate([output.reshape(1, -1) for output in outputs]) for outputs in zip(*parts, strict=True)]


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
