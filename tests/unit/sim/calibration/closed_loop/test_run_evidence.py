"""Each run is played in draws that the other runs' replays support: the vague twin decides, the wrong one does not pass."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.closed_loop_runs import HiddenRobot, recorded_runs_of
from tests.unit.sim.calibration.closed_loop.conftest import FRICTION, MASS, Twins

from physai.sim.calibration.closed_loop.closed_loop import run_closed_loop
from physai.sim.calibration.closed_loop.evidence import run_draws
from physai.sim.calibration.fit.identifiability import gradient_covariance, noise_weights
from physai.sim.logs import RobotLog
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.sim.twin.twin import Twin

Array = NDArray[np.float64]

RUNS, DRAWS = 8, 60
TRUTH = 1.15 * MASS
VAGUE = 0.2
"""Relative standard deviation of the vague twin's mass."""


@pytest.fixture(scope="module")
def logs(task: Task) -> tuple[RobotLog, ...]:
    return runs_of(task, efforts=True)


@pytest.fixture(scope="module")
def spring(task: Task) -> OnnxPolicy:
    return policy_of(task)


def policy_of(task: Task) -> OnnxPolicy:
    from tests.support.fixtures_gates import spring_policy

    return OnnxPolicy(spring_policy(task, stiffness=40.0, damping=4.0), source="spring.onnx")


def runs_of(task: Task, *, efforts: bool) -> tuple[RobotLog, ...]:
    robot = HiddenRobot(values={"cart.mass": TRUTH, "rail.friction": FRICTION}, efforts=efforts)
    return recorded_runs_of(task, policy_of(task), robot, RUNS, seed=5)


def vague(twin_of: Twins, mass: float = MASS) -> Twin:
    twin = twin_of(mass=mass)
    return replace(twin, covariance=np.diag([(VAGUE * MASS) ** 2, twin.covariance[1, 1]]))


def test_runs_with_measured_efforts_narrow_the_parameters(
    task: Task, logs: tuple[RobotLog, ...], twin_of: Twins
) -> None:
    drawn = run_draws(vague(twin_of), task, logs, 200, 0)
    assert drawn.runs == RUNS
    assert drawn.values.shape == (200, RUNS, 2)
    mass = drawn.values[:, :, 0]
    assert (mass.std(axis=0) < 0.2 * VAGUE * MASS).all()
    assert mass.mean() == pytest.approx(TRUTH, rel=0.03)
    # One robot per draw.
    assert np.corrcoef(mass[:, 0], mass[:, 1])[0, 1] > 0.95


def test_a_runs_own_replay_does_not_count(task: Task, logs: tuple[RobotLog, ...], twin_of: Twins) -> None:
    """Efforts 30 % too small in the last run make the mass look less: to all runs but to itself."""
    effort = logs[-1].joint_effort
    assert effort is not None
    other = (*logs[:-1], replace(logs[-1], joint_effort=0.7 * effort, command=0.7 * logs[-1].command))
    before, after = (run_draws(vague(twin_of), task, one, 200, 0).values[:, :, 0].mean(axis=0) for one in (logs, other))
    moved = np.abs(after - before)
    assert (moved[:-1] > 3.0 * moved[-1]).all()


def test_without_measured_efforts_or_doubt_or_other_runs_the_twins_own_draws_are_played(
    task: Task, logs: tuple[RobotLog, ...], twin_of: Twins
) -> None:
    certain = replace(twin_of(), covariance=np.zeros((2, 2)))
    for twin, runs in ((vague(twin_of), runs_of(task, efforts=False)), (certain, logs), (vague(twin_of), logs[:1])):
        drawn = run_draws(twin, task, runs, 5, 3)
        assert drawn.runs == 0
        assert np.array_equal(drawn.values, np.repeat(twin.draw(5, 3)[:, None], len(runs), axis=1))


def test_a_vague_twin_is_decided_by_its_runs_and_a_wrong_one_is_not_reproduced(
    task: Task, spring: OnnxPolicy, logs: tuple[RobotLog, ...], twin_of: Twins
) -> None:
    def verdict(twin: Twin, runs: tuple[RobotLog, ...]) -> str:
        result = run_closed_loop(twin, spring, "0" * 64, task, runs, draws=DRAWS, seed=0)
        assert bool(result.record.evidence_runs) == (runs is logs and twin.covariance.any())
        assert ("cart.mass" in result.narrowed) == bool(result.record.evidence_runs)
        return result.record.verdict

    assert verdict(vague(twin_of), runs_of(task, efforts=False)) == "undecided"
    assert verdict(vague(twin_of), logs) == "reproduced"
    # 40 % too heavy and sure of it within 2 %; 30 ms late, which no replay from measured efforts shows.
    assert verdict(twin_of(mass=1.4 * TRUTH), logs) != "reproduced"
    late = vague(twin_of)
    lag_s = late.timing.command_lag_mean_s
    assert lag_s is not None
    timing = late.timing.model_copy(update={"command_lag_mean_s": lag_s + 0.03, "command_lag_p99_s": lag_s + 0.035})
    assert verdict(replace(late, timing=timing), logs) == "contradicted"


def test_noise_weights_by_hand() -> None:
    """Of H = diag(4, 1), the first has twice the noise of independent windows, the second less, which does not count."""
    found = noise_weights(np.diag([4.0, 1.0, 0.0]), np.diag([8.0, 0.5, 0.0]))
    assert found == pytest.approx(np.diag([0.5, 1.0, 0.0]))


def test_gradient_covariance_by_hand() -> None:
    """Windows 0.5 s apart count half together: 1 + 1 + 2 · 0.5; in recordings that err independently not at all."""
    gradients, start_s = np.ones((2, 1)), np.array([0.0, 0.5])
    assert gradient_covariance(gradients, start_s) == pytest.approx(np.array([[3.0]]))
    assert gradient_covariance(gradients, start_s, np.array([0, 1])) == pytest.approx(np.array([[2.0]]))
