"""The age of a sensor sample is a number of the loop's periods and a constant time: recordings at two rates tell both.

The stand-in's joint is polled once per loop: its positions are one period and 2 ms older than the efforts beside them,
4 ms at 500 Hz and 10 ms at 125 Hz.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sim.calibration.calibrate import calibrate
from physai.sim.calibration.page_motors import motor_rows
from physai.sim.logs import RobotLog
from physai.sim.robots import Robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay
from physai.sim.twin.measured_task import sensor_age
from physai.sim.twin.parameters import AGE, AGE_PERIODS
from physai.sim.twin.twin import Twin

Recorder = Callable[..., RobotLog]

TRUTH = {"arm.com_z": -0.47, "hinge.friction": 0.35, "hinge.damping": 0.2, "hinge.armature": 0.08}
FAST, SLOW = 1, 4
"""Physics steps of 2 ms per sample."""


def fitted(robot: Robot, record: Recorder, rates: tuple[int, ...], **age: float) -> Twin:
    logs = [record(robot, TRUTH, seed=seed, every=every, name=f"log{seed}", **age) for seed, every in enumerate(rates)]
    return calibrate(robot, logs, friction="coulomb", num_threads=1).twin


@pytest.fixture(scope="module")
def polled(pendulum: Robot, record: Recorder) -> Twin:
    return fitted(pendulum, record, (FAST, SLOW, FAST, SLOW), age_s=0.002, age_periods=1.0)


def test_two_rates_tell_periods_from_seconds(polled: Twin) -> None:
    found = {parameter.name: parameter for parameter in polled.parameters}
    for name, truth in ((AGE, 0.002), (AGE_PERIODS, 1.0)):
        print(name, found[name].value, found[name].std)
