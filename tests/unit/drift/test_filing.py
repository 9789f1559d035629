"""Signed drift reports in a folder: what they say, who may sign them, and what a fleet reads of them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.unit_keys import OTHER, UNIT, UnitKeys
from tests.unit.drift.test_drift_page import drifted

from physai.drift import DriftError, DriftReport, drift, file_report, fleet_drift
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.service import ServiceRequestError
from physai.sdk.cli.main import main
from physai.sdk.signing.ed25519 import SigningKey, load_private_key
from physai.sdk.signing.status.drift_report import ReportError, read_report
from physai.sdk.signing.trust_store import TrustStore
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin

KEY = SigningKey.generate()


@pytest.fixture
def found(still_log: RobotLog, pendulum_twin: Twin) -> DriftReport:
    report = drifted(drift([still_log], twin=pendulum_twin))
    return replace(report, unit="double_pendulum/bench-1", log_e_value=math.log(500.0), usable_s=10.0)


def trusting(key: SigningKey, robot: str) -> TrustStore:
    return TrustStore().with_key(key.public_key("robot", label=robot))


def test_a_report_in_a_folder_states_what_was_found_and_the_hash_of_everything(
    found: DriftReport, tmp_path: Path
) -> None:
    file = Path(file_report(found, [KEY], tmp_path / "reports"))
    word, keys = read_report(file.read_bytes(), trusting(KEY, "double_pendulum/bench-1"))
    assert (word.robot, word.finding) == ("double_pendulum/bench-1", "DRIFTED")
    assert word.values["log_e_value"] == pytest.approx(math.log(500.0))
    assert word.values["drifted.link2.mass"] == 0.3
    assert [key.key_id for key in keys] == [KEY.key_id]
    everything = next((tmp_path / "reports").glob("*.drift.json")).read_bytes()
    assert word.evidence == sha256_hex(everything)
    assert json.loads(everything)["unit"] == "double_pendulum/bench-1"


def test_a_fleet_reads_signed_reports_by_keys_of_its_trust_file_only(found: DriftReport, tmp_path: Path) -> None:
    assert main(["keys", "init", str(tmp_path / "keys")]) == 0
    trust, key = tmp_path / "keys" / "trust.json", load_private_key(tmp_path / "keys" / "validator.key")
    one = fleet_drift([file_report(found, [key], tmp_path / "known")], trust=trust).robots[0]
    assert (one.robot, one.changed, one.signed) == ("double_pendulum/bench-1", True, True)
    assert (one.parameters, one.text) == (("link2.mass",), "mass at <link2> +0.3 kg")
    stranger = file_report(found, [KEY], tmp_path / "strange")
    with pytest.raises(ReportError, match="not signed by a key of the trust file"):
        fleet_drift([stranger], trust=trust)


def test_the_key_of_a_robot_reports_on_this_robot_only(found: DriftReport, tmp_path: Path) -> None:
    keys = UnitKeys()
    trust = keys.save(tmp_path / "trust.json")
    (tmp_path / "own.json").write_bytes(keys.drift(finding="DRIFTED", values={"log_e_value": 50.0}))
    own = fleet_drift([tmp_path / "own.json"], trust=trust).robots[0]
    assert (own.robot, own.signed, own.changed) == (UNIT, True, True)
    (tmp_path / "forged.json").write_bytes(keys.drift(key=keys.robots[OTHER], values={"log_e_value": 50.0}))
    with pytest.raises(ReportError, match=f"the report is on {UNIT}, and signed by the key of {OTHER}"):
        fleet_drift([tmp_path / "forged.json"], trust=trust)
    # The label of a key has the first 64 characters of a name.
    long = "double_pendulum/" + "b" * 60
    file = Path(file_report(found, [KEY], tmp_path, robot=long))
    word, _ = read_report(file.read_bytes(), trusting(KEY, long[:64]))
    assert word.robot == long


def test_a_report_is_about_a_unit(found: DriftReport, tmp_path: Path) -> None:
    with pytest.raises(DriftError, match="the recordings name no unit, and a report is about one: give `recorded_on`"):
        file_report(replace(found, unit=None), [KEY], tmp_path)
    with pytest.raises(DriftError, match="`recorded_on` ur10e/a: the recordings are of a double_pendulum"):
        file_report(found, [KEY], tmp_path, robot="ur10e/a")
    with pytest.raises(DriftError, match=r"robot 'double_pendulum/a b'"):
        file_report(found, [KEY], tmp_path, robot="double_pendulum/a b")
    assert not list(tmp_path.iterdir())


def test_an_address_that_is_none_and_a_missing_key_are_refused(found: DriftReport, tmp_path: Path) -> None:
    with pytest.raises(ServiceRequestError, match="is no address of a service"):
        file_report(found, [KEY], "ftp://host")
    with pytest.raises(ReportError, match="no key signs the document"):
        file_report(found, [], tmp_path)


def test_an_infinite_e_value_is_left_out_of_the_values(found: DriftReport, tmp_path: Path) -> None:
    file = Path(file_report(replace(found, log_e_value=-math.inf), [KEY], tmp_path))
    word, _ = read_report(file.read_bytes(), TrustStore().with_key(KEY.public_key("owner")))
    assert "log_e_value" not in word.values
