"""The same command on two other robots' real recordings: a torque controlled pendulum and a servo with a weight."""

import json
import os
from pathlib import Path

import pytest

from physai.sdk.cli.main import main
from physai.sim.robots import load_robot

DATA = Path(os.environ.get("PHYSAI_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
RECORDINGS = {
    "simple_pendulum": sorted((DATA / "dfki_simple_pendulum").rglob("data_measured.csv.gz")),
    "xl330_pendulum": sorted((DATA / "bam_xl330").rglob("*.json.gz")),
}

pytestmark = pytest.mark.slow


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
