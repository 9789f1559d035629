"""The age of a sensor sample is a number of the loop's periods and a constant time: recordings at two rates tell both.

The stand-in's joint is polled once per loop: its positions are one period and 2 ms older than the efforts of the same
sample, 4 ms at 500 Hz and 10 ms at 125 Hz.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.pusher_task import make_task

from physai.gates.checks.robustness import describe_condition
from physai.sim.robots import Robot
from physai.sim.tasks.task import Delay, Task
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.page_motors import motor_rows
from physai.twin.logs import RobotLog
from physai.twin.model.conditions import conditions, task_under
from physai.twin.model.measured_task import lag_range, sensor_age
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import FittedParameter
from physai.twin.parameters.parameters import AGE, AGE_PERIODS, DELAY, DELAY_PERIODS

pytestmark = pytest.mark.slow

Recorder = Callable[..., RobotLog]

TRUTH = {"arm.com_z": -0.47, "hinge.friction": 0.35, "hinge.damping": 0.2, "hinge.armature": 0.08}
FAST, SLOW = 1, 4
"""Physics steps of 2 ms per sample."""


def fitted(robot: Robot, record: Recorder, rates: tuple[int, ...], *, commands: bool = False, **age: float) -> Twin:
    logs = [record(robot, TRUTH, seed=seed, every=every, name=f"log{seed}", **age) for seed, every in enumerate(rates)]
    if commands:
        logs = [replace(log, joint_effort=None) for log in logs]
    return fit_twin(robot, logs, friction="coulomb", num_threads=1).twin


@pytest.fixture(scope="module")
def polled(pendulum: Robot, record: Recorder) -> Twin:
    return fitted(pendulum, record, (FAST, SLOW), age_s=0.002, age_periods=1.0)


def at_rate(control_dt: float) -> Task:
    """A task of one joint whose policy runs at this period [s], of physics steps of 10 ms."""
    task = make_task()
    timing = task.contract.timing.model_copy(
        update={"control_dt": control_dt, "decimation": round(control_dt / task.contract.timing.physics_dt)}
    )
    return replace(task, contract=task.contract.model_copy(update={"timing": timing}))


def parameter(twin: Twin, name: str) -> FittedParameter:
    return next(one for one in twin.parameters if one.name == name)


def test_two_rates_tell_periods_from_seconds(polled: Twin) -> None:
    """Within four standard deviations, which are a small share of the truth."""
    for name, truth, share in ((AGE, 0.002, 0.1), (AGE_PERIODS, 1.0, 0.05)):
        found = parameter(polled, name)
        assert found.identified
        assert found.std < share * truth
        assert abs(found.value - truth) < 4.0 * found.std
    # docs/explanation/twin-sensors.md
    assert abs(parameter(polled, AGE).value - 0.002) < 0.0002
    assert abs(parameter(polled, AGE_PERIODS).value - 1.0) < 0.06
    said = dict(motor_rows(polled))["age of positions behind efforts"]
    assert "periods of the loop + 2." in said, said


@pytest.mark.parametrize("control_dt", [0.02, 0.03])
def test_the_age_is_right_at_the_policys_own_rate(polled: Twin, control_dt: float) -> None:
    """22 and 32 ms in loops of 20 and 30 ms, which are no rates of the recordings."""
    task, truth_s = at_rate(control_dt), control_dt + 0.002
    age = sensor_age(task, polled).at(control_dt)
    assert age.lower_s < truth_s < age.upper_s
    assert age.upper_s - age.lower_s < 0.08 * truth_s
    found = conditions(task, polled)
    one, twice = (task_under(task, polled, found[name]).sensor_delay for name in ("measured", "twice"))
    assert twice == Delay(
        lower_s=2.0 * one.lower_s,
        upper_s=2.0 * one.upper_s,
        lower_periods=2.0 * one.lower_periods,
        upper_periods=2.0 * one.upper_periods,
    )
    assert twice.at(control_dt).upper_s == pytest.approx(2.0 * age.upper_s)
    said = describe_condition(found["twice"], sensor_age(task, polled))
    assert f"sensor samples up to {twice.upper_periods:.3g} periods + {1e3 * twice.upper_s:.3g} ms old" in said


def test_one_rate_leaves_the_tasks_own_age(pendulum: Robot, record: Recorder) -> None:
    """One rate shows 4 ms, not whether they are periods or seconds: nothing is fitted, and the report says so."""
    twin = fitted(pendulum, record, (FAST,), age_s=0.002, age_periods=1.0)
    assert not {AGE, AGE_PERIODS} & {one.name for one in twin.parameters}
    own = replace(at_rate(0.02), sensor_delay=Delay(upper_s=0.001, upper_periods=0.5))
    assert sensor_age(own, twin) == own.sensor_delay
    assert "recordings at two rates show it" in dict(motor_rows(twin))["age of sensor samples"]


def test_from_commands_the_delay_is_that_of_command_and_sample_together(pendulum: Robot, record: Recorder) -> None:
    """The stand-in follows the sines themselves, half a period ahead of commands that are held: 0.5 periods + 2 ms."""
    twin = fitted(pendulum, record, (FAST, SLOW), commands=True, age_s=0.002, age_periods=1.0)
    for name, truth in ((DELAY, 0.002), (DELAY_PERIODS, 0.5)):
        found = parameter(twin, name)
        assert found.identified
        assert abs(found.value - truth) < 4.0 * found.std < 0.15 * truth
    task = at_rate(0.03)
    lower, upper = lag_range(task, twin)
    assert lower < 0.017 < upper < 0.019
    # It is in the lag of the commands already.
    assert sensor_age(task, twin) == task.sensor_delay
    assert "periods of the loop + 2." in dict(motor_rows(twin))["from command to measured position"]
