"""A policy takes over only inside its start envelope, and its commands grow out of those of the robot at rest."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.support.patience import PATIENCE_S, nap, until
from tests.support.untrained import untrained_slots
from tests.unit.sdk.safety.test_start import document

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.contract.io import parse_contract
from physai.sdk.transport.protocol import Array

RAMP_S = 0.4
OUTSIDE, INSIDE = 0.45, 0.2


class Legs(LocalRobot):
    """Stands where it is put."""

    def __init__(self) -> None:
        super().__init__()
        self.knee = OUTSIDE
        self.log: list[float] = []

    def poll(self) -> bool:
        fresh = super().poll()
        if not self.log or self.knee != INSIDE:
            self.position[:] = (0.1, self.knee)
            self.velocity[:] = 0.0
        fields = self.sample().fields
        fields["joint_pos"][:], fields["joint_vel"][:] = self.position, self.velocity
        return fresh

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        if self.knee == INSIDE:
            self.log.append(float(targets["joint_pos_target"][0, 1]))
        super().send(targets, stamp_ns)


class Standing:
    def __init__(self, folder: Path) -> None:
        start = {"joints": [{"joint": "knee", "lower": -0.2, "upper": 0.4}], "ramp_s": RAMP_S, "tilt": 0.5}
        contract = parse_contract(json.dumps(document(start)), source="test")
        self.root = untrained_slots(contract, folder / "robot")
        self.robot, self.said = Legs(), list[str]()
        options = RunOptions(
            root=self.root, realtime=Realtime(lock_memory=False), unsafe_no_verdict=True, hot_swap=False, watchdog=False
        )
        self.runtime = Runtime(options, self.robot, say=self.said.append)
        self.thread = threading.Thread(target=self.runtime.run)
        self.thread.start()

    def runs(self) -> bool:
        return self.runtime.status().get("guard") == "RUN"

    def tell(self, word: str) -> str:
        return str(tell(health_path(self.root).with_name(CONTROL_FILE), word, timeout_s=PATIENCE_S))

    def end(self) -> None:
        self.runtime.commands.put(Command.SHUTDOWN)
        self.thread.join()


@pytest.fixture
def standing(folder: Path) -> Iterator[Standing]:
    made = Standing(folder)
    yield made
    made.end()


def started(folder: Path) -> list[float] | None:
    """Knee targets of a start; None if a period was late, for which the guard holds on a busy machine."""
    standing = Standing(folder)
    try:
        standing.robot.knee = INSIDE
        until(lambda: len(standing.robot.log) > 90, said=lambda: standing.said)
        status = standing.runtime.status()
        sound = status["guard"] == "RUN" and not (status["missed"] or status["skipped"])
        return standing.robot.log[:] if sound else None
    finally:
        standing.end()


def test_outside_it_waits_and_names_the_joint_and_both_values(standing: Standing) -> None:
    until(lambda: "knee reads" in standing.runtime.waiting_for, said=lambda: standing.said)
    assert "knee reads 0.45 rad, the policy starts in [-0.2, 0.4] rad" in standing.runtime.waiting_for
    assert standing.robot.sent == 0


def test_once_inside_its_commands_grow_out_of_the_pose(folder: Path) -> None:
    runs = (started(folder / str(attempt)) for attempt in range(20))
    sent = np.array(next(run for run in runs if run is not None))
    # The untrained policy asks for 0 at once; the ramp takes 20 periods of 20 ms.
    begun = int(np.flatnonzero(np.abs(sent - INSIDE) > 1e-9)[0])
    given = sent[begun - 1 : begun + 30]
    assert (np.diff(given) <= 1e-9).all()
    assert np.abs(np.diff(given)).max() < 4.0 * INSIDE / 20
    assert ((given > 0.05) & (given < 0.15)).sum() >= 5
    assert sent[begun + 30] == pytest.approx(0.0, abs=1e-6)


def test_a_start_by_the_operator_is_refused_with_both_values(standing: Standing) -> None:
    standing.robot.knee = INSIDE
    until(standing.runs, said=lambda: standing.said)
    standing.tell("stop")
    until(lambda: bool(standing.runtime.status()["stopped"]), said=lambda: standing.said)
    # Somebody bends the leg of the stopped robot.
    standing.robot.knee = OUTSIDE

    def refused() -> bool:
        with suppress(ControlError):
            standing.tell("reset")
        try:
            standing.tell("start")
        except ControlError as error:
            return "knee reads 0.45 rad, the policy starts in [-0.2, 0.4] rad" in str(error)
        return False

    until(refused, nap, said=lambda: standing.said)
    assert not standing.runs()
