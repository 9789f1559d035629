"""Whether the judge of the runtime can fail: faults that a careless change could bring, each of which it sees."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fault_injection.arm_policies import arm_policy
from tests.harness.fault_injection.composed import compose
from tests.harness.fixtures.sample import sample_policy

from physai.deploy_jetson.runtime.commands.queue import CommandQueue, Levels, RequestTicket
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.io.sensor_input import SensorInput
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety import Guard, GuardResult, GuardState, trajectory
from physai.sdk.safety.fallback import Fallback
from physai.sdk.safety.plant import RestWatch
from physai.sdk.transport.protocol import Array

Patch = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: object) -> None:
    return None


def zero(step: Array, change: Array) -> Array:
    del change
    return np.zeros_like(step)


def same(step: Array, change: Array) -> Array:
    del change
    return step


def without_a_guard(patch: pytest.MonkeyPatch) -> None:
    decide = Guard.decide

    def obedient(self: Guard, **given: Any) -> GuardResult:
        result = decide(self, **given)
        return result if given["targets"] is None else replace(result, targets=dict(given["targets"]))

    patch.setattr(Guard, "decide", obedient)


def ages_unknown(patch: pytest.MonkeyPatch) -> None:
    def ageless(*_: object) -> int:
        return 0

    patch.setattr(SensorInput, "age_ns", ageless)


def late_commands(patch: pytest.MonkeyPatch) -> None:
    made = Tick.__init__

    def patient(self: Tick, *args: Any, **rest: Any) -> None:
        made(self, *args, **rest)
        self._deadline_ns = 10**12  # pyright: ignore[reportPrivateUsage]

    patch.setattr(Tick, "__init__", patient)


def unsent_taken_for_sent(patch: pytest.MonkeyPatch) -> None:
    commit = Guard.commit

    def hopeful(self: Guard, *, sent: bool) -> None:
        del sent
        commit(self, sent=True)

    patch.setattr(Guard, "commit", hopeful)


def silence_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "idle", nothing)


def memory_not_corrected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundPolicy, "sent", nothing)


def memory_kept_at_a_start(patch: pytest.MonkeyPatch) -> None:
    def begun(*_: object) -> bool:
        return True

    patch.setattr(BoundPolicy, "begin", begun)
    patch.setattr(BoundPolicy, "reset", nothing)


def stops_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trajectory, "brake", zero)


def never_brakes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trajectory, "brake", same)


def no_room_to_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("physai.sdk.safety.sample.braking_distance", zero)
    patch.setattr(trajectory, "largest_step", same)


def measured_positions_are_targets(patch: pytest.MonkeyPatch) -> None:
    """Finding 5: positive feedback."""
    decide = Fallback.command

    def following(self: Fallback, found: Any, run: Any, level: Any, last: Any, step: Any) -> Any:
        limits, sensors = self._limits, self._sensors  # pyright: ignore[reportPrivateUsage]
        damps = (level >= GuardState.DAMP)[:, None] & limits.holds_position & ~found.blind[:, None]
        measured = np.clip(sensors.positions[:, limits.joints], limits.lower, limits.upper)
        command = decide(self, found, run, level, last, step)
        return np.where(damps, np.clip(measured, last - limits.rate, last + limits.rate), command)

    patch.setattr(Fallback, "command", following)


def rest_unseen(patch: pytest.MonkeyPatch) -> None:
    """Finding 4: a stop is believed whatever the joints do."""

    def calm(self: RestWatch, stamp_s: Array, position: Array, velocity: Array, watched: Array) -> Array:
        del self, stamp_s, position, velocity
        return watched

    patch.setattr(RestWatch, "read", calm)


def starts_by_itself(patch: pytest.MonkeyPatch) -> None:
    answer = Loop._answer  # pyright: ignore[reportPrivateUsage]

    def restarting(self: Loop, request: Any) -> None:
        answer(self, request)
        self._starting = self._tick.state == GuardState.STANDSTILL  # pyright: ignore[reportPrivateUsage]

    patch.setattr(Loop, "_answer", restarting)


def requests_lost(patch: pytest.MonkeyPatch) -> None:
    take = CommandQueue.take

    def dropping(self: CommandQueue) -> RequestTicket | None:
        take(self)
        return take(self)

    patch.setattr(CommandQueue, "take", dropping)


def stops_lost(patch: pytest.MonkeyPatch) -> None:
    levels = CommandQueue.levels.fget
    assert levels is not None

    def without_stops(self: CommandQueue) -> Levels:
        _, *others = levels(self)
        return 0, *others

    patch.setattr(CommandQueue, "levels", property(without_stops))


def old_tickets(patch: pytest.MonkeyPatch) -> None:
    """Resets and starts count for the newest state, whenever they were made."""
    refusal = Loop._refusal  # pyright: ignore[reportPrivateUsage]

    def renewed(self: Loop, ticket: RequestTicket) -> str:
        ticket.levels, ticket.read_back = self._levels, self._tick.read_back  # pyright: ignore[reportPrivateUsage]
        return refusal(self, ticket)

    patch.setattr(Loop, "_refusal", renewed)


MUTANTS: dict[str, tuple[Patch, str, str]] = {
    "no guard": (without_a_guard, "careless", "steps above"),
    "no age": (ages_unknown, "incremental", "does not brake"),
    "late commands": (late_commands, "absolute", "after its sample was taken in"),
    "unsent taken for sent": (unsent_taken_for_sent, "incremental", "at most"),
    "silence forgotten": (silence_forgotten, "incremental", "does not brake"),
    "memory not corrected": (memory_not_corrected, "absolute", "the policy's state last_joint_pos_target"),
    "memory kept at a start": (memory_kept_at_a_start, "absolute", "the policy's state"),
    "stops at once": (stops_at_once, "absolute", "more are allowed"),
    "never brakes": (never_brakes, "absolute", "does not brake"),
    "no room to stop": (no_room_to_stop, "careless", "cannot stop before"),
    "measured positions are targets": (measured_positions_are_targets, "absolute", "does not brake"),
    "rest unseen": (rest_unseen, "mixed", "a standstill is shown"),
    "starts by itself": (starts_by_itself, "absolute", "motion without a start"),
    "requests lost": (requests_lost, "pendulum", "has waited"),
    "stops lost": (stops_lost, "pendulum", "PROTECTIVE_STOP was requested before this period"),
    "old tickets": (old_tickets, "pendulum", "before the"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("patch", "name", "text"), MUTANTS.values(), ids=MUTANTS)
def test_the_judge_sees_a_wrong_runtime(
    patch: Patch, name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    broken: list[str] = []
    for seed in range(4):
        policy = sample_policy(seed=seed)[POLICY_FILE] if name == "pendulum" else arm_policy(name, seed=seed)
        broken += compose(policy, periods=700, seed=seed, health=tmp_path / "health").judge.verdict.broken
        if any(text in one for one in broken):
            return
    pytest.fail("\n".join(["the judge saw nothing of it", *broken]))
