import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from realaigym.boards import Criteria, Score, score
from realaigym.errors import TrajectoryError

LINKS = (0.2, 0.3)
Run = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

# Rows of the pendubot and acrobot simulation leaderboards v2: the five criteria and the printed score.
PUBLISHED = {
    "pendubot mcpilco": (1.14, 8.35, 2.42, 0.054, 114.26, 0.480),
    "pendubot History SAC": (1.15, 7.67, 2.36, 0.007, 62.07, 0.682),
    "pendubot AR-EAPO": (1.15, 7.72, 2.43, 0.010, 64.33, 0.659),
    "pendubot iLQR Riccati": (4.13, 9.53, 1.25, 0.005, 211.34, 0.536),
    "pendubot evolsac": (0.71, 9.83, 4.37, 0.014, 58.15, 0.596),
    "pendubot TVLQR": (4.13, 9.53, 1.26, 0.007, 211.12, 0.526),
    "pendubot iLQR MPC": (4.12, 9.91, 1.77, 0.083, 211.98, 0.353),
    "acrobot mcpilco": (1.45, 19.43, 3.22, 0.097, 253.59, 0.316),
    "acrobot History SAC": (1.00, 8.08, 1.80, 0.010, 88.50, 0.655),
    "acrobot TVLQR": (4.05, 10.43, 1.87, 0.016, 105.83, 0.504),
    "acrobot AR-EAPO": (1.39, 8.32, 1.52, 0.008, 117.96, 0.633),
    "acrobot iLQR Riccati": (4.04, 10.55, 1.98, 0.067, 106.49, 0.396),
    "acrobot evolsac": (0.96, 9.26, 2.71, 0.030, 96.56, 0.524),
    "acrobot iLQR MPC": (4.86, 11.54, 2.68, 0.096, 110.40, 0.345),
}


def upright_from(row: int, rows: int = 6) -> NDArray[np.float64]:
    """Positions that hang before `row` and stand from it on, shape (rows, 2)."""
    joint_pos = np.zeros((rows, 2))
    joint_pos[row:, 0] = math.pi
    return joint_pos


def scored(joint_pos: NDArray[np.float64], joint_effort: NDArray[np.float64] | None = None) -> Score:
    """The score of rows one second apart, at rest."""
    rows = len(joint_pos)
    effort = np.zeros((rows, 2)) if joint_effort is None else joint_effort
    return score(np.arange(rows), joint_pos, np.zeros((rows, 2)), effort, link_lengths=LINKS, episode_length_s=rows - 1)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A random recording of 3 to 40 rows; half of them end upright."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(3, 40))
    amplitude = draw(st.floats(0.0, 100.0))
    time = np.cumsum(rng.uniform(0.001, 0.5, rows))
    joint_pos = rng.normal(size=(rows, 2)) * 3.0
    if draw(st.booleans()):
        joint_pos[rows // 2 :] = (math.pi, 0.0)
    return time, joint_pos, rng.normal(size=(rows, 2)) * amplitude, rng.normal(size=(rows, 2)) * amplitude


def score_of(run: Run) -> Score:
    return score(*run, link_lengths=LINKS, episode_length_s=float(run[0][-1] - run[0][0]))


def test_hand_computed_run() -> None:
    time = [1.0, 1.5, 2.5, 3.0]
    joint_pos = [[0.0, 0.0], [math.pi, 0.0], [math.pi, 0.1], [math.pi, 0.0]]
    joint_vel = [[0.0, 0.0], [1.0, 2.0], [3.0, 0.0], [100.0, 100.0]]
    joint_effort = [[5.0, 0.0], [4.0, 0.0], [4.0, 1.0], [6.0, 7.0]]

    result = score(time, joint_pos, joint_vel, joint_effort, link_lengths=LINKS, episode_length_s=2.0)

    c = result.criteria
    assert c.swingup_time == 0.5
    assert c.energy == pytest.approx(5.0 * math.pi + 4.0 * 0.0 + 4.0 * 0.0 + 1.0 * 0.1)
    assert c.torque_cost == pytest.approx(25.0 * 0.5 + 16.0 * 1.0 + 17.0 * 0.5)
    # Changes of joint 1: -1, 0, 2 (mean 1/3, variance 14/9); of joint 2: 0, 1, 6 (mean 7/3, variance 62/9).
    assert c.torque_smoothness == pytest.approx(math.sqrt(14.0 / 9.0) + math.sqrt(62.0 / 9.0))
    assert c.velocity_cost == pytest.approx(0.0 * 0.5 + 5.0 * 1.0 + 9.0 * 0.5)
    assert result.success
    # tanh(π·0.5/20), tanh(π·15.80796/60), tanh(π·37/20); the other two: tanh(π·38.7) = 1, tanh(π·9.5/400).
    lost = math.tanh(0.0785398) + math.tanh(0.8277031) + math.tanh(5.8119464) + 1.0 + math.tanh(0.0746128)
    assert result.value == pytest.approx(1.0 - lost / 5.0, abs=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rows_give_their_published_score(name: str) -> None:
    *criteria, printed = PUBLISHED[name]
    # Criteria are printed to 0.01 s, 0.001 N·m …: rounding of the smoothness alone moves the score by up to 0.003.
    assert 1.0 - sum(Criteria(*criteria).losses) == pytest.approx(printed, abs=0.0035)


def test_resting_upright_loses_only_the_first_row() -> None:
    result = scored(upright_from(0))
    assert result.criteria == Criteria(1.0, 0.0, 0.0, 0.0, 0.0)
    assert result.value == pytest.approx(1.0 - math.tanh(math.pi / 20.0) / 5.0)


@pytest.mark.parametrize(("row", "success"), [(1, True), (3, True), (4, True), (5, False)])
def test_swingup_time_is_the_first_row_since_which_the_tip_stays_up(row: int, success: bool) -> None:
    result = scored(upright_from(row))
    assert result.criteria.swingup_time == row
    assert result.success is success


def test_falling_back_starts_the_swingup_time_anew() -> None:
    joint_pos = upright_from(1)
    joint_pos[2] = 0.0
    assert scored(joint_pos).criteria.swingup_time == 3.0


def test_the_last_row_is_not_looked_at() -> None:
    joint_pos = upright_from(2)
    joint_pos[-1] = 0.0
    assert scored(joint_pos).success


@pytest.mark.parametrize(("height", "success"), [(0.4499999, False), (0.4500001, True)])
def test_up_means_above_045_m(height: float, success: bool) -> None:
    joint_pos = upright_from(1)
    joint_pos[1:, 0] = math.acos(-height / sum(LINKS))
    assert scored(joint_pos).success is success


def test_a_first_effort_that_is_held_is_no_change() -> None:
    effort = np.full((6, 2), [3.0, 0.0])
    assert scored(upright_from(1), effort).criteria.torque_smoothness == 0.0


def test_a_recording_that_ends_early_fails() -> None:
    time, rest = np.arange(6.0), np.zeros((6, 2))
    result = score(time, upright_from(1), rest, rest, link_lengths=LINKS)
    assert (result.criteria.swingup_time, result.success, result.value) == (math.inf, False, 0.0)


@given(runs())
def test_score_lies_between_0_and_1_and_failure_scores_0(run: Run) -> None:
    result = score_of(run)
    assert 0.0 <= result.value <= 1.0
    assert result.success == (result.criteria.swingup_time < run[0][-1] - run[0][0])
    assert result.success or result.value == 0.0


@given(runs(), st.floats(-100.0, 100.0))
def test_score_does_not_depend_on_when_the_clock_started(run: Run, shift: float) -> None:
    time, *columns = run
    assert score_of((time + shift, columns[0], columns[1], columns[2])).value == pytest.approx(
        score_of(run).value, abs=1e-9
    )


@given(runs(), st.integers(-3, 3), st.integers(-3, 3))
def test_full_turns_do_not_change_the_score(run: Run, turns_1: int, turns_2: int) -> None:
    time, joint_pos, joint_vel, joint_effort = run
    turned = joint_pos + 2.0 * math.pi * np.array([turns_1, turns_2])
    assert score_of((time, turned, joint_vel, joint_effort)).value == pytest.approx(score_of(run).value, abs=1e-9)


@given(runs())
def test_the_mirror_image_scores_the_same(run: Run) -> None:
    time, joint_pos, joint_vel, joint_effort = run
    assert score_of((time, -joint_pos, -joint_vel, -joint_effort)).value == pytest.approx(score_of(run).value, abs=1e-9)


@given(runs(), st.floats(1.0, 10.0))
def test_more_torque_on_the_same_path_never_scores_better(run: Run, factor: float) -> None:
    time, joint_pos, joint_vel, joint_effort = run
    assert score_of((time, joint_pos, joint_vel, factor * joint_effort)).value <= score_of(run).value + 1e-12


@pytest.mark.parametrize(
    ("time", "joint_pos", "message"),
    [
        ([0.0], np.zeros((1, 2)), "at least 2 rows"),
        ([[0.0, 1.0]], np.zeros((2, 2)), "time has shape"),
        ([0.0, 1.0], np.zeros((3, 2)), r"joint_pos has shape \(3, 2\); 2 times"),
        ([0.0, math.nan], np.zeros((2, 2)), "time is nan in row 1"),
        ([0.0, 0.0], np.zeros((2, 2)), "time goes from 0.0 to 0.0"),
        ([0.0, 1.0], [[0.0, 0.0], [math.inf, 0.0]], r"joint_pos is \[inf  0.\] in row 1"),
    ],
)
def test_malformed_recordings_are_refused(time: list[float], joint_pos: list[list[float]], message: str) -> None:
    rest = np.zeros((2, 2)) if len(time) == 2 else np.zeros((1, 2))
    with pytest.raises(TrajectoryError, match=message):
        score(time, joint_pos, rest, rest, link_lengths=LINKS)


@pytest.mark.parametrize("link_lengths", [(0.2, 0.0), (math.nan, 0.3), (math.inf, 0.3)])
def test_link_lengths_must_be_positive(link_lengths: tuple[float, float]) -> None:
    rest = np.zeros((2, 2))
    with pytest.raises(TrajectoryError, match="link_lengths"):
        score([0.0, 1.0], rest, rest, rest, link_lengths=link_lengths)
