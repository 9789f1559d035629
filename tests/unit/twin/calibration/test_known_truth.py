"""Recordings made with hidden parameters give them back within the reported 95 % intervals, as often as these say.

One joint, four hidden parameters drawn evenly from ranges in which model files err, 8 s of motion under four sines,
sensor noise as on the double pendulum, a speed that is the difference of the positions, and an encoder zero of its own.
Counted per parameter: the draws in which its own interval, value ± 1.96 standard deviations, holds the truth; and
jointly: those in which the truth lies in the 95 % ellipsoid of the reported covariance (squared Mahalanobis distance
below 9.488, chi-square with four degrees of freedom).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sim.robots import Robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.logs import RobotLog
from physai.twin.parameters.parameters import OFFSET_STD

Array = NDArray[np.float64]
Recorder = Callable[..., RobotLog]

HIDDEN = {
    "arm.com_z": (-0.55, -0.45),
    "hinge.friction": (0.05, 0.6),
    "hinge.damping": (0.02, 0.3),
    "hinge.armature": (0.01, 0.12),
}
RANGES = np.array([upper - lower for lower, upper in HIDDEN.values()])
JOINT_LIMIT = 9.488
"""95 % quantile of chi-square with four degrees of freedom."""
NOMINAL = 0.95
QUICK_DRAWS, QUICK_LEAST = 6, 2


@dataclass(frozen=True)
class Draw:
    """One hidden truth and what the fit said of it; four parameters."""

    within: NDArray[np.bool_]
    """Whether each parameter's interval holds the truth."""
    distance: float
    """Squared Mahalanobis distance of the truth from the estimate."""
    half_width: Array
    """Of the intervals, in shares of the ranges the truth was drawn from."""
    offset_error: float
    """Of the encoder's zero, in its reported standard deviations."""
    offset_std: float
    """[rad]"""


def draw(robot: Robot, record: Recorder, seed: int) -> Draw:
    random = np.random.default_rng([7, seed])
    truth = {name: random.uniform(*bounds) for name, bounds in HIDDEN.items()}
    offset = random.normal(0.0, OFFSET_STD)
    log = record(robot, truth, seed=seed, seconds=8.0, offset=offset)
    speed = np.zeros_like(log.joint_pos)
    speed[1:] = np.diff(log.joint_pos, axis=0) / np.diff(log.time)[:, None]
    log = replace(log, joint_vel=speed)
    twin = fit_twin(robot, [log], only=tuple(HIDDEN), num_threads=1, time_budget_s=1e6).twin
    count = len(HIDDEN)
    fitted, values, covariance = twin.parameters[:count], twin.values[:count], twin.covariance[:count, :count]
    assert [parameter.name for parameter in fitted] == list(HIDDEN)
    assert not any(parameter.identified for parameter in twin.parameters[count:])
    assert (twin.sensors[0].joint_vel, twin.sensors[0].joint_vel_span) == ("backward", 1)
    (recording,) = twin.logs.train
    half = np.array([1.96 * parameter.std for parameter in fitted])
    error = values - np.array(list(truth.values()))
    distance = float(error @ np.linalg.solve(covariance, error))
    return Draw(
        within=np.abs(error) <= half,
        distance=distance,
        half_width=half / RANGES,
        offset_error=(recording.joint_pos_offset[0] - offset) / recording.joint_pos_offset_std[0],
        offset_std=recording.joint_pos_offset_std[0],
    )


@pytest.mark.slow
def test_a_few_draws(pendulum: Robot, record: Recorder) -> None:
    """Intervals that held the truth 19 times of 20 would fail here less than once in 10 000 times."""
    by_luck = sum(
        comb(QUICK_DRAWS, held) * NOMINAL**held * (1.0 - NOMINAL) ** (QUICK_DRAWS - held) for held in range(QUICK_LEAST)
    )
    assert len(HIDDEN) * by_luck < 1e-4
    draws = [draw(pendulum, record, seed) for seed in range(QUICK_DRAWS)]
    assert (np.sum([one.within for one in draws], axis=0) >= QUICK_LEAST).all()
    assert (np.median([one.half_width for one in draws], axis=0) < 0.1).all(), "intervals too wide to say anything"
    assert sum(abs(one.offset_error) <= 1.96 for one in draws) >= QUICK_LEAST
    assert max(one.offset_std for one in draws) < 0.2 * OFFSET_STD


@pytest.mark.exhaustive
def test_a_hundred_draws(pendulum: Robot, record: Recorder) -> None:
    draws = [draw(pendulum, record, seed) for seed in range(100)]
    each = np.sum([one.within for one in draws], axis=0)
    jointly = sum(one.distance <= JOINT_LIMIT for one in draws)
    widths = np.median([one.half_width for one in draws], axis=0)
    print(f"within their intervals, of 100: {dict(zip(HIDDEN, each.tolist(), strict=True))}, jointly {jointly}")
    print(f"median half width, share of the range: {dict(zip(HIDDEN, widths.round(4).tolist(), strict=True))}")
    offsets = sum(abs(one.offset_error) <= 1.96 for one in draws)
    print(f"encoder zeros within their intervals, of 100: {offsets}")
    assert (each >= 90).all()
    assert jointly >= 90
    assert offsets >= 90
    assert (widths < 0.1).all()
