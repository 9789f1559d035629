"""Real throws: the 570 tosses of a cube published with ContactNets (github.com/DAIRLab/contact-nets, BSD-3).

They are not part of this project. Where the folder of PHYSAI_DATA has `contactnets_cube/NNN.csv`, converted from
data/tosses_processed of that repository, they are tested: 148 Hz, columns time, x, y, z, qw, qx, qy, qz, positions
times 0.0524 m. Elsewhere they are skipped.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.support.tossed_cube import CONTACT_TIME, FRICTION, RESTITUTION, cube

from physai.twin.calibration.calibrate import fit_twin
from physai.twin.logs import read_logs

DATA = Path(os.environ.get("PHYSAI_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
TOSSES = DATA / "contactnets_cube"
MAP = "time: time\nbase: {position: [x, y, z], quat: [qw, qx, qy, qz]}\n"
WHOLE = [*(f"cube.spread_{axis}" for axis in "xyz"), *(f"cube.com_{axis}" for axis in "xyz")]


@pytest.mark.slow
@pytest.mark.skipif(not TOSSES.is_dir(), reason="needs the tosses of ContactNets: set PHYSAI_DATA to their folder")
def test_friction_and_errors_of_a_real_cube(tmp_path: Path) -> None:
    robot, columns = cube(tmp_path), tmp_path / "tosses.yaml"
    columns.write_text(MAP)
    files = sorted(TOSSES.glob("*.csv"))
    # Every 40th is fitted and every 57th is held out; those in common are left out of the fit.
    held = files[::57]
    train = [file for file in files[5::40] if file not in held]
    logs = read_logs([*train, *held], robot.spec, column_map=columns)
    result = fit_twin(
        robot,
        logs[: len(train)],
        logs[len(train) :],
        only=(FRICTION, RESTITUTION, CONTACT_TIME, *WHOLE),
        budget_steps=6_000_000,
        num_threads=2,
    )
    found = {parameter.name: parameter.value for parameter in result.twin.parameters}
    # The authors state 0.18.
    assert found[FRICTION] == pytest.approx(0.18, abs=0.04)
    residuals = result.twin.residuals
    assert residuals is not None
    twin, nominal = (np.array([e.value for e in errors]) for errors in (residuals.twin, residuals.nominal))
    assert (twin < 0.5 * nominal).all()
    assert all(gain.lo > 0.0 for gain in residuals.gain)
