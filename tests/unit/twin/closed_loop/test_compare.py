"""Comparison of runs made by hand: what differs is found, what is negligible is not held against a twin."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.stats.two_sample import detectable_rate_difference
from physai.sim.tasks.task import Task
from physai.twin.closed_loop.compare import RATE_NEEDED, SUCCESS_LEVEL, RunComparison, compare
from physai.twin.closed_loop.runs import Runs
from physai.twin.model.closed_loop_evidence import POWER, ClosedLoopTest

DRAWS, STARTS, STEPS = 120, 6, 120


def moving(
    count: int, *, seed: int, settled: float = 60.0, shift: float = 0.0, fails: float = 0.0, scatter: float = 1.0
) -> Runs:
    """Cosines from starts 0.5 to 1 m away to the middle, which is reached after about so many steps."""
    random = np.random.default_rng(seed)
    starts = np.tile(np.linspace(0.5, 1.0, STARTS), count // STARTS)
    steps = np.arange(STEPS)
    when = settled + scatter * 2.0 * random.normal(size=count)
    phase = np.minimum(steps / when[:, None], 1.0) * np.pi / 2.0
    position = starts[:, None] * np.cos(phase) + shift + 0.01 * scatter * random.normal(size=(count, 1))
    held = steps >= when[:, None]
    held[random.uniform(size=count) < fails] = False
    series: NDArray[np.float64] = position[:, :, None]
    return Runs(
        0.02, np.asarray(0.02 * steps, np.float64), series, 2.0 * series, 3.0 * series, held, np.full(count, STEPS)
    )


def result_of(found: RunComparison, name: str) -> ClosedLoopTest:
    return next(test for test in found.tests if test.name == name)


def outcome(task: Task, twin: Runs, real: Runs | None = None) -> RunComparison:
    return compare(task, real or moving(STARTS, seed=1), twin)


def test_equal_runs_are_reproduced(task: Task) -> None:
    found = outcome(task, moving(DRAWS * STARTS, seed=2))
    deciding = [test for test in found.tests if test.decides]
    assert [test.name for test in deciding] == ["success", "time", "trajectories", "speeds and commands"]
    assert {test.verdict for test in deciding} == {"reproduced"}
    assert [test.name for test in found.tests if not test.decides] == ["speed of rail", "command of rail"]


def test_a_twin_that_takes_longer_is_contradicted_in_time_and_trajectories(task: Task) -> None:
    found = outcome(task, moving(DRAWS * STARTS, seed=2, settled=90.0))
    time = result_of(found, "time")
    assert time.verdict == "contradicted"
    # 60 and 90 periods of 20 ms, up to the scatter of the recorded ones.
    assert time.difference == pytest.approx(0.6, abs=0.05)
    assert result_of(found, "trajectories").verdict == "contradicted"
    assert result_of(found, "success").verdict == "reproduced"


def test_a_significant_difference_below_the_margin_is_negligible(task: Task) -> None:
    """5 % longer, without scatter: as significant as can be, p = 1/121 · 9/2."""
    real = moving(STARTS, seed=1, scatter=0.01)
    time = result_of(outcome(task, moving(DRAWS * STARTS, seed=2, settled=63.0, scatter=0.01), real), "time")
    assert time.p_value == pytest.approx(4.5 / 121)
    assert time.verdict == "reproduced"


def test_a_command_of_0_throughout_is_compared_with_numbers(task: Task) -> None:
    """Without anything to be relative to, any difference is a large one."""
    real, twin = moving(STARTS, seed=1), moving(DRAWS * STARTS, seed=2)
    real, twin = replace(real, command=0.0 * real.command), replace(twin, command=1e3 * twin.command)
    test = result_of(outcome(task, twin, real), "speeds and commands")
    assert np.isfinite(test.difference)
    assert test.verdict == "contradicted"
    silent = replace(twin, command=0.0 * twin.command)
    assert result_of(outcome(task, silent, real), "speeds and commands").verdict == "reproduced"


def test_a_negligible_difference_and_one_by_chance_do_not_contradict_together(task: Task) -> None:
    """Speeds differ by 5 % without scatter; commands by about 30 %, and as much from draw to draw."""
    real, twin = moving(STARTS, seed=1, scatter=0.01), moving(DRAWS * STARTS, seed=2, scatter=0.01)
    factors = np.repeat(np.random.default_rng(3).uniform(0.9, 1.7, DRAWS), STARTS)[:, None, None]
    twin = replace(twin, speed=1.05 * twin.speed, command=factors * twin.command)
    test = result_of(outcome(task, twin, real), "speeds and commands")
    assert abs(test.difference) > test.margin
    assert test.verdict == "undecided"


def test_a_twin_that_fails_is_contradicted_in_success_alone(task: Task) -> None:
    """No run of it can be compared further; that decides nothing."""
    found = outcome(task, moving(DRAWS * STARTS, seed=2, fails=1.1))
    assert result_of(found, "success").verdict == "contradicted"
    assert result_of(found, "time").twin is None
    assert {test.verdict for test in found.tests[1:]} == {"undecided"}


def test_runs_that_failed_are_compared_where_most_recorded_ones_did(task: Task) -> None:
    real, twin = moving(STARTS, seed=1, fails=1.1), moving(DRAWS * STARTS, seed=2, fails=1.1)
    found = outcome(task, twin, real)
    assert found.compared == "failed"
    assert result_of(found, "time").real == pytest.approx(STEPS * 0.02)
    assert result_of(found, "trajectories").verdict == "reproduced"


def test_starts_of_failed_runs_do_not_shift_the_others(task: Task) -> None:
    """Draws that lack the far starts are compared with the recorded runs from the near ones."""
    real, twin = moving(STARTS, seed=1), moving(DRAWS * STARTS, seed=2)
    far = np.arange(DRAWS * STARTS) % STARTS >= 4
    half = np.arange(DRAWS * STARTS) < DRAWS * STARTS // 2
    twin.held[far & half] = False
    found = outcome(task, twin, real)
    assert result_of(found, "success").verdict != "contradicted"
    assert result_of(found, "speed of rail").verdict == "reproduced"
    assert result_of(found, "trajectories").verdict == "reproduced"


def test_a_vague_twin_decides_nothing(task: Task) -> None:
    """Draws that settle anywhere from 20 to 100 periods contradict no recording, and predict none."""
    random = np.random.default_rng(7)
    parts = [moving(STARTS, seed=int(s), settled=float(random.uniform(20, 100))) for s in range(DRAWS)]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("position", "speed", "command", "held", "ended")
    }
    found = outcome(task, Runs(0.02, parts[0].time, **joined))
    assert result_of(found, "time").verdict == "undecided"
    assert result_of(found, "trajectories").verdict == "undecided"


@pytest.mark.parametrize(("runs", "rate"), [(3, 1.0), (10, 0.8)])
def test_fewest_runs_that_decide_on_success(runs: int, rate: float) -> None:
    """As docs/explanation/closed-loop.md says."""
    enough, fewer = (detectable_rate_difference(count, rate, SUCCESS_LEVEL, POWER) for count in (runs, runs - 1))
    assert enough is not None
    assert enough <= RATE_NEEDED
    assert fewer is None or fewer > RATE_NEEDED


def test_all_speeds_and_commands_decide_together(task: Task) -> None:
    """Commands a third as large as the recorded ones contradict a twin that succeeds as often and moves alike."""
    real, twin = moving(STARTS, seed=1), moving(DRAWS * STARTS, seed=2)
    weak = outcome(task, replace(twin, command=twin.command / 3.0), real)
    assert {result_of(weak, name).verdict for name in ("success", "time", "trajectories")} == {"reproduced"}
    found = result_of(weak, "speeds and commands")
    assert found.verdict == "contradicted"
    assert found.difference == pytest.approx(-2.0 / 3.0, abs=0.02)
    assert result_of(outcome(task, twin, real), "speeds and commands").verdict == "reproduced"


def test_a_joint_that_is_never_commanded_decides_nothing(task: Task) -> None:
    real, twin = moving(STARTS, seed=1), moving(DRAWS * STARTS, seed=2)
    idle = outcome(task, replace(twin, command=0.0 * twin.command), replace(real, command=0.0 * real.command))
    assert result_of(idle, "speeds and commands").verdict == "reproduced"
