"""Numerical parity of the exported and the trained policy, in states the policy visits in the twin."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyHeader
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Bools, Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.onnx_export.onnx_graph import FlatGraph, frozen

TOLERANCE = 1e-5
"""Maximum relative difference of an output for equal inputs; float32 rounds at 6e-8, and a network accumulates it."""

ROUNDINGS = 3.0
"""Multiple of the trained policy's own rounding error that is allowed if it is more than TOLERANCE.

Both policies round, each in its own order."""

SEQUENCE_TOLERANCE = 1e-4
"""Maximum relative difference of an output over up to SEQUENCE_STEPS periods with separate states."""

SEQUENCE_STEPS = 200
DRIFT_LIMIT = 0.03 * SEQUENCE_TOLERANCE
"""Maximum relative difference between float32 and float64 of the trained policy for a comparison to be meaningful.

The two implementations round differently, so one may have drifted several times as far as the other."""

BATCH_SIZES = (1, 1024)
"""Batch sizes the exported graph must support, in addition to the number of visited states."""

PARITY_SEED = 0x9A417E57
MAX_STATES = 100_000
_WORLDS = 32
_MAX_STEPS = 1000

Arrays = dict[str, Array]
"""Arrays under the names of the exported graph's inputs and outputs, shape (n, size)."""

Evaluate = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""All outputs for all inputs, memory included."""


@dataclass(frozen=True)
class PolicyVisits:
    """Inputs and outputs of the trained policy in the twin."""

    header: PolicyHeader
    inputs: Arrays
    """Inputs in the visited states, memory included, shape (states, size)."""
    outputs: Arrays
    """Outputs of the trained policy, shape (states, size)."""
    first_inputs: tuple[Arrays, ...]
    """Sensors and commands of the first periods, shape (worlds, size)."""
    first_outputs: tuple[Arrays, ...]
    """Outputs in the same periods."""
    first_done: tuple[Bools, ...]
    """Worlds whose episode ended after each of these periods."""


def evaluator(graph: PolicyGraph, dtype: torch.dtype = torch.float32) -> Evaluate:
    """The trained graph in `dtype`, with the input and output names of the exported one."""
    flat = FlatGraph(frozen(graph).to(dtype))

    @torch.no_grad()
    def evaluate(inputs: Mapping[str, Array]) -> Arrays:
        values = flat(*(torch.as_tensor(inputs[name], dtype=dtype) for name in flat.inputs))
        return {name: value.numpy().copy() for name, value in zip(flat.outputs, values, strict=True)}

    return evaluate


def visit(
    graph: PolicyGraph, task: Task, *, states: int, progress: Callable[[float], None] | None = None
) -> PolicyVisits:
    """Runs the policy in the randomised twin and records states spread evenly over its first 1000 periods.

    Raises:
        ExportError: `states` is out of range, or an output of the policy is not finite.
    """
    if not 1 <= states <= MAX_STATES:
        raise ExportError(f"{states} visited states requested; choose 1 to {MAX_STATES}")
    header = PolicyHeader(graph.contract, graph.state_sizes)
    return visited_states(header, evaluator(graph), task, states=states, progress=progress)


def visited_states(
    header: PolicyHeader,
    evaluate: Evaluate,
    task: Task,
    *,
    states: int,
    progress: Callable[[float], None] | None = None,
) -> PolicyVisits:
    """The same for a policy in any form, of which `evaluate` computes all outputs."""
    worlds = min(_WORLDS, states)
    per_world = math.ceil(states / worlds)
    episode_steps = round(task.episode_length_s / task.contract.timing.control_dt)
    steps = max(SEQUENCE_STEPS, per_world, min(episode_steps, _MAX_STEPS))
    recorded = set(np.linspace(0, steps - 1, per_world).astype(int).tolist())
    env = Environment(task, worlds, seed=PARITY_SEED)
    now, memory = env.reset(), _no_memory(header, worlds)
    seen: list[tuple[Arrays, Arrays]] = []
    first: list[tuple[Arrays, Arrays, Bools]] = []
    for step in range(steps):
        fields = {name: np.array(value) for name, value in {**now.sensors, **now.commands}.items()}
        outputs = dict(evaluate({**fields, **memory}))
        _require_finite(outputs, step)
        now = env.step(outputs)
        if step in recorded:
            seen.append(({**fields, **memory}, outputs))
        if step < SEQUENCE_STEPS:
            first.append((fields, outputs, now.done))
        memory = _next_memory(header, outputs, now.done)
        if progress is not None:
            progress((step + 1) / steps)
    return PolicyVisits(
        header=header,
        inputs=_stacked([inputs for inputs, _ in seen], list(header.inputs), states),
        outputs=_stacked([outputs for _, outputs in seen], list(header.outputs), states),
        first_inputs=tuple(fields for fields, _, _ in first),
        first_outputs=tuple(outputs for _, outputs, _ in first),
        first_done=tuple(done for _, _, done in first),
    )


def _require_finite(outputs: Arrays, step: int) -> None:
    for name, value in outputs.items():
        bad = np.argwhere(~np.isfinite(value))
        if len(bad):
            row, column = (int(index) for index in bad[0])
            raise ExportError(
                f"the policy itself outputs {value[row, column]}: {name}[{column}], world {row}, period "
                f"{step}; if it was trained, that has diverged: train again with a smaller learning_rate"
            )


def _no_memory(header: PolicyHeader, worlds: int) -> Arrays:
    return {STATE_PREFIX + name: np.zeros((worlds, size), np.float32) for name, size in header.state_sizes.items()}


def _next_memory(header: PolicyHeader, outputs: Mapping[str, Array], done: Bools) -> Arrays:
    """The state after a period, zero where an episode has ended."""
    return {
        STATE_PREFIX + name: np.where(done[:, None], np.float32(0.0), outputs[NEXT_PREFIX + name])
        for name in header.state_sizes
    }


def _stacked(rows: list[Arrays], names: list[str], count: int) -> Arrays:
    return {name: np.concatenate([row[name] for row in rows])[:count] for name in names}


def rounding(graph: PolicyGraph, visits: PolicyVisits) -> dict[str, float]:
    """Greatest relative difference of each output, over the visited states, to the trained graph in float64."""
    exact = evaluator(graph, torch.float64)(visits.inputs)
    differences = _differences(visits.header.contract, exact, visits.outputs)
    return {name: float(difference.max()) for name, difference in differences.items()}


def check_states(policy: OnnxPolicy, graph: PolicyGraph, visits: PolicyVisits) -> dict[str, float]:
    """Checks that trained and exported policy agree in the visited states, for several batch sizes.

    They agree to TOLERANCE, or, where rounding alone changes the trained policy by nearly as much, to ROUNDINGS times
    that change, but at most to SEQUENCE_TOLERANCE. The relative difference of an output is
    |torch - onnx| / max(|torch|, s), where s is a commanded joint's action scale, or 1 for state.

    Returns:
        Greatest relative difference of each output over the visited states.

    Raises:
        ExportError: an element differs by more, or is NaN.
    """
    contract = visits.header.contract
    own = max(rounding(graph, visits).values())
    # Written so that NaN leaves the tolerance as it is.
    allowed = min(ROUNDINGS * own, SEQUENCE_TOLERANCE) if ROUNDINGS * own > TOLERANCE else TOLERANCE
    try:
        greatest = _require_close(contract, visits.outputs, policy.evaluate(visits.inputs), allowed, "state {row}")
        for size in BATCH_SIZES:
            inputs, outputs = _resized(visits.inputs, size), _resized(visits.outputs, size)
            where = f"state {{row}} in a batch of {size}"
            _require_close(contract, outputs, policy.evaluate(inputs), allowed, where)
    except ExportError as error:
        raise ExportError(
            f"{error}. Rounding to float32 alone changes the trained policy by up to {own:.1e}: if that is close to "
            "the tolerance, the network is too steep (train with smaller weights), otherwise the export is wrong "
            "(report it)"
        ) from error
    return greatest


@dataclass(frozen=True)
class Sequence:
    """Parity of an exported policy that keeps its own state."""

    differences: dict[str, float]
    """Greatest relative difference of each output over the periods."""
    restarts: int
    """How often both states were reset to the trained policy's; 0 where the state forgets."""


def check_sequence(policy: OnnxPolicy, graph: PolicyGraph, visits: PolicyVisits) -> Sequence:
    """Checks that the exported policy does not drift from the trained one when each feeds back its own state.

    Both get the same sensors and commands; the difference is measured as in `check_states` and must stay below
    SEQUENCE_TOLERANCE. An integrating state whose sensors do not follow it amplifies rounding exponentially, in the
    trained policy as in the exported one. Therefore the trained graph also runs in float64: once rounding alone has
    moved its float32 version by DRIFT_LIMIT, all states are synchronised.

    Raises:
        ExportError: an element differs by more than SEQUENCE_TOLERANCE, or is NaN.
    """
    header, restarts = visits.header, 0
    greatest = dict.fromkeys(header.outputs, 0.0)
    exact = evaluator(graph, torch.float64)
    memory = exact_memory = _no_memory(header, len(visits.first_done[0]))
    periods = zip(visits.first_inputs, visits.first_outputs, visits.first_done, strict=True)
    for step, (fields, wanted, done) in enumerate(periods):
        found, ideal = policy.evaluate({**fields, **memory}), exact({**fields, **exact_memory})
        drift = max(float(d.max()) for d in _differences(header.contract, ideal, wanted).values())
        if drift <= DRIFT_LIMIT:
            where = f"world {{row}} after {step + 1} periods with its own state"
            now = _require_close(header.contract, wanted, found, SEQUENCE_TOLERANCE, where)
            greatest = {name: max(value, now[name]) for name, value in greatest.items()}
        else:
            found = ideal = wanted
            restarts += 1
        memory, exact_memory = _next_memory(header, found, done), _next_memory(header, ideal, done)
    return Sequence(greatest, restarts)


def _resized(arrays: Arrays, rows: int) -> Arrays:
    return {name: np.resize(array, (rows, array.shape[1])) for name, array in arrays.items()}


def _differences(contract: PolicyContract, wanted: Mapping[str, Array], found: Mapping[str, Array]) -> Arrays:
    """Relative difference of every element of every output."""
    scales = {term.target_name: np.array(term.scale) for term in contract.action.terms}
    return {
        name: np.abs(found[name] - value) / np.maximum(np.abs(value), scales.get(name, 1.0))
        for name, value in wanted.items()
    }


def _require_close(
    contract: PolicyContract, wanted: Mapping[str, Array], found: Mapping[str, Array], tolerance: float, where: str
) -> dict[str, float]:
    """Greatest relative difference of each output; `where` is a format string that locates a row in the message."""
    joints = {term.target_name: term.joints for term in contract.action.terms}
    greatest: dict[str, float] = {}
    for name, difference in _differences(contract, wanted, found).items():
        bad = np.argwhere(~(difference <= tolerance))
        if len(bad):
            row, column = (int(index) for index in bad[0])
            element = joints[name][column] if name in joints else column
            raise ExportError(
                f"the exported policy differs from the trained one: {name}[{element}], {where.format(row=row)}: "
                f"torch {wanted[name][row, column]:.9g}, onnx {found[name][row, column]:.9g}, relative difference "
                f"{difference[row, column]:.3g}, allowed {tolerance:g}"
            )
        greatest[name] = float(difference.max())
    return greatest
