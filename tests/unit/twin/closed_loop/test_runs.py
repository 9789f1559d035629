"""Runs on the grid of control periods: sampling, success and times, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.closed_loop_runs import HiddenRobot, recorded_run

from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.closed_loop.runs import Runs, holds, recorded_runs, samples_of
from physai.twin.logs import LogError

TRUTH = HiddenRobot(values={"cart.mass": 2.1, "rail.friction": 1.0})


def runs(held: list[list[int]], ended: list[int]) -> Runs:
    count = len(held)
    nothing = np.zeros((count, 1, 1))
    return Runs(0.5, np.zeros(1), nothing, nothing, nothing, np.array(held, bool), np.array(ended))


def test_times_and_success_by_hand() -> None:
    """Periods of 0.5 s: held from 1 s on; held and lost; held for the last period only; ended by a stop."""
    found = runs([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0]], [6, 6, 6, 3])
    assert found.settled_s.tolist() == [1.0, 3.0, 2.5, 0.5]
    assert found.length_s.tolist() == [3.0, 3.0, 3.0, 1.5]
    assert found.succeeded(2.0).tolist() == [True, False, False, False]
    assert found.succeeded(0.0).tolist() == [True, False, True, False]
    assert found.succeeded(2.5).tolist() == [False, False, False, False]


def test_the_nearest_sample_stands_for_a_control_period(task: Task, spring: OnnxPolicy) -> None:
    """At 20 ms: one late sample is used for two periods, and the loop keeps its own clock after it."""
    log = recorded_run(task, spring, TRUTH, seed=1)
    assert samples_of(log, 0.02).tolist() == list(range(120))
    late = replace(log, time=np.where(np.arange(120) > 2, log.time + 0.02, log.time))
    assert samples_of(late, 0.02)[:7].tolist() == [0, 1, 2, 2, 3, 4, 5]


def test_recorded_runs_are_judged_by_the_tasks_criterion(task: Task, spring: OnnxPolicy) -> None:
    log = recorded_run(task, spring, TRUTH, seed=1)
    found = recorded_runs(task, [log], 2.4)
    near = np.abs(log.joint_pos[:, 0]) < 0.1
    assert found.held[0].tolist() == near.tolist()
    assert found.succeeded(0.4)[0] == near[-20:].all()
    assert found.position[0, :, 0] == pytest.approx(log.joint_pos[:, 0])
    assert found.command[0, :, 0] == pytest.approx(log.command[:, 0])


def test_a_run_that_ends_early_has_failed(task: Task, spring: OnnxPolicy) -> None:
    log = recorded_run(task, spring, TRUTH, seed=1)
    short = replace(
        log,
        time=log.time[:100],
        joint_pos=np.zeros((100, 1)),
        joint_vel=np.zeros((100, 1)),
        command=log.command[:100],
    )
    found = recorded_runs(task, [short], 2.4)
    assert found.held[0, :100].all()
    assert not found.succeeded(0.4)[0]
    assert found.length_s[0] == pytest.approx(2.0)
    assert np.isnan(found.position[0, 100:]).all()


def test_a_task_with_objects_is_refused(task: Task, spring: OnnxPolicy) -> None:
    log = recorded_run(task, spring, TRUTH, seed=1)
    with pytest.raises(LogError, match="only tasks of a robot with a fixed base and no objects"):
        holds(load_task("push"), log, np.arange(3))
