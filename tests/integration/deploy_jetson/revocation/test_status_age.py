"""A contract bounds the age of the validator's word with which its policy runs; so may the robot's owner."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word
from tests.support.patience import until
from tests.support.status_runs import Patient, Run, driving

from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.status_rules import StatusRules

AGE_S = 3.0


@pytest.fixture
def stick(folder: Path) -> Path:
    return folder / "stick"


@pytest.fixture(scope="module")
def bundles(workshop: SampleSigners) -> dict[int, bytes]:
    return {1: workshop.bundle(1, slower=15.0, safety={"status_max_age_s": AGE_S})}


def asks(site: Site, *sources: str) -> None:
    site.agent.setup(
        site.agent.config.identity(),
        requirements=Requirements(status=StatusRules(sources=sources) if sources else None),
    )


def test_a_robot_that_asks_nothing_for_the_word_does_not_drive(site: Site, stick: Path) -> None:
    said = (
        r"a validator's word that is at most 3 s old \(safety.status_max_age_s\), this robot's settings name 0 sources "
        r"of one \(status.sources\): name a folder or a URL, with `physai robot setup --settings`"
    )
    with pytest.raises(InstallError, match=said):
        site.agent.install(site.bundles[1])
    asks(site, str(stick))
    site.run(1)
    asks(site)
    robot = Patient()
    with pytest.raises(InstallError, match=said):
        Runtime(RunOptions(root=site.agent.root, hot_swap=False), robot, say=lambda text: None).run()
    assert robot.sent == 0


@pytest.mark.parametrize(("owners", "limit"), [(None, "3 s"), (60.0, "3 s"), (2.0, "2 s")])
def test_the_smaller_age_of_contract_and_settings_counts(
    site: Site, stick: Path, owners: float | None, limit: str
) -> None:
    asks(site, str(stick))
    site.run(1)
    with driving(site, stick, wait="", max_age_s=owners) as run:
        until(lambda: "there is no word of a validator yet" in run.runtime.waiting_for, said=lambda: run.refusals)
        assert run.robot.sent == 0
        _say_all_well(run)
        until(lambda: _activated(run), said=lambda: run.said)
        until(lambda: f"older than {limit}" in run.runtime.status()["verdict"]["barred"])
        run.wait_for("HOLD")


def _say_all_well(run: Run) -> None:
    word = signed_word(run.site.workshop, int(datetime.now(UTC).timestamp()), issued=datetime.now(UTC))
    (run.stick / "status.json").write_bytes(word)


def _activated(run: Run) -> bool:
    """Asks with a fresh word, as often as a busy machine takes."""
    if run.guard == "RUN":
        return True
    if run.runtime.state == "active":
        run.reset()
        run.ask(Command.START)
    elif not run.runtime.status()["verdict"]["barred"]:
        run.ask(Command.ACTIVATE)
    else:
        _say_all_well(run)
    return False
