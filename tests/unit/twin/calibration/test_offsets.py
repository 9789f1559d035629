"""The encoder's zero belongs to the recording: found in each, no part of the robot, and no excuse for a wrong model."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sim.robots import Robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.calibration_page import calibration_page
from physai.twin.calibration.replay.random_effects import OffsetFit
from physai.twin.calibration.replay.replay import replay, score_record
from physai.twin.logs import RobotLog
from physai.twin.model.measured_task import measured_sensors, predicted_offset
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import Interval, LogRecord, Logs
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import OFFSET_STD

Array = NDArray[np.float64]
Recorder = Callable[..., RobotLog]

NOMINAL = {"hinge.friction": 0.2}
OFFSETS = (0.04, -0.02, 0.0)


@pytest.fixture(scope="module")
def logs(pendulum: Robot, record: Recorder) -> list[RobotLog]:
    return [
        record(pendulum, NOMINAL, seed=seed, seconds=6.0, name=f"log{seed}", offset=offset)
        for seed, offset in enumerate(OFFSETS)
    ]


def test_each_recordings_offset_is_found_under_the_right_model(
    pendulum: Robot, record: Recorder, logs: list[RobotLog]
) -> None:
    """A milliradian of 10 N·m per rad is 0.5 mrad after 0.25 s: as much as the noise, averaged over 90 windows."""
    found = replay(calibration_model(pendulum), pendulum, logs, num_threads=1)
    assert found.offsets[:, 0] == pytest.approx(OFFSETS, abs=2e-3)
    assert (found.offset_std < 0.2 * OFFSET_STD).all()
    # The same recording from an encoder with a right zero is replayed no better.
    right = record(pendulum, NOMINAL, seed=0, seconds=6.0)
    without = replay(calibration_model(pendulum), pendulum, [right], num_threads=1).rmse[0].value
    assert found.per_log()["log0"][0] == pytest.approx(without, rel=0.1)
    # Without the offsets, gravity pulls from 40 mrad away.
    assert found.rmse_at_zero[0] > 1.5 * found.rmse[0].value
    assert score_record(found)["rmse_at_zero"] == {"hinge": float(found.rmse_at_zero[0])}
    scored = score_record(found)["joint_pos_offset"]
    assert scored["log0"]["hinge"]["value"] == float(found.offsets[0, 0])


def test_no_window_is_scored_with_what_was_estimated_from_it(pendulum: Robot, logs: list[RobotLog]) -> None:
    """Each half gets the offset of the other: if the encoder slips in the middle, both are wrong by the slip."""
    log = logs[2]
    late = log.time[:, None] > 0.5 * log.time[-1]
    slipped = replace(log, joint_pos=log.joint_pos + np.where(late, 0.06, 0.0))
    found = replay(calibration_model(pendulum), pendulum, [slipped], num_threads=1)
    first, last = found.windows.offset[0, 0], found.windows.offset[-1, 0]
    # The windows across the slip blur both a little.
    assert first > 0.035
    assert abs(last) < 0.01
    honest = replay(calibration_model(pendulum), pendulum, [log], num_threads=1)
    assert found.rmse[0].value > 5.0 * honest.rmse[0].value


def test_a_joint_that_gravity_does_not_act_on_shows_no_offset(pendulum: Robot, logs: list[RobotLog]) -> None:
    model = calibration_model(pendulum)
    model.opt.gravity[:] = 0.0
    log = replace(logs[0], joint_pos=np.zeros_like(logs[0].joint_pos), joint_effort=np.zeros_like(logs[0].command))
    found = replay(model, pendulum, [log], num_threads=1)
    assert found.offsets[0, 0] == pytest.approx(0.0, abs=1e-9)
    assert found.offset_std[0, 0] == pytest.approx(OFFSET_STD)


@pytest.mark.slow
def test_offsets_move_no_centre_of_mass(pendulum: Robot, logs: list[RobotLog]) -> None:
    """0.04 and -0.02 rad average to 0.01 rad, 5 mm of the arm's 0.5 m. Their prior of 0.03 rad each, 0.02 rad together,
    leaves 10 mm of the 50 mm that the centre of mass may be off."""
    result = fit_twin(pendulum, logs[:2], logs[2:], only=("arm.com_x", "hinge.friction"), num_threads=1)
    com = result.twin.parameters[0]
    assert abs(com.value) < 0.008
    assert abs(com.value) < 1.96 * com.std
    assert 0.006 < com.std < 0.015
    for log in (*result.twin.logs.train, *result.twin.logs.held_out):
        assert log.joint_pos_offset_std[0] < 0.5 * OFFSET_STD
    page = calibration_page(result, title="twin.json")
    assert "Offsets of joint_pos by recording" in page
    assert f"{result.twin.logs.train[0].joint_pos_offset[0]:+.4f}" in page


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
def test_what_is_removed_is_what_a_search_over_the_offsets_would_leave(seed: int, logs: int, joints: int) -> None:
    """|removed|² = min over b of |x + E·b|² + |b|², and the estimate is where that is."""
    random = np.random.default_rng(seed)
    group = np.sort(random.integers(0, logs, 12))
    effects, residuals = random.normal(size=(12, 5, joints)), random.normal(size=(12, 5))
    fit = OffsetFit.of(effects, group, logs)
    found = fit.estimate(residuals)
    left = residuals + np.einsum("wsj,wj->ws", effects, found[group])
    assert (fit.removed(residuals[None]) ** 2).sum() == pytest.approx((left**2).sum() + (found**2).sum())
    for _ in range(5):
        other = found + 0.1 * random.normal(size=found.shape)
        worse = residuals + np.einsum("wsj,wj->ws", effects, other[group])
        assert (worse**2).sum() + (other**2).sum() >= (left**2).sum() + (found**2).sum() - 1e-9


def with_offsets(robot: Robot, *recordings: tuple[float, float]) -> Twin:
    logs = tuple(
        LogRecord(name=f"log{n}", sha256=f"{n:064x}", joint_pos_offset=(value,), joint_pos_offset_std=(std,))
        for n, (value, std) in enumerate(recordings)
    )
    return replace(nominal_twin(robot), logs=Logs(train=logs[:2], held_out=logs[2:]))


def test_episodes_draw_offsets_as_far_apart_as_those_of_the_recordings(pendulum: Robot) -> None:
    """Five about 0.02 rad, with squares that sum up to 1e-5 and a variance of 2.5e-6. 2.5e-6/5/0.02² = 0.125 % of the
    mean may be chance. One more differs by √1.2·t with t = 2.776 at most, of which 1.96 are standard deviations; a
    uniform distribution over ±a has the variance a²/3."""
    twin = with_offsets(pendulum, *((value, 1e-4) for value in (0.018, 0.02, 0.022, 0.019, 0.021)))
    mean, reach = 0.02 * (1.0 - 0.00125), np.sqrt(3.0 * 1.2 * (2.5e-6 - 1e-8)) * 2.776 / 1.96
    # Noise is doubled in a condition, a zero is not.
    for scale in (1.0, 2.0):
        found = measured_sensors({}, pendulum.spec.joints, twin, scale)["joint_pos"]
        assert found.bias_mean == pytest.approx(mean, rel=1e-4)
        assert found.bias == pytest.approx(reach, rel=1e-3)


def test_few_offsets_far_apart_show_little_of_a_mean_and_no_more_spread_than_the_prior(pendulum: Robot) -> None:
    """Mean 0.04/3, variance 4.33e-4; a third of it may be the mean's, 1.44e-4 of its square of 1.78e-4. The spread of
    0.025 would grow to 0.063."""
    twin = with_offsets(pendulum, (0.03, 0.001), (-0.01, 0.001), (0.02, 0.001))
    found = measured_sensors({}, pendulum.spec.joints, twin, 1.0)["joint_pos"]
    # The prior of 0.03 rad pulls values by (0.001/0.03)², a thousandth.
    assert found.bias_mean == pytest.approx(0.04 / 3.0 * (1.0 - 1.4444 / 1.7778), rel=2e-3)
    assert found.bias == pytest.approx(np.sqrt(3.0) * OFFSET_STD)


@settings(deadline=None)
@given(st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=30), st.floats(1e-4, 0.014))
def test_a_predicted_offset_lies_within_what_the_recordings_show(values: list[float], error: float) -> None:
    """The mean is no further from 0 than theirs, and turned encoders have turned offsets."""
    offsets, errors = np.array(values), np.full(len(values), error)
    mean, std = predicted_offset(offsets, errors)
    alone = offsets / (1.0 - (error / OFFSET_STD) ** 2)
    assert abs(mean) <= abs(alone.mean()) + 1e-12
    assert mean * alone.mean() >= 0.0
    assert 0.0 <= std <= max(OFFSET_STD, 2.0 * np.abs(alone).max())
    assert predicted_offset(-offsets, errors) == pytest.approx((-mean, std))
    # Of many like these, the mean is theirs, and the spread that about it.
    many, spread = predicted_offset(np.tile(offsets, 2000), np.tile(errors, 2000))
    noise = error**2 / (1.0 - (error / OFFSET_STD) ** 2)
    assert many == pytest.approx(alone.mean(), abs=2e-3)
    assert spread**2 == pytest.approx(max(0.0, alone.var() - noise), rel=0.01, abs=1e-6)


def test_one_recordings_offset_is_spread_not_a_mean(pendulum: Robot) -> None:
    """0.001 of one recording, times √2·12.706/1.96: it says next to nothing of how much others differ."""
    twin = with_offsets(pendulum, (0.001, 1e-6))
    found = measured_sensors({}, pendulum.spec.joints, twin, 1.0)["joint_pos"]
    assert found.bias_mean == 0.0
    assert found.bias == pytest.approx(np.sqrt(3.0) * 0.001 * np.sqrt(2.0) * 12.706 / 1.96, rel=1e-3)


def test_offsets_that_nothing_shows_leave_the_tasks_own(pendulum: Robot) -> None:
    for value, std in ((0.0, OFFSET_STD), (0.002, 0.003)):
        twin = with_offsets(pendulum, (value, std), (-value, std))
        assert "joint_pos" not in measured_sensors({}, pendulum.spec.joints, twin, 1.0)
    assert "joint_pos" not in measured_sensors({}, pendulum.spec.joints, nominal_twin(pendulum), 1.0)


def test_an_offset_without_its_deviation_is_refused() -> None:
    with pytest.raises(ValueError, match="recording a: 1 offsets have 0 standard deviations"):
        LogRecord(name="a", sha256="a" * 64, joint_pos_offset=(0.1,))


@pytest.mark.slow
def test_offsets_that_no_hand_makes_are_a_wrong_model(pendulum: Robot, record: Recorder) -> None:
    """A centre of mass 45 mm off its line at 0.5 m hangs 0.09 rad off: three standard deviations of a zero's prior."""
    logs = [
        record(pendulum, {**NOMINAL, "arm.com_x": 0.045}, seed=seed, seconds=6.0, name=f"log{seed}")
        for seed in range(4)
    ]
    result = fit_twin(pendulum, logs[:2], logs[2:], only=("hinge.friction",), num_threads=1)
    found = np.array([log.joint_pos_offset[0] for log in result.twin.logs.train])
    assert np.abs(found) == pytest.approx(0.09, abs=0.01)
    judged = result.twin.credible()
    assert not judged.holds
    assert any(
        "hinge: its encoder would be off by" in reason and "at most 0.059" in reason for reason in judged.reasons
    )


def test_a_twin_that_needs_offsets_to_beat_the_nominal_robot(pendulum: Robot, logs: list[RobotLog]) -> None:
    """0.05 rad with the recordings' own zeros, and 0.03 rad less in the nominal robot: no error of a zero alone."""
    plain = Interval(value=0.05, lo=0.045, hi=0.055)
    good = fit_twin(pendulum, logs[1:], logs[:1], only=("hinge.friction",), budget_steps=100_000, num_threads=1).twin
    assert good.residuals is not None
    # A zero that is off by 0.04 rad costs this model, which is the right one, as much as the nominal robot.
    assert good.residuals.at_zero[0] > good.residuals.twin[0].value
    for worse, told in ((0.03, True), (0.01, False)):
        gain = Interval(value=-worse, lo=-worse - 0.002, hi=-worse + 0.002)
        update = {"at_zero": (plain.value,), "gain_at_zero": (gain,)}
        changed = replace(good, residuals=good.residuals.model_copy(update=update))
        reasons = " ".join(changed.credible().reasons)
        assert ("0.0300 more than the nominal robot: offsets of the encoders hide" in reasons) is told
