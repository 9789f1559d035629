"""The note that a verdict was revoked, and whether a program drives at its start in spite of it."""

import os
from pathlib import Path

import pytest
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.standby.start import drives_at_once
from physai.deploy_jetson.update.revocation.revoked_drive import (
    NOTE_FILE,
    lift_revocation,
    note_revocation,
    noted_revocation,
)
from physai.deploy_jetson.update.slots.resume import leave_note
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.status_rules import StatusRules


def test_a_note_stays_until_it_is_lifted(tmp_path: Path) -> None:
    assert noted_revocation(tmp_path) == ""
    lift_revocation(tmp_path)
    note_revocation(tmp_path, "worn " + "ü" * 2000)
    note_revocation(tmp_path, "the gear is worn")
    assert noted_revocation(tmp_path) == "the gear is worn"
    lift_revocation(tmp_path)
    assert noted_revocation(tmp_path) == ""


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "empty"])
def test_whatever_lies_there_counts_as_a_note(tmp_path: Path, kind: str) -> None:
    path = tmp_path / NOTE_FILE
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
    assert noted_revocation(tmp_path) == "a verdict was revoked"


def test_a_note_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / NOTE_FILE).write_bytes(b"\xff" * 10**6)
    assert len(noted_revocation(tmp_path)) == 1000


@pytest.mark.parametrize(
    ("boot", "update", "noted", "allowed", "drives"),
    [
        (True, False, False, False, True),
        (True, False, True, False, False),
        (False, True, True, False, False),
        (False, True, True, True, True),
        (True, False, True, True, True),
        (False, False, True, True, False),
    ],
)
def test_only_the_settings_let_a_service_drive_after_a_revocation(
    site: Site, boot: bool, update: bool, noted: bool, allowed: bool, drives: bool
) -> None:
    root, said = site.agent.root, list[str]()
    rules = StatusRules(drive_after_revoked=allowed)
    requirements = Requirements(drive_after_boot=boot, status=rules)
    site.agent.setup(site.agent.config.identity(), requirements=requirements)
    if update:
        leave_note(root, drove=True)
    if noted:
        note_revocation(root, "the verdict on version 2 is revoked")
    assert drives_at_once(RunOptions(root=root, service=True), said.append) == drives
    warned = "warning: not driven at the start: the verdict on version 2 is revoked; `activate` begins to drive"
    assert said == ([warned] if noted and not allowed else [])
    # A program that an operator starts is the request; one that is to wait waits.
    assert drives_at_once(RunOptions(root=root), said.append)
    assert not drives_at_once(RunOptions(root=root, stand_by=True), said.append)


def test_the_rule_is_left_out_of_settings_that_do_not_state_it() -> None:
    assert "drive_after_revoked" not in StatusRules().model_dump(mode="json")
    assert StatusRules(drive_after_revoked=True).model_dump(mode="json")["drive_after_revoked"] is True
