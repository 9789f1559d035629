"""The twin's file and its hash, its credibility by hand, and its draws."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fixtures_calibration import PENDULUM
from tests.support.replay_samples import with_sample

from physai.sim.robots import Robot, load_robot
from physai.twin.claims.spot_check import sample_error, spot_check
from physai.twin.model.twin import Twin, load_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import (
    Alternative,
    Credibility,
    FittedParameter,
    Interval,
    LogRecord,
    Logs,
    Residuals,
    Timing,
    TwinError,
)
from physai.twin.parameters.parameters import DELAY


def parameter(name: str, value: float, std: float, *, identified: bool = True) -> FittedParameter:
    return FittedParameter(
        name=name,
        unit="kg",
        prior=2.0,
        prior_std=0.06,
        lower=1.0,
        upper=4.0,
        value=value,
        std=std,
        identified=identified,
    )


def one(value: float, lo: float, hi: float) -> Interval:
    return Interval(value=value, lo=lo, hi=hi)


def replayed(twin: Interval, gain: Interval, *, motion: float = 0.3, floor: float = 0.0) -> Residuals:
    # The gain is the nominal robot's error less the twin's.
    value = max(0.0, twin.value + gain.value)
    nominal = one(value, max(0.0, value - 0.01), value + 0.01)
    return Residuals(
        window_s=0.25,
        joint_names=("hinge",),
        twin=(twin,),
        nominal=(nominal,),
        gain=(gain,),
        motion=(motion,),
        floor=(floor,),
    )


def replace_window(residuals: Residuals, window_s: float) -> Residuals:
    return residuals.model_copy(update={"window_s": window_s})


def replace_lag(residuals: Residuals, value: float, lo: float, hi: float) -> Residuals:
    return residuals.model_copy(update={"command_lag": Interval(value=value, lo=lo, hi=hi)})


def delay(value: float, *, identified: bool = True) -> FittedParameter:
    return FittedParameter(
        name=DELAY, unit="s", prior=0.0, prior_std=0.01, lower=0.0, upper=0.08,
        value=value, std=1e-4, identified=identified,
    )  # fmt: skip


GOOD = replayed(one(0.02, 0.018, 0.022), one(0.03, 0.02, 0.04))


@pytest.fixture
def twin(pendulum: Robot) -> Twin:
    return replace(
        nominal_twin(pendulum),
        robot=pendulum.path.name,
        folder=str(pendulum.path.parent),
        parameters=(parameter("arm.mass", 2.1, 0.02), parameter("hinge.friction", 1.5, 0.06, identified=False)),
        covariance=np.array([[4e-4, 0.0], [0.0, 3.6e-3]]),
        timing=Timing(command_lag_mean_s=0.006, command_lag_p99_s=0.007),
        residuals=GOOD,
        command_residuals=GOOD,
        logs=Logs(train=(LogRecord(name="a", sha256="a" * 64),), held_out=held_out(6.0, 3.0)),
    )


def held_out(*durations_s: float | None) -> tuple[LogRecord, ...]:
    names = "bcdef"
    return tuple(
        LogRecord(name=name, sha256=name * 64, duration_s=duration_s)
        for name, duration_s in zip(names, durations_s, strict=False)
    )


def test_a_twin_written_is_the_twin_read(twin: Twin) -> None:
    file = Path(twin.folder) / "twin.json"
    save_twin(twin, file)
    written = file.read_bytes()
    again = load_twin(file)
    assert again.hash == twin.hash
    assert again.parameters == twin.parameters
    assert again.residuals == twin.residuals
    np.testing.assert_array_equal(again.covariance, twin.covariance)
    save_twin(again, file)
    assert file.read_bytes() == written
    assert float(again.model().body("arm").mass[0]) == 2.1


@settings(deadline=None)
@given(value=st.floats(1.0, 4.0), std=st.floats(0.0, 10.0))
def test_any_values_survive_the_file_bit_by_bit(
    pendulum: Robot, tmp_path_factory: pytest.TempPathFactory, value: float, std: float
) -> None:
    file = tmp_path_factory.mktemp("twins") / "twin.json"
    twin = replace(
        nominal_twin(pendulum), parameters=(parameter("arm.mass", value, std),), covariance=np.array([[std * std]])
    )
    save_twin(twin, file)
    again = load_twin(file)
    assert (again.parameters[0].value, again.parameters[0].std) == (value, std)
    assert again.hash == twin.hash


def test_whatever_differs_changes_the_hash_and_the_folder_does_not(twin: Twin) -> None:
    other_logs = Logs(train=twin.logs.train)
    changed = [
        replace(twin, covariance=twin.covariance * 2.0),
        replace(twin, timing=Timing()),
        replace(twin, notes=("interrupted",)),
        replace(twin, logs=other_logs),
        replace(twin, residuals=None),
    ]
    assert len({twin.hash, *(one.hash for one in changed)}) == 1 + len(changed)
    assert replace(twin, folder="/elsewhere").hash == twin.hash


DAMAGE: dict[str, tuple[dict[str, object], str]] = {
    "another version": ({"format_version": 99}, "format version 99"),
    "another hash": ({"hash": "0" * 64}, "modified after the calibration"),
    "a field too many": ({"surprise": 1}, "surprise"),
    "a field of another kind": ({"joint_names": 3}, "joint_names"),
    "a covariance too small": ({"covariance": [[1.0]]}, r"covariance has shape \(1, 1\)"),
    "a covariance of letters": ({"covariance": [["x", 0.0], [0.0, 1.0]]}, "covariance"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(twin: Twin, tmp_path: Path, name: str) -> None:
    changes, message = DAMAGE[name]
    file = tmp_path / "twin.json"
    save_twin(twin, file)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | changes))
    with pytest.raises(TwinError, match=message) as caught:
        load_twin(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_twin_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "twin.json"
    file.write_bytes(content)
    with pytest.raises(TwinError):
        load_twin(file)
    with pytest.raises(TwinError, match="cannot read"):
        load_twin(tmp_path / "missing.json")
    with pytest.raises(TwinError, match="not a regular file"):
        load_twin("/dev/zero")


def test_a_robot_that_changed_since_is_noticed(twin: Twin) -> None:
    file = Path(twin.folder) / twin.robot
    text = file.read_text()
    try:
        file.write_text(text.replace('mass="2"', 'mass="2.5"'))
        with pytest.raises(TwinError, match="has changed since this twin was fitted"):
            twin.model()
    finally:
        file.write_text(text)


@pytest.mark.parametrize(
    ("residuals", "reason"),
    [
        # 10 % of 0.3 rad is 0.03 rad.
        (replayed(one(0.028, 0.02, 0.031), one(0.02, 0.01, 0.03)), "above the bound 0.0300"),
        (
            replayed(one(0.02, 0.01, 0.025), one(0.02, -0.001, 0.03)),
            "not replay held-out recordings significantly better",
        ),
        (replayed(one(0.02, 0.01, 0.025), one(-0.02, -0.03, -0.01)), "worse than the nominal robot"),
        # Of a joint that hardly moves what its sensor explains is enough, at most 0.01 rad.
        (replayed(one(0.004, 0.003, 0.005), one(0.02, 0.01, 0.03), motion=0.01), "above the bound 0.0010"),
        (replayed(one(0.004, 0.003, 0.005), one(0.02, 0.01, 0.03), motion=0.01, floor=0.0045), "the bound 0.0045"),
        (replayed(one(0.011, 0.009, 0.013), one(0.02, 0.01, 0.03), motion=0.01, floor=1.0), "above the bound 0.0100"),
        # In 50 ms nothing moves far enough to tell a wrong model.
        (replace_window(GOOD, 0.05), "judged on windows of 0.05 s"),
        (replace_window(GOOD, 0.199), "at least 0.2 s are needed"),
        # The twin's lag is 6 ms; a quarter of 8.4 ms is 2.1 ms, and 8.2 - 6.0 is more.
        (replace_lag(GOOD, 0.0084, 0.0082, 0.0086), "that of the held-out recordings 8.4 ms (8.2 to 8.6)"),
        # Of a lag of 2 ms, 1 ms either way is accepted.
        (replace_lag(GOOD, 0.002, 0.001, 0.0049), "its command lag is 6.0 ms"),
    ],
)
def test_what_costs_a_twin_its_credibility(twin: Twin, residuals: Residuals, reason: str) -> None:
    assert twin.credible().holds
    found = replace(twin, residuals=residuals).credible()
    assert not found.holds
    assert any(reason in one for one in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("lag_s", "lo", "hi", "words"),
    [(0.007, 0.0065, 0.0075, "that of the held-out recordings 7.0 ms"), (0.0084, 0.0081, 0.0086, "8.4 ms")],
)
def test_a_lag_near_that_of_held_out_recordings_is_credible(
    twin: Twin, lag_s: float, lo: float, hi: float, words: str
) -> None:
    found = replace(twin, residuals=replace_lag(GOOD, lag_s, lo, hi)).credible()
    assert found.holds
    assert words in found.reasons[-1]


def test_what_no_recording_says_about_the_lag_is_said(twin: Twin) -> None:
    assert "not tested on held-out recordings" in twin.credible().reasons[-1]
    assert "is not measured" in replace(twin, timing=Timing()).credible().reasons[-1]
    # The delay of a servo's command is a parameter of the fit, and then what policies are judged with.
    command = replace(twin, parameters=(delay(0.008),), covariance=np.array([[1e-8]]), timing=Timing())
    assert "its command delay, 8.0 ms, was fitted" in command.credible().reasons[-1]
    unknown = replace(command, parameters=(delay(0.008, identified=False),))
    assert "is not measured" in unknown.credible().reasons[-1]
    # No lag is a lag of 0 ms, which recordings may contradict.
    contradicted = replace(twin, timing=Timing(), residuals=replace_lag(GOOD, 0.0055, 0.005, 0.006)).credible()
    assert not contradicted.holds
    assert "its command lag is 0.0 ms" in contradicted.reasons[0]


@pytest.mark.parametrize(
    ("durations_s", "counts"),
    [
        ((600.0,), "held-out recordings: 1, at least 2 are needed; blocks of 3 s in them: 200"),
        ((5.9, 5.9), "held-out recordings: 2, at least 2 are needed; blocks of 3 s in them: 2"),
        ((None, None), "blocks of 3 s in them: 2, at least 3"),
        ((5.0, 5.0), "five recordings of 6 s are enough"),
    ],
)
def test_few_held_out_recordings_are_no_evidence(
    twin: Twin, durations_s: tuple[float | None, ...], counts: str
) -> None:
    few = replace(twin, logs=Logs(train=twin.logs.train, held_out=held_out(*durations_s))).credible()
    assert not few.holds
    assert counts in few.reasons[0]
    for enough in ((6.0, 5.9), (1.0, 1.0, 1.0)):
        assert replace(twin, logs=Logs(train=twin.logs.train, held_out=held_out(*enough))).credible().holds


def test_without_held_out_recordings_nothing_is_credible(twin: Twin, pendulum: Robot) -> None:
    assert "not fitted" in nominal_twin(pendulum).credible().reasons[0]
    assert "no held-out" in replace(twin, residuals=None).credible().reasons[0]
    same = Logs(train=twin.logs.train, held_out=twin.logs.train)
    assert any("used in the fit" in reason for reason in replace(twin, logs=same).credible().reasons)


def test_draws_have_the_covariance_and_stay_within_bounds(twin: Twin) -> None:
    draws = twin.draw(20_000, 1)
    np.testing.assert_allclose(draws.mean(axis=0), [2.1, 1.5], atol=2e-3)
    np.testing.assert_allclose(draws.std(axis=0), [0.02, 0.06], rtol=0.03)
    wide = replace(twin, covariance=np.diag([4.0, 4.0]))
    assert ((wide.draw(1000, 2) >= 1.0) & (wide.draw(1000, 2) <= 4.0)).all()
    with pytest.raises(TwinError, match="draws"):
        twin.draw(-1, 0)


def test_randomisation_writes_the_draws(twin: Twin, pendulum: Robot) -> None:
    fields = twin.randomisation(5, 3)
    body = int(pendulum.model.body("arm").id)
    np.testing.assert_array_equal(fields["body_mass"][:, body], twin.draw(5, 3)[:, 0])
    assert set(fields) == {"body_mass", "body_ipos", "body_inertia", "body_iquat", "dof_frictionloss"}


def test_the_home_of_a_user_who_is_not_known() -> None:
    with pytest.raises(TwinError, match=r"cannot read twin ~none/twin\.json: No such file or directory"):
        load_twin("~none/twin.json")


def alternative(value: float, lo: float, hi: float, name: str = "all masses x 1.1") -> Alternative:
    return Alternative(name=name, ratio=one(value, lo, hi))


def test_a_twin_that_replays_better_with_another_mass_is_not_credible(twin: Twin) -> None:
    def judged(*others: Alternative) -> Credibility:
        return replace(twin, residuals=GOOD.model_copy(update={"alternatives": others})).credible()

    lighter = alternative(1.2, 1.1, 1.3, "all masses x 0.909")
    assert judged(lighter, alternative(0.97, 0.9, 1.02)).holds
    # Better by less than a tenth decides nothing.
    assert judged(alternative(0.92, 0.91, 0.93)).holds
    found = judged(lighter, alternative(0.8, 0.7, 0.89))
    assert found.reasons == (
        "with all masses x 1.1 it replays the held-out recordings better: 0.80 times the error (0.70 to 0.89)",
    )


def test_commands_are_replayed_with_the_same_bounds(twin: Twin) -> None:
    def judged(residuals: Residuals) -> Credibility:
        return replace(twin, command_residuals=residuals).credible()

    assert judged(GOOD).holds
    # A tenth of the motion of 0.3 rad.
    assert judged(replayed(one(0.029, 0.028, 0.031), GOOD.gain[0])).reasons == (
        "driven by commands, hinge: the upper end of the held-out replay error's 95 % interval, 0.0310, is above the "
        "bound 0.0300 (error 0.0290)",
    )
    # Against an ideal motor it need not be better, only not worse.
    assert judged(replayed(GOOD.twin[0], one(0.0, -0.01, 0.01))).holds
    assert "worse than an ideal motor" in judged(replayed(GOOD.twin[0], one(-0.02, -0.03, -0.01))).reasons[0]
    other = judged(GOOD.model_copy(update={"alternatives": (alternative(0.5, 0.4, 0.6),)}))
    assert other.reasons[0].startswith("driven by commands, with all masses x 1.1")


def test_a_recording_of_6_s_has_two_blocks(twin: Twin) -> None:
    """At 500 Hz its last sample is at 5.998 s."""

    def credible(*durations_s: float) -> bool:
        return replace(twin, logs=replace_held_out(twin.logs, *durations_s)).credible().holds

    assert credible(5.998, 2.0)
    assert not credible(5.9, 2.0)


def replace_held_out(logs: Logs, *durations_s: float) -> Logs:
    return logs.model_copy(update={"held_out": held_out(*durations_s)})


def test_the_robot_with_what_is_not_constrained_at_its_nominal_value(twin: Twin) -> None:
    """Posterior of mass m and friction f: variances 4e-4 and 3.6e-3, covariance 6e-4; f is not constrained.

    Given f = 2.0, its prior, the mean of m falls by 6e-4 / 3.6e-3 = 1/6 of what f was above it.
    """
    correlated = replace(twin, covariance=np.array([[4e-4, 6e-4], [6e-4, 3.6e-3]]))
    assert correlated.unconstrained == ("hinge.friction",)
    found = correlated.at_nominal(np.array([[2.1, 2.3], [2.0, 2.0]]))
    np.testing.assert_allclose(found, [[2.1 - 0.3 / 6.0, 2.0], [2.0, 2.0]])
    # Variance of m given f: 4e-4 - (6e-4)² / 3.6e-3 = 3e-4.
    np.testing.assert_allclose(correlated.constrained_covariance(), [[3e-4, 0.0], [0.0, 0.0]])


class TestSpotCheck:
    """The gate replays a few windows itself."""

    def test_the_twin_as_it_was_written(self, pendulum: Robot, twin: Twin) -> None:
        assert spot_check(with_sample(twin), pendulum) == ""
        assert "holds no windows" in spot_check(twin, pendulum)

    def test_another_parameter_gives_another_error(self, pendulum: Robot, twin: Twin) -> None:
        """Held out horizontally, the arm falls: faster with more mass, as the armature takes a smaller share."""
        light, heavy = parameter("arm.mass", 2.1, 0.02), parameter("arm.mass", 2.6, 0.02)
        falling = with_sample(replace(twin, parameters=(light,), covariance=np.eye(1)), angle=1.5)
        assert spot_check(falling, pendulum) == ""
        assert "was changed after the calibration" in spot_check(replace(falling, parameters=(heavy,)), pendulum)

    def test_a_stated_error_does_not_replace_the_bound(self, pendulum: Robot, twin: Twin) -> None:
        """An error of 0.002 rad, and a motion of which a tenth is below its half."""
        small = GOOD.model_copy(update={"motion": (1e-6,), "floor": (0.01,)})
        assert spot_check(replace(with_sample(twin), residuals=small), pendulum) == ""  # the greatest floor, 0.01 rad
        sampled = with_sample(twin)
        assert sampled.sample is not None
        far = tuple(tuple(0.05 + x for x in row) for row in sampled.sample.target)
        moved = sampled.sample.model_copy(update={"target": far})
        error = tuple(sample_error(moved, sampled.model()).tolist())
        said = spot_check(replace(sampled, residuals=small, sample=moved.model_copy(update={"rmse": error})), pendulum)
        assert "more than 2 times the bound 0.0100" in said

    def test_a_file_cannot_state_a_floor_in_metres_as_great_as_in_radians(self, tmp_path: Path) -> None:
        """The window errs by 0.003: on a hinge within the floor of 0.01 rad, on a slide three times the 1 mm of one."""
        text = PENDULUM.replace('type="hinge"', 'type="slide"').replace('axis="0 -1 0"', 'axis="1 0 0"')
        (tmp_path / "slide.xml").write_text(text)
        slide = load_robot(tmp_path / "slide.xml")
        small = GOOD.model_copy(update={"motion": (0.01,), "floor": (0.01,)})
        made = with_sample(replace(nominal_twin(slide), folder=str(tmp_path), residuals=small), windows=1)
        assert made.sample is not None
        target = tuple(tuple(0.001 + x for x in row) for row in made.sample.target)
        moved = made.sample.model_copy(update={"target": target})
        moved = moved.model_copy(update={"rmse": tuple(sample_error(moved, made.model()).tolist())})
        assert moved.rmse == pytest.approx((0.003,))
        assert "more than 2 times the bound 0.0010" in spot_check(replace(made, sample=moved), slide)

    @pytest.mark.parametrize(
        ("motion", "said"),
        [
            # One window of 0.25 s at rest: any twin replays it.
            (0.2, "hinge: 1 of its held-out windows move by 0 (root mean square), all of them by 0.2"),
            (0.0, "move by 0 at most (root mean square), at least 0.002 rad or m are needed"),
        ],
    )
    def test_a_sample_at_rest_is_none(self, pendulum: Robot, twin: Twin, motion: float, said: str) -> None:
        still = with_sample(replace(twin, residuals=GOOD.model_copy(update={"motion": (0.0,)})), windows=1)
        assert still.sample is not None
        at_rest = still.sample.model_copy(
            update={"target": (still.sample.start[0][:1] * len(still.sample.sample_s[0]),)}
        )
        at_rest = at_rest.model_copy(update={"rmse": tuple(sample_error(at_rest, still.model()).tolist())})
        assert at_rest.rmse == (0.0,)
        stated = GOOD.model_copy(update={"motion": (motion,)})
        assert said in spot_check(replace(still, residuals=stated, sample=at_rest), pendulum)

    @pytest.mark.parametrize("field", ["start", "controls", "target"])
    def test_a_sample_of_another_robot_diverges(self, pendulum: Robot, twin: Twin, field: str) -> None:
        sampled = with_sample(twin)
        assert sampled.sample is not None
        wide = tuple((*row, 0.0) for row in getattr(sampled.sample, field))
        wrong = sampled.sample.model_copy(update={field: wide})
        if field != "controls":
            assert np.isinf(sample_error(wrong, sampled.model())).all()
            assert "replay with an error of inf" in spot_check(replace(sampled, sample=wrong), pendulum)


def test_rounding_is_no_improvement(twin: Twin) -> None:
    """A calibration without time left every value nominal, and 8e-16 rad less error was significant."""
    assert twin.credible().holds
    assert twin.residuals is not None
    tiny = one(7.9e-16, 1.2e-16, 1.5e-15)
    same = twin.residuals.model_copy(update={"nominal": twin.residuals.twin, "gain": (tiny,)})
    judged = replace(twin, residuals=same).credible()
    assert not judged.holds
    assert "does not replay held-out recordings significantly better than the nominal robot" in judged.reasons[0]
    worse = same.model_copy(update={"gain": (one(-1e-16, -2e-16, -1e-17),)})
    reasons = replace(twin, residuals=worse, command_residuals=worse).credible().reasons
    assert not any("worse" in reason for reason in reasons), reasons
