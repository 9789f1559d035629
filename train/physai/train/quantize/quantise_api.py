"""`physai policy quantize` as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.parameters.arguments import require_choice, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.train.quantize.quantize import QuantiseReport

MAX_SEED = 2**20 - 1
STEPS = ("playing", "quantising", "comparing")
"""Steps that `progress` tells of."""

_SKIP_PAIRS = Option(
    flags=("--skip-paired-evaluation",),
    old=("--skip-rehearsal",),
    help="do not compare float and quantised policy in paired episodes; the gates do so later",
)
_SKIP_TENSORRT = Option(flags=("--skip-tensorrt",), help="do not build engines with TensorRT for RTX, if installed")


def quantise(
    policy: Annotated[Path | str, Option(metavar="RUN_OR_EXPORT")],
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    variants: Annotated[Sequence[Literal["int8", "fp8", "fp16"]], Option(flags=("--variant",))] = ("int8",),
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    states: int = 65536,
    episodes: int = 96,
    seed: int = 0,
    paired_evaluation: Annotated[bool, _SKIP_PAIRS] = True,
    tensorrt: Annotated[bool, _SKIP_TENSORRT] = True,
    progress: Callable[[str, float], None] | None = None,
) -> QuantiseReport:
    """Write an exported policy in other precisions, as far as its contract's bound allows.

    Args:
        policy: run folder or exported policy.onnx.
        out: output folder. None for that of the policy.
        variants: precisions; fp8 needs an Ada or newer GPU, such as Thor's.
        twin: twin.json of `physai sim calibrate`. None for the nominal robot.
        task: task name, Python file, or run folder whose copy is to be run, if the task is not built in.
        model: MJCF or URDF file that the policy was trained with, if its run folder does not keep it.
        states: number of visited states to calibrate with, and of others to compare in.
        episodes: number of episodes for each set of states.
        seed: seed of the episodes.
        paired_evaluation: compare float and quantised policy in paired episodes, as the gates do later.
        tensorrt: build engines with TensorRT for RTX, if installed.
        progress: called with the name of a step (playing, quantising or comparing) and the share of its work done.

    Returns:
        The files and their errors; `refused` names the variants that were not written.

    Raises:
        PhysaiError: the seed is out of range, or policy, twin or task cannot be read.
    """
    require_range("seed", seed, 0, MAX_SEED)
    for variant in variants:
        require_choice("variants", variant, ("int8", "fp8", "fp16"))

    from physai.sdk.onnx.trial import try_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.train.quantize.paired_evaluation import PairedEvaluation
    from physai.train.quantize.quantize import quantise_policy, read_original
    from physai.train.quantize.states import record_states
    from physai.twin.model.twin import load_twin, nominal_twin

    tell: Callable[[str, float], None] = progress or (lambda step, share: None)
    playing, quantising, comparing = (partial(tell, step) for step in STEPS)
    path = find_policy(Path(policy))
    named = {"task": None if task is None else str(task), "robot": None if model is None else str(model)}
    loaded = find_origin(path, **named).load()
    chosen = nominal_twin(loaded.robot) if twin is None else load_twin(Path(twin))
    original = read_original(path)
    try_policy(original.data, source=str(path))
    recorded = record_states(
        original.data,
        loaded,
        chosen,
        source=str(path),
        states=states,
        episodes=episodes,
        seed=seed,
        progress=playing,
    )
    pairs = PairedEvaluation(original.data, loaded, chosen, seed=seed, progress=comparing)
    return quantise_policy(
        original,
        recorded,
        path.parent if out is None else Path(out),
        variants=tuple(dict.fromkeys(variants)),
        tensorrt=tensorrt,
        compare=pairs.compare if paired_evaluation else None,
        progress=quantising,
    )
