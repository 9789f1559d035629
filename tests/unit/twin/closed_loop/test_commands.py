"""Only recordings of the policy itself are compared: its commands must be the recorded ones."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.closed_loop_runs import HiddenRobot, recorded_runs_of
from tests.support.fixtures_gates import spring_policy

from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.closed_loop.commands import check_commands, require_same_policy
from physai.twin.logs import LogError, RobotLog

TRUTH = HiddenRobot(values={"cart.mass": 2.1, "rail.friction": 1.0})


@pytest.fixture
def logs(task: Task, spring: OnnxPolicy) -> tuple[RobotLog, ...]:
    return recorded_runs_of(task, spring, TRUTH, 3, seed=5)


def test_the_policy_that_ran_agrees_everywhere(spring: OnnxPolicy, logs: tuple[RobotLog, ...]) -> None:
    check = check_commands(spring, logs)
    assert check.agreement == 1.0
    assert check.shift == 0
    require_same_policy(spring, check)


@pytest.mark.parametrize("shift", [1, 3])
def test_commands_may_be_logged_some_samples_after_their_measurements(
    spring: OnnxPolicy, logs: tuple[RobotLog, ...], shift: int
) -> None:
    late = [
        replace(log, command=np.concatenate([np.repeat(log.command[:1], shift, axis=0), log.command[:-shift]]))
        for log in logs
    ]
    check = check_commands(spring, late)
    assert check.shift == shift
    assert check.agreement > 0.95


@pytest.mark.parametrize("stiffness", [30.0, 50.0])
def test_another_policy_is_refused_with_both_values(task: Task, logs: tuple[RobotLog, ...], stiffness: float) -> None:
    other = OnnxPolicy(spring_policy(task, stiffness=stiffness, damping=4.0), source="other.onnx")
    check = check_commands(other, logs)
    assert check.agreement < 0.9
    assert check.computed != pytest.approx(check.recorded, rel=0.05)
    with pytest.raises(LogError, match=r"other\.onnx is not what drove .* it commands .*, recorded is"):
        require_same_policy(other, check)


def test_a_recording_with_another_period_is_refused_with_both(spring: OnnxPolicy, logs: tuple[RobotLog, ...]) -> None:
    slow = replace(logs[0], time=1.5 * logs[0].time)
    with pytest.raises(LogError, match="sample every 30 ms, the policy commands every 20 ms"):
        check_commands(spring, [slow])


def test_commands_of_another_kind_are_refused(spring: OnnxPolicy, logs: tuple[RobotLog, ...]) -> None:
    with pytest.raises(LogError, match="commands joint_effort, the commands in log run1 are joint_pos"):
        check_commands(spring, [replace(logs[0], command_kind="joint_pos")])
