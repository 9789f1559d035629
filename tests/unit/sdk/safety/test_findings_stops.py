"""Stops and starts that were broken, one test for each way in which they were, at the guard."""

from typing import Any

import numpy as np
import pytest
from tests.support.guard_contracts import arm_document, unset
from tests.support.guard_driver import (
    DAMP,
    HOLD,
    POSITION,
    RUN,
    STANDSTILL,
    STOP,
    Array,
    Driver,
    contract_of,
    position,
    reasons,
)
from tests.support.servo_arm import Sensors, ServoArm

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import NOTHING, GuardResult, Reason, RequestAnswer

PLAIN = contract_of(arm_document(incremental=True))
WATCHED = contract_of(arm_document(incremental=True, watched=True))
MUST_MATCH = contract_of(unset(arm_document(incremental=True, watched=True), "sensor_ranges", "frozen_samples"))
both = pytest.mark.parametrize("contract", [PLAIN, WATCHED], ids=["format 1", "format 2"])

LIES: dict[str, Sensors] = {
    "true": lambda q, v: (q, v),
    "offset": lambda q, v: (q + 0.02, v),
    "degrees": lambda q, v: (np.degrees(q), np.degrees(v)),
    "mirrored": lambda q, v: (-q, -v),
    "nan": lambda q, v: (q * np.nan, v * np.nan),
    "frozen": lambda q, v: (np.array([0.3, 0.0, 0.4, 0.0]), np.zeros(4)),
    "dead velocity": lambda q, v: (q, 0.0 * v),
    "jump": lambda q, v: (q + 0.5, v),
    "wrong sign": lambda q, v: (q, -v),
}
"""What sensors may make of positions and velocities."""


def lies(*labels: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lie", [LIES[label] for label in labels], ids=labels)


NAN: dict[str, Any] = {"sensors": LIES["nan"]}
DEAD: dict[str, Any] = {"age_s": 1.0}


class Arm(ServoArm):
    """A `ServoArm` whose sensors can be exchanged for one period."""

    def tick(self, targets: dict[str, Array] | None, *, sensors: Sensors | None = None, **given: Any) -> GuardResult:
        usual = self.sensors
        self.sensors = sensors or usual
        try:
            return super().tick(targets, **given)
        finally:
            self.sensors = usual

    def running(self, periods: int = 30) -> None:
        """Moves at 1 rad/s, which is a step of 0.02 rad in each period."""
        for _ in range(periods):
            assert self.tick(self.towards(1.05, 0.65)).state[0] == RUN

    def at_rest(self) -> GuardResult:
        """Stopped, and the standstill read back."""
        self.tick(None, stop=True)
        for _ in range(200):
            if (result := self.tick(None)).stopped[0]:
                return result
        pytest.fail("the stop was not read back")


@both
@pytest.mark.parametrize("sensors", [NAN, DEAD], ids=["nan", "dead"])
def test_3_nothing_is_sent_to_a_robot_that_no_sensor_has_shown(contract: PolicyContract, sensors: Any) -> None:
    """A reset or activation with dead sensors sent the default pose."""
    arm = Arm(contract)
    arm.guard.activate()
    results = [arm.tick(arm.towards(0.0, 0.2), start=arm.guard.read_back, **sensors) for _ in range(200)]
    assert not any(result.referenced[0] for result in results)
    assert {int(result.start[0]) for result in results} == {
        RequestAnswer.NOT_READY,
        RequestAnswer.SUPERSEDED,
        RequestAnswer.NOT_RESET,
    }
    assert all(reasons(result) & Reason.NO_REFERENCE for result in results)
    assert results[-1].state[0] == STOP
    assert not arm.commands
    # Sensors that return say where the robot is, and its effort has to be damped there.
    arm.ticks(5)
    assert arm.commands[0] == pytest.approx(np.array([0.4, 0.3]), abs=1e-4)
    assert (arm.travelled == 0.0).all()


@both
@pytest.mark.parametrize("sensors", [NAN, DEAD], ids=["nan", "dead"])
def test_3_no_reset_is_obeyed_blind(contract: PolicyContract, sensors: Any) -> None:
    """A reset with dead sensors let the policy drive on, from the default pose."""
    arm = Arm(contract)
    arm.running()
    arm.at_rest()
    seen, sent = arm.guard.read_back, arm.commands[-1]
    for _ in range(100):
        result = arm.tick(arm.towards(0.0, 0.2), reset=seen, **sensors)
        assert (result.state[0], result.reset[0]) == (STOP, RequestAnswer.NOT_AT_REST)
        np.testing.assert_array_equal(arm.commands[-1], sent)


@both
def test_3_limits_count_from_what_was_sent_last(contract: PolicyContract) -> None:
    """After a reset they counted from the measured pose: an arm that sagged was told to be lower."""
    arm = Arm(contract)
    arm.running()
    arm.at_rest()
    sent = arm.commands[-1]
    assert (sent - arm.position[[2, 0]] > 0.03).all()
    assert arm.tick(None, reset=arm.guard.read_back).reset[0] == RequestAnswer.OBEYED
    assert arm.tick(None, start=arm.guard.read_back).start[0] == RequestAnswer.OBEYED
    np.testing.assert_array_equal(arm.commands[-1], sent)
    asked = {POSITION: sent[None] - 0.5, "joint_effort_target": np.zeros((1, 1))}
    arm.tick(asked)
    # The network's scale of 0.025 rad, and from rest 12 rad/s² · (20 ms)².
    step = 0.025 if contract is PLAIN else 0.0048
    assert arm.commands[-1] == pytest.approx(sent - step)


def test_3_a_command_that_was_not_sent_is_not_counted_from() -> None:
    driver = Driver(WATCHED)
    guard, calm = driver.guard, driver.calm
    for _ in range(5):
        guard.observe(stamp_s=0.02, joint_pos=calm["joint_pos"], joint_vel=calm["joint_vel"], sensors=IMU)
        result = guard.decide(age_s=0.0, targets=calm["targets"] | {POSITION: np.array([[1.0, 0.7]])})
        guard.commit(sent=False)
        assert position(result) == pytest.approx([0.0048, 0.2048])
    assert guard.last[0, :2].tolist() == [0.0, 0.2]


IMU = {"imu": np.zeros((1, 2))}


def test_4_a_dead_velocity_confirms_no_stop(pendulum: PolicyContract) -> None:
    """`joint_vel` was zero, so a stop was confirmed while the joint moved 0.38 rad.

    The joint coasts for 1.9 s at 0.4 rad/s; 0.25 s after that, and one sample, its rest is believed.
    """
    driver = Driver(pendulum)
    driver.tick(stop=True, vel=0.0)
    for k in range(1, 190):
        result = driver.tick(joint_pos=np.array([[0.004 * k]]), vel=0.0)
        assert not result.stopped[0]
        assert driver.guard.read_back == 0
    rest = {"joint_pos": np.array([[0.76]]), "vel": 0.0}
    assert not driver.ticks(7, **rest).stopped[0]
    assert driver.ticks(19, **rest).stopped[0]


def test_4_frozen_sensors_are_not_obeyed() -> None:
    """Bit-equal values under new stamps were obeyed for 60 s, in which the command walked 7.9 rad."""
    document = unset(arm_document(incremental=True, watched=True), "following_error_limit", "velocity_mismatch_limit")
    arm = Arm(contract_of(document))
    arm.running(10)
    begin = arm.commands[-1]
    levels = [int(arm.tick(arm.towards(1.05, 0.65), sensors=LIES["frozen"]).state[0]) for _ in range(3000)]
    # The first sample is new; with the second one the count begins, with the third the command has moved by 20 mrad
    # since then. The fifth from there is not believed, nor are the two after it, which are bridged.
    assert (levels.index(HOLD), levels[-1]) == (8, STOP)
    # Six steps, and brakes: 0.0152 + 0.0104 + 0.0056 + 0.0008 rad.
    assert arm.commands[-1] - begin == pytest.approx([6 * 0.02 + 0.032] * 2)


@lies("dead velocity", "jump", "wrong sign")
def test_4_sensors_that_contradict_themselves_are_not_obeyed(lie: Sensors) -> None:
    """Nothing compared positions with velocities. Residual of 0.05 rad at 1 rad/s: three samples; three are bridged."""
    arm = Arm(MUST_MATCH)
    arm.running(15)
    results = [arm.tick(arm.towards(1.05, 0.65), sensors=lie) for _ in range(10)]
    assert results[-1].state[0] == HOLD
    assert int(results[-1].causes[0]) & Reason.SENSOR_CONTRADICTS


STOPS: dict[str, dict[str, Any]] = {
    "stop": {"stop": True},
    "hold": {"least": HOLD},
    "damp": {"least": DAMP},
    "late": {},
    "nan": NAN,
    "dead": DEAD,
}


@pytest.mark.slow
@both
@lies("true", "offset", "degrees", "mirrored")
@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_5_a_stopped_arm_stays_where_it_is(contract: PolicyContract, stop: dict[str, Any], lie: Sensors) -> None:
    """Each measurement was the next target: with an offset of 0.02 rad, sag or degrees, an arm crept on for ever.

    Brakes take 0.02 / 0.0048, five periods; from then on no command differs from the one before in 60 s.
    """
    arm = Arm(contract, LIES["offset"] if lie is LIES["offset"] else LIES["true"])
    arm.running()
    before = len(arm.commands) - 1
    arm.tick(None, **stop)
    stream: dict[str, Any] = {} if "age_s" in stop or "sensors" in stop else {"sensors": lie}
    arm.ticks(10, None, **stop | stream)
    stopped = arm.position.copy()
    arm.ticks(2990 if "stop" in stop else 290, None, **stream)
    assert arm.guard.level > STANDSTILL
    steps = arm.travelled[before - 1 :]
    assert (np.abs(steps[5 + 1 :]).sum(axis=0) <= 0.001).all()
    change = 0.0048 if contract is WATCHED else 0.02
    assert (np.abs(np.diff(steps, axis=0)) <= change + 1e-6).all()
    assert (np.diff(np.abs(steps), axis=0) <= 1e-12).all()
    # The joints come to rest below the last command, not on their way to somewhere.
    rest = arm.position.copy()
    arm.ticks(500)
    assert arm.position == pytest.approx(rest, abs=1e-4)
    assert np.abs(rest - stopped).max() < 0.2


def test_5_a_robot_that_speaks_in_degrees_is_not_told_to_move() -> None:
    """0.4 rad are 23 degrees, which no joint's range allows: nothing is sent."""
    arm = Arm(WATCHED, LIES["degrees"])
    arm.guard.activate()
    arm.ticks(100)
    assert not arm.commands


@pytest.mark.parametrize("release", [50, 300])
def test_6_a_robot_that_does_not_follow_is_not_driven_on(release: int) -> None:
    """One that was blocked for 6 s was told to be metres away, and jumped there when it was released.

    0.2 rad of following error, three samples of it at 0.025 rad, and 0.0608 rad of brakes: less than 0.35 rad.
    """
    arm = Arm(WATCHED)
    arm.running(3)
    arm.blocked = True
    start = arm.position[[2, 0]].copy()
    results = [arm.tick(arm.towards(-1.05, -0.25)) for _ in range(release)]
    assert results[-1].state[0] == DAMP
    assert int(results[-1].causes[0]) == Reason.FOLLOWING_ERROR
    sent = arm.commands[-1]
    assert (np.abs(sent - start) < 0.35).all()
    arm.blocked = False
    for _ in range(200):
        arm.tick(arm.towards(-1.05, -0.25))
        np.testing.assert_array_equal(arm.commands[-1], sent)
    # It goes to where it was told to be then, and no reset leads back to RUN but a start.
    assert (np.abs(arm.position[[2, 0]] - start) < 0.45).all()
    assert arm.tick(arm.towards(-1.05, -0.25), reset=arm.guard.read_back).reset[0] == RequestAnswer.OBEYED
    assert arm.ticks(20, arm.towards(-1.05, -0.25)).state[0] == STANDSTILL
    np.testing.assert_array_equal(arm.commands[-1], sent)


def test_6_a_blocked_robot_is_not_started() -> None:
    """Where it is not where it was told to be, a start would be a jump."""
    arm = Arm(WATCHED)
    arm.running(3)
    arm.blocked = True
    arm.ticks(30, arm.towards(-1.05, -0.25))
    for _ in range(60):
        arm.tick(arm.towards(-1.05, -0.25))
    assert arm.tick(None, reset=arm.guard.read_back).reset[0] == RequestAnswer.OBEYED
    assert arm.tick(None, start=arm.guard.read_back).start[0] == RequestAnswer.NOT_READY
    assert arm.ticks(5, start=NOTHING).state[0] > RUN
