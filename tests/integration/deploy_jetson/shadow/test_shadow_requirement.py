"""An owner may demand shadow evidence before a trial; it counts if the robot's own key signed it, for these bytes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.shadow_files import evidence_of, keep_evidence
from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE, SHADOW_FOLDER
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.shadow import ShadowEvidenceError, ShadowRequirement
from physai.sdk.signing.ed25519 import KeyFileError, SigningKey, load_private_key, load_public_key, public_path
from physai.sdk.signing.trust_file import SignedTrust

ORIGIN = Origin(kind="robot", robot=ROBOT)


def facts(sha256: str, *, run: str = "a", **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "run": run * 32,
        "bundle_sha256": sha256,
        "policy_sha256": "1" * 64,
        "contract_fingerprint": "2" * 64,
        "began": "2026-11-21T11:00:00Z",
        "ended": "2026-11-21T11:10:00Z",
        "ticks": 600,
        "starts": 2,
        "unanswered": 0,
        "late": 0,
        "stops": 0,
        "command_share": 0.5,
        "interventions": {},
        "compute_s": {"p50": 1e-4, "p99": 2e-4, "greatest": 3e-4},
        "divergence": [],
        "moments": [],
        "beyond": [],
    }
    return {**given, **changes}


def keep(site: Site, sha256: str, **changes: Any) -> Path:
    robot = changes.pop("robot", ROBOT)
    made = facts(sha256, **changes)
    return keep_evidence(site.agent.root, made, robot=robot, origin=ORIGIN, active_sha256="3" * 64)


@pytest.fixture
def demanding(site: Site, workshop: SampleSigners) -> Site:
    """A robot that asks for 1,000 ticks, three starts and half of the commands; version 2 is installed."""
    site.run(1)
    enrol(site, workshop, load_public_key(public_path(site.agent.root / ROBOT_KEY_FILE)))
    demand(site, ShadowRequirement(ticks=1000, starts=3, command_share=0.5))
    site.agent.install(site.bundles[2])
    return site


def demand(site: Site, requirement: ShadowRequirement) -> None:
    site.agent.setup(RobotIdentity(robot=ROBOT), requirements=Requirements(shadow=requirement))


def enrol(site: Site, workshop: SampleSigners, key: Any) -> None:
    before = site.agent.config.trust()
    signed = SignedTrust(before.with_key(key)).signed([workshop.owner])
    site.agent.setup(RobotIdentity(robot=ROBOT), signed)


def sha_of(site: Site, version: int) -> str:
    return read_bundle(site.bundles[version]).sha256


def test_without_evidence_a_trial_is_refused_with_what_lacks(demanding: Site) -> None:
    with pytest.raises(ShadowEvidenceError, match="0 of 1000 ticks; 0 of 3 starts; 0% of the commands, 50% needed"):
        demanding.agent.activate()
    assert demanding.active is not None
    assert demanding.active.version == 1


def test_two_runs_together_are_enough(demanding: Site) -> None:
    sha = sha_of(demanding, 2)
    keep(demanding, sha)
    with pytest.raises(ShadowEvidenceError, match="600 of 1000 ticks; 2 of 3 starts:"):
        demanding.agent.activate()
    keep(demanding, sha, run="b", ticks=400, starts=1, command_share=0.1)
    demanding.agent.activate()
    assert demanding.active is not None
    assert demanding.active.version == 2


def test_a_run_that_is_copied_counts_once(demanding: Site) -> None:
    path = keep(demanding, sha_of(demanding, 2))
    for letter in "bcd":
        (path.parent / f"{path.name[:12]}-{letter * 32}.json").write_bytes(path.read_bytes())
    with pytest.raises(ShadowEvidenceError, match="600 of 1000 ticks"):
        demanding.agent.activate()


Change = Callable[[Site, SampleSigners], None]


def of_other_bytes(site: Site, workshop: SampleSigners) -> None:
    keep(site, sha_of(site, 3), ticks=5000, starts=9)


def of_another_robot(site: Site, workshop: SampleSigners) -> None:
    keep(site, sha_of(site, 2), ticks=5000, starts=9, robot="another")


def edited_afterwards(site: Site, workshop: SampleSigners) -> None:
    path = keep(site, sha_of(site, 2))
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "ticks": 5000, "starts": 9}))


def signed_by_a_key_of_its_own(site: Site, workshop: SampleSigners) -> None:
    key = site.agent.root / ROBOT_KEY_FILE
    key.unlink()
    public_path(key).unlink()
    site.agent.setup(RobotIdentity(robot=ROBOT))
    keep(site, sha_of(site, 2), ticks=5000, starts=9)


def signed_by_nobody(site: Site, workshop: SampleSigners) -> None:
    (site.agent.root / ROBOT_KEY_FILE).unlink()
    keep(site, sha_of(site, 2), ticks=5000, starts=9)


def signed_by_a_key_that_was_revoked(site: Site, workshop: SampleSigners) -> None:
    keep(site, sha_of(site, 2), ticks=5000, starts=9)
    trust = site.agent.config.trust()
    (key,) = trust.usable("robot")
    revoked = trust.with_revoked(key.key_id, since=datetime(2026, 11, 21, tzinfo=UTC), reason="stolen")
    site.agent.setup(RobotIdentity(robot=ROBOT), SignedTrust(revoked).signed([workshop.owner]))


def signed_by_another_enrolled_robot(site: Site, workshop: SampleSigners) -> None:
    other = SigningKey.generate()
    enrol(site, workshop, other.public_key("robot", label="pendulum/other"))
    path = keep(site, sha_of(site, 2), ticks=5000, starts=9)
    from physai.sdk.evidence.shadow import load_shadow_evidence, save_shadow_evidence
    from physai.sdk.signing.evidence import sign_evidence

    evidence = load_shadow_evidence(path)
    signature = sign_evidence(other, "shadow", evidence.sha256)
    save_shadow_evidence(evidence.model_copy(update={"signature": signature}), path)


def answered_by_the_twin(site: Site, workshop: SampleSigners) -> None:
    made = facts(sha_of(site, 2), ticks=5000, starts=9)
    stand_in = Origin(kind="stand-in", robot=ROBOT)
    keep_evidence(site.agent.root, made, robot=ROBOT, origin=stand_in, active_sha256="3" * 64)


def while_the_same_policy_drove(site: Site, workshop: SampleSigners) -> None:
    sha = sha_of(site, 2)
    made = facts(sha, ticks=5000, starts=9)
    keep_evidence(site.agent.root, made, robot=ROBOT, origin=ORIGIN, active_sha256=sha)


def damaged(site: Site, workshop: SampleSigners) -> None:
    path = keep(site, sha_of(site, 2), ticks=5000, starts=9)
    path.write_bytes(path.read_bytes()[:-20])


def a_link_to_a_file_elsewhere(site: Site, workshop: SampleSigners) -> None:
    path = keep(site, sha_of(site, 2), ticks=5000, starts=9)
    other = site.agent.root.parent / "elsewhere.json"
    path.rename(other)
    path.symlink_to(other)


@pytest.mark.parametrize(
    "change",
    [
        of_other_bytes,
        of_another_robot,
        edited_afterwards,
        signed_by_a_key_of_its_own,
        signed_by_nobody,
        signed_by_a_key_that_was_revoked,
        signed_by_another_enrolled_robot,
        answered_by_the_twin,
        while_the_same_policy_drove,
        damaged,
        a_link_to_a_file_elsewhere,
    ],
)
def test_evidence_that_does_not_count(demanding: Site, workshop: SampleSigners, change: Change) -> None:
    change(demanding, workshop)
    with pytest.raises(ShadowEvidenceError, match="0 of 1000 ticks"):
        demanding.agent.activate()


def test_a_shadow_that_the_guard_would_have_stopped_does_not_pass(demanding: Site) -> None:
    keep(demanding, sha_of(demanding, 2), ticks=5000, starts=9, stops=2)
    with pytest.raises(ShadowEvidenceError, match="there is 2 stops by the guard, at most 0 allowed"):
        demanding.agent.activate()
    demand(demanding, ShadowRequirement(ticks=1000, stops=2))
    demanding.agent.activate()


def test_the_robots_key_is_made_once_and_is_for_the_robot_alone(site: Site) -> None:
    path = site.agent.root / ROBOT_KEY_FILE
    before = path.read_bytes()
    assert (path.stat().st_mode & 0o777) == 0o600
    site.agent.setup(RobotIdentity(robot=ROBOT))
    assert path.read_bytes() == before
    public = load_public_key(public_path(path))
    assert (public.role, public.label) == ("robot", ROBOT)
    assert public.key_id == load_private_key(path).key_id
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="an unencrypted key must be 0600"):
        keep(site, "a" * 64)


def test_a_robot_that_gets_another_name_keeps_its_key_under_that_name(site: Site) -> None:
    path = site.agent.root / ROBOT_KEY_FILE
    before = load_public_key(public_path(path))
    public_path(path).unlink()
    site.agent.setup(RobotIdentity(robot=f"{ROBOT}/cell-3"))
    after = load_public_key(public_path(path))
    assert after.key_id == before.key_id
    assert after.label == f"{ROBOT}/cell-3"


def test_of_an_older_copy_and_the_newest_file_of_a_run_the_newest_counts(demanding: Site) -> None:
    path = keep(demanding, sha_of(demanding, 2), ticks=5000, starts=9)
    older = path.read_bytes()
    keep(demanding, sha_of(demanding, 2), ticks=5000, starts=9, stops=2)
    (path.parent / f"{path.name[:12]}-{'0' * 32}.json").write_bytes(older)
    with pytest.raises(ShadowEvidenceError, match="2 stops by the guard"):
        demanding.agent.activate()


def test_only_the_last_thousand_runs_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("physai.deploy_jetson.update.shadow_files.MAX_FILES", 3)
    for number in range(5):
        keep(site, "a" * 64, run=str(number))
    kept = sorted(path.name[13:14] for path in (site.agent.root / SHADOW_FOLDER).iterdir())
    assert kept == ["2", "3", "4"]
    assert {run.run[0] for run in evidence_of(site.agent.root, "a" * 64)} == {"2", "3", "4"}


def test_an_owners_settings_with_shadow_are_read_and_old_ones_keep_their_bytes() -> None:
    asked = Requirements(shadow=ShadowRequirement(ticks=10))
    assert Requirements.parse(asked.encode(), source="here") == asked
    assert b"shadow" not in Requirements().encode()
