"""Calibration states: those the policy itself visits in closed loop in its twin.

Quantisation scales depend on the range of every signal in the network. Random inputs would cover states that no robot
is ever in and miss those that the policy drives it to, so this module is the only source of calibration states.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from physai.sdk.base.errors import ExportError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.policy.header import STATE_PREFIX
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.model.conditions import conditions
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Batch, seeds_of, stream_seed
from physai.twin.rollouts.rollout import RolloutTick, play_batch

CALIBRATION_STREAM = 0x5EED_CA11B7A7E
"""Seeds of the episodes that set the scales."""
CHECK_STREAM = 0x5EED_C4EC4B17
"""Seeds of the episodes in which the quantised graph is compared, used neither for scales nor for a verdict."""

CONDITIONS = ("calibrated", "pushes", "twice")
"""Conditions of the gates under which the states are recorded, a third each.

They include disturbances, because values beyond the range of the calibration states saturate."""

MAX_EPISODES = 4096
MIN_STATES = 1000
"""Minimum number of states; fewer miss rare activations of the network."""
MAX_STATES = 1_000_000

Arrays = dict[str, Array]
"""Arrays by name of the graph's input, float32, shape (n, size)."""


class QuantiseError(ExportError):
    """A policy cannot be quantised, or not within its contract's bound."""


@dataclass(frozen=True)
class VisitedStates:
    """States a policy visited in its twin, from two sets of episodes that share no seed."""

    policy_sha256: str
    """SHA-256 of the float graph; the states are valid for this policy only."""
    twin_sha256: str
    seed: int
    episodes: int
    """Episodes in each of the two sets."""
    calibration: Arrays
    check: Arrays

    @property
    def count(self) -> int:
        """Number of calibration states."""
        return len(next(iter(self.calibration.values())))

    @property
    def sha256(self) -> str:
        """SHA-256 of the calibration states, 64 hexadecimal digits."""
        digest = sha256()
        for name, values in sorted(self.calibration.items()):
            digest.update(f"{name} {values.shape}\n".encode())
            digest.update(np.ascontiguousarray(values, "<f4").tobytes())
        return digest.hexdigest()


def record_states(
    data: bytes,
    task: Task,
    twin: Twin,
    *,
    source: str,
    states: int,
    episodes: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> VisitedStates:
    """Runs a policy under conditions of the gates and records states spread evenly over its episodes.

    Args:
        data: the float graph's ONNX file.
        task: its task.
        twin: source of the robot's parameters, noise and delays.
        source: origin of the policy, for messages.
        states: number of calibration states, and of check states.
        episodes: number of episodes for each of the two sets.
        seed: selects the episodes.
        progress: called with the fraction of the work done, in (0, 1].

    Raises:
        QuantiseError: too few or too many states or episodes, or the visited states do not vary.
        ContractMismatchError: the contracts of policy and task differ.
        PolicyError: the file is refused.
        TwinError: the twin is of another robot.
    """
    _check_counts(states, episodes)
    policy = OnnxPolicy(data, source=source)
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    calibration, check = (
        _batches(task, twin, stream_seed(stream, seed), states, episodes)
        for stream in (CALIBRATION_STREAM, CHECK_STREAM)
    )
    steps = round(task.episode_length_s / task.contract.timing.control_dt)
    visits: list[Arrays] = []
    for done, batch in enumerate(batches := [*calibration, *check]):

        def report(_env: Environment, tick: RolloutTick, done: int = done) -> None:
            if progress is not None:
                progress((done + (tick.step + 1) / steps) / len(batches))

        visits.append(play_batch(policy, task, twin, batch, observer=report).visits)
    sets = [_joined(part, states) for part in (visits[: len(calibration)], visits[len(calibration) :])]
    for part in sets:
        _require_visited(part, source)
    played = sum(len(batch.seeds) for batch in calibration)
    return VisitedStates(sha256_hex(data), twin.hash, seed, played, *sets)


def _check_counts(states: int, episodes: int) -> None:
    if not MIN_STATES <= states <= MAX_STATES:
        raise QuantiseError(f"{states} calibration states requested; choose {MIN_STATES} to {MAX_STATES}")
    if not len(CONDITIONS) <= episodes <= MAX_EPISODES:
        raise QuantiseError(f"{episodes} episodes requested; choose {len(CONDITIONS)} to {MAX_EPISODES}")


def _batches(task: Task, twin: Twin, stream: int, states: int, episodes: int) -> list[Batch]:
    """A batch of episodes for each condition, with separate seeds."""
    available = conditions(task, twin)
    worlds = episodes // len(CONDITIONS)
    per_condition = math.ceil(states / len(CONDITIONS))
    return [
        Batch(condition=available[name], seeds=seeds_of(stream, index * worlds, worlds), visits=per_condition)
        for index, name in enumerate(CONDITIONS)
    ]


def _joined(parts: list[Arrays], count: int) -> Arrays:
    """Concatenates sets of states, up to `count`."""
    parts = [part for part in parts if part]
    return {name: np.concatenate([part[name] for part in parts])[:count] for name in (parts[0] if parts else {})}


def _require_visited(visits: Arrays, source: str) -> None:
    """Raises QuantiseError for states that do not show the range of the network's signals."""
    count = len(next(iter(visits.values()), ()))
    if not count >= MIN_STATES:
        raise QuantiseError(
            f"{source}: its episodes ended after {count} states, at least {MIN_STATES} are needed to calibrate; "
            "request more states, or quantise a policy whose episodes last longer"
        )
    for name, values in visits.items():
        if not np.isfinite(values).all():
            raise QuantiseError(f"{source}: {name!r} is not finite in its own episodes")
    sensed = [values for name, values in visits.items() if not name.startswith(STATE_PREFIX)]
    if not any((values != values[:1]).any() for values in sensed):
        raise QuantiseError(f"{source}: all {count} visited states are the same; nothing moved in the twin")


def require_own(states: VisitedStates, data: bytes, source: str) -> None:
    """Raises QuantiseError, with both hashes, if the states are another policy's."""
    digest = sha256_hex(data)
    if states.policy_sha256 != digest:
        raise QuantiseError(
            f"{source}: the calibration states are those of policy {states.policy_sha256[:12]}, this one is "
            f"{digest[:12]}; record states with this policy"
        )
