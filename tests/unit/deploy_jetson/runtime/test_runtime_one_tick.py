"""From a fault to a safe command in at most one tick: each fault on the real loop, in virtual time.

The policy asks for another command in every period, so a command that is the last one again was not the policy's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fault_injection.injection import LoopUnderTest, make_rig
from tests.harness.fault_injection.world import Fault, World
from tests.harness.fixtures.sample import sample_policy

from physai.deploy_jetson.inference.engine import InferenceError
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety import GuardState, Reason
from physai.sdk.transport.protocol import Array, TransportError, required_fields

POLICIES = Path(__file__).parents[3] / "data" / "policies"
PERIOD = 20
"""The one that begins with the fault."""


class Scripted(World):
    """A world in which one thing happens, at the beginning of one period."""

    happen: Callable[[], object]
    lasting: Fault | None = None
    """What goes wrong in every period from then on."""

    def wait(self, due_ns: int) -> int:
        woke = super().wait(due_ns)
        self.fault = self.lasting
        if self.findings.periods == PERIOD:
            self.happen()
        return woke

    def pass_by(self, duration_s: float) -> None:
        """Lets so much time pass."""
        self._now_ns += round(duration_s * 1e9)

    def operate(self) -> None:
        pass


@dataclass
class Played:
    """What came of it; entry 0 is the period with the fault."""

    rig: LoopUnderTest
    sent: list[dict[str, Array] | None]
    """Commands that left; None where none did."""
    before: dict[str, Array]
    """Commands of the period before the fault."""
    reasons: list[int]
    states: list[int]
    intervened: list[bool]


def policy(name: str) -> bytes:
    return sample_policy()[POLICY_FILE] if name == "pendulum" else (POLICIES / name / POLICY_FILE).read_bytes()


def play(name: str, tmp_path: Path, happen: Callable[[LoopUnderTest], object]) -> Played:
    """Runs a loop in which something happens in one period."""
    rig = make_rig(policy(name), periods=PERIOD + 40, seed=0, health=tmp_path / "health", share=0.0, world=Scripted)
    world, robot = rig.world, rig.robot
    assert isinstance(world, Scripted)
    world.happen = lambda: happen(rig)
    log: dict[int, dict[str, Array]] = {}
    step, send = rig.tick.policy.step, robot.send

    def lively() -> bool:
        found = step()
        block, step_number = rig.tick.policy.targets.block, world.findings.periods % 7
        block[:] = block * (1.0 - 1e-4 * step_number) + 1e-5 * step_number
        return found

    def logged(targets: Mapping[str, Array], stamp_ns: int) -> None:
        send(targets, stamp_ns)
        log[world.findings.periods] = {name: np.array(values) for name, values in targets.items()}

    rig.tick.policy.step, robot.send = lively, logged
    rig.loop.run()
    rig.counters.close()
    assert world.findings.unsafe == []
    sink = rig.tick._sink  # pyright: ignore[reportPrivateUsage]
    assert isinstance(sink, TickRing)
    records = sink.last()[PERIOD - 1 :]
    assert not same(log[PERIOD - 1], log[PERIOD - 2])
    return Played(
        rig=rig,
        sent=[log.get(period) for period in range(PERIOD, PERIOD + 40)],
        before=log[PERIOD - 1],
        reasons=records["reasons"].tolist(),
        states=records["state"].tolist(),
        intervened=records["intervened"].tolist(),
    )


def same(one: Mapping[str, Array] | None, other: Mapping[str, Array] | None) -> bool:
    assert one is not None
    assert other is not None
    return all(np.array_equal(one[name], other[name]) for name in one)


def withheld(played: Played, reason: int) -> None:
    """The last command again, in the very tick of the fault; then the policy's once more."""
    assert same(played.sent[0], played.before)
    assert played.reasons[0] & reason
    assert not same(played.sent[2], played.before)
    assert played.states[2] == GuardState.RUN


def fields(name: str) -> list[tuple[str, str, int]]:
    contract = make_contract(name)
    sizes = {field.name: field.size for field in (*contract.robot.sensors, *contract.command.fields)}
    return [(name, field, sizes[field] - 1) for field in required_fields(contract)]


def make_contract(name: str):  # noqa: ANN201 - the contract of a file
    from physai.deploy_jetson.inference.onnx import OnnxEngine

    return OnnxEngine(policy(name), source=name).header.contract


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize(("name", "field", "index"), [*fields("reach"), *fields("cartpole-00"), *fields("pendulum")])
def test_a_number_that_is_none_in_any_field(name: str, field: str, index: int, wrong: float, tmp_path: Path) -> None:
    def spoil(rig: LoopUnderTest) -> None:
        poll = rig.robot.poll

        def spoilt() -> bool:
            found = poll()
            values = rig.robot.sample().fields[field]
            sound, values[index] = float(values[index]), wrong
            rig.robot.poll = lambda: restored(sound)
            return found

        def restored(sound: float) -> bool:
            rig.robot.poll = poll
            rig.robot.sample().fields[field][index] = sound
            return poll()

        rig.robot.poll = spoilt

    withheld(play(name, tmp_path, spoil), RuntimeFault.FIELD_NOT_FINITE | Reason.SENSOR_NOT_FINITE)


def fault(kind: Fault) -> Callable[[LoopUnderTest], None]:
    def begin(rig: LoopUnderTest) -> None:
        rig.world.fault = kind

    return begin


@pytest.mark.parametrize("kind", [Fault.STAMP_OLD, Fault.STAMP_AHEAD])
def test_a_stale_sample(kind: Fault, tmp_path: Path) -> None:
    withheld(play("cartpole-00", tmp_path, fault(kind)), Reason.SENSOR_STALE)


@pytest.mark.parametrize("kind", [Fault.INFERENCE_RAISES, Fault.OUTPUT_NAN])
def test_a_policy_that_raises_or_computes_no_numbers(kind: Fault, tmp_path: Path) -> None:
    withheld(play("cartpole-00", tmp_path, fault(kind)), RuntimeFault.INFERENCE_FAILED)


def test_a_policy_that_takes_too_long(tmp_path: Path) -> None:
    def slow(rig: LoopUnderTest) -> None:
        step = rig.tick.policy.step

        def late() -> bool:
            rig.tick.policy.step = step
            assert isinstance(rig.world, Scripted)
            rig.world.pass_by(0.015)
            return step()

        rig.tick.policy.step = late

    # The deadline of this contract is 10 ms of 20 ms: the period has not passed, and still what came late is dropped.
    played = play("cartpole-00", tmp_path, slow)
    assert same(played.sent[0], played.before)
    assert played.reasons[0] & Reason.DEADLINE_MISSED
    assert not same(played.sent[2], played.before)


def test_a_command_beyond_its_limits(tmp_path: Path) -> None:
    played = play("cartpole-00", tmp_path, fault(Fault.OUTPUT_HUGE))
    assert played.reasons[0] & (Reason.COMMAND_LIMIT | Reason.COMMAND_RATE)
    assert played.intervened[0]
    (limits,) = (e for e in played.rig.world.contract.safety.joints if e.joint == "slider")
    assert played.sent[0] is not None
    assert np.abs(played.sent[0]["joint_effort_target"]).max() <= limits.effort_limit * (1.0 + 1e-6)


def test_a_dead_publisher(tmp_path: Path) -> None:
    def die(rig: LoopUnderTest) -> None:
        assert isinstance(rig.world, Scripted)
        rig.world.fault = rig.world.lasting = Fault.SILENT

    played = play("cartpole-00", tmp_path, die)
    # The sample of the period before is 20, 40, 60 ms old, as old as it may be, and then it counts no more.
    stale = next(index for index, reasons in enumerate(played.reasons) if reasons & Reason.SENSOR_STALE)
    assert stale in (2, 3)
    assert same(played.sent[stale], played.sent[stale - 1])
    assert GuardState.HOLD in played.states[: stale + 4]
    assert GuardState.DAMP in played.states


@pytest.mark.parametrize("error", [TransportError("no buffer space"), OSError(105, "no buffer space")])
def test_a_transport_that_cannot_send(error: Exception, tmp_path: Path) -> None:
    def refuse(rig: LoopUnderTest) -> None:
        send = rig.robot.send

        def refused(targets: Mapping[str, Array], stamp_ns: int) -> None:
            rig.robot.send = send
            raise error

        rig.robot.send = refused

    played = play("cartpole-00", tmp_path, refuse)
    assert played.sent[0] is None
    assert played.reasons[0] & RuntimeFault.TRANSPORT_FAILED
    # The robot still has the command before; the next tick repeats that one, and not the one that did not leave.
    assert same(played.sent[1], played.before)
    assert not same(played.sent[2], played.before)
    assert played.states[2] == GuardState.RUN


def test_a_transport_that_cannot_receive(tmp_path: Path) -> None:
    withheld(play("cartpole-00", tmp_path, fault(Fault.POLL_RAISES)), RuntimeFault.TRANSPORT_FAILED)


def test_all_at_once(tmp_path: Path) -> None:
    def everything(rig: LoopUnderTest) -> None:
        def broken() -> bool:
            raise InferenceError("out of memory")

        assert isinstance(rig.world, Scripted)
        rig.world.fault = rig.world.lasting = Fault.POLL_RAISES
        rig.tick.policy.step = broken

    played = play("cartpole-00", tmp_path, everything)
    assert same(played.sent[0], played.before)
    assert played.states[:5] == [0, 0, *[GuardState.HOLD] * 3]
