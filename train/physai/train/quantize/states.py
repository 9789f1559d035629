"""The states a policy is quantised with: those it visits itself, in closed loop, in its twin. Nothing else will do.

A quantiser must know how far every signal in the network goes. Random inputs would tell it of states that no robot is
ever in, and would miss what the policy does in those it is; so this module is the only source of calibration states.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from physai.sdk.base.canonical import sha256_hex
from physai.sdk.base.errors import ExportError
from physai.sdk.contract.diff import require_same
from physai.sdk.policy.header import STATE_PREFIX
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.gates.execution.batch import Batch, seeds_of, stream_seed
from physai.sim.gates.execution.rollout import RolloutTick, play_batch
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.sim.twin.conditions import conditions
from physai.sim.twin.twin import Twin

CALIBRATION_STREAM = 0x5EED_CA11B7A7E
"""Seeds of the episodes whose states set the scales."""
CHECK_STREAM = 0x5EED_C4EC4B17
"""Seeds of the episodes whose states the quantised graph is compared in; no scale rests on them, and no verdict."""

CONDITIONS = ("calibrated", "pushes", "twice")
"""Conditions of the gates that the states come from, a third each.

The scales must reach as far as the network's signals go when the robot is disturbed: beyond it they are cut off."""

MAX_EPISODES = 4096
MIN_STATES = 1000
"""Fewer states miss what the network does now and then."""
MAX_STATES = 1_000_000

Arrays = dict[str, Array]
"""Arrays under the names of the graph's inputs, float32, shape (n, size)."""


class QuantiseError(ExportError):
    """A policy cannot be quantised, or not within its contract's bound."""


@dataclass(frozen=True)
class VisitedStates:
    """States a policy visited in its twin, from two sets of episodes that share no seed."""

    policy_sha256: str
    """The float graph that played; its states serve no other."""
    twin_sha256: str
    seed: int
    episodes: int
    """In each of the two sets."""
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
    """Plays a policy under conditions of the gates and notes states spread evenly over its episodes.

    Args:
        data: the float graph's ONNX file.
        task: what it plays.
        twin: where the robot's parameters, noise and delays come from.
        source: where the policy came from, for messages.
        states: states to calibrate with, and as many to check with.
        episodes: episodes that each of the two sets comes from.
        seed: choice of the episodes.
        progress: gets the share of the work that is done, in (0, 1].

    Raises:
        QuantiseError: too few or too many states or episodes, or the policy visited but one state.
        ContractMismatchError: the policy keeps another contract than the task.
        PolicyError: the file is refused.
        TwinError: the twin is of another robot.
    """
    _require_sane(states, episodes)
    policy = OnnxPolicy(data, source=source)
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    calibration, check = (
        _batches(task, twin, stream_seed(stream, seed), states, episodes)
        for stream in (CALIBRATION_STREAM, CHECK_STREAM)
    )
    steps = round(task.episode_length_s / task.contract.timing.control_dt)
    found: list[Arrays] = []
    for done, batch in enumerate(batches := [*calibration, *check]):

        def tell(_env: Environment, tick: RolloutTick, done: int = done) -> None:
            if progress is not None:
                progress((done + (tick.step + 1) / steps) / len(batches))

        found.append(play_batch(policy, task, twin, batch, observer=tell).visits)
    sets = [_joined(part, states) for part in (found[: len(calibration)], found[len(calibration) :])]
    for part in sets:
        _require_visited(part, source)
    played = sum(len(batch.seeds) for batch in calibration)
    return VisitedStates(sha256_hex(data), twin.hash, seed, played, *sets)


def _require_sane(states: int, episodes: int) -> None:
    if not MIN_STATES <= states <= MAX_STATES:
        raise QuantiseError(f"{states} calibration states asked for; choose {MIN_STATES} to {MAX_STATES}")
    if not len(CONDITIONS) <= episodes <= MAX_EPISODES:
        raise QuantiseError(f"{episodes} episodes asked for; choose {len(CONDITIONS)} to {MAX_EPISODES}")


def _batches(task: Task, twin: Twin, stream: int, states: int, episodes: int) -> list[Batch]:
    """A batch of episodes for each condition, with seeds of their own."""
    known = conditions(task, twin)
    worlds = episodes // len(CONDITIONS)
    wanted = math.ceil(states / len(CONDITIONS))
    return [
        Batch(condition=known[name], seeds=seeds_of(stream, index * worlds, worlds), visits=wanted)
        for index, name in enumerate(CONDITIONS)
    ]


def _joined(parts: list[Arrays], count: int) -> Arrays:
    """Several sets of states as one of at most `count`."""
    parts = [part for part in parts if part]
    return {name: np.concatenate([part[name] for part in parts])[:count] for name in (parts[0] if parts else {})}


def _require_visited(visits: Arrays, source: str) -> None:
    """Refuses states that tell nothing of how far the network's signals go."""
    count = len(next(iter(visits.values()), ()))
    if not count >= MIN_STATES:
        raise QuantiseError(
            f"{source}: its episodes ended after {count} states, at least {MIN_STATES} are needed to calibrate; ask "
            "for more states, or quantise a policy that lasts longer"
        )
    for name, values in visits.items():
        if not np.isfinite(values).all():
            raise QuantiseError(f"{source}: {name!r} became no finite number in its own episodes")
    sensed = [values for name, values in visits.items() if not name.startswith(STATE_PREFIX)]
    if not any((values != values[:1]).any() for values in sensed):
        raise QuantiseError(f"{source}: all {count} visited states are the same; nothing moved in the twin")


def require_own(states: VisitedStates, data: bytes, source: str) -> None:
    """Refuses states that another policy visited.

    Raises:
        QuantiseError: with both hashes.
    """
    digest = sha256_hex(data)
    if states.policy_sha256 != digest:
        raise QuantiseError(
            f"{source}: the calibration states were visited by the policy {states.policy_sha256[:12]}, this one is "
            f"{digest[:12]}; record its own"
        )
