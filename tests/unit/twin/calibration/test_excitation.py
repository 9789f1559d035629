"""Designed commands constrain what they are designed for, once they are played and calibrated on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.base.errors import PhysaiError, UnknownNameError
from physai.sdk.cli.main import main
from physai.sim.robots import Robot
from physai.twin.calibration.stand_in.excitation import design_excitation, envelope, read_commands, write_commands
from physai.twin.logs import LogError
from physai.twin.model.twin import Twin, load_twin, nominal_twin, save_twin
from physai.twin.model.twin_file import FittedParameter
from physai.twin.parameters.parameters import catalogue


def open_twin(robot: Robot) -> Twin:
    """A twin of which no recording has constrained anything."""
    parameters = tuple(
        FittedParameter.model_validate({**vars(p), "value": p.prior, "std": p.prior_std, "identified": False})
        for p in catalogue(robot, "effort")
    )
    return replace(
        nominal_twin(robot),
        robot=robot.path.name,
        folder=str(robot.path.parent),
        parameters=parameters,
        covariance=np.diag([p.prior_std**2 for p in parameters]),
    )


def test_more_candidates_are_never_worse_and_equal_seeds_are_equal(pendulum: Robot) -> None:
    names, twin = ("hinge.friction", "hinge.damping"), open_twin(pendulum)
    found = [design_excitation(twin, names, duration_s=4.0, candidates=count) for count in (1, 4)]
    logs = [np.log(list(one.after.values())).sum() for one in found]
    assert logs[1] <= logs[0]
    again = design_excitation(twin, names, duration_s=4.0, candidates=4)
    np.testing.assert_array_equal(again.recording.command, found[1].recording.command)
    assert again.after == found[1].after
    assert all(std <= found[1].before[name] * 1.0001 for name, std in found[1].after.items())
    # The friction of 0.2 N·m moves the arm by far more than a sensor's noise; its own axis cannot show a shear.
    assert found[1].constrained == names
    (shear,) = design_excitation(twin, ("arm.shear_xy",), duration_s=4.0, candidates=2).after.values()
    assert shear == pytest.approx(next(p.prior_std for p in twin.parameters if p.name == "arm.shear_xy"), rel=0.01)


def test_it_stays_within_the_limits_of_the_robot(pendulum: Robot) -> None:
    found = design_excitation(open_twin(pendulum), ("arm.mass",), duration_s=4.0, candidates=2)
    ((name, lower, upper, speed, command),) = envelope(found, pendulum)
    limit = pendulum.spec.joints[0].effort_limit
    assert name == "hinge"
    assert lower < 0.0 < upper
    assert speed > 0.0
    assert 0.0 < command <= limit


def test_the_file_is_read_as_it_was_written(pendulum: Robot, tmp_path: Path) -> None:
    found = design_excitation(open_twin(pendulum), ("arm.mass",), duration_s=2.0, rate_hz=100.0, candidates=1)
    write_commands(found, pendulum, tmp_path / "commands.csv")
    command, rate_hz = read_commands(tmp_path / "commands.csv", pendulum)
    np.testing.assert_allclose(command, found.recording.command, rtol=1e-8)
    assert rate_hz == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,elbow.command\n0,1\n0.01,1\n", "has the columns time, elbow.command; commands for pendulum need hinge"),
        ("time,hinge.command\n0,1\n", "1 rows, at least 2 are needed"),
        ("time,hinge.command\n0,1\n0.01,nan\n0.02,1\n", "a number in every cell"),
        ("time,hinge.command\n0,1\n0.01,1\n0.05,1\n", "evenly spaced"),
        ("time,hinge.command\n0.02,1\n0.01,1\n0.0,1\n", "in ascending order"),
    ],
)
def test_other_files_are_refused(pendulum: Robot, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "commands.csv"
    file.write_text(text)
    with pytest.raises(LogError, match=words):
        read_commands(file, pendulum)


def test_what_cannot_be_designed(pendulum: Robot) -> None:
    twin = open_twin(pendulum)
    with pytest.raises(UnknownNameError, match=r"arm\.weight"):
        design_excitation(twin, ("arm.weight",))
    known = replace(twin, parameters=tuple(p.model_copy(update={"identified": True}) for p in twin.parameters))
    with pytest.raises(PhysaiError, match="constrain every parameter; name those"):
        design_excitation(known)
    with pytest.raises(PhysaiError, match=r"`candidates` must be in 1 … 1000, got 0"):
        design_excitation(twin, candidates=0)


def test_from_an_open_twin_to_a_constrained_one(
    pendulum: Robot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the verbs: excite, record on a stand-in, calibrate; what it was designed for is then constrained."""
    twin, robot = tmp_path / "twin.json", str(pendulum.path)
    save_twin(replace(open_twin(pendulum), robot=robot), twin)
    commands, recordings = tmp_path / "commands.csv", tmp_path / "recordings"
    words = ["--for", "hinge.friction", "--duration-s", "4", "--candidates", "3", "-o", str(commands), "--json"]
    assert main(["sim", "excite", str(twin), *words]) == 0
    assert json.loads(capsys.readouterr().out)["constrained"] == ["hinge.friction"]
    assert main(["sim", "record", robot, "-o", str(recordings), "--commands", str(commands), "--recordings", "2"]) == 0
    # A repetition of its commands moves a stand-in alike, so that it tests nothing.
    other = tmp_path / "other"
    assert main(["sim", "record", robot, "-o", str(other), "--recordings", "1", "--seed", "7"]) == 0
    output = tmp_path / "fitted.json"
    logs = sorted(str(path) for path in recordings.glob("*.csv"))
    words = ["--held-out", logs[1], "-o", str(output), "--budget-steps", "300000"]
    assert main(["sim", "calibrate", robot, logs[0], *words]) == 2
    assert "motion in common; a held-out recording must not be fitted" in capsys.readouterr().err
    words[1:2] = map(str, other.glob("*.csv"))
    assert main(["sim", "calibrate", robot, logs[0], *words]) in (0, 1)
    (friction,) = [p for p in load_twin(output).parameters if p.name == "hinge.friction"]
    assert friction.identified
    assert friction.std < 0.5 * friction.prior_std
