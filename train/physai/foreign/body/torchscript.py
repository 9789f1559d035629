"""The child process that converts a stranger's TorchScript file to ONNX.

TorchScript is a program. It is looked through for operators that reach files, and runs without the right to write any.
"""

import io
import itertools
import json
import resource
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from physai.foreign.body import probe
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve

STEP_S = 20.0
"""Maximum time of each step in the child [s]."""
PARITY = 1e-5
"""Greatest difference of the graph's outputs to those of the program, relative to outputs above 1."""
CALLS = 64
"""Successive calls in which they are compared."""
ROWS = 4
MAX_NODES = 100_000
MAX_WIDTHS = 64
OBSERVATION, HIDDEN, ACTION, NEXT = "observation", "hidden", "action", "next"
NAMESPACES = ("aten", "prim")
FORBIDDEN = frozenset({"aten::save", "aten::from_file", "prim::PythonOp", "aten::manual_seed", "aten::set_data"})
SAMPLES = ("rand", "bernoulli", "multinomial", "normal", "poisson", "exponential", "dropout")
"""Beginnings of names of operators that draw random numbers; a dropout draws none in evaluation."""
_END = b"\0"


def convert_torchscript(data: bytes, *, source: str, width: int | None) -> tuple[JsonFacts, bytes]:
    """Convert a TorchScript file to ONNX in a child process with limits of time and memory.

    Args:
        data: the file.
        source: its name, for messages.
        width: number of elements of its observation; None to find it by trial.

    Returns:
        Facts (`width`: elements of the observation; `memory`: names of the buffers in which it remembers; `parity`),
        and an ONNX file with the inputs `observation` and, if it remembers, `hidden`, and the outputs `action` and
        `next`. The memory starts at zero.

    Raises:
        ApartError: it is no TorchScript file, it cannot be converted, or the child hung, crashed or used too much
            memory.
    """
    request = json.dumps({"source": source, "width": width}).encode() + _END + data
    facts, blobs = call_apart(__name__, request, what=f"converting {source}", limit_s=lambda _: STEP_S)
    return facts, blobs[0]


def torchscript_changes(program: JsonFacts) -> list[str]:
    """Return what the conversion of a TorchScript file did, from its facts."""
    changes = [f"TorchScript became ONNX, which computes the same within {program['parity']:.1g}"]
    if program["memory"]:
        changes.append(f"its memory ({', '.join(program['memory'])}) is an input and an output")
    return changes


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    head, _, data = request.partition(_END)
    named = json.loads(head)
    source, width = str(named["source"]), named["width"]
    report({"stage": "loading torch"})
    import torch

    torch.set_num_threads(1)
    report({"stage": "loading the program"})
    try:
        return _converted(data, width, report)
    except ForeignPolicyError as error:
        raise ForeignPolicyError(f"{source}: {error}") from None
    except Exception as error:  # torch's and the program's own
        raise ForeignPolicyError(f"{source}: the program cannot be converted: {_reason(error)}") from None


@contextmanager
def unable_to_write() -> Generator[None]:
    """Let writing to files end the process; torch's exporter needs the right again."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _reason(error: Exception) -> str:
    """The last line that says something: TorchScript's errors begin with a trace of the program."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().endswith("Error:")]
    return f"{type(error).__name__}: {lines[-1] if lines else 'without a message'}"[:300]


def _load(data: bytes) -> Any:
    import torch

    library: Any = torch.jit
    try:
        module = library.load(io.BytesIO(data), map_location="cpu")
    except Exception as error:  # plain RuntimeErrors with a trace
        raise ForeignPolicyError(
            f"not a TorchScript file ({_reason(error)}); weights alone are read if a physai.yaml names them as its "
            "`network`, or write it with torch.onnx.export or torch.jit.script"
        ) from None
    module.eval()
    return module


def _converted(data: bytes, width: int | None, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    from physai.foreign.body.memory import changing_buffers
    from physai.foreign.body.traced import prepare, traced

    prepare()
    module = _load(data)
    _require_harmless(module)
    report({"stage": "running the program"})
    if width is None:
        width = _found_width(module)
    else:
        _run(module, width)
    with unable_to_write():
        remembered = changing_buffers(_load(data), width)
    if not remembered:
        _require_rows(_load(data), width)
    report({"stage": "recording its operators"})
    problems: list[str] = []
    for memories in _memories(remembered):
        try:
            with unable_to_write():
                graph = traced(_load(data), width, memories)
            onnx = _exported(graph, width, sum(memory.width for memory in memories), [one.width for one in memories])
            report({"stage": "comparing"})
            found = parity(_load(data), onnx, width)
        except Exception as error:  # the next arrangement may be right
            problems.append(str(error) if isinstance(error, ForeignPolicyError) else _reason(error))
            continue
        return {"width": width, "memory": sorted(remembered), "parity": found}, [onnx]
    raise ForeignPolicyError(f"the program cannot be converted: {problems[0]}")


def _require_harmless(module: Any) -> None:
    """Refuse operators that reach files or draw random numbers, and such of other libraries.

    Raises:
        ForeignPolicyError: the program has one.
    """
    for count, kind in enumerate(_kinds(module.inlined_graph)):
        namespace, _, name = kind.partition("::")
        if namespace not in NAMESPACES or kind in FORBIDDEN:
            raise ForeignPolicyError(f"the program has the operator {kind}, which no policy needs")
        if name.startswith(SAMPLES) and not name.startswith("dropout"):
            raise ForeignPolicyError(f"the program draws random numbers ({kind}); export its mean action")
        if not count < MAX_NODES:
            raise ForeignPolicyError(f"the program has more than {MAX_NODES} operators")


def _kinds(block: Any) -> Iterator[str]:
    for node in block.nodes():
        yield str(node.kind())
        for inner in node.blocks():
            yield from _kinds(inner)


def _run(module: Any, width: int) -> None:
    """Run the program once.

    Raises:
        ForeignPolicyError: it does not take an observation of this width.
    """
    import torch

    from physai.foreign.body.traced import first

    takes = len(module.forward.schema.arguments) - 1
    if takes != 1:
        raise ForeignPolicyError(f"the program takes {takes} inputs, so far one is supported, the observation")
    with torch.no_grad(), unable_to_write():
        try:
            output = module(torch.zeros(1, width))
        except Exception as error:  # errors of TorchScript have no common base
            raise ForeignPolicyError(
                f"the program does not take an observation of {width} numbers: {_reason(error)}"
            ) from None
        first(output)


def _require_rows(module: Any, width: int) -> None:
    """Refuse a program that was written for one row, such as one that gives its output a fixed shape."""
    import torch

    with torch.no_grad(), unable_to_write():
        try:
            module(torch.zeros(ROWS, width))
        except Exception as error:  # as above
            raise ForeignPolicyError(
                f"the program takes one row, and not {ROWS}, one for each robot: {_reason(error)}; keep the number of "
                "rows where it sets a shape, or export its network by itself"
            ) from None


def _found_width(module: Any) -> int:
    """Return the first width of a weight's input that the program takes."""
    widths = dict.fromkeys(int(value.shape[-1]) for value in module.state_dict().values() if value.dim() >= 1)
    for width in itertools.islice(widths, MAX_WIDTHS):
        try:
            _run(module, width)
        except ForeignPolicyError:
            continue
        return width
    raise ForeignPolicyError("the program takes no observation of a width that its weights show")


def _memories(remembered: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Arrangements of the memory to try: the axis of the robots is one of size 1, the second in recurrent layers."""
    from physai.foreign.body.memory import Memory

    if not remembered:
        yield ()
        return
    candidates = {
        name: [
            axis
            for axis in sorted(range(value.dim()), key=lambda axis: axis != value.dim() - 2)
            if value.shape[axis] == 1
        ]
        for name, value in remembered.items()
    }
    without = [name for name, axes in candidates.items() if not axes]
    if without:
        raise ForeignPolicyError(f"the program remembers in {without[0]}, which has no axis of one robot")
    for axes in itertools.islice(itertools.product(*candidates.values()), 8):
        yield tuple(
            Memory(path=name, axis=axis, initial=remembered[name]) for name, axis in zip(remembered, axes, strict=True)
        )


def _exported(graph: Any, width: int, hidden: int, widths: list[int]) -> bytes:
    import torch
    from torch import nn

    from physai.train.onnx_export.onnx_graph import export_flat

    class Joined(nn.Module):
        """The recorded step with one memory for all."""

        def __init__(self) -> None:
            super().__init__()
            self.step = graph

        def forward(self, *inputs: torch.Tensor) -> Any:
            """The action, and the memory after it, for the observation and the memory."""
            parts = torch.split(inputs[1], widths, dim=1) if widths else ()
            action, *after = self.step(inputs[0], *parts)
            return (action, torch.cat(after, dim=1)) if after else action

    inputs = {OBSERVATION: width, **({HIDDEN: hidden} if hidden else {})}
    return export_flat(Joined(), inputs, [ACTION, *([NEXT] if hidden else [])]).SerializeToString(deterministic=True)


def parity(program: Callable[[Any], Any], onnx: bytes, width: int) -> float:
    """Return the greatest difference between a program and its graph over successive calls, see `PARITY`.

    Args:
        program: takes an observation, shape (1, width), and remembers.
        onnx: the graph, whose memory begins at zero.
        width: number of elements of the observation.

    Raises:
        ForeignPolicyError: it exceeds the bound.
    """
    import torch

    from physai.foreign.body.traced import first

    session = probe.session(onnx)
    hidden = {value.name: np.zeros((1, value.shape[1]), np.float32) for value in session.get_inputs()[1:]}
    random = np.random.default_rng(0)
    greatest = 0.0
    for call in range(CALLS):
        observation = (random.standard_normal((1, width)) * (1.0 + call % 3)).astype(np.float32)
        with torch.no_grad(), unable_to_write():
            wanted = first(program(torch.tensor(observation))).numpy()
        found, *after = probe.run(session, {OBSERVATION: observation, **hidden})
        hidden = dict(zip(hidden, after, strict=True))
        # Of the largest output, if that exceeds 1: random states can be far from those that a robot visits.
        size = max(1.0, float(np.abs(wanted).max(initial=0.0)))
        greatest = max(greatest, probe.difference([wanted], [found]) / size)
    if not greatest <= PARITY:
        raise ForeignPolicyError(
            f"its operators compute something else than the program: they differ by {greatest:.2g}"
        )
    return greatest


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
