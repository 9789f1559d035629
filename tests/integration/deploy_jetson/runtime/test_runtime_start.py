"""What keeps a policy from being driven, and what is handed from the scout to the runtime."""

import importlib
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, sample_contract, sample_policy
from tests.harness.fixtures.site import Site
from tests.support.patience import until

from physai.deploy_jetson.cli.robot import command
from physai.deploy_jetson.driving import run as drive
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate, CandidateError, examine, receive, send
from physai.deploy_jetson.runtime.run_options import OptionNames, RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.standby import standby
from physai.deploy_jetson.runtime.stop.stop_records import StopRecords
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.slots import resume
from physai.deploy_jetson.update.slots.resume import leave_note, take_note
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.sdk.base.errors import ContractMismatchError, PhysaiError
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.signing.trust_file import TRUST_FILE
from physai.sdk.signing.verify import VerificationError
from physai.sdk.transport.protocol import Transport, TransportError, empty_sample

CONTRACT = sample_contract()
EXAMPLES = Path(__file__).parents[4] / "examples"


class Asking(LocalRobot):
    """A robot that remembers whether it was ever connected."""

    opened = False

    def open(self, contract: PolicyContract) -> None:
        self.opened = True
        super().open(contract)


class Elsewhere(Asking):
    """A robot that says of itself that it is another."""

    def description(self) -> RobotSpec:
        (joint,) = CONTRACT.robot.joints
        joints = (joint.model_copy(update={"name": "hoist"}),)
        return CONTRACT.robot.model_copy(update={"name": "crane", "joints": joints})


def runtime(root: Path, robot: Transport | None = None, **options: object) -> Runtime:
    plain = {"realtime": Realtime(lock_memory=False), "hot_swap": False, "seconds": 0.1, **options}
    return Runtime(RunOptions(root=root, **plain), robot or Asking(), say=_quiet)  # pyright: ignore[reportArgumentType]


def _quiet(_: str) -> None:
    pass


def test_a_run_from_start_to_end(site: Site) -> None:
    site.run(1)
    robot = Asking()
    made = runtime(site.agent.root, robot)
    made.run()
    assert made.state is Lifecycle.FINALIZED
    assert made.status()["version"] == 1
    assert robot.sent >= 1
    assert made.summary().counts.ticks >= robot.sent


def test_no_policy_no_connection(site: Site) -> None:
    robot = Asking()
    made = runtime(site.agent.root, robot)
    with pytest.raises(SlotError, match="no policy is active"):
        made.run()
    assert made.state is Lifecycle.FINALIZED
    assert not robot.opened


def test_without_a_verdict_only_when_told_to(site: Site, workshop: SampleSigners) -> None:
    site.agent.install(workshop.published(sample_policy(seed=1), version=1), unsafe_no_verdict=True)
    site.agent.activate()
    robot = Asking()
    with pytest.raises(CandidateError, match=r"without a valid verdict; .* --unsafe-no-verdict"):
        runtime(site.agent.root, robot).run()
    assert not robot.opened
    names = OptionNames(unsafe_no_verdict="the parameter unsafe")
    with pytest.raises(CandidateError, match=r"run it regardless with the parameter unsafe$"):
        runtime(site.agent.root, robot, names=names).run()
    runtime(site.agent.root, robot, unsafe_no_verdict=True).run()
    assert robot.sent >= 1


def test_a_key_that_was_revoked(site: Site, workshop: SampleSigners, now: datetime) -> None:
    site.run(1)
    since = now - timedelta(days=1)
    trust = workshop.trust.with_revoked(workshop.publisher.key_id, since=since, reason="lost")
    workshop.signed(trust).save(site.agent.root / TRUST_FILE)
    with pytest.raises(VerificationError):
        runtime(site.agent.root).run()


def test_another_robot(site: Site) -> None:
    site.run(1)
    robot = Elsewhere()
    with pytest.raises(ContractMismatchError, match="the policy is for pendulum, the robot calls itself crane"):
        runtime(site.agent.root, robot).run()
    assert robot.sent == 0


def test_another_rate(site: Site) -> None:
    site.run(1)
    with pytest.raises(CandidateError, match="trained at 100 Hz and means something else at 50 Hz"):
        runtime(site.agent.root, rate_hz=50.0).run()
    with pytest.raises(CandidateError, match="leave out the parameter rate, or train"):
        runtime(site.agent.root, rate_hz=50.0, names=OptionNames(rate="the parameter rate")).run()
    runtime(site.agent.root, rate_hz=100.0).run()


def test_an_old_sample_is_waited_out(site: Site) -> None:
    site.run(1)

    class Lagging(Asking):
        """Its first samples are old."""

        old = 5

        def poll(self) -> bool:
            found = super().poll()
            if self.old > 0:
                self.old -= 1
                self.sample().stamp_ns -= 10**9
            return found

    robot = Lagging()
    made = runtime(site.agent.root, robot)
    made.run()
    assert robot.old == 0
    assert made.guard_state != "PROTECTIVE_STOP"


def candidate(site: Site) -> Candidate:
    site.run(1)
    return examine(open_active(site.agent.root))


def test_a_candidate_crosses_a_socket(site: Site) -> None:
    found = candidate(site)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=send, args=(theirs, found))
        sender.start()
        assert receive(ours) == found
        sender.join()
        send(theirs, None, "damaged")
        assert receive(ours) == "damaged"
        theirs.close()
        assert receive(ours) is None


def test_a_candidate_of_another_contract(site: Site) -> None:
    found = candidate(site)
    timing = CONTRACT.timing.model_copy(update={"deadline_s": 0.008})
    with pytest.raises(CandidateError, match=f"keeps the contract {CONTRACT.fingerprint[:12]}, not"):
        found.load(CONTRACT.model_copy(update={"timing": timing}))


def robot(root: Path, action: str, *words: str) -> int:
    parser = Parser(prog="physai robot")
    command.add_arguments(parser)
    return command.run(parser.parse([action, "--root", str(root), *words]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate-hz", "nan"], "argument --rate-hz: expected a finite number"),
        (["--rate", "0"], "--rate-hz must be a positive number, got 0"),
        (["--duration-s", "-1"], "--duration-s must be a positive number, got -1"),
        (["--priority", "99"], "--priority must lie in 1 … 98, got 99"),
        (["--set", "domain"], "--set takes KEY=VALUE, got 'domain'"),
        (["--transport", "telepathy"], "no transport named 'telepathy'"),
    ],
)
def test_bad_words(site: Site, words: list[str], message: str) -> None:
    with pytest.raises(PhysaiError, match=message):
        robot(site.agent.root, "run", *words)


def test_a_heartbeat_is_the_only_word_that_is_repeated(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="--every-s is for the heartbeat"):
        robot(tmp_path, "command", "stop", "--every", "1")


def test_the_example_of_a_transport_drives_a_robot(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """From waiting for the robot, which asks what is missing, to commands."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    wire = importlib.import_module("custom_transport").Loopback()
    site.run(1)
    made = runtime(site.agent.root, wire, seconds=0.3)
    ended = threading.Event()
    fields = {name: np.zeros(values.shape) for name, values in empty_sample(CONTRACT).fields.items()}

    def robot() -> None:
        while not ended.wait(0.002):
            with suppress(AttributeError):  # until the runtime has opened it
                wire.publish(fields, time.time_ns())

    thread = threading.Thread(target=robot)
    thread.start()
    try:
        made.run()
    finally:
        ended.set()
        thread.join()
    assert wire.command().sequence >= 1
    assert made.summary().counts.ticks >= wire.command().sequence


def test_a_transport_that_lacks_a_part_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver saw an AttributeError after the robot was connected."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    loopback = importlib.import_module("custom_transport").Loopback
    monkeypatch.delattr(loopback, "name")
    with pytest.raises(TransportError, match=r"^the transport: Loopback lacks name of physai.sdk.Transport; "):
        drive(tmp_path / "absent", loopback())
    monkeypatch.setattr(loopback, "missing", ())
    with pytest.raises(TransportError, match=r"^the transport: Loopback lacks missing, name of physai.sdk.Transport; "):
        drive(tmp_path / "absent", loopback())
    with pytest.raises(TransportError, match=r"^the transport: Loopback is a class, expected an object of it"):
        drive(tmp_path / "absent", loopback)


class Silent(Asking):
    """A robot that is off."""

    def poll(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, 0.01))
        return False

    def missing(self) -> tuple[tuple[str, float], ...]:
        return (("joint_pos", time.monotonic() % 100.0),)


def test_a_run_of_limited_duration_does_not_wait_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_PATIENCE_S", 0.3)
    site.run(1)
    with pytest.raises(standby.StandbyError, match=r"nothing was driven: waited 0 s for joint_pos \(for"):
        runtime(site.agent.root, Silent()).run()


def test_the_same_reason_for_waiting_is_repeated_ever_more_rarely(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every 2 s made 8 MB a day."""
    monkeypatch.setattr(standby, "_REPEAT_S", 0.05)
    monkeypatch.setattr(standby, "_PATIENCE_S", 2.5)
    site.run(1)
    said: list[str] = []
    options = RunOptions(root=site.agent.root, realtime=Realtime(lock_memory=False), hot_swap=False, seconds=0.1)
    with pytest.raises(standby.StandbyError):
        Runtime(options, Silent(), say=said.append).run()
    assert 3 <= sum("waiting for joint_pos" in text for text in said) <= 8


def driven(site: Site, **options: object) -> bool:
    """Whether a service's start drives the robot."""
    made = runtime(site.agent.root, Asking(), service=True, seconds=None, **options)
    thread = threading.Thread(target=made.run)
    thread.start()
    until(lambda: made.state is not Lifecycle.UNCONFIGURED or not thread.is_alive())
    end_s = time.monotonic() + 1.0
    while made.state is not Lifecycle.ACTIVE and time.monotonic() < end_s:
        time.sleep(0.01)
    drives = made.state is Lifecycle.ACTIVE
    if drives:
        until(lambda: made.status()["guard"] == "RUN")
    made.commands.put(Command.SHUTDOWN)
    thread.join()
    return drives


def test_a_service_drives_at_its_start_only_if_the_owner_says_so(site: Site) -> None:
    site.run(1)
    assert not driven(site)
    site.agent.setup(site.agent.config.identity(), requirements=Requirements(drive_after_boot=True))
    assert driven(site)
    StopRecords(site.agent.root).record("a test")
    assert not driven(site)


def test_an_update_keeps_the_driving_state_that_it_found(site: Site) -> None:
    """A trial counts ticks, so the version that it starts goes on if the one before drove."""
    site.run(1)
    root = site.agent.root
    # Without an update, a service that ended while it drove waits.
    site.agent.setup(site.agent.config.identity(), requirements=Requirements(drive_after_boot=True))
    assert driven(site)
    site.agent.setup(site.agent.config.identity(), requirements=Requirements())
    assert not driven(site)
    # An update of a service that did not drive.
    leave_note(root)
    assert not driven(site)
    # And of one that drove.
    leave_note(root, drove=True)
    leave_note(root, drove=True)
    assert driven(site)
    assert not driven(site)
    leave_note(root, drove=True)
    StopRecords(root).record("a test")
    assert not driven(site)


@pytest.mark.parametrize("word", [Command.DEACTIVATE, Command.HOLD, Command.DAMP, Command.STOP])
def test_a_request_that_ends_the_driving_holds_after_an_update(site: Site, word: Command) -> None:
    """The service drove again after the update, although it was told `deactivate` or `hold` while it braked."""
    site.run(1)
    leave_note(site.agent.root, drove=True)
    made = runtime(site.agent.root, Asking(), service=True, seconds=None)
    thread = threading.Thread(target=made.run)
    thread.start()
    until(lambda: made.status().get("guard") == "RUN")
    leave_note(site.agent.root)
    for each in (Command.SHUTDOWN, word):
        made.commands.put(each)
    thread.join()
    assert not driven(site)


def test_a_computer_that_was_suspended_forgets_the_request_to_activate(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run(1)
    clock = iter(range(0, 10**15, 6 * 10**9))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: next(clock))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    monkeypatch.setattr(standby, "_PATIENCE_S", 0.5)
    robot = Asking()
    with pytest.raises(standby.StandbyError, match="the request to activate"):
        runtime(site.agent.root, robot).run()
    assert robot.sent == 0


def test_a_note_of_another_boot_or_of_long_ago_is_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    root = site.agent.root
    assert not take_note(root)
    leave_note(root, drove=True)
    monkeypatch.setattr(resume, "boot_id", lambda: "another")
    assert not take_note(root)
    monkeypatch.undo()
    leave_note(root, drove=True)
    monkeypatch.setattr(resume, "VALID_S", -1.0)
    assert not take_note(root)
    monkeypatch.undo()
    for text in ("", "{", "[]", "null", '{"boot": 1}', '{"boot": "x", "boottime_s": "nan", "drove": true}', "[" * 900):
        (root / resume.RESUME_FILE).write_text(text)
        assert not take_note(root)
        assert not (root / resume.RESUME_FILE).exists()
