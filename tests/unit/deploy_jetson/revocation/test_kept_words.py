"""The word that a robot keeps: what replaces what, what is refused, and what the agent does with it."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import START, signed_word, status_cuts

from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.going_back import go_back
from physai.deploy_jetson.update.revocation.kept_words import (
    COPIES,
    KeptRecord,
    KeptWords,
    RevocationError,
    accept,
    accept_and_keep,
    revocation_of,
)
from physai.deploy_jetson.update.revocation.status_sources import read_source
from physai.deploy_jetson.update.robot_words import robot_revocations
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.status.status_document import (
    MAX_STATUS_BYTES,
    RevokedVerdict,
    StatusError,
    StatusPredicate,
    sign_status,
)
from physai.sdk.signing.verify import VerificationError

A = "a" * 64
UNIT = f"{ROBOT}/cell-3"


def keep(site: Site, data: bytes) -> KeptRecord:
    return accept_and_keep(
        site.agent.root, data, trust=site.agent.config.trust(), robot=site.agent.config.identity().robot
    )


def revoke(site: Site, version: int, serial: int) -> None:
    keep(site, signed_word(site.workshop, serial, read_bundle(site.bundles[version]).id))


class TestAccept:
    def test_an_older_word_never_replaces_a_newer_one(self, workshop: SampleSigners) -> None:
        record = accept(KeptRecord(), signed_word(workshop, 5, A), workshop.trust, ROBOT)
        assert record is not None
        with pytest.raises(StatusError, match=r"has serial 4, this robot keeps 5 for pendulum: an older word"):
            accept(record, signed_word(workshop, 4), workshop.trust, ROBOT)

    def test_one_serial_says_one_thing(self, workshop: SampleSigners) -> None:
        data = signed_word(workshop, 5, A)
        record = accept(KeptRecord(), data, workshop.trust, ROBOT)
        assert record is not None
        assert accept(record, data, workshop.trust, ROBOT) is None
        with pytest.raises(StatusError, match="two status documents for pendulum have the serial 5 and say different"):
            accept(record, signed_word(workshop, 5), workshop.trust, ROBOT)

    def test_a_second_signature_on_the_same_word_is_no_news(self, workshop: SampleSigners) -> None:
        second = SigningKey.generate()
        trust = workshop.trust.with_key(second.public_key("validator"))
        record = accept(KeptRecord(), signed_word(workshop, 5, A), trust, ROBOT)
        assert record is not None
        said = record.parsed()[0]
        assert accept(record, sign_status([workshop.validator, second], said), trust, ROBOT) is None

    def test_the_word_for_a_unit_does_not_lift_the_word_for_its_model(self, workshop: SampleSigners) -> None:
        record = accept(KeptRecord(), signed_word(workshop, 5, A), workshop.trust, UNIT)
        assert record is not None
        both = accept(record, signed_word(workshop, 6, robot=UNIT), workshop.trust, UNIT)
        assert both is not None
        assert "word 5" in revocation_of(both.parsed(), A)

    def test_a_serial_of_a_key_that_was_revoked_binds_no_longer(self, workshop: SampleSigners) -> None:
        """Whoever stole a validator's key could otherwise sign the last serial there is, and end all words."""
        thief, data = workshop.validator, signed_word(workshop, 2**53 - 1, A)
        record = accept(KeptRecord(), data, workshop.trust, ROBOT)
        assert record is not None
        heir = SampleSigners(owner=workshop.owner, publisher=workshop.publisher, created=workshop.created)
        trust = workshop.trust.with_key(heir.validator.public_key("validator"))
        trust = trust.with_revoked(thief.key_id, since=START, reason="stolen")
        # What it revoked stays revoked until the next word.
        assert revocation_of(record.parsed(), A)
        after = accept(record, signed_word(heir, 9), trust, ROBOT)
        assert after is not None
        assert not revocation_of(after.parsed(), A)


class TestDisk:
    def test_a_restart_changes_nothing(self, site: Site, workshop: SampleSigners) -> None:
        kept = keep(site, signed_word(workshop, 5, A))
        assert KeptWords(site.agent.root).load() == kept
        with pytest.raises(StatusError, match="older word"):
            keep(site, signed_word(workshop, 4))

    def test_one_copy_is_enough(self, site: Site, workshop: SampleSigners) -> None:
        kept = keep(site, signed_word(workshop, 5, A))
        for name in COPIES:
            path = site.agent.root / name
            data = path.read_bytes()
            path.write_bytes(data[:-3])
            assert KeptWords(site.agent.root).load() == kept
            path.unlink()
            assert KeptWords(site.agent.root).load() == kept
            path.write_bytes(data)

    def test_without_a_sound_copy_nothing_runs(self, site: Site, workshop: SampleSigners) -> None:
        site.run(1)
        keep(site, signed_word(workshop, 5, A))
        for name in COPIES:
            (site.agent.root / name).write_bytes(b"zeros")
        with pytest.raises(RevocationError, match="it is unknown which verdicts were revoked"):
            open_active(site.agent.root)
        keep(site, signed_word(workshop, 6))
        open_active(site.agent.root)

    def test_power_cuts(self, folder: Path) -> None:
        found = status_cuts(folder, words=2)
        assert found.bad == []
        assert found.cuts > 80

    def test_a_sync_that_is_left_out_is_found(self, folder: Path) -> None:
        assert status_cuts(folder, words=1, ignores=lambda kind, path: kind == "sync_folder").bad


class TestAgent:
    def test_a_revoked_bundle_is_not_installed_activated_or_run(self, site: Site) -> None:
        site.run(1)
        site.agent.install(site.bundles[2])
        revoke(site, 2, 1)
        with pytest.raises(RevocationError, match=r"the verdict on version 2 is revoked since .*: word 1"):
            site.agent.activate()
        with pytest.raises(RevocationError, match="version 2 is revoked"):
            site.agent.install(site.bundles[2])
        assert site.active_version == 1
        revoke(site, 1, 2)
        with pytest.raises(RevocationError, match="version 1 is revoked"):
            open_active(site.agent.root)
        assert robot_revocations(tree=site.agent.root).revoked[0].startswith("version 1 in slot")

    def test_a_verdict_is_revoked_by_the_bundles_file_too(self, site: Site) -> None:
        site.run(1)
        keep(site, signed_word(site.workshop, 1, read_bundle(site.bundles[1]).sha256))
        with pytest.raises(RevocationError):
            open_active(site.agent.root)

    def test_a_later_word_lifts_it(self, site: Site) -> None:
        site.run(1)
        revoke(site, 1, 1)
        keep(site, signed_word(site.workshop, 2))
        open_active(site.agent.root)

    def test_going_back_passes_the_floor(self, site: Site) -> None:
        site.run(1)
        site.run(2)
        with pytest.raises(VerificationError, match="older than 2"):
            site.agent.activate()
        revoke(site, 2, 1)
        active = site.active
        assert active is not None
        assert go_back(site.agent, active.bundle_sha256, "revoked").startswith("went back to version 1, on trial")
        assert (site.active_version, site.agent.store.state().floor) == (1, 2)
        # Whoever asks late changes nothing.
        assert go_back(site.agent, active.bundle_sha256, "revoked") == "another version is active already"

    def test_going_back_from_a_trial_is_a_rollback(self, site: Site) -> None:
        site.run(1)
        site.run(2, commit=False)
        revoke(site, 2, 1)
        active = site.active
        assert active is not None
        assert go_back(site.agent, active.bundle_sha256, "revoked").startswith("went back to version 1:")
        assert site.agent.store.state().trial is None

    def test_a_version_that_waits_for_its_trial_is_no_way_back(self, site: Site) -> None:
        site.run(1)
        site.run(2)
        site.agent.install(site.bundles[3])
        revoke(site, 2, 1)
        active = site.active
        assert active is not None
        with pytest.raises(SlotError, match="version 3 waits for its trial and was never committed"):
            go_back(site.agent, active.bundle_sha256, "revoked")
        assert site.active_version == 2

    def test_words_of_former_names_of_the_robot_are_given_up(self, workshop: SampleSigners) -> None:
        record = accept(KeptRecord(), signed_word(workshop, 5, robot=UNIT), workshop.trust, UNIT)
        assert record is not None
        other = f"{ROBOT}/other"
        after = accept(record, signed_word(workshop, 1, robot=other), workshop.trust, other)
        assert after is not None
        assert [word.robot for word in after.words] == [other]

    def test_nobody_goes_back_to_a_revoked_version(self, site: Site) -> None:
        site.run(1)
        site.run(2)
        ids = [read_bundle(site.bundles[version]).id for version in (1, 2)]
        keep(site, signed_word(site.workshop, 1, *ids))
        active = site.active
        assert active is not None
        with pytest.raises(RevocationError, match="version 1 is revoked"):
            go_back(site.agent, active.bundle_sha256, "revoked")
        assert site.active_version == 2


class TestSources:
    def test_a_stick_with_a_thousand_files_is_read_in_three(self, tmp_path: Path, workshop: SampleSigners) -> None:
        for number in range(1000):
            (tmp_path / f"{number}.status.json").write_bytes(b"garbage")
        (tmp_path / "pendulum.cell-3.status.json").write_bytes(b"unit")
        (tmp_path / "status.json").write_bytes(b"all")
        found = dict(read_source(str(tmp_path), UNIT))
        assert found == {f"{tmp_path}/status.json": b"all", f"{tmp_path}/pendulum.cell-3.status.json": b"unit"}

    def test_a_pipe_under_one_name_does_not_hide_the_others(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "status.json")
        (tmp_path / "pendulum.status.json").write_bytes(b"model")
        found: list[bytes] = []
        with pytest.raises(StatusError, match="not a regular file"):
            found.extend(data for _, data in read_source(str(tmp_path), UNIT))
        assert found == [b"model"]

    def test_a_source_that_is_not_there_says_nothing(self, tmp_path: Path) -> None:
        assert list(read_source(str(tmp_path / "stick"), ROBOT)) == []

    def test_links_pipes_and_huge_files_are_refused(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_bytes(b"x")
        (tmp_path / "status.json").symlink_to(secret)
        with pytest.raises(StatusError, match="no status document: Too many levels of symbolic links"):
            list(read_source(str(tmp_path), ROBOT))
        (tmp_path / "status.json").unlink()
        os.mkfifo(tmp_path / "status.json")
        with pytest.raises(StatusError, match="not a regular file"):
            list(read_source(str(tmp_path), ROBOT))
        with secret.open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(StatusError, match=f"{1 << 40} bytes, at most {MAX_STATUS_BYTES} are read"):
            list(read_source(str(secret), ROBOT))

    def test_a_document_given_by_hand(self, site: Site, workshop: SampleSigners, tmp_path: Path) -> None:
        root = site.agent.root
        with pytest.raises(StatusError, match=r"in a folder it is named status.json or pendulum.status.json"):
            robot_revocations(statement=tmp_path, tree=root)
        moment = f"{START + timedelta(seconds=3):%Y-%m-%dT%H:%M:%SZ}"
        entry = RevokedVerdict(bundle=A, reason="worn", since=moment)
        word = StatusPredicate(robot=ROBOT, serial=3, issued=moment, revoked=(entry,))
        (tmp_path / "status.json").write_bytes(sign_status([workshop.validator], word) + b"\n")
        assert robot_revocations(statement=tmp_path, tree=root).words == (word,)
        with pytest.raises(StatusError, match="not a DSSE envelope"):
            robot_revocations(statement=b"garbage", tree=root)
        with pytest.raises(StatusError, match="is a publisher's"):
            robot_revocations(statement=sign_status([workshop.publisher], word), tree=root)
        assert robot_revocations(tree=root).words == (word,)
