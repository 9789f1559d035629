"""The friction of a joint is found from recordings, and so is its model, by recordings left out of the fit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.base.errors import UnknownNameError
from physai.sim.friction import MODELS
from physai.sim.robots import Robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.fit.friction_choice import AUTO, CANDIDATES, covering
from physai.twin.calibration.split import split_logs
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, load_twin, save_twin

Recorder = Callable[..., RobotLog]

STRIBECK = {"hinge.friction": 0.4, "hinge.damping": 0.1, "hinge.stribeck_friction": 0.9, "hinge.stribeck_speed": 0.3}
LOAD = {"hinge.friction": 0.1, "hinge.damping": 0.1, "hinge.load_friction": 0.25}


def recordings(robot: Robot, record: Recorder, truth: dict[str, float], count: int = 3) -> list[RobotLog]:
    return [record(robot, truth, seed=seed, seconds=4.0, name=f"log{seed}") for seed in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("truth", "model"), [(STRIBECK, "stribeck"), (LOAD, "load")])
def test_known_friction_is_found(pendulum: Robot, record: Recorder, truth: dict[str, float], model: str) -> None:
    logs = recordings(pendulum, record, truth)
    twin = fit_twin(pendulum, logs, only=tuple(truth), friction=model, budget_steps=4_000_000).twin
    assert {parameter.name for parameter in twin.parameters[: len(truth)]} == set(truth)
    for parameter in twin.parameters[: len(truth)]:
        assert parameter.identified, parameter.name
        assert parameter.std < 0.5 * parameter.prior_std
        # Four standard deviations: beyond them less than once in ten thousand.
        assert abs(parameter.value - truth[parameter.name]) < 4.0 * parameter.std, parameter


@pytest.mark.slow
def test_the_model_is_chosen_by_recordings_left_out_of_the_fit(pendulum: Robot, record: Recorder) -> None:
    def chosen(truth: dict[str, float]) -> tuple[set[str], str]:
        twin = fit_twin(pendulum, recordings(pendulum, record, truth), budget_steps=3_000_000).twin
        names = {p.name.removeprefix("hinge.") for p in twin.parameters}
        return names & {term for terms in MODELS.values() for term in terms}, notes_of(twin)

    # Of 10 N·m that the arm weighs and as much from the motor, 45 % is friction: no constant friction does that.
    terms, note = chosen(LOAD | {"hinge.load_friction": 0.45})
    assert "load_friction" in terms
    assert all(f"{model} 0." in note for model in CANDIDATES), note
    terms, note = chosen({"hinge.friction": 0.4, "hinge.damping": 0.1})
    assert terms == set()
    assert "it replays the fitted recordings within 50% of the credible error" in note


def notes_of(twin: Twin) -> str:
    (note,) = [note for note in twin.notes if note.startswith("friction model")]
    return note


def test_the_terms_of_all_models_that_are_not_excluded_are_fitted() -> None:
    """Two credible twins with another model each predicted opposite outcomes of one policy."""
    assert covering({"coulomb": 0.104, "stribeck": 0.1, "load": 0.12}) == "stribeck"
    assert covering({"coulomb": 0.2, "stribeck": 0.15, "load": 0.1, "stribeck-load": 0.106}) == "load"
    assert covering({"coulomb": 0.2, "stribeck": 0.101, "load": 0.1, "stribeck-load": 0.104}) == "stribeck-load"
    # Its own error excludes the model with the terms of both.
    assert covering({"coulomb": 0.2, "stribeck": 0.101, "load": 0.1, "stribeck-load": 0.12}) == "stribeck"
    assert covering({"coulomb": 0.2, "stribeck": 0.3, "load": 0.19, "stribeck-load": 0.1}) == "stribeck-load"
    assert covering({"coulomb": 0.1, "stribeck": 0.11, "load": 0.12, "stribeck-load": 0.13}) == "coulomb"
    assert covering({"coulomb": math.inf, "load": 5.0}) == "load"
    # Fits without time err alike, and compare nothing.
    assert covering(dict.fromkeys(CANDIDATES, 0.0884)) == "coulomb"
    assert covering(dict.fromkeys(CANDIDATES, math.inf)) == "coulomb"


def test_one_recording_does_not_tell_models_apart(pendulum: Robot, record: Recorder) -> None:
    twin = fit_twin(pendulum, recordings(pendulum, record, LOAD, 1), budget_steps=200_000).twin
    assert "one recording does not tell friction models apart" in notes_of(twin)
    assert not any("load" in p.name for p in twin.parameters)


def test_a_friction_model_that_does_not_exist_is_refused(pendulum: Robot, record: Recorder) -> None:
    with pytest.raises(UnknownNameError, match="no friction model named 'stribek'; did you mean stribeck"):
        fit_twin(pendulum, recordings(pendulum, record, LOAD, 1), friction="stribek")


def test_the_twins_file_and_draws_keep_its_friction(pendulum: Robot, record: Recorder, tmp_path: Path) -> None:
    logs = recordings(pendulum, record, LOAD, 2)
    only = ("hinge.load_friction", "hinge.friction")
    twin = fit_twin(pendulum, logs, only=only, friction="load", budget_steps=400_000, folder=tmp_path).twin
    value = {p.name: p.value for p in twin.parameters}["hinge.load_friction"]
    assert value > 0.1
    file = tmp_path / "twin.json"
    save_twin(twin, file)
    model = load_twin(file).model()
    # cm and ce, before sm, se, qm, qe and the mark.
    assert model.jnt_user[0, -7:-5].tolist() == [value, value]
    drawn = twin.randomisation(50, 0)["jnt_user"]
    assert drawn.shape == (50, 1, model.nuser_jnt)
    assert drawn[:, 0, -7].std() > 0.0
    assert np.array_equal(drawn[:, 0, -7], drawn[:, 0, -6])


def servo_logs(record: Recorder, robot: Robot, trajectories: Sequence[int]) -> list[RobotLog]:
    """Recordings of which those with the same number follow the same positions."""
    logs: list[RobotLog] = []
    for place, number in enumerate(trajectories):
        log = record(robot, {}, seed=place, seconds=1.0, name=f"log{place}")
        targets = np.sin((1.0 + number) * log.time)[:, None]
        logs.append(replace(log, command=targets, command_kind="joint_pos"))
    return logs


def test_a_split_keeps_trajectories_together(pendulum: Robot, record: Recorder) -> None:
    trajectories = [0, 1, 0, 1, 0, 1, 0, 1]
    logs = servo_logs(record, pendulum, trajectories)
    for seed in range(8):
        train, held_out = split_logs(logs, seed)
        assert len(train) == len(held_out) == 4
        kinds = [{trajectories[int(log.name[3:])] for log in part} for part in (train, held_out)]
        assert kinds[0].isdisjoint(kinds[1])
    # With one trajectory only, recordings are held out one by one.
    train, held_out = split_logs(servo_logs(record, pendulum, [0] * 5), 0)
    assert (len(train), len(held_out)) == (3, 2)
    assert AUTO not in MODELS
