"""Fixtures of these tests: a cart on a rail, a spring that brings it to the middle, and a twin of the cart."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.support.fixtures_gates import TASK_FILE, spring_policy

from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter, SensorNoise, Timing

MASS, FRICTION, SPREAD = 2.1, 1.0, 0.02
"""Fitted values [kg, N], and their relative standard deviation."""

Twins = Callable[..., Twin]


@pytest.fixture(scope="session")
def task() -> Task:
    return load_task(str(TASK_FILE))


@pytest.fixture
def spring(task: Task) -> OnnxPolicy:
    """Damped little (0.25), so that mass, friction and lag show."""
    return OnnxPolicy(spring_policy(task, stiffness=40.0, damping=4.0), source="spring.onnx")


def _parameter(name: str, unit: str, value: float, spread: float) -> FittedParameter:
    return FittedParameter(
        name=name,
        unit=unit,
        prior=1.0,
        prior_std=1.0,
        lower=0.0,
        upper=10.0,
        value=value,
        std=spread,
        identified=True,
    )


@pytest.fixture(scope="session")
def twin_of(task: Task) -> Twins:
    """A twin with these values and as much more lag [s] than the 10 to 20 ms of the stand-ins."""

    def make(mass: float = MASS, friction: float = FRICTION, lag_s: float = 0.0) -> Twin:
        deviations = SPREAD * MASS, SPREAD * FRICTION if friction else 0.0
        return replace(
            nominal_twin(task.robot),
            parameters=(
                _parameter("cart.mass", "kg", mass, deviations[0]),
                _parameter("rail.friction", "N", friction, deviations[1]),
            ),
            covariance=np.diag(np.square(deviations)),
            noise=SensorNoise(joint_pos_std=(0.002,), joint_vel_std=(0.02,)),
            timing=Timing(
                command_lag_mean_s=0.015 + lag_s,
                command_lag_p99_s=0.02 + lag_s,
                period_median_s=0.02,
                period_p99_s=0.02,
                period_max_s=0.02,
            ),
        )

    return make
