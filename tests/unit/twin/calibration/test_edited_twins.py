"""A calibrated twin's file, edited: evidence that is deleted or made more favourable does not pass unnoticed."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import rfc8785
from tests.support.fixtures_calibration import PENDULUM

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.calibrate import fit_twin, residuals
from physai.twin.calibration.calibration_page import calibration_page
from physai.twin.calibration.replay.replay import replay
from physai.twin.calibration.stand_in.synthetic_robot import excite, stand_in, write_columns, write_recording
from physai.twin.claims.changes import model_changes, plausible_amounts
from physai.twin.claims.claims import contradiction, log_ratio
from physai.twin.claims.spot_check import sample_error
from physai.twin.logs import LogError, RobotLog, read_logs
from physai.twin.model.twin import Twin, load_twin, save_twin
from physai.twin.model.twin_file import Alternative, Interval, TwinError
from physai.twin.parameters.models import calibration_model

Record = dict[str, Any]
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Calibrated:
    """A credible twin and what its file holds."""

    robot: Robot
    twin: Twin
    logs: tuple[RobotLog, ...]
    record: Record
    page: str

    def verdict(self, record: Record) -> str:
        """Why a file with this content and its hash is no evidence, or ""."""
        file = Path(self.twin.folder) / "edited.json"
        file.write_bytes(rfc8785.dumps({**record, "hash": sha256_hex(rfc8785.dumps(record))}))
        try:
            twin = load_twin(file)
            credibility = twin.credible()
            return contradiction(twin, self.robot) if credibility.holds else "; ".join(credibility.reasons)
        except TwinError as error:
            return f"refused: {error}"


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    folder = tmp_path_factory.mktemp("edited")
    (folder / "pendulum.xml").write_text(PENDULUM)
    robot = load_robot(folder / "pendulum.xml")
    truth = stand_in(robot, 1)
    write_columns(robot, folder)
    for seed in range(4):
        made = excite(truth, duration_s=3.0, rate_hz=125.0, seed=seed, steps=0.1)
        write_recording(made, robot, folder / f"{seed}.csv")
    logs = read_logs(sorted(folder.glob("*.csv")), robot.spec)
    result = fit_twin(robot, logs[:1], logs[1:], budget_steps=100_000, friction="coulomb", folder=folder)
    twin = result.twin
    save_twin(twin, folder / "twin.json")
    page = calibration_page(result, title="twin.json")
    record = json.loads((folder / "twin.json").read_bytes())
    del record["hash"]
    return Calibrated(robot, twin, logs, record, page)


@pytest.mark.slow
def test_as_calibrated_it_is_evidence(calibrated: Calibrated) -> None:
    assert calibrated.twin.credible().holds
    assert calibrated.twin.evidence_kinds == ("effort replay", "command replay")
    assert calibrated.verdict(calibrated.record) == ""


def test_the_report_shows_each_kind_of_evidence(calibrated: Calibrated) -> None:
    page = calibrated.page
    assert "<td>replay from commands</td><td>tested</td>" in page
    assert "<td>closed loop</td><td>not tested</td>" in page
    assert page.index("Replay of held-out recordings<") < page.index("Replay of held-out recordings from commands<")
    lags = page[page.index("Lag of effort behind command by recording") :]
    assert all(f"{log.name}</td>" in lags for log in calibrated.logs)
    assert lags.index("fitted: 0") < lags.index("held out: 1") < lags.index("held out: 3")


def copy_of(log: RobotLog, name: str) -> RobotLog:
    """As if it had been saved in another format, which changes its hash."""
    return replace(log, name=name, sha256=log.sha256[::-1])


def test_a_copy_of_a_held_out_recording_is_no_second_one(calibrated: Calibrated) -> None:
    first, second, *_ = calibrated.logs
    with pytest.raises(LogError, match="a copy is no second one"):
        fit_twin(calibrated.robot, [first], [second, copy_of(second, "again")])


def test_efforts_in_another_unit_are_told_by_the_limits(calibrated: Calibrated) -> None:
    log = calibrated.logs[0]
    assert log.joint_effort is not None
    milli = replace(log, joint_effort=1e3 * log.joint_effort)
    with pytest.raises(LogError, match=r"9\d% of its efforts are beyond the joint's limit: are they in N·m, or N\?"):
        fit_twin(calibrated.robot, [milli])


def backwards(log: RobotLog) -> RobotLog:
    assert log.joint_vel is not None
    return replace(log, joint_pos=-log.joint_pos, joint_vel=-log.joint_vel)


def in_degrees(log: RobotLog) -> RobotLog:
    return replace(log, joint_pos=np.degrees(log.joint_pos), joint_vel=None)


@pytest.mark.parametrize("mistake", [backwards, in_degrees])
def test_a_right_twin_does_not_replay_recordings_with_a_mistake(
    calibrated: Calibrated, mistake: Callable[[RobotLog], RobotLog]
) -> None:
    """Nor does it replay them better than the nominal robot: a fit to other recordings cannot make up for them."""
    score = replay(calibrated.twin, calibrated.robot, [mistake(log) for log in calibrated.logs[1:]])
    nominal = replay(calibration_model(calibrated.robot), calibrated.robot, score.windows.logs)
    credibility = replace(calibrated.twin, residuals=residuals(score, nominal)).credible()
    assert not credibility.holds
    assert "hinge: the upper end of the held-out replay error" in credibility.reasons[0]


def at(record: Record, path: Place) -> Any:
    place: Any = record
    for key in path:
        place = place[key]
    return place


def paths(value: Any, path: Place = ()) -> Iterator[Place]:
    """Each field, and the first element of each list."""
    if path:
        yield path
    if path == ("covariance",):
        return
    if isinstance(value, dict):
        for key, inside in cast("Record", value).items():
            yield from paths(inside, (*path, key))
    elif isinstance(value, list) and value:
        yield from paths(cast("list[Any]", value)[0], (*path, 0))


NOT_EVIDENCE = {"notes", "seed", "software", "physai_version", "format_version"}
ON_TRUST = {
    "sensors",  # absent where recordings show no steps
    "noise.joint_vel_std.0",  # a robot may not measure its speed or effort
    "noise.joint_effort_std.0",
    "residuals.at_zero",  # on trust, and absent in files of before
    "residuals.gain_at_zero",
    "command_residuals.at_zero",
    "command_residuals.gain_at_zero",
    "residuals.floor",  # absent is stricter than any
    "command_residuals.floor",
    "residuals.command_lag",  # held-out recordings with smooth commands identify none, and the verdict says so
    "logs.train.0",
    "logs.held_out.0.duration_s",  # unknown is stricter
    "logs.train.0.duration_s",
    "logs.held_out.0.origin.robot",
    "logs.train.0.origin.robot",
    "timing.period_median_s",
    "timing.period_p99_s",
    "timing.period_max_s",
}
"""What only the recordings could show to be missing."""


def test_no_field_is_deleted_unnoticed_but_those_that_may_be_absent(calibrated: Calibrated) -> None:
    unnoticed: set[str] = set()
    for path in paths(calibrated.record):
        if path[0] not in NOT_EVIDENCE:
            edited = copy.deepcopy(calibrated.record)
            del at(edited, path[:-1])[path[-1]]
            if calibrated.verdict(edited) == "" and not _reads_the_same(calibrated, edited):
                unnoticed.add(".".join(map(str, path)))
    assert unnoticed <= ON_TRUST, sorted(unnoticed - ON_TRUST)


def _reads_the_same(calibrated: Calibrated, edited: Record) -> bool:
    """Whether a deleted field had the value that is its default."""
    file = Path(calibrated.twin.folder) / "edited.json"
    file.write_bytes(rfc8785.dumps({**edited, "hash": sha256_hex(rfc8785.dumps(edited))}))
    return load_twin(file).hash == calibrated.twin.hash


def scale(factor: float, *paths_: str) -> Callable[[Record], object]:
    def change(record: Record) -> None:
        for text in paths_:
            path = tuple(int(part) if part.isdigit() else part for part in text.split("."))
            at(record, path[:-1])[path[-1]] *= factor

    return change


def every_ratio(record: Record) -> None:
    for one in record["residuals"]["alternatives"]:
        one["ratio"] = {"value": 1.5, "lo": 1.4, "hi": 1.6}


def twice(*path: str) -> Callable[[Record], object]:
    return lambda record: at(record, path).append(at(record, path)[0])


FAVOURABLE: dict[str, tuple[Callable[[Record], object], str]] = {
    "a smaller error": (scale(0.1, "residuals.twin.0.value"), "is not near its interval"),
    "a smaller error with its interval": (
        scale(0.1, *(f"residuals.twin.0.{end}" for end in ("value", "lo", "hi"))),
        "less the twin's",
    ),
    "a greater error of the nominal robot": (
        scale(3.0, *(f"residuals.nominal.0.{end}" for end in ("value", "lo", "hi"))),
        "is not the nominal robot's error",
    ),
    "a greater gain": (scale(10.0, "residuals.gain.0.value"), "is not the nominal robot's error"),
    "a gain that its errors do not allow": (
        scale(10.0, "residuals.gain.0.lo", "residuals.gain.0.hi"),
        "which its errors allow",
    ),
    "a floor": (scale(10.0, "residuals.floor.0"), "that its position sensor explains an error of"),
    "a floor from commands": (scale(10.0, "command_residuals.floor.0"), "that its position sensor explains"),
    "more motion": (scale(20.0, "residuals.motion.0"), "any twin replays a joint that does not move"),
    "more motion from commands": (scale(10.0, "command_residuals.motion.0"), "in the replay from commands"),
    "a ratio far from its interval": (
        scale(0.1, "residuals.alternatives.0.ratio.value"),
        "ratio of",
    ),
    "a negative ratio": (scale(-1.0, "residuals.alternatives.0.ratio.lo"), "may not be below 0"),
    "windows of another length": (scale(0.1, "residuals.window_s"), "windows of 0.025 s"),
    "windows of another length from commands": (scale(0.1, "command_residuals.window_s"), "those of its replay from"),
    "a recording twice": (twice("logs", "held_out"), "a recording occurs twice among those held out"),
    "a changed twin twice": (twice("residuals", "alternatives"), "a changed twin occurs twice"),
    "a lag of none of its motors": (
        lambda record: (
            scale(10.0, "timing.command_lag_mean_s", "timing.command_lag_p99_s")(record),
            record["residuals"].update(command_lag=None),
        ),
        "ms, and that of its motors",
    ),
    "a wider lag": (scale(10.0, "residuals.command_lag.value"), "is outside its interval"),
    "a lag at another period": (scale(4.0, "timing.command_lag_period_s"), "measured at a period of 0.032 s"),
    "a parameter better known": (scale(0.1, "parameters.0.std"), "in the covariance"),
    "a parameter better known in the covariance": (scale(0.01, "covariance.0.0"), "covariance"),
    "another value": (scale(1.1, "parameters.0.value"), "was changed after the calibration"),
    "an error of the sample": (scale(0.1, "sample.rmse.0"), "was changed after the calibration"),
    "fewer windows": (
        lambda record: record["sample"].update(
            {name: rows[:2] for name, rows in record["sample"].items() if name != "rmse"}
        ),
        "the twin file states",
    ),
    "a loop without its slow periods": (scale(0.1, "timing.period_max_s"), "do not ascend"),
    "no motors": (lambda record: record.update(actuators=[]), "no response of a motor"),
    "no lag": (
        lambda record: record["timing"].update(
            dict.fromkeys(
                ("command_lag_mean_s", "command_lag_p99_s", "command_lag_period_s", "command_lag_periods")
            )
        ),
        "it states how motors follow commands and no lag",
    ),
    "no replay from commands": (
        lambda record: record.update(command_residuals=None),
        "but no replay from commands, which alone tests that",
    ),
    "no motors and no replay from commands": (
        lambda record: record.update(command_residuals=None, actuators=[]),
        "the lag of held-out recordings, but no replay",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAVOURABLE)
def test_evidence_that_is_made_more_favourable_is_noticed(calibrated: Calibrated, case: str) -> None:
    change, said = FAVOURABLE[case]
    record = copy.deepcopy(calibrated.record)
    change(record)
    assert said in calibrated.verdict(record)


WRONG = {"mass": ("arm.mass", 1.3), "less mass": ("arm.mass", 0.8), "friction": ("hinge.friction", 4.0)}


@pytest.mark.parametrize(("stated", "said"), [("the right", "windows err by"), ("its own", "windows better, with 0.")])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_twin_with_favourable_statements(calibrated: Calibrated, case: str, stated: str, said: str) -> None:
    """Ratios are invented; the error is the right twin's or the wrong one's, and that of the sample agrees with it."""
    name, factor = WRONG[case]
    twin, robot = calibrated.twin, calibrated.robot
    assert twin.sample is not None
    assert twin.residuals is not None
    changed = tuple(
        one.model_copy(update={"value": factor * one.value, "identified": True}) if one.name == name else one
        for one in twin.parameters
    )
    wrong = replace(twin, parameters=changed)
    error = tuple(sample_error(twin.sample, wrong.model()).tolist())
    ratio = Interval(value=1.5, lo=1.4, hi=1.6)
    asked = [one for one, _ in model_changes(wrong.model(), plausible_amounts(robot))]
    others = tuple(Alternative(name=one, ratio=ratio) for one in asked)
    residuals = twin.residuals.model_copy(update={"alternatives": others})
    if stated == "its own":
        residuals = residuals.model_copy(
            update={
                name: (Interval(value=factor * error[0], lo=0.9 * factor * error[0], hi=1.1 * factor * error[0]),)
                for name, factor in (("twin", 1.0), ("nominal", 2.0), ("gain", 1.0))
            }
        )
    wrong = replace(
        wrong,
        residuals=residuals,
        sample=twin.sample.model_copy(update={"rmse": error}),
    )
    assert wrong.credible().holds
    assert said in contradiction(wrong, robot)


def test_the_ratio_of_two_errors_by_hand() -> None:
    """Squares of 1 and 3 against 1 and 1: √2 times. Without a window it is √3 or 1: half of log 3 apart, over 2."""
    value, std = log_ratio(np.array([[1.0], [3.0]]), np.array([[1.0], [1.0]]))
    assert value == pytest.approx(0.5 * np.log(2.0))
    # Two values d apart scatter about their mean by d²/2, times (n - 1)/n = 1/2.
    assert std == pytest.approx(0.5 * np.log(3.0) / 2.0)
    assert log_ratio(np.ones((8, 2)), np.ones((8, 2))) == (0.0, 0.1)
    assert log_ratio(np.ones((1, 1)), np.ones((1, 1))) == (0.0, np.inf)
