"""A stand-in robot behind a wire, against a runtime that answers in the same process."""

import math
import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array, JointCommand, empty_command
from physai.sim.tasks.task import Task
from physai.twin.virtual_robot import paced_twin
from physai.twin.virtual_robot import watch as watching
from physai.twin.virtual_robot.process import Clock, VirtualRobot
from physai.twin.virtual_robot.robot_twin import RobotTwin
from physai.twin.virtual_robot.watch import TallyWatch

TaskMaker = Callable[..., Task]
Policy = Callable[[int], float | None]


class LocalLink:
    """A robot's end whose other end is a function: from the number of samples so far to an effort, or to silence."""

    name = "local"

    def __init__(self, contract: PolicyContract, policy: Policy) -> None:
        self.published: list[dict[str, Array]] = []
        self._policy, self._answers = policy, 0
        self._made_ns = time.time_ns()
        self.open(contract)

    def open(self, contract: PolicyContract) -> None:
        self._command = empty_command(contract)

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        # The robot, which no delay is assumed for, was made after its link.
        assert self._made_ns <= stamp_ns <= time.time_ns()
        self.published.append({name: values.copy() for name, values in fields.items()})

    def command(self) -> JointCommand:
        return self._command

    def poll(self) -> bool:
        if self._answers == len(self.published):
            return False
        self._answers = len(self.published)
        effort = self._policy(self._answers)
        if effort is None:
            return False
        self._command.targets["joint_effort_target"][:] = effort
        self._command.stamp_ns, self._command.received_ns = time.time_ns(), time.monotonic_ns()
        self._command.sequence += 1
        return True

    def wait(self, timeout_s: float) -> bool:
        if self.poll():
            return True
        time.sleep(timeout_s)
        return self.poll()

    def problems(self) -> tuple[str, ...]:
        return ("local: something is odd",)

    def close(self) -> None:
        pass


def robot(task: Task, policy: Policy, clock: Clock) -> tuple[VirtualRobot, LocalLink]:
    link = LocalLink(task.contract, policy)
    return VirtualRobot(RobotTwin(task), link, clock=clock), link


def test_lockstep_answers_every_command_with_the_next_sample(slider_task: TaskMaker) -> None:
    fake, link = robot(slider_task(episode_length_s=40.0, terminations={}), lambda number: 2.0, "lockstep")
    tally = fake.run(duration_s=60.0, stopped=lambda: len(link.published) > 20)
    assert (tally.commands, tally.periods, tally.silences) == (20, 20, 0)
    # 2 N on 2 kg and on 4 kg for 40 ms each time.
    for number, fields in enumerate(link.published):
        np.testing.assert_allclose(fields["joint_vel"], [0.04 * number, 0.02 * number], rtol=1e-5, atol=1e-7)


def test_lockstep_sends_again_what_nobody_answered(slider_task: TaskMaker) -> None:
    fake, link = robot(slider_task(), lambda number: None if number < 4 else 1.0, "lockstep")
    tally = fake.run(duration_s=60.0, stopped=lambda: len(link.published) > 5)
    assert (tally.commands, tally.periods) == (2, 2)
    for fields in link.published[:4]:
        np.testing.assert_array_equal(fields["joint_vel"], [0.0, 0.0])


def test_an_unsafe_command_gets_no_answer_in_lockstep(slider_task: TaskMaker) -> None:
    fake, _ = robot(slider_task(), lambda number: math.nan if number == 1 else 1.0, "lockstep")
    tally = fake.run(duration_s=60.0, stopped=lambda: fake.tally.commands > 0)
    assert (tally.unsafe, tally.commands, tally.periods) == (1, 1, 1)


def test_realtime_goes_on_without_commands(slider_task: TaskMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that stands still must not set the twin's clock on between two commands: that would be a silence.
    monkeypatch.setattr(paced_twin, "SLIP_PERIODS", 10**6)
    fake, link = robot(slider_task(), lambda number: 1.0 if number < 4 else None, "realtime")
    tally = fake.run(duration_s=60.0, stopped=lambda: fake.tally.periods >= 8 and fake.tally.silences >= 1)
    assert tally.periods == len(link.published) - 1 >= 8
    assert tally.commands == 3
    assert tally.silences == 1
    assert [event.what for event in tally.events][:2] == ["first command", "silence"]


def test_the_time_ends_it(slider_task: TaskMaker) -> None:
    fake, _ = robot(slider_task(), lambda number: None, "realtime")

    def played() -> bool:
        begun = time.monotonic()
        fake.run(duration_s=0.1)
        assert time.monotonic() - begun >= 0.1
        return fake.tally.periods >= 1

    # Once more only where this process stood still for all of that time.
    assert any(played() for _ in range(20))


def test_a_watcher_tells_what_changes_and_each_problem_once(
    slider_task: TaskMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It looks here only.
    monkeypatch.setattr(watching, "POLL_S", 600.0)
    fake, link = robot(slider_task(), lambda number: 1.0, "lockstep")
    told: list[str] = []
    watch = TallyWatch(fake.tally, link.problems, told.append)
    try:
        watch.look()
        watch.look()
        fake.run(duration_s=60.0, stopped=lambda: fake.tally.periods >= 5)
        watch.look()
        watch.look()
    finally:
        watch.close()
    assert told == [
        "waiting for commands",
        "local: something is odd",
        "receiving commands, 5 in the last 5 control periods",
        "commands stopped; holding positions, braking efforts",
    ]
