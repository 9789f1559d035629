"""Robots that stand still, vanish and return elsewhere, one test for each way in which they were mistaken or driven."""

import numpy as np
import pytest
from tests.support.guard_contracts import arm_document
from tests.support.guard_driver import POSITION, RUN, STANDSTILL, Array, contract_of, reasons
from tests.support.servo_arm import ServoArm

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardResult, GuardState, Reason, RequestAnswer
from physai.sdk.safety.continuity import BROKEN


def servos(*, watched: bool = True) -> PolicyContract:
    """The arm without its effort-commanded joint; samples of at most 50 ms, 20 ms per period."""
    document = arm_document(incremental=True, watched=watched)
    document["action"]["terms"].pop()
    return contract_of(document)


class Servos(ServoArm):
    """A `ServoArm` of position servos alone."""

    def towards(self, *target: float) -> dict[str, Array]:
        return {POSITION: super().towards(*target)[POSITION]}

    def stopped(self) -> None:
        """In RUN, then stopped, with the standstill read back."""
        for _ in range(30):
            assert self.tick(self.towards(0.9, 0.6)).state[0] == RUN
        self.tick(None, stop=True)
        for _ in range(200):
            if self.tick(None).stopped[0]:
                return
        pytest.fail("the stop was not read back")

    def started(self) -> GuardResult:
        """Reset, then started, once the robot is at rest."""
        for _ in range(100):
            if self.tick(None, reset=self.guard.read_back).reset[0] == RequestAnswer.OBEYED:
                break
        else:
            pytest.fail("the reset was never obeyed")
        for _ in range(100):
            if (result := self.tick(None, start=self.guard.read_back)).start[0] == RequestAnswer.OBEYED:
                return result
        pytest.fail("the start was never obeyed")


def in_degrees(q: Array, v: Array) -> tuple[Array, Array]:
    return np.degrees(q), np.degrees(v)


formats = pytest.mark.parametrize("watched", [False, True], ids=["format 1", "format 2"])


@formats
@pytest.mark.parametrize("away", [4, 10, 600], ids=["80 ms", "200 ms", "12 s"])
def test_a_stopped_robot_that_returns_elsewhere_gets_nothing_until_a_start_from_there(watched: bool, away: int) -> None:
    """It was driven at full speed to where it had been stopped."""
    arm = Servos(servos(watched=watched))
    arm.stopped()
    for missing in range(1, away + 1):
        arm.tick(None, age_s=missing * arm.dt)
    # Sampled again, 0.35 rad away, its drives braked.
    arm.position[[2, 0]] -= 0.35
    arm.velocity[:] = 0.0
    arm.brakes_on()
    count, elsewhere = len(arm.commands), arm.position.copy()
    results = [arm.tick(None) for _ in range(100)]
    assert len(arm.commands) == count
    assert not any(result.referenced[0] for result in results)
    assert all(reasons(result) & Reason.NO_REFERENCE for result in results)
    np.testing.assert_array_equal(arm.position, elsewhere)
    arm.started()
    assert arm.commands[count] == pytest.approx(elsewhere[[2, 0]], abs=1e-4)
    arm.ticks(3, arm.towards(*elsewhere[[2, 0]]))
    assert (np.abs(np.diff(np.stack(arm.commands[count:]), axis=0)) <= 0.02 + 1e-9).all()


def test_a_stopped_robot_that_is_measured_all_along_keeps_its_commands() -> None:
    """A single late sample is no break: a robot whose drives need a stream of commands must not lose it."""
    arm = Servos(servos())
    arm.stopped()
    count = len(arm.commands)
    for period in range(50):
        arm.tick(None, age_s=0.06 if period % 10 == 0 else 0.0)
    assert len(arm.commands) == count + 50


def test_a_robot_that_falls_silent_in_motion_is_braked_before_its_commands_end() -> None:
    arm = Servos(servos())
    for _ in range(15):
        arm.tick(arm.towards(1.0, 0.6))
    assert arm.travelled[-1].max() > 0.01
    for missing in range(1, 200):
        arm.tick(None, age_s=missing * arm.dt)
    count = len(arm.commands)
    assert arm.travelled[-1].max() == 0.0
    arm.ticks(10, age_s=5.0)
    assert len(arm.commands) == count


@pytest.mark.parametrize(("before", "after"), [(4, 2), (6, 0)], ids=["80 ms and 40 ms", "120 ms before"])
def test_a_guard_that_continues_keeps_what_the_other_noticed(before: int, after: int) -> None:
    """A watchdog, and the loop after it, began anew and sent the robot to where it was commanded last."""
    arm = Servos(servos())
    arm.stopped()
    for missing in range(1, before + 1):
        arm.tick(None, age_s=missing * arm.dt)
    # Samples of 60 ms and more are too old, and the fourth of them is too many: 50 ms are 3 periods.
    assert arm.guard.silence == (2 if before == 4 else BROKEN)
    other = Guard(servos())
    other.reset()
    other.resume_from(arm.guard.last[0], np.zeros_like(arm.guard.last[0]), arm.guard.silence)
    arm.guard = other
    for missing in range(before + 1, before + after + 1):
        arm.tick(None, age_s=missing * arm.dt, least=GuardState.DAMP)
    arm.position[[2, 0]] -= 0.35
    arm.velocity[:] = 0.0
    arm.brakes_on()
    count = len(arm.commands)
    arm.tick(None, least=GuardState.DAMP)
    arm.ticks(20)
    assert arm.guard.silence == BROKEN
    assert len(arm.commands) == count


def test_a_start_that_was_requested_before_the_break_is_refused() -> None:
    arm = Servos(servos())
    arm.stopped()
    assert arm.tick(None, reset=arm.guard.read_back).reset[0] == RequestAnswer.OBEYED
    arm.tick(None)
    arm.periods += 5
    result = arm.tick(None, start=arm.guard.read_back)
    assert (result.state[0], result.start[0]) == (STANDSTILL, RequestAnswer.NOT_READY)
    assert not result.referenced[0]


@formats
def test_a_reset_comes_true_once_a_sensor_that_jumped_is_right_again(watched: bool) -> None:
    """Degrees for 3 s, then radians again: a reset was refused for ever, though the robot stood still for 100 s."""
    arm = Servos(servos(watched=watched))
    for _ in range(30):
        assert arm.tick(arm.towards(0.9, 0.6)).state[0] == RUN
    usual, arm.sensors = arm.sensors, in_degrees
    arm.ticks(150)
    arm.sensors = usual
    arm.ticks(100)
    assert arm.started().state[0] == RUN


def quantised(q: Array, v: Array) -> tuple[Array, Array]:
    """What encoders of 4096 increments per turn give, and a velocity from their differences at rest."""
    increment = 2.0 * np.pi / 4096
    # Adding 0 turns -0.0 into 0.0: an encoder's count has no sign of zero.
    return np.round(q / increment) * increment + 0.0, np.zeros_like(v)


def test_a_robot_at_rest_whose_encoders_repeat_is_not_frozen() -> None:
    """Its command's jump from the rest pose to the measured one counted as travel: stopped 0.19 s after activation."""
    contract = servos()
    assert contract.safety.frozen_samples is not None
    arm = Servos(contract, quantised)
    arm.gravity = 0.0
    arm.guard.activate()
    first = [arm.tick(None) for _ in range(30)]
    assert first[-1].referenced[0]
    assert arm.tick(None, start=arm.guard.read_back).start[0] == RequestAnswer.OBEYED
    measured = quantised(arm.position, arm.velocity)[0][[2, 0]]
    results = [arm.tick(arm.towards(*measured)) for _ in range(10 * contract.safety.frozen_samples)]
    assert {int(result.state[0]) for result in results} == {RUN}
    assert not any(reasons(result) & Reason.SENSOR_FROZEN for result in results)


def test_a_start_after_a_break_is_no_travel_of_the_command() -> None:
    """The jump to where the robot is measured now counted as a command to move, and its encoders as frozen."""
    contract = servos()
    assert contract.safety.frozen_samples is not None
    arm = Servos(contract)
    arm.gravity = 0.0
    arm.stopped()
    arm.sensors = quantised
    arm.ticks(20, age_s=1.0)
    arm.position[[2, 0]] -= 0.3
    arm.velocity[:] = 0.0
    arm.brakes_on()
    arm.ticks(30)
    arm.started()
    measured = quantised(arm.position, arm.velocity)[0][[2, 0]]
    results = [arm.tick(arm.towards(*measured)) for _ in range(10 * contract.safety.frozen_samples)]
    assert {int(result.state[0]) for result in results} == {RUN}


def test_encoders_that_repeat_while_the_command_travels_are_frozen() -> None:
    arm = Servos(servos())
    arm.gravity = 0.0
    arm.guard.activate()
    arm.ticks(60)
    assert arm.tick(None, start=arm.guard.read_back).start[0] == RequestAnswer.OBEYED
    stuck = arm.position.copy()

    def repeats(q: Array, v: Array) -> tuple[Array, Array]:
        return stuck, np.zeros_like(v)

    arm.sensors = repeats
    results = [arm.tick(arm.towards(1.0, 0.6)) for _ in range(60)]
    assert any(reasons(result) & Reason.SENSOR_FROZEN for result in results)
    assert results[-1].state[0] != RUN
