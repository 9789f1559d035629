"""The same command on two other robots' real recordings: a torque controlled pendulum and a servo with a weight."""

import json
import os
from pathlib import Path

import pytest

from physai.sdk.cli.main import main
from physai.sim.robots import load_robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.logs import read_logs
from physai.twin.logs.comparison.trajectories import by_trajectory

DATA = Path(os.environ.get("PHYSAI_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
RECORDINGS = {
    "simple_pendulum": sorted((DATA / "dfki_simple_pendulum").rglob("data_measured.csv.gz")),
    "xl330_pendulum": sorted((DATA / "bam_xl330").rglob("*.json.gz")),
}

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
@pytest.mark.parametrize("robot", RECORDINGS)
def test_it_replays_held_out_recordings_better_than_the_published_parameters(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not RECORDINGS[robot]:
        pytest.skip(f"needs the recordings of {robot}: set PHYSAI_DATA to their folder")
    file = tmp_path / "twin.json"
    logs = map(str, RECORDINGS[robot])
    assert main(["sim", "calibrate", robot, *logs, "-o", str(file), "--time-budget-s", "1000", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    (joint,) = load_robot(robot).spec.joint_names
    twin, published = found["held_out"]["rmse"][joint], found["held_out_nominal"]["rmse"][joint]
    assert twin["value"] < published["value"]


@pytest.mark.parametrize(
    ("friction", "held_out", "steps"),
    [
        ("load", 0, 300_000),
        # To find the model takes five times as long as to fit it; test_friction_choice.py finds known ones.
        pytest.param("auto", 0, 3_000_000, marks=pytest.mark.exhaustive),
        pytest.param("auto", 1, 10_000_000, marks=pytest.mark.exhaustive),
    ],
)
def test_the_friction_of_a_servo_holds_on_a_trajectory_that_was_not_fitted(
    friction: str, held_out: int, steps: int
) -> None:
    """Fitted to one trajectory at four gains, it replays the other one better than the published parameters do."""
    if not RECORDINGS["xl330_pendulum"]:
        pytest.skip("needs the recordings of xl330_pendulum: set PHYSAI_DATA to their folder")
    robot = load_robot("xl330_pendulum")
    logs = read_logs([str(path) for path in RECORDINGS["xl330_pendulum"]], robot.spec)
    groups = [[logs[index] for index in group] for group in by_trajectory(logs)]
    assert [len(group) for group in groups] == [4, 4]
    # A servo reports the duty cycle with which it acts on a position error: 0.00287 per rad and unit of its gain.
    assert [log.duty_gain or 0.0 for log in logs] == pytest.approx(
        [0.00287 * log.notes["kp"] for log in logs], rel=0.01
    )
    result = fit_twin(robot, groups[1 - held_out], groups[held_out], friction=friction, budget_steps=steps)
    assert "servo.load_friction" in {parameter.name for parameter in result.twin.parameters}
    assert result.held_out is not None
    assert result.held_out_nominal is not None
    (error,), (published,) = result.held_out.rmse, result.held_out_nominal.rmse
    assert error.value < 0.75 * published.value
