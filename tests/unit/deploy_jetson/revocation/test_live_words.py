"""The age of the word by clocks that are set, the ranges of joints and commands, and the owner's rules."""

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.sample import SampleSigners, sample_contract
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word

from physai.deploy_jetson.runtime.revocation.joint_bounds import JointBounds, contradiction_of
from physai.deploy_jetson.runtime.revocation.live_words import LiveWords
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.revocation.kept_words import FOLDER, KeptRecord, KeptWords
from physai.sdk.evidence.requirements import Requirements, RequirementsError
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.signing.status.status_document import NarrowedConditions
from physai.sdk.signing.trust_store import TrustStore

A = "a" * 64
MAX_AGE_S = 3600.0


@dataclass
class Robot:
    """A robot whose clocks the test sets, and the runs of its runtime."""

    site: Site
    stick: Path
    rules: StatusRules
    clock_s: float
    on_s: float = 1000.0
    said: list[str] = field(default_factory=list[str])

    def start(self) -> LiveWords:
        identity = self.site.agent.config.identity()
        self.site.agent.setup(identity, requirements=Requirements(status=self.rules))
        options = RunOptions(root=self.site.agent.root)
        return LiveWords(options, self.said.append, lambda: None, clock=lambda: self.clock_s, on_s=lambda: self.on_s)

    def word(self, serial: int, *revoked: str) -> None:
        issued = self.site.agent.clock() - timedelta(seconds=serial)
        (self.stick / "status.json").write_bytes(signed_word(self.site.workshop, serial, *revoked, issued=issued))


@pytest.fixture
def robot(site: Site, tmp_path: Path) -> Robot:
    rules = StatusRules(sources=(str(tmp_path),), max_age_s=MAX_AGE_S)
    return Robot(site, tmp_path, rules, site.agent.clock().timestamp())


def test_a_word_on_a_stick_counts_from_the_start(robot: Robot) -> None:
    robot.word(1, A)
    assert robot.start().known.words[0].revoked[0].bundle == A


def test_without_any_word_a_robot_that_asks_for_one_waits(robot: Robot) -> None:
    assert "there is no word of a validator yet" in robot.start().known.stale
    robot.rules = StatusRules()
    assert robot.start().known.stale == ""


def test_a_clock_that_is_set_back_makes_no_old_word_fresh(robot: Robot) -> None:
    robot.word(1)
    live = robot.start()
    assert live.known.stale == ""
    robot.clock_s -= 30 * 86400.0
    robot.on_s += MAX_AGE_S + 1.0
    live.look()
    assert live.known.stale == "the word of a validator for pendulum is older than 3600 s"


def test_nor_does_a_restart_with_the_clock_set_back(robot: Robot) -> None:
    robot.word(1)
    live = robot.start()
    robot.on_s += 0.9 * MAX_AGE_S
    live.look()
    # A power cut, and a computer without a battery-backed clock.
    robot.on_s, robot.clock_s = 10.0, 0.0
    live = robot.start()
    assert live.known.stale == ""
    robot.on_s += 0.2 * MAX_AGE_S
    live.look()
    assert "older than 3600 s" in live.known.stale


def test_a_clock_that_ran_ahead_does_no_lasting_harm(robot: Robot) -> None:
    robot.word(1)
    live = robot.start()
    robot.clock_s += 86400.0
    live.look()
    assert live.known.stale
    robot.on_s += 120.0
    live.look()
    robot.clock_s -= 86400.0
    live.look()
    assert live.known.stale == ""
    assert robot.start().known.stale == ""


def test_a_fresh_word_ends_the_wait(robot: Robot) -> None:
    live = robot.start()
    assert live.known.stale
    robot.word(1)
    live.ask(str(robot.stick))
    assert live.known.stale == ""


def test_an_old_all_well_is_refused_and_said_once(robot: Robot) -> None:
    robot.word(5, A)
    live = robot.start()
    robot.word(4)
    for _ in range(3):
        live.ask(str(robot.stick))
    assert live.known.words[0].serial == 5
    assert sum("has serial 4, this robot keeps 5" in text for text in robot.said) == 1


def test_files_deleted_while_it_runs_are_written_again(robot: Robot) -> None:
    robot.word(5, A)
    live = robot.start()
    folder = robot.site.agent.root / FOLDER
    for name in ("kept", "kept.copy"):
        (folder / name).unlink()
    live.look()
    live.look()
    assert (folder / "kept").is_file()
    assert robot.start().known.words[0].serial == 5


def test_a_disk_that_refuses_delays_no_revocation(robot: Robot) -> None:
    live = robot.start()
    robot.word(5, A)
    (robot.site.agent.root / FOLDER).write_text("a file in the way")
    live.ask(str(robot.stick))
    assert live.known.words[0].revoked
    assert "is not durable, a restart may forget it" in live.problem
    (robot.site.agent.root / FOLDER).unlink()
    live.look()
    assert live.problem == ""
    assert robot.start().known.words


def test_while_a_word_waits_for_the_disk_the_next_one_counts(robot: Robot, monkeypatch: pytest.MonkeyPatch) -> None:
    live = robot.start()
    waits, goes_on = threading.Event(), threading.Event()
    save = KeptWords.save

    def slow(words: KeptWords, record: KeptRecord, trust: TrustStore, name: str) -> KeptRecord:
        waits.set()
        assert goes_on.wait(10.0)
        return save(words, record, trust, name)

    monkeypatch.setattr(KeptWords, "save", slow)
    robot.word(1)
    first = threading.Thread(target=live.ask, args=(str(robot.stick),))
    first.start()
    assert waits.wait(10.0)
    robot.word(2, A)
    second = threading.Thread(target=live.ask, args=(str(robot.stick),))
    second.start()
    deadline_s = time.monotonic() + 10.0
    while not live.known.words[0].revoked and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert live.known.words[0].revoked
    goes_on.set()
    first.join()
    second.join()
    live.look()
    monkeypatch.undo()
    assert robot.start().known.words[0].serial == 2


def test_a_word_that_a_passing_fault_refused_is_taken_with_the_next_poll(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = robot.start()
    robot.word(1, A)

    def fails(config: RobotConfig) -> TrustStore:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(RobotConfig, "trust", fails)
    live.ask(str(robot.stick))
    assert not live.known.words
    monkeypatch.undo()
    live.ask(str(robot.stick))
    assert live.known.words[0].revoked


def test_a_key_revoked_after_its_word_vouches_for_nothing(robot: Robot, workshop: SampleSigners) -> None:
    robot.word(5)
    live = robot.start()
    since = robot.site.agent.clock()
    trust = workshop.trust.with_revoked(workshop.validator.key_id, since=since, reason="stolen")
    workshop.signed(trust).save(robot.site.agent.root / "trust.json")
    live.look()
    assert live.known.stale == "this robot no longer trusts the signers of the word for pendulum"


class TestRules:
    def test_old_settings_keep_their_bytes(self) -> None:
        assert b"status" not in Requirements().encode()
        rules = StatusRules(sources=("/media/stick", "https://example.org/status.json"), max_age_s=60.0)
        settings = Requirements(status=rules)
        assert Requirements.parse(settings.encode(), source="x") == settings

    @pytest.mark.parametrize("source", ["stick", "file:///etc/passwd", "ftp://host/x", "/two words"])
    def test_sources_are_paths_and_web_addresses(self, source: str) -> None:
        with pytest.raises(RequirementsError):
            Requirements.parse(f'{{"format_version": 1, "status": {{"sources": ["{source}"]}}}}', source="x")

    def test_a_contract_may_only_be_stricter(self) -> None:
        assert StatusRules().stricter(None).max_age_s is None
        assert StatusRules().stricter(60.0).max_age_s == 60.0
        assert StatusRules(max_age_s=30.0).stricter(60.0).max_age_s == 30.0
        assert StatusRules(max_age_s=90.0).stricter(60.0).max_age_s == 60.0


class TestBounds:
    CONTRACT = sample_contract()

    def bounds(self, **joint: float) -> JointBounds:
        conditions = NarrowedConditions.model_validate({"joints": {"pivot": joint}})
        return JointBounds(self.CONTRACT, [conditions])

    def left(self, bounds: JointBounds, position: float, velocity: float = 0.0) -> list[bool]:
        return [bounds.left(np.array([[position]]), np.array([[velocity]])) for _ in range(3)]

    def test_three_samples_outside_and_no_fewer(self) -> None:
        assert self.left(self.bounds(upper=1.0), 1.1) == [False, False, True]
        assert self.left(self.bounds(lower=-1.0), -1.1) == [False, False, True]
        assert self.left(self.bounds(speed=2.0), 0.0, -2.1) == [False, False, True]
        assert self.left(self.bounds(lower=-1.0, upper=1.0, speed=2.0), 1.0, 2.0) == [False, False, False]

    def test_a_spike_is_forgiven(self) -> None:
        bounds = self.bounds(upper=1.0)
        for _ in range(5):
            assert self.left(bounds, 9.0)[:2] == [False, False]
            bounds.left(np.array([[0.0]]), np.zeros((1, 1)))

    def test_zero_of_either_sign_is_a_bound(self) -> None:
        assert not any(self.left(self.bounds(lower=0.0), -0.0) + self.left(self.bounds(upper=0.0), 0.0))

    def test_what_a_contract_lacks_is_named(self) -> None:
        elbow = NarrowedConditions.model_validate({"joints": {"elbow": {"upper": 1.0}}})
        assert contradiction_of(self.CONTRACT, [elbow]) == "the joint elbow, which its contract does not have"
        speed = NarrowedConditions.model_validate({"commands": {"v": {"lower": (0.0,), "upper": (1.0,)}}})
        assert contradiction_of(self.CONTRACT, [speed]) == "1 values of the command v, its contract has none"
        assert contradiction_of(self.CONTRACT, [NarrowedConditions(payload_kg=1.0)]) == ""
