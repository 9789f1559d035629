"""The agent: what may become active, what is refused, and what is remembered."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.sample import ROBOT, sample_contract, sample_policy
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.slots.slot_errors import InstallError, SlotError
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.bundle.archive import signature_file
from physai.sdk.bundle.manifest import ManifestFacts, attach, pack, read_bundle
from physai.sdk.contract.gaps import lacks_text
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.attestation import bundle_statement
from physai.sdk.signing.verify import Rule, VerificationError


def test_a_life(site: Site) -> None:
    agent = site.agent
    installed = agent.install(site.bundles[1])
    assert (installed.slot, installed.was_there, installed.active) == ("a", False, False)
    assert site.active_version is None
    assert agent.activate().previous is None
    assert site.active_version == 1
    assert agent.store.state().floor == 0
    agent.commit("healthy")
    assert agent.store.state().floor == 1
    assert agent.install(site.bundles[2]).slot == "b"
    assert site.active_version == 1
    agent.activate()
    assert (site.active_version, agent.store.state().floor) == (2, 1)
    agent.rollback("it limps")
    assert (site.active_version, agent.store.state().floor) == (1, 1)
    event = agent.store.state().last_rollback
    assert event is not None
    assert (event.version, event.reason) == (2, "it limps")


def test_the_active_policy_starts_and_answers(site: Site) -> None:
    site.run(1)
    engine = open_active(site.agent.root).start()
    weights = np.load(open_active_golden(site), allow_pickle=False)
    answer = engine.run({"joint_pos": weights["joint_pos"][:1]})["joint_effort_target"]
    assert answer == pytest.approx(weights["joint_effort_target"][:1], abs=1e-5)


def open_active_golden(site: Site) -> Path:
    path = site.agent.root / "golden.npz"
    path.write_bytes(open_active(site.agent.root).bundle.members[GOLDEN_FILE])
    return path


def test_nothing_is_active_before_the_first(site: Site) -> None:
    with pytest.raises(SlotError, match="no policy is active"):
        open_active(site.agent.root)
    with pytest.raises(SlotError, match="slot a is empty"):
        site.agent.activate()


def test_the_same_bundle_twice_does_nothing(site: Site) -> None:
    site.run(1)
    before = site.agent.store.state()
    again = site.agent.install(site.bundles[1])
    assert (again.was_there, again.active) == (True, True)
    assert site.agent.store.state() == before
    site.agent.install(site.bundles[2])
    assert site.agent.install(site.bundles[2]).was_there
    assert not site.agent.install(site.bundles[2], again=True).was_there


def test_no_installation_during_a_trial(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    with pytest.raises(SlotError, match="version 2 is on trial in slot b"):
        site.agent.install(site.bundles[3])
    assert site.agent.install(site.bundles[2]).active


def test_the_floor_rises_at_commit_only(site: Site) -> None:
    site.run(3, commit=False)
    site.agent.rollback("no")
    site.run(2)
    with pytest.raises(VerificationError, match="version 1 is older than 2") as refused:
        site.agent.install(site.bundles[1])
    assert refused.value.rule is Rule.VERSION
    site.agent.install(site.bundles[3], again=True)
    site.agent.activate(retry=True)
    assert site.agent.store.state().floor == 2


def test_a_bundle_below_the_floor_is_not_activated_from_the_idle_slot(site: Site) -> None:
    site.run(1)
    site.run(2)
    with pytest.raises(VerificationError, match="version 1 is older than 2"):
        site.agent.activate()
    assert site.active_version == 2


def test_what_was_rolled_back_needs_a_wish(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    site.agent.rollback("a fault: it limps")
    with pytest.raises(SlotError, match=r"was rolled back on this robot: a fault: it limps; .*--retry"):
        site.agent.activate()
    site.agent.activate(retry=True)
    site.agent.commit("healthy")
    assert site.agent.store.state().rejected == ()


def test_commit_and_rollback_need_a_trial(site: Site) -> None:
    site.run(1)
    with pytest.raises(SlotError, match="no version is on trial"):
        site.agent.commit("healthy")
    with pytest.raises(SlotError, match=r"no version is on trial.*above 1"):
        site.agent.rollback("by hand")


def test_without_a_verdict_only_by_wish_and_remembered(site: Site) -> None:
    data = site.workshop.published(sample_policy(seed=9), version=9)
    with pytest.raises(VerificationError) as refused:
        site.agent.install(data)
    assert refused.value.rule is Rule.NO_VERDICT
    marker = site.agent.install(data, unsafe_no_verdict=True).marker
    assert marker.unsafe_no_verdict
    assert marker.verdict_expires is None
    site.agent.activate()
    assert open_active(site.agent.root).marker.unsafe_no_verdict
    kinds = [event.kind for event in site.agent.store.state().events]
    assert kinds == ["unsafe", "activated"]
    assert "has no verdict" in site.agent.store.state().events[0].reason


def test_a_valid_verdict_makes_the_wish_moot(site: Site) -> None:
    assert not site.agent.install(site.bundles[1], unsafe_no_verdict=True).marker.unsafe_no_verdict


def test_another_robot(site: Site) -> None:
    site.agent.setup(RobotIdentity(robot="ur10e"))
    with pytest.raises(VerificationError) as refused:
        site.agent.install(site.bundles[1])
    assert refused.value.rule is Rule.ROBOT


def test_a_robot_without_the_joints(site: Site) -> None:
    site.agent.setup(RobotIdentity(robot=ROBOT, joints=("elbow", "wrist")))
    with pytest.raises(InstallError, match=r"has no pivot; .* needs pivot, the robot has elbow, wrist"):
        site.agent.install(site.bundles[1])


def test_a_key_revoked_after_installation(site: Site, now: datetime) -> None:
    site.run(1)
    site.agent.install(site.bundles[2])
    revoked = site.workshop.trust.with_revoked(site.workshop.publisher.key_id, since=now, reason="stolen")
    site.agent.setup(RobotIdentity(robot=ROBOT), site.workshop.signed(revoked))
    with pytest.raises(VerificationError, match="stolen"):
        site.agent.activate()
    with pytest.raises(VerificationError, match="stolen"):
        open_active(site.agent.root)


def test_a_verdict_that_expired_after_installation(site: Site, now: datetime) -> None:
    site.run(1)
    site.agent.install(site.bundles[2])
    later = site.on(clock=lambda: now + timedelta(days=31))
    with pytest.raises(VerificationError) as refused:
        later.activate()
    assert refused.value.rule is Rule.EXPIRED
    # What is active already stays startable: a date must not switch a robot off.
    assert open_active(site.agent.root).marker.version == 1


def test_a_clock_that_restarts_in_the_past_revives_no_verdict(site: Site, now: datetime) -> None:
    late = site.on(clock=lambda: now + timedelta(days=40))
    fresh = replace(site.workshop, created=now + timedelta(days=40))
    late.install(fresh.bundle(7))
    late.activate()
    late.commit("healthy")
    with pytest.raises(VerificationError) as refused:
        site.on(clock=lambda: now).install(site.workshop.bundle(8))
    assert refused.value.rule is Rule.EXPIRED


def test_a_clock_in_the_past(site: Site) -> None:
    with pytest.raises(VerificationError) as refused:
        site.on(clock=lambda: datetime.fromisoformat("1970-01-01T00:00:00+00:00")).install(site.bundles[1])
    assert refused.value.rule is Rule.CLOCK
    assert site.agent.install(site.bundles[1]).slot == "a"


def foreign_golden(site: Site) -> bytes:
    """A signed and validated bundle whose golden states come from other weights."""
    members = {POLICY_FILE: sample_policy(seed=1)[POLICY_FILE], GOLDEN_FILE: sample_policy(seed=2)[GOLDEN_FILE]}
    return site.workshop.validated(site.workshop.published(members, version=9))


def test_a_policy_that_answers_differently_here(site: Site) -> None:
    site.run(1)
    with pytest.raises(InstallError, match="version 9 not installed: golden state 0: joint_effort_target"):
        site.agent.install(foreign_golden(site))
    assert site.active_version == 1
    assert site.agent.store.problems("b") == ["slot b is empty or not completely installed"]
    last = site.agent.store.state().events[-1]
    assert (last.kind, last.version) == ("install-failed", 9)


def test_a_damaged_slot_is_not_activated(site: Site) -> None:
    site.run(1)
    site.agent.install(site.bundles[2])
    path = site.agent.root / "slots/b/bundle.physai"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(SlotError, match="damaged"):
        site.agent.activate()
    assert site.active_version == 1
    assert not site.agent.install(site.bundles[2]).was_there


def test_a_damaged_active_slot_does_not_start(site: Site) -> None:
    site.run(1)
    with (site.agent.root / "slots/a/bundle.physai").open("ab") as file:
        file.write(b"x")
    with pytest.raises(SlotError):
        open_active(site.agent.root)


def test_signed_again_is_another_bundle(site: Site) -> None:
    site.run(1)
    members = sample_policy(seed=1)
    bundle = read_bundle(pack(members, ManifestFacts(version=1, created=site.workshop.created)))
    envelope = site.workshop.publisher.envelope(bundle_statement(bundle.id)).encode()
    published = attach(bundle, {signature_file(site.workshop.publisher.key_id): envelope})
    validated = site.workshop.validated(published, valid_for=timedelta(days=60))
    installed = site.agent.install(validated)
    assert not installed.was_there
    assert site.active is not None
    assert installed.marker.bundle_id == site.active.bundle_id


def test_rolled_back_units_are_restarted(site: Site) -> None:
    site.agent.setup(RobotIdentity(robot=ROBOT, runtime_unit="physai-runtime.service"))
    restarted: list[str] = []
    warned: list[str] = []

    def restart(unit: str) -> str:
        restarted.append(unit)
        return "it would not"

    agent = site.on(restart=restart, warn=warned.append)
    agent.install(site.bundles[1])
    agent.activate()
    agent.rollback("no")
    assert restarted == ["physai-runtime.service"] * 2
    assert warned == [lacks_text(sample_contract()), *["it would not"] * 2]


def test_gc_keeps_what_is_whole(site: Site) -> None:
    site.run(1)
    site.agent.install(site.bundles[2])
    (site.agent.root / "incoming/abc").write_bytes(b"12345")
    assert site.agent.gc() == 5
    assert site.agent.store.problems("b") == []
    freed = site.agent.gc(idle=True)
    assert freed > len(site.bundles[2])
    assert site.agent.store.marker("b") is None
    assert site.active_version == 1


def test_gc_removes_what_is_not_whole(site: Site) -> None:
    site.run(1)
    (site.agent.root / "slots/b/bundle.physai").write_bytes(b"123")
    assert site.agent.gc() == 3


def test_gc_during_a_trial_touches_no_slot(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    assert site.agent.gc(idle=True) == 0
    site.agent.rollback("no")
    assert site.active_version == 1


def test_a_link_in_place_of_a_slot_leads_nowhere(site: Site, folder: Path) -> None:
    precious = folder / "precious"
    precious.mkdir()
    for name in ("installed", "bundle.physai", "other"):
        (precious / name).write_bytes(b"kept")
    slot = site.agent.root / "slots" / "a"
    slot.rmdir()
    slot.symlink_to(precious, target_is_directory=True)
    assert site.agent.gc(idle=True) == 0
    slot.rmdir()
    slot.symlink_to(precious, target_is_directory=True)
    site.run(1)
    assert site.active_version == 1
    assert not slot.is_symlink()
    incoming = site.agent.root / "incoming"
    incoming.rmdir()
    incoming.symlink_to(precious, target_is_directory=True)
    with pytest.raises(SlotError, match="incoming is a link or a file where a folder should be; remove it"):
        site.agent.gc()
    assert {path.name: path.read_bytes() for path in precious.iterdir()} == dict.fromkeys(
        ("installed", "bundle.physai", "other"), b"kept"
    )
