"""A joint that moves while the robot stands in STANDSTILL, as one that a hand pushes or a pole that swings."""

import numpy as np
from tests.support.guard_driver import HOLD, STANDSTILL, Driver

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import NO_REQUEST, GuardResult, GuardState, Request
from physai.sdk.safety.guard import TOLERATED_SAMPLES


def tick(driver: Driver, speed: float = 0.0, request: Request = NO_REQUEST) -> GuardResult:
    """A period in which the first joint moves [rad/s]."""
    pos, vel = driver.calm["joint_pos"], np.zeros_like(driver.calm["joint_vel"])
    pos[0, 0] += speed * driver.dt
    vel[0, 0] = speed
    guard, now = driver.guard, driver.step * driver.dt
    driver.step += 1
    guard.observe(stamp_s=now, joint_pos=pos, joint_vel=vel)
    result = guard.decide(age_s=0.0, targets=None, request=request)
    guard.commit()
    return result


def test_a_joint_that_a_hand_moves_in_standstill_leads_to_hold_until_a_reset(arm: PolicyContract) -> None:
    driver = Driver(arm)
    driver.guard.activate()
    for _ in range(3):
        assert tick(driver).state[0] == STANDSTILL
    # A spike of a sensor does not.
    found = [GuardState(int(tick(driver, 0.2).state[0])) for _ in range(TOLERATED_SAMPLES + 1)]
    assert found == [STANDSTILL] * TOLERATED_SAMPLES + [HOLD]
    seconds = round(1.0 / driver.dt)
    assert [tick(driver).state[0] for _ in range(seconds)] == [HOLD] * seconds
    assert tick(driver, request=Request(reset=driver.guard.read_back)).state[0] == STANDSTILL
