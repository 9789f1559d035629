"""When a run is evaluated without exploration."""

import pytest

from physai.train.runners.eval_scheduler import EvalScheduler


def test_without_a_wanted_success_nothing_is_evaluated() -> None:
    judge = EvalScheduler(None, 0.5)
    assert not judge.due(1.0, 1e9)
    assert not judge.judged(1.0, 0.0, 1.0)


@pytest.mark.parametrize(("success", "due"), [(0.0, False), (0.39, False), (0.4, True), (1.0, True)])
def test_half_of_the_wanted_success_while_exploring_is_promising(success: float, due: bool) -> None:
    assert EvalScheduler(0.8, 0.5).due(success, 0.0) is due


@pytest.mark.parametrize(("success", "due"), [(0.71, False), (0.73, True)])
def test_what_is_promising_can_be_asked_higher(success: float, due: bool) -> None:
    assert EvalScheduler(0.8, 0.9).due(success, 0.0) is due


@pytest.mark.parametrize(("took_s", "next_s"), [(0.1, 15.1), (1.25, 16.25), (3.0, 25.0)])
def test_evaluations_are_five_seconds_and_four_of_their_own_times_apart(took_s: float, next_s: float) -> None:
    judge = EvalScheduler(0.8, 0.5)
    assert not judge.judged(0.79, 10.0, 10.0 + took_s)
    assert not judge.due(1.0, next_s - 1e-6)
    assert judge.due(1.0, next_s)
    assert judge.judged(0.8, 20.0, 21.0)
