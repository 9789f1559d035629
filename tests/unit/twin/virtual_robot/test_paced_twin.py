"""A robot on a clock: times by hand for control periods of 40 ms and physics steps of 10 ms."""

from collections.abc import Callable

import numpy as np
import pytest

from physai.sim.tasks.task import Task
from physai.twin.virtual_robot.paced_twin import PacedTwin, realtime
from physai.twin.virtual_robot.robot_twin import Jitter, RobotTwin

TaskMaker = Callable[..., Task]
MS = 1_000_000
START = 5_000 * MS
PUSH = {"joint_effort_target": np.array([4.0, 8.0])}


def paced(task: Task, **more: int) -> PacedTwin:
    return PacedTwin(RobotTwin(task), seed=0, start_ns=more.get("start_ns", START))


def pushed(twin: PacedTwin, at_ms: float) -> None:
    at_ns = START + round(at_ms * MS)
    twin.take(PUSH, realtime(at_ns), at_ns)


def ticked(twin: PacedTwin, times: int) -> None:
    for _ in range(times):
        twin.tick(twin.due_ns)


def kinds(twin: PacedTwin) -> list[str]:
    return [event.what for event in twin.tally.events]


def test_samples_are_due_every_period_and_stamped_when_they_were(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    for number in range(1, 4):
        assert twin.due_ns == START + 40 * number * MS
        twin.tick(twin.due_ns + 3 * MS)
        assert twin.stamp_ns == pytest.approx(realtime(START + 40 * number * MS), abs=5 * MS)
    assert twin.tally.periods == 3
    assert twin.twin.steps == 12


def test_a_command_acts_from_the_step_in_which_it_arrives(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    pushed(twin, 20)
    ticked(twin, 1)
    np.testing.assert_allclose(twin.twin.fields["joint_vel"], [0.04, 0.04], rtol=1e-6)
    ticked(twin, 1)
    np.testing.assert_allclose(twin.twin.fields["joint_vel"], [0.12, 0.12], rtol=1e-6)


def test_before_the_first_command_nothing_is_silence(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    ticked(twin, 5)
    assert (twin.tally.silences, twin.tally.silent_periods) == (0, 0)
    assert kinds(twin) == []


def test_two_periods_without_a_command_are_silence(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    pushed(twin, 1)
    ticked(twin, 2)
    assert twin.tally.silences == 0
    ticked(twin, 3)
    assert (twin.tally.silences, twin.tally.silent_periods) == (1, 3)
    pushed(twin, 201)
    ticked(twin, 2)
    assert (twin.tally.silences, twin.tally.silent_periods) == (1, 3)
    assert kinds(twin) == ["first command", "silence", "commands again"]
    assert twin.tally.commands == 2


def test_efforts_end_with_silence(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    pushed(twin, 0)
    ticked(twin, 3)
    speed = twin.twin.fields["joint_vel"].copy()
    ticked(twin, 2)
    np.testing.assert_allclose(twin.twin.fields["joint_vel"], speed, rtol=0.5)
    assert (np.abs(twin.twin.fields["joint_vel"]) <= np.abs(speed) + 1e-9).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
def test_commands_outside_the_envelope_are_not_obeyed(slider_task: TaskMaker, bad: float) -> None:
    twin = paced(slider_task())
    twin.take({"joint_effort_target": np.array([bad, 0.0])}, realtime(START), START)
    ticked(twin, 1)
    assert (twin.tally.unsafe, twin.tally.commands) == (1, 0)
    np.testing.assert_array_equal(twin.twin.fields["joint_vel"], [0.0, 0.0])


def test_commands_older_than_a_sample_may_be_are_not_obeyed(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    twin.take(PUSH, realtime(START) - 450 * MS, START)
    assert (twin.tally.stale, twin.tally.commands) == (1, 0)
    twin.take(PUSH, realtime(START) - 350 * MS, START)
    assert (twin.tally.stale, twin.tally.commands) == (1, 1)


def test_a_late_process_catches_up_and_gives_up_beyond_ten_periods(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    twin.tick(START + 400 * MS)
    assert twin.tally.lost_s == 0.0
    assert twin.due_ns == START + 80 * MS
    twin.tick(twin.due_ns + 1000 * MS)
    assert twin.tally.lost_s == pytest.approx(1.0)
    assert twin.due_ns == START + 1120 * MS
    assert twin.twin.steps == 8


def test_lockstep_passes_one_period_with_each_command(slider_task: TaskMaker) -> None:
    twin = paced(slider_task())
    for number in range(1, 4):
        assert twin.take_in_lockstep(PUSH)
        assert twin.twin.steps == 4 * number
        np.testing.assert_allclose(twin.twin.fields["joint_vel"], [0.08 * number] * 2, rtol=1e-6)
    assert not twin.take_in_lockstep({"joint_effort_target": np.array([np.nan, 0.0])})
    twin.neglect()
    assert twin.twin.steps == 12
    assert (twin.tally.commands, twin.tally.unsafe, twin.tally.silences) == (3, 1, 1)


def test_jitter_delays_samples_but_never_by_less_than_a_step(slider_task: TaskMaker) -> None:
    robot = RobotTwin(slider_task())
    robot.jitter = Jitter(mean_s=0.05, max_s=0.2)
    twin = PacedTwin(robot, seed=3, start_ns=START)
    due: list[int] = []
    for _ in range(200):
        due.append(twin.due_ns)
        twin.tick(twin.due_ns)
    late = [at - START - 40 * number * MS for number, at in enumerate(due, 1)]
    assert min(late) >= 0
    assert max(late) > 40 * MS
    assert min(np.diff(due)) > 0
    assert twin.tally.periods == 200
