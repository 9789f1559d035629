"""Each run's encoder offset is found from the run, and the twin's run has it, too."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.balancer_task import make_task
from tests.support.closed_loop_runs import HiddenRobot, recorded_runs_of
from tests.support.fixtures_gates import spring_policy
from tests.unit.twin.closed_loop.conftest import Twins

from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.closed_loop.closed_loop import run_closed_loop
from physai.twin.closed_loop.comparison_page import closed_loop_page
from physai.twin.closed_loop.offsets import RunOffsets, prior_offset, run_offsets
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter, LogRecord, Logs, SensorNoise, Timing

Array = NDArray[np.float64]

MEAN, SPREAD, RUNS, SEED = 0.03, 0.02, 6, 4
TRUTH = HiddenRobot(
    values={"link.mass": 1.0}, pos_std=5e-4, vel_std=5e-3, offset=(MEAN, SPREAD), start=(0.2, 0.4), lag_s=(0.01, 0.01)
)


@pytest.fixture(scope="module")
def balancer() -> Task:
    return make_task()


@pytest.fixture(scope="module")
def policy(balancer: Task) -> OnnxPolicy:
    """20 N·m per rad, 9.81 of which hold the weight: it comes to rest at a reading of 1 - 20/10.2 = -0.96 offsets."""
    return OnnxPolicy(spring_policy(balancer, stiffness=20.0, damping=5.0), source="balance.onnx")


@pytest.fixture(scope="module")
def logs(balancer: Task, policy: OnnxPolicy) -> tuple[RobotLog, ...]:
    return recorded_runs_of(balancer, policy, TRUTH, RUNS, seed=SEED)


def recorded(*offsets: float) -> Logs:
    """Recordings of a calibration, with these offsets found in them."""
    return Logs(
        train=tuple(
            LogRecord(name=f"log{n}", sha256=f"{n + 10**6:064x}", joint_pos_offset=(o,), joint_pos_offset_std=(1e-3,))
            for n, o in enumerate(offsets)
        )
    )


def twin_of(task: Task, *offsets: float) -> Twin:
    mass = FittedParameter(
        name="link.mass",
        unit="kg",
        prior=1.0,
        prior_std=0.1,
        lower=0.5,
        upper=2.0,
        value=1.0,
        std=1e-3,
        identified=True,
    )
    return replace(
        nominal_twin(task.robot),
        parameters=(mass,),
        covariance=np.array([[1e-6]]),
        noise=SensorNoise(joint_pos_std=(5e-4,), joint_vel_std=(5e-3,)),
        timing=Timing(command_lag_mean_s=0.01, command_lag_p99_s=0.01),
        logs=recorded(*offsets) if offsets else Logs(),
    )


FITTED = MEAN - SPREAD, MEAN + SPREAD, MEAN - 0.5 * SPREAD, MEAN + 0.5 * SPREAD
"""Their mean is `MEAN`, their standard deviation √(2.5/3) of `SPREAD`."""


def test_the_offset_of_each_run_is_found(balancer: Task, logs: tuple[RobotLog, ...]) -> None:
    twin = twin_of(balancer, *FITTED)
    found = run_offsets(twin, balancer, logs, twin.values[None])
    assert found is not None
    truth = [TRUTH.offset_of(1000 * SEED + number + 1) for number in range(RUNS)]
    assert np.ptp(truth) > SPREAD
    assert found.mean[0, :, 0] == pytest.approx(truth, abs=5e-3)
    assert (found.std < 0.4 * SPREAD).all()


def test_the_right_twin_is_reproduced_and_one_without_offsets_contradicted(
    balancer: Task, policy: OnnxPolicy, logs: tuple[RobotLog, ...]
) -> None:
    told: list[float] = []
    results = [
        run_closed_loop(twin, policy, "0" * 64, balancer, logs, draws=90, seed=1, tell=told.append)
        for twin in (twin_of(balancer, *FITTED), twin_of(balancer))
    ]
    # Every control period of every batch is told, so that minutes are not silent.
    first = told[: told.index(1.0) + 1]
    assert first[0] == 0.0
    assert (np.diff(first) >= 0.0).all()
    assert np.diff(first).max() < 0.02
    right, wrong = (result.record for result in results)
    assert right.verdict == "reproduced"
    assert wrong.verdict == "contradicted"
    differences = [
        next(test.difference for test in record.tests if test.name == "trajectories") for record in (right, wrong)
    ]
    assert differences[1] > 5.0 * abs(differences[0])
    assert all(len(log.joint_pos_offset) == 1 for log in right.logs)
    assert not any(log.joint_pos_offset for log in wrong.logs)
    pages = [closed_loop_page(result, title="twin.json") for result in results]
    for log in right.logs:
        assert f"<td class='number'>{log.joint_pos_offset[0]:+.4f} ± {log.joint_pos_offset_std[0]:.4f}</td>" in pages[0]
    assert "Encoder offsets" not in pages[1]


def test_where_gravity_does_not_show_it_a_run_keeps_the_prior(task: Task, spring: OnnxPolicy, twin_of: Twins) -> None:
    """On a level rail. Four offsets about 0.03, ±0.02 and ±0.01: mean square 2.5e-4, as a sample 3.33e-4."""
    twin = replace(twin_of(), logs=recorded(*FITTED))
    logs = recorded_runs_of(task, spring, HiddenRobot(values={"cart.mass": 2.1}), 2, seed=0)
    mean, spread = prior_offset(task, twin)
    # Of the mean, 3.33e-4/4/0.03² = 9.3 % may be chance; 0.0185 grows by √1.25·3.182/1.96 = 1.8 to the prior's 0.03.
    assert mean == pytest.approx([0.03 * (1.0 - 0.0926)], rel=2e-3)
    assert spread == pytest.approx([0.03])
    found = run_offsets(twin, task, logs, twin.draw(3, 0))
    assert found is not None
    assert found.mean == pytest.approx(np.full((3, 2, 1), mean[0]), abs=1e-6)
    assert found.std == pytest.approx(np.full((2, 1), 0.03), rel=1e-6)
    assert run_offsets(twin_of(), task, logs, twin.draw(3, 0)) is None


def test_a_run_too_short_to_be_replayed_keeps_the_prior(balancer: Task, logs: tuple[RobotLog, ...]) -> None:
    """Nine samples are 0.16 s; a window is 0.25 s long."""
    whole, other = logs[:2]
    assert other.joint_vel is not None
    short = replace(
        other,
        time=other.time[:9],
        joint_pos=other.joint_pos[:9],
        joint_vel=other.joint_vel[:9],
        command=other.command[:9],
    )
    twin = twin_of(balancer, *FITTED)
    mean, spread = prior_offset(balancer, twin)
    found = run_offsets(twin, balancer, (whole, short), twin.values[None])
    assert found is not None
    assert found.mean[0, 1] == pytest.approx(mean)
    assert found.std[1] == pytest.approx(spread)
    assert found.std[0] < 0.5 * spread


def test_servos_have_no_estimate() -> None:
    """Their targets have the encoders' offset, too."""
    reach = load_task("ur10e-reach")
    offsets = LogRecord(name="a", sha256="a" * 64, joint_pos_offset=(0.02,) * 6, joint_pos_offset_std=(1e-3,) * 6)
    twin = replace(nominal_twin(reach.robot), logs=Logs(train=(offsets,)))
    assert prior_offset(reach, twin)[1].all()
    assert run_offsets(twin, reach, (), np.zeros((1, 0))) is None


def test_draws_have_the_covariance_and_equal_seeds_are_equal() -> None:
    """Two joints with the covariance [[4, 1], [1, 1]]·1e-4; 20 000 draws tell it within a few per cent."""
    covariance = 1e-4 * np.array([[4.0, 1.0], [1.0, 1.0]])
    offsets = RunOffsets(np.tile([0.1, -0.2], (20_000, 1, 1)), covariance[None])
    found = offsets.drawn(3)
    assert found.mean(axis=0) == pytest.approx([0.1, -0.2], abs=1e-3)
    assert np.cov(found.T) == pytest.approx(covariance, rel=0.05)
    assert np.array_equal(found, offsets.drawn(3))
