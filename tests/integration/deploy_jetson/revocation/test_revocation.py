"""A validator withdraws or narrows a verdict, and the robot obeys while it runs."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word, status_cuts
from tests.support.patience import until
from tests.support.status_runs import SINCE, Patient, Run, driving

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError
from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.update.revocation import status_sources
from physai.deploy_jetson.update.revocation.kept_words import RevocationError
from physai.deploy_jetson.update.revocation.status_sources import read_source
from physai.deploy_jetson.update.robot_words import robot_revocations
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.signing.status.status_document import (
    MAX_STATUS_BYTES,
    NarrowedConditions,
    NarrowedVerdict,
    StatusError,
    StatusPredicate,
    sign_status,
)


@pytest.fixture
def stick(folder: Path) -> Path:
    return folder / "stick"


def test_a_revocation_holds_the_robot_until_the_word_changes(site: Site, stick: Path) -> None:
    site.run(1)
    with driving(site, stick) as run:
        run.word(1)
        until(lambda: run.runtime.status()["verdict"]["words"])
        assert run.guard == "RUN"
        # `python -m benchmarks revocation` measures how long it takes.
        run.word(2, 1)
        run.wait_for("HOLD")
        assert "the verdict on version 1 is revoked" in run.runtime.status()["verdict"]["barred"]
        run.reset()
        with pytest.raises(CommandError, match=r"start: refused: the verdict on version 1 is revoked since .*: word 2"):
            run.ask(Command.START)
        # An old "all well" lifts nothing.
        run.word(1)
        until(lambda: any("has serial 1, this robot keeps 2" in text for text in run.said))
        with pytest.raises(CommandError, match="is revoked"):
            run.ask(Command.START)
        run.word(3)
        until(lambda: run.runtime.status()["verdict"]["barred"] == "")
        run.ask(Command.START)
        run.wait_for("RUN")
    assert run.ends == [LoopEnd.SHUTDOWN]
    # After a restart, too.
    with driving(site, stick) as again:
        again.word(4, 1)
        again.wait_for("HOLD")
    (stick / "status.json").unlink()
    with pytest.raises(RevocationError, match="the verdict on version 1 is revoked"):
        Runtime(RunOptions(root=site.agent.root, hot_swap=False), Patient(), say=lambda text: None).run()


def test_a_stick_is_read_before_the_first_command(site: Site, stick: Path) -> None:
    site.run(1)
    stick.mkdir()
    (stick / "status.json").write_bytes(signed_word(site.workshop, 1, read_bundle(site.bundles[1]).id))
    rules = StatusRules(sources=(str(stick),))
    site.agent.setup(site.agent.config.identity(), requirements=Requirements(status=rules))
    robot = Patient()
    made = Runtime(RunOptions(root=site.agent.root, hot_swap=False), robot, say=lambda text: None)
    with pytest.raises(RevocationError, match="the verdict on version 1 is revoked"):
        made.run()
    assert robot.sent == 0


def test_finish_ends_the_run(site: Site, stick: Path) -> None:
    site.run(1)
    with driving(site, stick, on_revoked="finish") as run:
        run.word(1, 1)
        until(lambda: run.ends)
    assert run.ends == [LoopEnd.SHUTDOWN]
    assert not run.runtime.taken_over


def test_back_activates_the_version_before(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2)
    with driving(site, stick, hot_swap=True, on_revoked="back") as run:
        assert run.runtime.status()["version"] == 2
        run.word(1, 2)
        run.wait_for("HOLD")
        until(lambda: run.runtime.status()["version"] == 1, said=lambda: str(run.said))
        assert site.active_version == 1
        until(lambda: run.runtime.status()["verdict"]["barred"] == "")
        # An operator starts it.
        assert run.guard == "HOLD"
        run.reset()
        run.ask(Command.START)
        run.wait_for("RUN")


def test_back_holds_where_the_version_before_is_revoked_too(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2)
    with driving(site, stick, on_revoked="back") as run:
        run.word(1, 1, 2)
        run.wait_for("HOLD")
        until(lambda: any("the robot stays in HOLD, it cannot go back" in text for text in run.said))
        assert site.active_version == 2


def test_a_rollback_to_a_revoked_version_holds_the_unhealthy_one(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2, commit=False)
    with driving(site, stick, hot_swap=True) as run:
        run.word(1, 1)
        until(lambda: run.runtime.status()["verdict"]["words"])
        assert run.guard == "RUN"
        site.agent.rollback("unhealthy")
        said = "HOLD: what was activated may not run: revoked: "
        until(lambda: any(said in text for text in run.said), said=lambda: str(run.said))
        run.wait_for("HOLD")


def test_a_word_kept_by_another_process_is_obeyed(site: Site, stick: Path) -> None:
    site.run(1)
    with driving(site, stick, sources=()) as run:
        run.word(1, 1)
        robot_revocations(statement=stick, tree=site.agent.root)
        run.wait_for("HOLD")


def test_a_robot_without_a_fresh_word_waits_and_stops(site: Site, stick: Path) -> None:
    site.run(1)
    workshop = site.workshop
    with driving(site, stick, wait="", max_age_s=2.0) as run:
        until(lambda: "there is no word of a validator yet" in run.runtime.waiting_for)
        (stick / "status.json").write_bytes(signed_word(workshop, 1, issued=datetime.now(UTC)))
        until(lambda: run.runtime.status()["verdict"]["barred"] == "")
        run.ask(Command.ACTIVATE)
        run.wait_for("RUN")
        run.wait_for("HOLD")
        assert "older than 2 s" in run.runtime.status()["verdict"]["barred"]
    with driving(site, stick, max_age_s=1.0, on_stale="warn") as run:
        until(lambda: any("older than 1 s" in text for text in run.said))
        assert run.guard == "RUN"


def narrowed(run: Run, serial: int, conditions: dict[str, Any]) -> None:
    moment = f"{SINCE + timedelta(seconds=serial):%Y-%m-%dT%H:%M:%SZ}"
    entry = NarrowedVerdict(
        bundle=read_bundle(run.site.bundles[1]).id,
        reason="the gear is worn",
        since=moment,
        conditions=NarrowedConditions.model_validate(conditions),
    )
    predicate = StatusPredicate(robot=ROBOT, serial=serial, issued=moment, narrowed=(entry,))
    (run.stick / "status.json").write_bytes(sign_status([run.site.workshop.validator], predicate))


def test_a_joint_that_leaves_the_narrowed_range_ends_the_policy(site: Site, stick: Path) -> None:
    site.run(1)
    with driving(site, stick) as run:
        narrowed(run, 1, {"joints": {"pivot": {"lower": -3.0, "upper": 3.0}}, "payload_kg": 2.0})
        # Shown, because the robot does not measure it.
        until(lambda: any('"payload_kg":2.0' in text for text in run.said))
        assert run.guard == "RUN"
        run.robot.position[:] = 3.1
        # The robot answers each command with a step towards where it rests.
        until(lambda: run.guard == "HOLD", step=lambda: run.robot.position.fill(3.1) or time.sleep(0.002))
        assert "joint pivot is at 3.1, outside [-3, 3], to which" in run.runtime.status()["verdict"]["barred"]
        run.robot.position[:] = 0.0
        run.reset()
        # Neither the way back nor the same word again makes it run.
        narrowed(run, 2, {"joints": {"pivot": {"lower": -3.0, "upper": 3.0}}, "payload_kg": 2.0})
        until(lambda: run.runtime.status()["verdict"]["words"][ROBOT]["serial"] == 2)
        with pytest.raises(CommandError, match="outside"):
            run.ask(Command.START)


def test_a_joint_outside_the_narrowed_range_of_a_robot_that_is_not_driven_ends_nothing(site: Site, stick: Path) -> None:
    """It ended the policy for good before it had driven."""
    site.run(1)
    robot = Patient()
    robot.pinned = 3.1
    with driving(site, stick, robot=robot, wait="", max_age_s=1e9) as run:
        until(lambda: "there is no word" in run.runtime.waiting_for, said=lambda: run.refusals)
        narrowed(run, 1, {"joints": {"pivot": {"upper": 3.0}}})
        until(lambda: any('"upper":3.0' in text for text in run.said))
        looks = robot.sample().sequence + 20
        until(lambda: robot.sample().sequence > looks)
        assert run.runtime.status()["verdict"]["barred"] == ""
        robot.pinned = 0.0
        until(lambda: robot.sample().fields["joint_pos"][0] == 0.0)
        run.ask(Command.ACTIVATE)
        run.wait_for("RUN")


def test_a_condition_that_the_contract_does_not_know_counts_as_a_revocation(site: Site, stick: Path) -> None:
    site.run(1)
    with driving(site, stick) as run:
        narrowed(run, 1, {"joints": {"elbow": {"upper": 1.0}}})
        run.wait_for("HOLD")
        barred = run.runtime.status()["verdict"]["barred"]
        assert barred == "the verdict on version 1 is narrowed to the joint elbow, which its contract does not have"


class Answers(http.server.BaseHTTPRequestHandler):
    """A web server with good and bad manners, by path."""

    document = b""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
        elif self.path == "/drip":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.05)
        elif self.path == "/huge":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(b"x" * (MAX_STATUS_BYTES + 2))
        else:
            self.send_response(200 if self.path == "/good" else 404)
            self.end_headers()
            self.wfile.write(self.document)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as made:
        made.daemon_threads = True
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_a_word_from_the_web(site: Site, stick: Path, server: str, workshop: SampleSigners) -> None:
    site.run(1)
    Answers.document = signed_word(workshop, 1, read_bundle(site.bundles[1]).id)
    with driving(site, stick, wait="", sources=(f"{server}/good",)) as run:
        until(lambda: "is revoked" in str(run.runtime.status().get("verdict", {}).get("barred", "")))


@pytest.mark.parametrize(
    ("path", "message"),
    [("/none", "the server answers 404"), ("/moved", "the server answers 302"), ("/huge", "more than 65536 bytes")],
)
def test_bad_answers_are_refused(server: str, path: str, message: str) -> None:
    with pytest.raises(StatusError, match=message):
        list(read_source(f"{server}{path}", ROBOT))


def test_a_server_that_drips_or_hangs_has_seconds(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_sources, "WHOLE_S", 0.5)
    monkeypatch.setattr(status_sources, "ANSWER_S", 0.3)
    began = time.monotonic()
    # What came so far is no document.
    assert b"x" in dict(read_source(f"{server}/drip", ROBOT))[f"{server}/drip"]
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(StatusError, match="timed out"):
        list(read_source(f"http://127.0.0.1:{deaf.getsockname()[1]}/", ROBOT))
    assert time.monotonic() - began < 5.0


def test_a_source_that_hangs_delays_no_other(site: Site, stick: Path) -> None:
    site.run(1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with driving(site, stick, sources=(url, str(stick))) as run:
            run.word(1, 1)
            run.wait_for("HOLD")


@pytest.mark.slow
def test_five_hundred_power_cuts(folder: Path) -> None:
    found = status_cuts(folder, words=12)
    assert found.bad == []
    assert found.cuts >= 500
