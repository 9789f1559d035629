"""Twin files that no calibration writes: refused when they are read, or not credible, and never a traceback later."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.replay_samples import with_sample

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sim.robots import Robot
from physai.sim.tasks.registry import load_task
from physai.twin.claims.changes import missing_alternatives
from physai.twin.claims.spot_check import spot_check
from physai.twin.model.closed_loop_evidence import ClosedLoop, ClosedLoopTest
from physai.twin.model.measured_task import lag_range
from physai.twin.model.twin import Twin, load_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import (
    MAX_NUMBERS,
    ActuatorResponse,
    FittedParameter,
    Interval,
    LogRecord,
    Logs,
    Residuals,
    SensorNoise,
    Timing,
    TwinError,
)

GOOD, BAD = Interval(value=0.002, lo=0.001, hi=0.003), Interval(value=0.02, lo=0.018, hi=0.022)
BETTER = Interval(value=0.018, lo=0.016, hi=0.02)
MOTOR = ActuatorResponse(
    joint="hinge", gain=0.9, gain_std=0.01, dead_time_s=0.002, time_constant_s=0.004, period_s=0.002
)


def mass(name: str) -> FittedParameter:
    return FittedParameter(
        name=name, unit="kg", prior=2.0, prior_std=0.6, lower=1.0, upper=4.0, value=2.1, std=0.02, identified=True
    )


@pytest.fixture
def twin(pendulum: Robot) -> Twin:
    """Credible, of one joint, with everything that a file states per joint."""
    residuals = Residuals(
        window_s=0.25, joint_names=("hinge",), twin=(GOOD,), nominal=(BAD,), gain=(BETTER,), motion=(0.2,)
    )
    offset = LogRecord(name="a", sha256="a" * 64, joint_pos_offset=(0.01,), joint_pos_offset_std=(0.001,))
    return with_sample(
        replace(
            nominal_twin(pendulum),
            robot=pendulum.path.name,
            folder=str(pendulum.path.parent),
            parameters=(mass("arm.mass"), mass("hinge.friction")),
            covariance=np.diag([4e-4, 4e-4]),
            noise=SensorNoise(joint_pos_std=(0.001,), joint_vel_std=(0.01,), joint_effort_std=(0.1,)),
            timing=Timing(
                command_lag_mean_s=0.006,
                command_lag_p99_s=0.007,
                command_lag_period_s=0.002,
                command_lag_periods=Interval(value=0.5, lo=0.0, hi=1.0),
                period_median_s=0.002,
                period_p99_s=0.003,
                period_max_s=0.004,
            ),
            actuators=(MOTOR,),
            residuals=residuals,
            command_residuals=residuals,
            logs=Logs(
                train=(offset,),
                held_out=tuple(LogRecord(name=n, sha256=n * 64, duration_s=10.0) for n in ("b", "c")),
            ),
        )
    )


Change = Callable[[dict[str, Any]], object]


def crafted(twin: Twin, change: Change) -> Path:
    """A file with a change and the hash of its content."""
    file = Path(twin.folder) / "crafted.json"
    save_twin(twin, file)
    record = json.loads(file.read_bytes())
    del record["hash"]
    change(record)
    digest = sha256_hex(rfc8785.dumps(record))
    file.write_bytes(rfc8785.dumps({**record, "hash": digest}))
    return file


def test_a_file_with_its_own_hash_is_read(twin: Twin) -> None:
    again = load_twin(crafted(twin, lambda record: record))
    assert again.hash == twin.hash
    assert again.credible().holds


def put(*path: str | int, value: Any) -> Change:
    def change(record: dict[str, Any]) -> None:
        at: Any = record
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def sample_of(windows: int, numbers: int) -> dict[str, Any]:
    rows = [[0.0] * numbers] * windows
    short = [[0.0]] * windows
    return {
        "start": [[0.0, 0.0]] * windows, "controls": rows, "sample_s": short, "target": short,
        "servo_gain": [1.0] * windows, "rmse": [0.0],
    }  # fmt: skip


UNREADABLE: dict[str, tuple[Change, str]] = {
    "an interval from its end to its begin": (
        put("timing", "command_lag_periods", value={"value": 0.0, "lo": 1.0, "hi": -1.0}),
        "begins at 1.0, above its end -1.0",
    ),
    "a 99th percentile below the mean": (put("timing", "command_lag_p99_s", value=0.001), "0.001 s is below its mean"),
    "a lag of years": (put("timing", "command_lag_p99_s", value=1e9), "less than or equal to 10"),
    "a dead time of years": (put("actuators", 0, "dead_time_s", value=1e9), "less than or equal to 10"),
    "an error below 0": (
        put("residuals", "twin", value=[{"value": -2.0, "lo": -3.0, "hi": -1.0}]),
        "may not be below 0, got -3.0",
    ),
    "errors of another joint": (put("residuals", "joint_names", value=["elbow"]), "of elbow, the joints are hinge"),
    "errors of another joint from commands": (
        put("command_residuals", "joint_names", value=["elbow"]),
        "of elbow, the joints are hinge",
    ),
    "noise of two joints": (put("noise", "joint_vel_std", value=[0.1, 0.1]), "joint_vel_std: 2 values for 1 joints"),
    "offsets of two joints": (
        lambda record: record["logs"]["train"][0].update(joint_pos_offset=[0.0] * 2, joint_pos_offset_std=[0.1] * 2),
        "joint_pos_offset of recording a: 2 values for 1 joints",
    ),
    "two motors of a joint": (
        lambda record: record["actuators"].append(record["actuators"][0]),
        "two actuators: hinge, hinge",
    ),
    "a negative variance": (put("covariance", value=[[-1.0, 0.0], [0.0, 1.0]]), "a variance below 0: -1.0"),
    "a correlation without a variance": (put("covariance", value=[[0.0, 1e9], [1e9, 0.0]]), "a correlation above 1"),
    "an asymmetric covariance": (put("covariance", value=[[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
    "a covariance with rows of different lengths": (put("covariance", value=[[1.0, 0.5], [0.0]]), "covariance"),
    "hours of windows": (put("sample", value=sample_of(2, MAX_NUMBERS)), f"{2 * MAX_NUMBERS} numbers in controls"),
    "a window of hours": (put("sample", value=sample_of(1, MAX_NUMBERS + 1)), f"at most {MAX_NUMBERS} items"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_crafted_file_is_refused_with_its_reason(twin: Twin, case: str) -> None:
    change, reason = UNREADABLE[case]
    with pytest.raises(TwinError) as caught:
        load_twin(crafted(twin, change))
    assert reason in str(caught.value)


def test_errors_may_not_name_a_joint_twice() -> None:
    both = {"twin": (GOOD,) * 2, "nominal": (BAD,) * 2, "gain": (BETTER,) * 2, "motion": (0.2, 9.0)}
    with pytest.raises(ValueError, match="a joint occurs twice"):
        Residuals.model_validate({"window_s": 0.25, "joint_names": ("hinge",) * 2, **both})


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=3, max_size=3))
def test_every_product_of_a_matrix_with_itself_is_a_covariance(pendulum: Robot, rows: list[list[float]]) -> None:
    root = np.array(rows)
    names = ("arm.mass", "hinge.friction", "hinge.damping")
    parameters = tuple(mass(name) for name in names)
    made = replace(nominal_twin(pendulum), parameters=parameters, covariance=root @ root.T)
    assert np.isfinite(made.draw(20, seed=0)).all()
    assert np.isfinite(made.at_nominal(made.draw(20, seed=0))).all()


def test_a_covariance_that_is_not_finite_is_refused(twin: Twin) -> None:
    with pytest.raises(ValueError, match="not finite"):
        replace(twin, covariance=np.array([[np.nan, 0.0], [0.0, 1.0]]))


def test_a_lag_that_grows_to_minutes_at_the_policy_s_rate_is_refused(twin: Twin) -> None:
    task = load_task("swingup")
    steep = Interval(value=1e6, lo=1e6, hi=1e6)
    slow = replace(twin, timing=twin.timing.model_copy(update={"command_lag_periods": steep}))
    assert task.contract.timing.control_dt > 0.002
    with pytest.raises(TwinError, match="at most 10 s can be simulated"):
        lag_range(task, slow)


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_windows_of_another_length_are_no_sample_of_the_errors(twin: Twin, pendulum: Robot, share: float) -> None:
    assert spot_check(twin, pendulum) == ""
    assert twin.residuals is not None
    longer = twin.residuals.model_copy(update={"window_s": share * twin.residuals.window_s})
    other = replace(twin, sample=with_sample(replace(twin, residuals=longer)).sample)
    assert "are not of the 0.25 s of the errors that it states" in spot_check(other, pendulum)


def test_a_sample_is_compared_until_its_end(twin: Twin, pendulum: Robot) -> None:
    assert twin.sample is not None
    early = tuple(0.4 * time for time in twin.sample.sample_s[0])
    other = replace(twin, sample=twin.sample.model_copy(update={"sample_s": (early,) * len(twin.sample.start)}))
    assert "are not of the 0.25 s" in spot_check(other, pendulum)


def closed_loop(twin: Twin, **changed: Any) -> ClosedLoop:
    test = ClosedLoopTest(
        name="success", real=1.0, twin=1.0, difference=0.0, p_value=1.0, margin=0.0, detectable=0.1, needed=0.5
    )
    fields: dict[str, Any] = {
        "twin_sha256": twin.open_loop_hash, "policy_sha256": "e" * 64, "contract_fingerprint": "f" * 64,
        "task": "swingup", "logs": (LogRecord(name="d", sha256="d" * 64),), "command_agreement": 1.0, "length_s": 4.0,
        "real_successes": 1, "twin_successes": 9, "twin_runs": 10, "draws": 10, "compared": "succeeded",
        "compared_runs": 1, "tests": (test,),
    }  # fmt: skip
    return ClosedLoop(**{**fields, **changed})


def test_a_closed_loop_record_on_fitted_recordings_is_no_evidence(twin: Twin) -> None:
    assert replace(twin, closed_loop=(closed_loop(twin),)).credible().holds
    fitted = closed_loop(twin, logs=(LogRecord(name="a", sha256="a" * 64),))
    credibility = replace(twin, closed_loop=(fitted,)).credible()
    assert not credibility.holds
    assert "1 of the recordings of its closed-loop records were used in the fit" in credibility.reasons


@pytest.mark.parametrize(("name", "count"), [("real_successes", 2), ("compared_runs", 2), ("twin_successes", 11)])
def test_a_closed_loop_record_counts_no_more_than_there_was(twin: Twin, name: str, count: int) -> None:
    record = closed_loop(twin)
    assert getattr(record, name) < count
    with pytest.raises(ValueError, match=f"{count} .* of {count - 1}"):
        closed_loop(twin, **{name: count})


Deleting = Callable[[dict[str, Any]], object]


def without(name: str) -> Deleting:
    return lambda record: record["residuals"].update(
        alternatives=[one for one in record["residuals"]["alternatives"] if one["name"] != name]
    )


def as_if_frictionless(record: dict[str, Any]) -> None:
    """Without the parameter whose prior says how much friction is plausible, and without what follows from it."""
    record["parameters"] = [one for one in record["parameters"] if not one["name"].endswith(".friction")]
    record["covariance"] = [[4e-4]]
    without_rubbing = [one for one in record["residuals"]["alternatives"] if "friction" not in one["name"]]
    record["residuals"].update(alternatives=without_rubbing)


DELETED: dict[str, tuple[Deleting, str]] = {
    "all": (lambda record: record["residuals"].update(alternatives=[]), "with all masses x 0.909"),
    "one that replays better": (without("all masses x 1.1"), "1 of "),
    "another one": (without("twice the damping"), "the first of them with twice the damping"),
    "what a deleted parameter asks for": (
        as_if_frictionless,
        "with 3 of 11 changed twins, the first of them with half the friction",
    ),
    "those from commands": (
        lambda record: record["command_residuals"].update(alternatives=[]),
        "from commands with 5 of 5 changed twins",
    ),
}


@pytest.mark.parametrize("case", DELETED)
def test_comparisons_that_are_deleted_from_a_file_are_missed(twin: Twin, pendulum: Robot, case: str) -> None:
    """The stated ones still decide nothing against it, so the file alone is credible."""
    assert missing_alternatives(twin, pendulum) == ""
    change, said = DELETED[case]
    edited = load_twin(crafted(twin, change))
    assert edited.credible().holds
    found = missing_alternatives(edited, pendulum)
    assert said in found, found
    assert "calibrate again" in found


def test_a_renamed_comparison_is_another_one(twin: Twin, pendulum: Robot) -> None:
    def rename(record: dict[str, Any]) -> None:
        record["residuals"]["alternatives"][0]["name"] = "all masses x 0.91"

    found = missing_alternatives(load_twin(crafted(twin, rename)), pendulum)
    assert "1 of " in found
    assert "all masses x 0.909" in found
