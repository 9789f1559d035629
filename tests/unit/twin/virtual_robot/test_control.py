"""A simulation that others pause, step and reset while it plays: numbers by hand for periods of 40 ms."""

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import numpy as np
import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array, JointCommand, TransportError, empty_command
from physai.sdk.transport.simulation import MAX_STEPS, SimulationError, SimulationState
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.virtual_robot import paced_twin
from physai.twin.virtual_robot.paced_twin import PacedTwin, realtime
from physai.twin.virtual_robot.process import Clock, VirtualRobot
from physai.twin.virtual_robot.robot_twin import RobotTwin

TaskMaker = Callable[..., Task]
MS = 1_000_000
START = 5_000 * MS
PUSH = {"joint_effort_target": np.array([4.0, 8.0])}
PLAYING, PAUSED, STOPPED = SimulationState.PLAYING, SimulationState.PAUSED, SimulationState.STOPPED


class Quiet:
    """A robot's end at which nobody is; it keeps what was published."""

    name = "quiet"

    def __init__(self, contract: PolicyContract) -> None:
        self.published: list[dict[str, Array]] = []
        self._command = empty_command(contract)

    def open(self, contract: PolicyContract) -> None:
        del contract

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        del stamp_ns
        self.published.append({name: values.copy() for name, values in fields.items()})

    def command(self) -> JointCommand:
        return self._command

    def poll(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        threading.Event().wait(timeout_s)
        return False

    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None: ...


@contextmanager
def playing(task: Task, clock: Clock = "realtime") -> Generator[tuple[VirtualRobot, Quiet]]:
    link = Quiet(task.contract)
    fake = VirtualRobot(RobotTwin(task), link, clock=clock)
    over = threading.Event()
    thread = threading.Thread(target=lambda: fake.run(duration_s=600.0, stopped=over.is_set))
    thread.start()
    try:
        yield fake, link
    finally:
        over.set()
        thread.join(60.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("clock", ["realtime", "lockstep"])
def test_paused_it_sends_one_sample_a_step(
    slider_task: TaskMaker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For 100 s a busy machine may let this process stand still; a clock that a pause puts wrong is out by more.
    monkeypatch.setattr(paced_twin, "SLIP_PERIODS", 2_500)
    with playing(slider_task(), clock) as (fake, link):
        fake.control.change(PAUSED)
        periods, sent = fake.tally.periods, len(link.published)
        fake.control.step(3)
        assert (fake.tally.periods, len(link.published)) == (periods + 3, sent + 3)
        fake.control.step(1)
        assert (fake.tally.periods, len(link.published)) == (periods + 4, sent + 4)
        fake.control.change(PLAYING)
        assert fake.control.state is PLAYING
    assert fake.tally.lost_s == 0.0


def test_a_reset_puts_it_where_it_began(slider_task: TaskMaker) -> None:
    with playing(slider_task()) as (fake, link):
        fake.control.change(STOPPED)
        first = link.published[0]
        fake.control.reset(whole=False)
        other = link.published[-1]
        fake.control.reset(whole=True)
        np.testing.assert_array_equal(link.published[-1]["joint_pos"], first["joint_pos"])
        assert not np.array_equal(other["joint_pos"], first["joint_pos"])
        assert fake.control.state is STOPPED


def test_what_it_cannot_do_it_refuses(slider_task: TaskMaker) -> None:
    with playing(slider_task()) as (fake, _):
        with pytest.raises(SimulationError, match="stepping needs a paused simulation; it is playing"):
            fake.control.step(1)
        fake.control.change(PAUSED)
        for steps in (0, -1, MAX_STEPS + 1):
            with pytest.raises(SimulationError, match=f"{steps} steps, expected 1 … {MAX_STEPS}"):
                fake.control.step(steps)


def test_it_quits_and_refuses_from_then_on(slider_task: TaskMaker) -> None:
    fake = VirtualRobot(RobotTwin(slider_task()), Quiet(slider_task().contract))
    thread = threading.Thread(target=lambda: fake.run(duration_s=600.0))
    thread.start()
    fake.control.change(SimulationState.QUITTING)
    thread.join(60.0)
    assert not thread.is_alive()
    with pytest.raises(SimulationError, match="the simulation has ended"):
        fake.control.robot()


def test_a_link_that_fails_while_it_is_stepped_is_told_to_both(slider_task: TaskMaker) -> None:
    class Cut(Quiet):
        cut = False

        def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
            if self.cut:
                raise TransportError("the cable is cut")
            super().publish(fields, stamp_ns)

    link = Cut(slider_task().contract)
    fake = VirtualRobot(RobotTwin(slider_task()), link)
    failed: list[str] = []

    def run() -> None:
        try:
            fake.run(duration_s=600.0)
        except TransportError as error:
            failed.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    fake.control.change(PAUSED)
    link.cut = True
    with pytest.raises(SimulationError, match="the cable is cut"):
        fake.control.step(1)
    thread.join(60.0)
    assert failed == ["the cable is cut"]


def test_a_pause_is_no_time_for_the_twin(slider_task: TaskMaker) -> None:
    """Pushed at 20 ms and paused at 20 ms for ten seconds, 2 kg under 4 N move by 0.04 m/s until 40 ms."""
    twin = PacedTwin(RobotTwin(slider_task()), seed=0, start_ns=START)
    at_ns = START + 20 * MS
    twin.take(PUSH, realtime(at_ns), at_ns)
    twin.pause()
    twin.resume(at_ns + 10_000 * MS)
    assert twin.due_ns == START + 10_040 * MS
    twin.tick(twin.due_ns)
    np.testing.assert_allclose(twin.twin.fields["joint_vel"], [0.04, 0.04], rtol=1e-6)
    assert (twin.tally.periods, twin.tally.silences, twin.tally.lost_s) == (1, 0, 0.0)


def test_steps_obey_the_newest_command_and_then_miss_it(slider_task: TaskMaker) -> None:
    """4 N on 2 kg for 40 ms: 0.08 m/s a step, until the third period without a command, at whose end it brakes."""
    twin = PacedTwin(RobotTwin(slider_task()), seed=0, start_ns=START)
    twin.pause()
    twin.take_paused(PUSH, realtime(START))
    assert twin.tally.stale == 1, "computed too long ago"
    twin.take_paused(PUSH, time.time_ns())
    for number in range(1, 4):
        twin.step()
        np.testing.assert_allclose(twin.twin.fields["joint_vel"][0], 0.08 * number, rtol=1e-5)
    assert (twin.tally.commands, twin.tally.silences) == (1, 1)
    assert twin.twin.steps == 12


def test_a_floating_base_is_where_its_state_says() -> None:
    robot = RobotTwin(load_task("go2-velocity"))
    entity = robot.entity(7)
    qpos = robot._view.qpos[0]  # pyright: ignore[reportPrivateUsage]
    assert (entity.name, entity.stamp_ns) == ("go2", 7)
    np.testing.assert_allclose(entity.position, qpos[0:3])
    np.testing.assert_allclose(entity.orientation, qpos[3:7])
    robot.advance(10)
    assert np.linalg.norm(robot.entity(8).linear) > 0.0


def test_a_fixed_base_stands_still() -> None:
    entity = RobotTwin(load_task("ur10e-reach")).entity(7)
    assert np.linalg.norm(entity.orientation) == pytest.approx(1.0)
    assert entity.linear == entity.angular == (0.0, 0.0, 0.0)
