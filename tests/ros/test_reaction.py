"""How soon the policy's loop reacts, on rclpy: to a publisher that falls silent, and to an emergency stop."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ros_world import RosWorld, eventually

from physai.deploy_jetson.bench.sample import sample_contract
from physai.deploy_jetson.runtime.orders import Order
from physai.deploy_jetson.runtime.realtime import Realtime
from physai.deploy_jetson.runtime.ring import TickRing
from physai.deploy_jetson.runtime.runtime import RunOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry
from physai.ros.drive import Drive
from physai.ros.transport import OwnNode, RosTransport
from physai.sdk.safety import GuardState

pytestmark = pytest.mark.ros

TIMES, MOST_TRIES = 100, 400
CONTRACT = sample_contract()
PERIOD_NS = round(CONTRACT.timing.control_dt * 1e9)
OLDEST_NS = round(CONTRACT.timing.max_observation_age_s * 1e9)
REPEATED = CONTRACT.safety.max_reused_commands


class Kept(Telemetry):
    """Telemetry whose ring can be looked at."""

    ring: TickRing

    def configure(self, *given: Any, **further: Any) -> TickRing:
        self.ring = super().configure(*given, **further)
        return self.ring


@pytest.fixture
def driven(world: RosWorld) -> Iterator[tuple[Drive, Kept]]:
    domain = int(world.environment["ROS_DOMAIN_ID"])
    own = OwnNode("reaction", domain)
    options = RunOptions(root=world.root, realtime=Realtime(lock_memory=False), hot_swap=False)
    kept = Kept()
    drive = Drive(options, RosTransport({"domain": str(domain)}, own.node), say=lambda text: None, telemetry=kept)
    drive.start()
    yield drive, kept
    drive.stop()
    own.close()


def state(drive: Drive) -> str:
    return drive.runtime.guard_state


def test_silence_is_held_within_its_limit(driven: tuple[Drive, Kept], world: RosWorld) -> None:
    """HOLD after the oldest allowed sample, the commands that may be repeated, and one tick: 100 of 100 times."""
    drive, kept = driven
    driver = world.driver()
    drive.activate(60.0)
    counted = 0
    for _ in range(MOST_TRIES):
        eventually(lambda: state(drive) == "RUN", "RUN")
        first = kept.ring.count
        eventually(lambda first=first: kept.ring.count > first + 5, "a few ticks")
        os.kill(driver.process.pid, signal.SIGSTOP)
        eventually(lambda: state(drive) == "HOLD", "HOLD")
        ticks = kept.ring.between(first, kept.ring.count)
        os.kill(driver.process.pid, signal.SIGCONT)
        drive.runtime.mailbox.put(Order.RESET)
        held = int(np.flatnonzero(ticks["state"] >= GuardState.HOLD)[0])
        stale = np.flatnonzero(ticks["sensor_age_ns"][: held + 1] > OLDEST_NS)
        if not len(stale):
            # It was held before the driver was silent: the machine had no time for the loop.
            continue
        assert ticks["tick"][held] - ticks["tick"][stale[0]] <= REPEATED + 1
        # The policy is computed only on samples that are young enough.
        assert (ticks["inference_ns"][ticks["sensor_age_ns"] > OLDEST_NS + PERIOD_NS] < 1e6).all()
        counted += 1
        if counted == TIMES:
            return
    pytest.fail(f"{counted} of {TIMES} silences in {MOST_TRIES} tries: the machine is too busy")


def test_an_emergency_stop_acts_within_two_ticks(driven: tuple[Drive, Kept], world: RosWorld) -> None:
    drive, kept = driven
    world.driver()
    drive.activate(60.0)
    for _ in range(TIMES):
        eventually(lambda: state(drive) == "RUN", "RUN")
        first = kept.ring.count
        drive.runtime.mailbox.put(Order.STOP)
        eventually(lambda: state(drive) == "ESTOP", "ESTOP")
        ticks = kept.ring.between(first, kept.ring.count)
        stopped = int(np.flatnonzero(ticks["state"] == GuardState.ESTOP)[0])
        assert stopped <= 2
        drive.runtime.mailbox.put(Order.RESET)
