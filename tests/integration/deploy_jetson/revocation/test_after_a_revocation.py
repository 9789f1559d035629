"""After a verdict was revoked nothing drives until an operator asks, and the way back is tried until it succeeds."""

from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word
from tests.support.patience import until
from tests.support.status_runs import Run, driving

from physai.deploy_jetson.cli.top import page
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.revocation import aftermath
from physai.deploy_jetson.update.revocation.revoked_drive import NOTE_FILE
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE
from physai.deploy_jetson.update.slots.resume import leave_note
from physai.sdk.bundle.manifest import read_bundle


@pytest.fixture
def stick(folder: Path) -> Path:
    return folder / "stick"


def waits(run: Run, version: int) -> None:
    """Checks that a run does not drive by itself, and says why."""
    said = f"not driven at the start: the verdict on version {version} is revoked"
    until(lambda: any(said in text for text in run.said) or run.refusals, said=lambda: run.said)
    assert run.refusals == []
    until(lambda: run.runtime.waiting_for or run.runtime.state == "inactive")
    assert run.robot.sent == 0


def test_a_version_that_a_robot_went_back_to_waits_for_an_operator(site: Site, stick: Path) -> None:
    """It drove by itself after the restart that went with it, because the settings say `drive_after_boot`."""
    site.run(1)
    site.run(2)
    with driving(site, stick, after_boot=True, on_revoked="back") as run:
        run.word(1, 2)
        run.wait_for("HOLD")
        until(lambda: any("went back to version 1" in text for text in run.said), said=lambda: run.said)
        assert site.active_version == 1
    # Neither a restart, nor the note of an update that ended a policy that drove, nor time makes it drive.
    for _ in range(2):
        leave_note(site.agent.root, drove=True)
        with driving(site, stick, after_boot=True, on_revoked="back", wait="") as again:
            waits(again, 2)
    with driving(site, stick, after_boot=True, on_revoked="back", wait="") as asked:
        waits(asked, 2)
        asked.ask(Command.ACTIVATE)
        asked.wait_for("RUN")
        until(lambda: not (site.agent.root / NOTE_FILE).exists())
    # An operator has had it driven, so that the settings count again.
    with driving(site, stick, after_boot=True) as last:
        assert last.runtime.status()["version"] == 1


def test_the_settings_may_let_it_drive(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2)
    rules: dict[str, Any] = {"on_revoked": "back", "drive_after_revoked": True}
    with driving(site, stick, after_boot=True, **rules) as run:
        run.word(1, 2)
        until(lambda: any("went back to version 1" in text for text in run.said), said=lambda: run.said)
    with driving(site, stick, after_boot=True, **rules) as again:
        assert again.runtime.status()["version"] == 1


def test_a_verdict_that_was_revoked_while_the_robot_was_off_and_stands_again(site: Site, stick: Path) -> None:
    site.run(1)
    stick.mkdir()
    (stick / "status.json").write_bytes(signed_word(site.workshop, 1, read_bundle(site.bundles[1]).id))
    with driving(site, stick, after_boot=True, wait="") as run:
        until(lambda: run.refusals)
        assert "RevocationError: the verdict on version 1 is revoked" in run.refusals[0]
    (stick / "status.json").write_bytes(signed_word(site.workshop, 2))
    with driving(site, stick, after_boot=True, wait="") as again:
        waits(again, 1)


def test_a_run_that_a_revocation_ended_at_once(site: Site, stick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word was lifted before the service started again, which knew nothing of it."""
    site.run(1)
    # The thread gets no turn before the end.
    monkeypatch.setattr(aftermath.Aftermath, "look", lambda self, **given: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with driving(site, stick, after_boot=True, on_revoked="finish") as run:
        run.word(1, 1)
        until(lambda: run.ends or run.refusals)
        assert run.ends == [LoopEnd.SHUTDOWN]
    (stick / "status.json").write_bytes(signed_word(site.workshop, 2))
    with driving(site, stick, after_boot=True, wait="") as again:
        waits(again, 1)


def test_a_robot_goes_back_at_its_start_too(site: Site, stick: Path) -> None:
    """A power cut between the revocation and the way back left a robot that started no more."""
    site.run(1)
    site.run(2)
    stick.mkdir()
    (stick / "status.json").write_bytes(signed_word(site.workshop, 1, read_bundle(site.bundles[2]).id))
    with driving(site, stick, after_boot=True, wait="", on_revoked="back") as run:
        waits(run, 2)
        assert any("went back to version 1" in text for text in run.said)
        assert run.runtime.status()["version"] == 1
    (stick / "status.json").write_bytes(
        signed_word(site.workshop, 2, *(read_bundle(site.bundles[version]).id for version in (1, 2)))
    )
    with driving(site, stick, after_boot=True, wait="", on_revoked="back") as again:
        until(lambda: again.refusals)
        assert "the verdict on version 1 is revoked" in again.refusals[0]
        assert "cannot go back: " in again.refusals[0]


def test_who_starts_a_run_of_the_revoked_version_has_not_asked_for_the_one_before(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2)
    stick.mkdir()
    (stick / "status.json").write_bytes(signed_word(site.workshop, 1, read_bundle(site.bundles[2]).id))
    with driving(site, stick, wait="", on_revoked="back") as run:
        until(lambda: any("waiting for the request to activate" in text for text in run.said) or run.guard == "RUN")
        assert run.robot.sent == 0
        run.ask(Command.ACTIVATE)
        run.wait_for("RUN")
        assert run.runtime.status()["version"] == 1


def test_going_back_is_tried_until_it_succeeds_and_says_so(
    site: Site, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aftermath, "PAUSE_S", 0.1)
    monkeypatch.setattr(aftermath, "MAX_PAUSE_S", 0.1)
    site.run(1)
    site.run(2)
    store = site.agent.store
    bundle = site.agent.root / store.path(store.idle()) / BUNDLE_FILE
    bundle.rename(bundle.with_name("elsewhere"))
    with driving(site, stick, hot_swap=True, on_revoked="back") as run:
        run.word(1, 2)
        run.wait_for("HOLD")

        def problem() -> str:
            return str(run.runtime.status()["verdict"]["problem"])

        until(lambda: "stays in HOLD, it cannot go back" in problem(), said=lambda: run.said)
        assert "it is tried again, or activate another version: `physai robot install`, `activate`" in problem()
        text = page(run.runtime.status(), None)
        assert "it cannot go back" in text
        assert "the verdict on version 2 is revoked since" in text
        bundle.with_name("elsewhere").rename(bundle)
        until(lambda: run.runtime.status()["version"] == 1, said=lambda: run.said)
        until(lambda: problem() == "")
        assert run.guard == "HOLD"
    # Once, and not with every attempt.
    assert sum("cannot go back" in one for one in run.said) == 1


def test_no_way_back_before_it_is_noted_that_the_robot_must_not_drive_by_itself(site: Site, stick: Path) -> None:
    site.run(1)
    site.run(2)
    note = site.agent.root / NOTE_FILE
    note.mkdir()
    with driving(site, stick, hot_swap=True, on_revoked="back") as run:
        run.word(1, 2)
        run.wait_for("HOLD")
        until(lambda: "the note of the revocation is not written" in run.runtime.status()["verdict"]["problem"])
        assert site.active_version == 2
        note.rmdir()
        until(lambda: run.runtime.status()["version"] == 1, said=lambda: run.said)
        assert note.is_file()
