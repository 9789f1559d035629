"""A fit ends after a number of physics steps: its result does not depend on the computer, or on what else it does."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sim.robots import Robot
from physai.twin.calibration import calibrate
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.fit import fit, friction_choice
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin

Recorder = Callable[..., RobotLog]

TRUTH = {"hinge.friction": 0.35, "hinge.damping": 0.2}


@pytest.fixture(scope="module")
def log(pendulum: Robot, record: Recorder) -> RobotLog:
    return record(pendulum, TRUTH, seed=3, seconds=4.0)


def fitted(
    robot: Robot,
    log: RobotLog,
    *,
    budget_steps: int = fit.BUDGET_STEPS,
    time_budget_s: float | None = None,
    num_threads: int = 1,
) -> Twin:
    return fit_twin(robot, [log], budget_steps=budget_steps, time_budget_s=time_budget_s, num_threads=num_threads).twin


@pytest.mark.slow
@pytest.mark.parametrize("budget_steps", [fit.BUDGET_STEPS, 150_000])
def test_neither_threads_nor_a_slow_computer_change_the_twin(
    pendulum: Robot, log: RobotLog, monkeypatch: pytest.MonkeyPatch, budget_steps: int
) -> None:
    twin = fitted(pendulum, log, budget_steps=budget_steps)
    assert fitted(pendulum, log, budget_steps=budget_steps, num_threads=2).hash == twin.hash
    ticks = itertools.count()
    # A computer on which an hour passes between any two looks at the clock.
    monkeypatch.setattr(fit, "time", SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks)))
    assert fitted(pendulum, log, budget_steps=budget_steps).hash == twin.hash
    assert next(ticks) > 1, "the fit did look at this clock"


def test_what_is_spent_is_said_and_the_best_so_far_is_kept(pendulum: Robot, log: RobotLog) -> None:
    steps: list[float] = []
    result = fit_twin(
        pendulum, [log], budget_steps=150_000, num_threads=1, report=lambda told: steps.append(told.share)
    )
    assert any("its 150,000 physics steps were spent" in note for note in result.twin.notes), result.twin.notes
    assert steps == sorted(steps)
    assert steps[-1] == 1.0
    prior = {p.name: p.prior for p in result.twin.parameters}
    assert any(p.value != prior[p.name] for p in result.twin.parameters)
    whole = fitted(pendulum, log)
    assert not any("ended early" in note for note in whole.notes)


def test_a_budget_of_time_ends_it_too(pendulum: Robot, log: RobotLog, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(fit, "time", SimpleNamespace(monotonic=lambda: 3600.0 * next(ticks)))
    assert any("the time was up" in note for note in fitted(pendulum, log, time_budget_s=7200.0).notes)


@pytest.mark.parametrize(("steps", "seconds"), [(0, None), (10**13, None), (1000, float("nan")), (1000, 0.0)])
def test_impossible_budgets_are_refused(pendulum: Robot, log: RobotLog, steps: int, seconds: float | None) -> None:
    with pytest.raises(PhysaiError, match="budget"):
        fitted(pendulum, log, budget_steps=steps, time_budget_s=seconds)


@pytest.mark.slow
def test_all_fits_end_within_the_budget_of_time(
    pendulum: Robot, record: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = {"hinge.friction": 0.1, "hinge.damping": 0.1, "hinge.load_friction": 0.45}
    logs = [record(pendulum, truth, seed=seed, seconds=2.0, name=f"log{seed}") for seed in range(2)]
    # Each look at the clock takes a second, and there is at least one per evaluation.
    ticks = itertools.count()
    for module in (fit, friction_choice, calibrate):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    stages: list[str] = []
    fit_twin(pendulum, logs, time_budget_s=100.0, num_threads=1, report=lambda told: stages.append(told.stage))
    # The fit of Coulomb friction gets half of 85 s, and what follows a tenth of the rest each.
    assert any(stage.startswith("friction ") for stage in stages)
    assert len(stages) <= 85
