"""Rollouts: the graph, the guard and the twin in one loop, and what is counted of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.gates.checks.gate import Context
from physai.gates.execution.workers import play
from physai.sdk.safety import GuardState, Reason
from physai.twin.model.conditions import Condition
from physai.twin.rollouts.batch import Batch, BatchResult
from physai.twin.rollouts.rollout import SPEED, Overruns
from physai.twin.rollouts.worlds import build_worlds


def run(context: Context, name: str = "calibrated", **changes: Any) -> BatchResult:
    return play(context.subject, replace(context.batch(0, context.conditions[name], count=32), **changes))


def test_a_spring_and_damper_does_the_task(bench: Any, write_policy: Callable[..., Path]) -> None:
    played = run(bench.context(write_policy()))
    assert played.successes == 32
    assert not played.violated.any()
    np.testing.assert_allclose(played.length_s, 2.4)
    assert (played.held > 0.3).all()
    # Lags of 10 to 20 ms in steps of 10 ms, and as nothing tests them, down to 0 and 12 ms more.
    assert {round(float(lag), 6) for lag in played.lag_s} == {0.0, 0.01, 0.02, 0.03}


def test_a_push_to_the_side_ends_the_episode(bench: Any, write_policy: Callable[..., Path]) -> None:
    played = run(bench.context(write_policy(stiffness=-12.0)))
    assert played.successes == 0
    assert (played.length_s < 2.4).all()


def test_parameters_are_drawn_from_the_posterior_by_the_episodes_seed(
    bench: Any, write_policy: Callable[..., Path]
) -> None:
    context = bench.context(write_policy())
    played = run(context)
    assert played.values.shape == (32, 2)
    # Mass 2.1 ± 0.05 kg: 32 draws have their mean within 4 standard errors.
    assert abs(played.values[:, 0].mean() - 2.1) < 4 * 0.05 / np.sqrt(32)
    assert 0.02 < played.values[:, 0].std() < 0.09
    batch = context.batch(0, context.conditions["calibrated"], count=32)
    alone = play(context.subject, replace(batch, seeds=batch.seeds[5:6]))
    np.testing.assert_array_equal(alone.values[0], played.values[5])


def test_the_worlds_have_their_parameters(bench: Any, write_policy: Callable[..., Path]) -> None:
    subject = bench.subject(write_policy())
    condition = Condition(name="x", lag_lower_s=0.0, lag_upper_s=0.0, payload_kg=0.5)
    batch = Batch(condition=condition, seeds=(1, 2), values=((2.0, 0.1), (3.0, 0.4)))
    engine: Any = build_worlds(subject.task, subject.twin, batch).env.engine
    cart = subject.task.model.body("cart").id
    np.testing.assert_allclose(engine.parameter("body_mass")[:, cart], [2.5, 3.5])
    np.testing.assert_allclose(engine.parameter("dof_frictionloss")[:, 0], [0.1, 0.4])


def test_no_number_is_caught_by_the_guard(bench: Any, write_policy: Callable[..., Path]) -> None:
    played = run(bench.context(write_policy(nan_above=0.5)))
    assert played.violated.all()
    assert (played.guard_reasons & int(Reason.COMMAND_NOT_FINITE)).all()
    assert (played.guard_step > 0).all()


def test_too_much_speed_is_a_broken_limit(bench: Any, write_policy: Callable[..., Path]) -> None:
    # A constant 20 N for 0.95 m from rest: v = sqrt(2 · 9.7 · 0.95) = 4.3 m/s; the limit of 5 m/s needs 1.29 m.
    played = run(bench.context(write_policy(stiffness=0.0, damping=-200.0, push=-20.0)))
    fast = played.broken_step >= 0
    assert fast.any()
    assert (played.broken_limits[fast] & SPEED).all()
    assert (played.vel_usage[fast] > 1.0).all()
    np.testing.assert_allclose(played.effort_usage, 1.0)
    assert (played.saturated > 0.5).all()


def test_an_overrun_is_bridged_and_no_violation(bench: Any, write_policy: Callable[..., Path]) -> None:
    context = bench.context(write_policy())
    late = replace(context.conditions["calibrated"], late_periods=1)
    played = run(context, condition=late)
    assert played.late.sum() > 0
    assert not played.violated.any()
    assert played.successes == 32


def test_too_long_an_overrun_makes_the_guard_hold(bench: Any, write_policy: Callable[..., Path]) -> None:
    context = bench.context(write_policy())
    late = replace(context.conditions["calibrated"], late_periods=5)
    played = run(context, condition=late)
    assert (played.guard_state[played.late > 0] >= GuardState.HOLD).all()
    assert played.violated[played.late > 0].all()


def test_overruns_last_as_long_as_asked() -> None:
    overruns = Overruns(np.arange(2000, dtype=np.uint64), 3)
    late = np.array([overruns.at(step) for step in range(50)])
    # Each period begins one with probability 0.01; 2000 worlds, 50 periods: 1000 expected.
    begins = np.diff(late.astype(int), axis=0, prepend=0) > 0
    assert 850 < begins.sum() < 1150
    assert not late[:, ~late.any(axis=0)].any()
    assert Overruns(np.arange(3, dtype=np.uint64), 0).at(0).tolist() == [False] * 3


def test_visited_inputs_are_what_the_graph_was_asked(bench: Any, write_policy: Callable[..., Path]) -> None:
    played = run(bench.context(write_policy()), visits=100)
    assert {name: values.shape for name, values in played.visits.items()} == {
        "joint_pos": (100, 1),
        "joint_vel": (100, 1),
    }
    assert (np.abs(played.visits["joint_pos"][:32]) > 0.4).all()


def test_the_state_is_noted_early(bench: Any, write_policy: Callable[..., Path]) -> None:
    played = run(bench.context(write_policy()), early_s=0.2)
    assert ((np.abs(played.early_pos) > 0.1) & (np.abs(played.early_pos) < 1.0)).all()
    assert np.isnan(run(bench.context(write_policy()), early_s=0.0).early_pos).all()


@pytest.mark.parametrize("name", ["measured", "twice", "pushes", "payload"])
def test_every_condition_can_be_played(bench: Any, write_policy: Callable[..., Path], name: str) -> None:
    assert run(bench.context(write_policy()), name).successes > 16
