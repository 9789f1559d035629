"""Conditions: perturbations come from what the twin has measured, in numbers checked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from physai.sim.robots import load_robot
from physai.sim.robots.payload import moving_mass, payload_body
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, Push, Task
from physai.twin.model.conditions import conditions, late_periods, task_under
from physai.twin.model.credibility import LAG_DOUBT_S, lag_doubt
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import Alternative, Interval, SensorNoise, Timing


def timed(twin: Twin, **times: float | None) -> Twin:
    return replace(twin, timing=twin.timing.model_copy(update=times))


def test_delays_and_noise_are_the_measured_ones(task: Task, credible_twin: Twin) -> None:
    found = conditions(task, credible_twin, doubtful_lags=False)
    # Mean 15 ms and 99th percentile 20 ms: mirrored, 10 to 20 ms.
    assert (found["calibrated"].lag_lower_s, found["calibrated"].lag_upper_s) == pytest.approx((0.01, 0.02))
    assert found["measured"].lag_lower_s == found["measured"].lag_upper_s == 0.02
    assert found["twice"].lag_lower_s == found["twice"].lag_upper_s == 0.04
    assert [found[name].noise_scale for name in ("calibrated", "measured", "twice")] == [1.0, 1.0, 2.0]
    under = task_under(task, credible_twin, found["twice"])
    assert under.sensors["joint_pos"].noise_std == 0.004
    assert under.sensors["joint_vel"].noise_std == 0.04
    assert under.action_delay == Delay(lower_s=0.04, upper_s=0.04)
    assert under.randomisation == ()
    assert not under.rewards


def test_the_tasks_own_assumptions_stand_in_where_no_log_tells(task: Task, credible_twin: Twin) -> None:
    silent = replace(credible_twin, noise=SensorNoise(), timing=Timing())
    found = conditions(task, silent, doubtful_lags=False)
    assert (found["calibrated"].lag_lower_s, found["calibrated"].lag_upper_s) == (0.0, 0.01)
    assert found["twice"].lag_upper_s == 0.02
    assert task_under(task, silent, found["calibrated"]).sensors["joint_pos"].noise_std == 1e-3


ALTERNATIVES = ("no lag", "lag -6 ms", "lag +6 ms")


@pytest.mark.parametrize(
    ("excluded", "lags"),
    [
        (None, (0.0, 0.032)),
        ((), (0.0, 0.032)),
        (("lag +6 ms",), (0.0, 0.02)),
        (("no lag",), (0.004, 0.032)),
        (("no lag", "lag -6 ms"), (0.01, 0.032)),
        (ALTERNATIVES, (0.01, 0.02)),
    ],
)
def test_lags_that_the_held_out_recordings_do_not_exclude_are_played(
    task: Task, credible_twin: Twin, excluded: tuple[str, ...] | None, lags: tuple[float, float]
) -> None:
    """The twin states 10 to 20 ms. Nothing, or replays from commands that err more with another lag, test that."""
    twin = credible_twin
    assert twin.residuals is not None
    if excluded is not None:
        worse, alike = Interval(value=1.2, lo=1.1, hi=1.3), Interval(value=1.0, lo=0.9, hi=1.1)
        compared = tuple(Alternative(name=name, ratio=worse if name in excluded else alike) for name in ALTERNATIVES)
        twin = replace(twin, command_residuals=twin.residuals.model_copy(update={"alternatives": compared}))
    found = conditions(task, twin)
    assert (found["calibrated"].lag_lower_s, found["calibrated"].lag_upper_s) == pytest.approx(lags)
    assert found["measured"].lag_lower_s == pytest.approx(lags[1])
    assert found["twice"].lag_upper_s == pytest.approx(0.04)
    assert conditions(task, twin, doubtful_lags=False)["calibrated"].lag_upper_s == pytest.approx(0.02)


def test_a_lag_that_held_out_recordings_show_has_no_other(task: Task, credible_twin: Twin) -> None:
    assert credible_twin.residuals is not None
    shown = credible_twin.residuals.model_copy(update={"command_lag": Interval(value=0.015, lo=0.01, hi=0.02)})
    found = conditions(task, replace(credible_twin, residuals=shown))
    assert (found["calibrated"].lag_lower_s, found["calibrated"].lag_upper_s) == pytest.approx((0.01, 0.02))
    assert conditions(task, nominal_twin(task.robot))["calibrated"].lag_upper_s == 0.01


def test_an_overrun_that_meets_the_deadline_is_none(task: Task, credible_twin: Twin) -> None:
    # Deadline 10 ms, control period 20 ms. An excess of 1 ms is bridged; 15 ms cost one period, 25 ms two.
    assert late_periods(task, credible_twin, 1.0) == 0
    assert late_periods(task, timed(credible_twin, period_p99_s=0.035), 1.0) == 1
    assert late_periods(task, timed(credible_twin, period_p99_s=0.045), 1.0) == 2
    assert late_periods(task, timed(credible_twin, period_p99_s=0.027), 2.0) == 1
    assert late_periods(task, timed(credible_twin, period_p99_s=None), 2.0) == 0


def test_a_payload_is_a_share_of_what_moves(task: Task, credible_twin: Twin) -> None:
    assert moving_mass(task.model) == 2.0
    found = conditions(task, credible_twin, payload_fraction=0.1)
    assert found["payload"].payload_kg == pytest.approx(0.2)
    # The post of the double pendulum does not move: 0.5235 + 0.6256 kg do.
    assert moving_mass(load_robot("double_pendulum").model) == pytest.approx(1.149028)


@pytest.mark.parametrize(("name", "body"), [("pendubot-swingup", "link2"), ("cartpole-swingup", "pole")])
def test_a_payload_hangs_at_the_end_of_the_chain(name: str, body: str) -> None:
    task = load_task(name)
    assert task.model.body(payload_body(task.model)).name == body


def test_a_floating_robot_carries_it_on_its_base() -> None:
    task = load_task("go2-velocity")
    assert payload_body(task.model) == int(task.model.jnt_bodyid[0])


def test_pushes_are_the_tasks_own_or_a_tenth_of_the_speed_limit(task: Task, credible_twin: Twin) -> None:
    pushed = conditions(task, credible_twin, push_scale=2.0)["pushes"]
    assert task_under(task, credible_twin, pushed).push == Push(interval_s=3.0, velocity=(1.0,))
    own = replace(task, push=Push(interval_s=1.0, velocity=(0.3,)))
    assert task_under(own, credible_twin, pushed).push == Push(interval_s=1.0, velocity=(0.6,))
    assert task_under(own, credible_twin, replace(pushed, push_scale=0.0)).push is None


def test_conditions_know_their_fields_by_name(task: Task, credible_twin: Twin) -> None:
    record = conditions(task, credible_twin, doubtful_lags=False)["measured"].as_json()
    assert record["name"] == "measured"
    assert np.isclose(float(record["lag_upper_s"]), 0.02)


def test_a_lag_that_recordings_are_replayed_worse_with_is_not_tested(credible_twin: Twin) -> None:
    """Efforts that were rounded copies of the commands showed a lag of 0, and the motion a later one."""
    assert credible_twin.residuals is not None
    shown = credible_twin.residuals.model_copy(update={"command_lag": Interval(value=0.0, lo=0.0, hi=0.0)})
    twin = replace(credible_twin, residuals=shown)
    assert lag_doubt(twin) == (0.0, 0.0)
    later, earlier = Interval(value=0.95, lo=0.92, hi=0.987), Interval(value=1.0, lo=0.98, hi=1.02)
    ratios = (Alternative(name="lag -6 ms", ratio=earlier), Alternative(name="lag +6 ms", ratio=later))
    sent = replace(twin, command_residuals=shown.model_copy(update={"alternatives": ratios}))
    assert lag_doubt(sent) == (0.0, LAG_DOUBT_S)
    timing = Timing(command_lag_mean_s=0.0, command_lag_p99_s=0.0)
    assert "these are replayed better with another" in " ".join(replace(sent, timing=timing).credible().reasons)


def test_a_lag_of_efforts_does_not_test_the_delay_of_a_servo(credible_twin: Twin) -> None:
    """A twin file that states one, of which its replays from targets say nothing, has not tested its delay."""
    assert credible_twin.residuals is not None
    alike = Interval(value=1.0, lo=0.9, hi=1.1)
    delays = tuple(Alternative(name=f"command delay {late} ms", ratio=alike) for late in ("0.0", "6.0"))
    shown = {"command_lag": Interval(value=0.0, lo=0.0, hi=0.0), "alternatives": delays}
    twin = replace(credible_twin, residuals=credible_twin.residuals.model_copy(update=shown))
    assert lag_doubt(twin) == (np.inf, LAG_DOUBT_S)
