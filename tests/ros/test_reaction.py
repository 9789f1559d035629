"""How soon the policy's loop reacts, on rclpy: to a publisher that falls silent, and to an emergency stop."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fixtures.sample import sample_contract
from tests.support.ros_calls import WAIT_S, eventually
from tests.support.ros_world import NODE, RosWorld, up

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.telemetry.telemetry import Telemetry
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.ros.drive import Drive
from physai.ros.transport import OwnNode, RosTransport
from physai.sdk.safety import GuardState, Reason
from physai.sdk.safety.sample import CLOCK_S

pytestmark = pytest.mark.ros

TIMES, MOST_TRIES, KILLS = 100, 400, 3
CONTRACT = sample_contract()
OLDEST_NS = round(CONTRACT.timing.max_observation_age_s * 1e9)
CLOCK_NS = round(CLOCK_S * 1e9)
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


def goes_on(drive: Drive) -> bool:
    """Whether the policy drives, if need be after a reset and a start; to be asked until the joint was seen to rest."""
    if state(drive) != "RUN":
        for command in (Command.RESET, Command.START):
            with suppress(CommandError):
                drive.request(command)
    return state(drive) == "RUN"


def held_in_time(drive: Drive, kept: Kept, silence: Callable[[], None], speak: Callable[[], None]) -> bool:
    """Silences the driver and looks at the ticks until HOLD; False where a busy machine had no time for the loop."""
    eventually(lambda: goes_on(drive), "RUN")
    first = kept.ring.count
    eventually(lambda: kept.ring.count > first + 5, "a few ticks")
    silence()
    # A busy machine may have led to more than that.
    eventually(lambda: GuardState[state(drive)] >= GuardState.HOLD, "HOLD")
    ticks = kept.ring.between(first, kept.ring.count)
    speak()
    held = int(np.flatnonzero(ticks["state"] >= GuardState.HOLD)[0])
    is_old = ticks["sensor_age_ns"][: held + 1] > OLDEST_NS
    if not is_old[held]:
        return False
    # The first of the old samples that led to it; earlier ones may have been late, and then there was a new one.
    young = np.flatnonzero(~is_old)
    oldest = int(young[-1]) + 1 if len(young) else 0
    if np.any(np.diff(ticks["tick"][max(0, oldest - 1) : held + 1]) != 1):
        # Whole periods passed without a tick: there was none to act in.
        return False
    assert held - oldest <= REPEATED + 1
    # No sample older than its limit is ever used: what the policy made of it is withheld.
    old = ticks["sensor_age_ns"] > OLDEST_NS + CLOCK_NS
    assert (ticks["reasons"][old] & Reason.SENSOR_STALE).all()
    return True


def test_silence_is_held_within_its_limit(driven: tuple[Drive, Kept], world: RosWorld) -> None:
    """HOLD after the oldest allowed sample, the commands that may be repeated, and one tick: 100 of 100 times."""
    drive, kept = driven
    driver = world.driver()
    drive.activate(60.0)

    def told(number: signal.Signals) -> Callable[[], None]:
        return lambda: os.kill(driver.process.pid, number)

    tries = (held_in_time(drive, kept, told(signal.SIGSTOP), told(signal.SIGCONT)) for _ in range(MOST_TRIES))
    assert sum(1 for _ in islice(filter(None, tries), TIMES)) == TIMES, "the machine is too busy"


def test_a_killed_driver_is_held_within_its_limit(driven: tuple[Drive, Kept], world: RosWorld) -> None:
    drive, kept = driven
    held = 0
    for _ in range(3 * KILLS):
        driver = world.driver()
        if drive.runtime.state is not Lifecycle.ACTIVE:
            drive.activate(60.0)
        # Until the middleware has given the killed one up, after up to 20 s, there are two, and none is heard.
        eventually(lambda: goes_on(drive), "RUN", 3 * WAIT_S)
        held += held_in_time(drive, kept, lambda driver=driver: driver.process.kill(), lambda: None)
        if held == KILLS:
            return
    pytest.fail(f"{held} of {KILLS} kills in {3 * KILLS} tries: the machine is too busy")


def test_an_emergency_stop_acts_within_two_ticks(driven: tuple[Drive, Kept], world: RosWorld) -> None:
    drive, kept = driven
    world.driver()
    drive.activate(60.0)
    for _ in range(TIMES):
        eventually(lambda: goes_on(drive), "RUN")
        first = kept.ring.count
        drive.runtime.commands.put(Command.STOP)
        eventually(lambda: state(drive) == "PROTECTIVE_STOP", "PROTECTIVE_STOP")
        ticks = kept.ring.between(first, kept.ring.count)
        stopped = int(np.flatnonzero(ticks["state"] == GuardState.PROTECTIVE_STOP)[0])
        assert stopped <= 2


def test_the_service_of_an_emergency_stop_damps_within_two_ticks(world: RosWorld, node: Any) -> None:
    """From the call in one process to the first braking command that a robot gets in a third."""
    from std_srvs.srv import Trigger

    log = world.folder / "commands"
    world.driver(log=str(log))
    up(world, world.policy())
    clients = {name: node.create_client(Trigger, f"{NODE}/{name}") for name in ("estop", "reset", "start")}

    def call(name: str) -> bool:
        assert clients[name].wait_for_service(60.0)
        future = clients[name].call_async(Trigger.Request())
        eventually(future.done, name)
        return bool(future.result().success)

    def driven() -> bool:
        """Whether the policy drives after a reset and a start; on a busy machine it may have held by then."""
        if not (call("reset") and call("start")):
            return False
        count = len(_commands(log))
        eventually(lambda: len(_commands(log)) > count + 10, "commands")
        return _effort(_commands(log)[-1]) > 0.0

    after: list[int] = []
    for _ in range(TIMES):
        eventually(driven, "the policy's own commands")
        called_ns = time.time_ns()
        assert call("estop")
        sent = [_effort(one) for one in _commands(log) if one["stamp_ns"] > called_ns]
        # The driver's joint rests, so braking it takes no effort, while the policy always asks for some.
        after.append(sent.index(0.0))
        assert not any(sent[after[-1] :])
    # The first braking command is the second at the latest; a busy machine may keep a call waiting now and then.
    assert float(np.quantile(after, 0.9)) <= 1


def _commands(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def _effort(command: dict[str, Any]) -> float:
    return abs(command["effort"][0])
