"""Setting a robot up anew changes what is said, and nothing else."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import ROBOT, sample_policy
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.agent import config as configs
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.agent.status import examine, read_status
from physai.deploy_jetson.update.slots.layout import CONFIG_VARIABLE, DEFAULT_CONFIG, DEFAULT_ROOT, config_folder
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
from physai.sdk.evidence.requirements import accepting
from physai.sdk.signing.trust_store import TrustError


def test_what_is_not_said_stays(site: Site) -> None:
    site.agent.setup(RobotIdentity(robot=ROBOT, joints=("pivot",), runtime_unit="a.service"))
    site.agent.setup(RobotIdentity(robot=f"{ROBOT}/cell-2"), limits=HealthLimits(max_interventions=3))
    config = site.agent.config
    assert config.identity() == RobotIdentity(robot=f"{ROBOT}/cell-2", joints=("pivot",), runtime_unit="a.service")
    assert config.limits() == HealthLimits(window_s=1.0, max_interventions=3)
    assert config.trust() == site.workshop.trust
    site.agent.setup(RobotIdentity(robot=ROBOT, joints=("pivot", "slider"), runtime_unit="b.service"))
    assert config.identity() == RobotIdentity(robot=ROBOT, joints=("pivot", "slider"), runtime_unit="b.service")


def test_the_owner_s_files_lie_where_the_tree_or_the_owner_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert config_folder(DEFAULT_ROOT) == DEFAULT_CONFIG == Path("/etc/physai")
    assert config_folder(Path("/data")) == Path("/data")
    assert config_folder(Path("/data"), Path("/said")) == Path("/said")
    monkeypatch.setenv(CONFIG_VARIABLE, "/environment")
    assert config_folder(DEFAULT_ROOT) == config_folder(Path("/data")) == Path("/environment")
    assert config_folder(DEFAULT_ROOT, Path("/said")) == Path("/said")


def test_a_robot_whose_owner_s_files_lie_elsewhere(site: Site, folder: Path) -> None:
    agent = site.on(root=folder / "new", config_root=folder / "owner" / "config")
    agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(), HealthLimits(window_s=1.0))
    assert sorted(path.name for path in (folder / "owner/config").iterdir()) == [
        "limits",
        "lock",
        "robot",
        "trust.json",
    ]
    assert not (folder / "new/robot").exists()
    agent.install(site.bundles[1])
    agent.activate()
    assert open_active(agent.root, config=agent.config_root).marker.version == 1
    assert read_status(agent).warnings == ()
    with pytest.raises(SlotError, match=r"new/robot: cannot be read: .*; set the robot up with `physai robot setup`"):
        open_active(agent.root)


def test_another_model_has_other_joints(site: Site) -> None:
    site.agent.setup(RobotIdentity(robot=ROBOT, joints=("pivot",)))
    site.agent.setup(RobotIdentity(robot="ur10e"))
    assert site.agent.config.identity() == RobotIdentity(robot="ur10e")


def test_a_damaged_record_is_replaced(site: Site) -> None:
    for name in ("robot", "limits", "trust.json"):
        (site.agent.root / name).write_bytes(b"nonsense")
    # Whatever damaged it: an older trust file must not come back this way unnoticed.
    with pytest.raises(TrustError, match=r"trust.json: not JSON.*remove it if you are sure"):
        site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(), HealthLimits(window_s=2.0))
    (site.agent.root / "trust.json").unlink()
    site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(), HealthLimits(window_s=2.0))
    assert site.agent.config.identity().robot == ROBOT
    assert site.agent.config.limits() == HealthLimits(window_s=2.0)
    assert site.agent.config.trust() == site.workshop.trust


def test_an_older_trust_file_brings_no_revoked_key_back(site: Site, now: datetime) -> None:
    older = site.workshop.trust
    key_id = site.workshop.publisher.key_id
    newer = older.with_revoked(key_id, since=now, reason="laptop stolen")
    site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(newer))
    with pytest.raises(TrustError, match="is version 3, the robot has version 4 and accepts only a higher one"):
        site.agent.setup(RobotIdentity(robot=f"{ROBOT}/cell-2"), site.workshop.signed(older))
    other = older.with_revoked("0" * 64, since=now, reason="none").with_revoked("1" * 64, since=now, reason="none")
    with pytest.raises(TrustError, match=f"{key_id[:16]} was revoked on this robot .* laptop stolen.* keys revoke"):
        site.agent.setup(RobotIdentity(robot=f"{ROBOT}/cell-2"), site.workshop.signed(other))
    assert site.agent.config.trust() == newer
    assert site.agent.config.identity().robot == ROBOT
    later = newer.with_revoked(site.workshop.validator.key_id, since=now, reason="rotated")
    site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(later))
    assert site.agent.config.trust() == later


def test_the_doctor_says_what_the_contract_lacks(site: Site) -> None:
    assert {check.name: check.ok for check in examine(site.agent)}["limits"]
    site.run(1)
    found = {check.name: check for check in examine(site.agent)}["limits"]
    assert found.ok
    assert "the contract (format 1) lacks" in found.found


def test_status_and_doctor_say_that_a_revoked_key_keeps_the_policy_from_starting(site: Site, now: datetime) -> None:
    site.run(1)
    assert read_status(site.agent).warnings == ()
    assert {check.name: check.ok for check in examine(site.agent)}["signatures"]
    revoked = site.workshop.trust.with_revoked(site.workshop.publisher.key_id, since=now, reason="laptop stolen")
    site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(revoked))
    (warning,) = read_status(site.agent).warnings
    assert "can no longer start" in warning
    assert "laptop stolen" in warning
    found = {check.name: check for check in examine(site.agent)}["signatures"]
    assert (found.ok, "laptop stolen" in found.found, "newly signed" in found.found) == (False, True, True)


def test_the_doctor_says_what_the_robot_asks_of_a_verdict(site: Site) -> None:
    found = {check.name: check.found for check in examine(site.agent)}
    assert found["settings"] == f"10 gates, evidence of: robot; latency of: {site.agent.machine}"
    assert "1 owner keys, 1 must sign" in found["trust"]
    asked = accepting(("robot", "stand-in"))
    site.agent.setup(RobotIdentity(robot=ROBOT, stand_in=True), requirements=asked)
    assert "evidence of: robot, stand-in" in {check.name: check.found for check in examine(site.agent)}["settings"]
    site.agent.setup(RobotIdentity(robot=ROBOT), limits=HealthLimits(window_s=3.0))
    assert site.agent.config.identity().stand_in, "it became no robot by another setting"
    for name in ("ur10e", ROBOT):
        site.agent.setup(RobotIdentity(robot=name))
    assert site.agent.config.identity().stand_in, "it became no robot under another model's name, and back"
    (site.agent.root / "settings.json").write_text("{")
    assert not {check.name: check.ok for check in examine(site.agent)}["settings"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets up for another account")
def test_an_account_that_may_not_read_this_python_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "os.py"
    library.touch(mode=0o600)
    root, owned = tmp_path / "robot", tmp_path / "owned"
    root.mkdir()
    os.chown(root, 12345, 12345)
    monkeypatch.setattr(configs, "STANDARD_LIBRARY", str(library))
    agent = UpdateAgent(root=root, config_root=owned)
    with pytest.raises(SlotError, match=rf"user 12345, the owner of {root}, may not read this Python \({library}\)"):
        agent.setup(RobotIdentity(robot="arm"))
    assert not list(root.iterdir())
    assert not owned.exists()


def test_a_clock_in_1970_beside_a_bundle_of_today_is_not_plausible(site: Site) -> None:
    agent = replace(site.agent, clock=lambda: datetime(1970, 1, 2, tzinfo=UTC))
    agent.install(site.workshop.published(sample_policy(), version=1), unsafe_no_verdict=True)
    (clock,) = (check for check in examine(agent) if check.name == "clock")
    assert not clock.ok
    assert "behind the bundle in slot a; set it" in clock.found
    (clock,) = (check for check in examine(site.agent) if check.name == "clock")
    assert clock.ok
