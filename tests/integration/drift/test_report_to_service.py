"""`physai drift --report-to`: a signed report in a folder and at a service, which refuses strangers' keys."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.support.unit_keys import UNIT, UnitKeys

from physai.drift import DriftReport, drift, file_report
from physai.sdk.base.service import ServiceRequestError
from physai.sdk.cli.main import main
from physai.sdk.signing.ed25519 import SigningKey
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database
from physai.sim.robots import load_robot
from physai.twin.calibration.stand_in.synthetic_robot import excite, stand_in, write_columns, write_recording
from physai.twin.model.twin import nominal_twin, save_twin

pytestmark = pytest.mark.slow

KEYS = UnitKeys()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short recording of the robot, next to its twin."""
    folder = tmp_path_factory.mktemp("robot")
    robot = load_robot(UNIT.split("/")[0])
    write_columns(robot, folder)
    write_recording(excite(stand_in(robot, 1), duration_s=6.0, rate_hz=100, seed=1), robot, folder / "a.csv")
    save_twin(nominal_twin(robot), folder / "twin.json")
    return folder / "a.csv"


@pytest.fixture(scope="module")
def found(recording: Path) -> DriftReport:
    return drift([recording], twin=recording.with_name("twin.json"))


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ServiceProcess]:
    data = tmp_path / "data"
    data.mkdir()
    store = TokenStore(open_database(default_database(data)))
    monkeypatch.setenv("PHYSAI_TOKEN", store.create("monitor", "run"))
    served = ServiceProcess(data, workers=0, trust=KEYS.save(tmp_path / "trust.json"))
    served.start()
    yield served
    served.stop()


def test_a_service_takes_a_report_by_its_robots_key_and_no_other(found: DriftReport, service: ServiceProcess) -> None:
    assert file_report(found, [KEYS.robots[UNIT]], service.url, robot=UNIT) == service.url
    with pytest.raises(ServiceRequestError, match="not signed by a key of the trust file"):
        file_report(found, [SigningKey.generate()], service.url, robot=UNIT)


def test_the_verb_files_a_report_in_a_folder(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    words = ["drift", str(recording), "--twin", str(recording.with_name("twin.json")), "--report-to"]
    words += [str(tmp_path / "reports"), "--recorded-on", UNIT]
    assert main(words) == 2
    assert "validator.key: no such key; give --key of the robot" in capsys.readouterr().err
    assert main(["keys", "init"]) == 0
    assert main([*words, "--json"]) == 2  # NO EVIDENCE
    out, err = capsys.readouterr()
    filed = Path(err.rsplit("filed", 1)[1].strip())
    shown: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert json.loads(next((tmp_path / "reports").glob("*.drift.json")).read_text()) == shown
    assert main(["bundle", "status", str(filed)]) == 0
    assert "NO EVIDENCE" in capsys.readouterr().out
    assert main(["sim", "drift-fleet", str(filed), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["robots"]
    assert (one["robot"], one["changed"], one["signed"], one["outcome"]) == (UNIT, False, True, "NO EVIDENCE")
