"""Grid of commands: dead zones, falls and slow answers are found in motions that were made by hand, and none in right
ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.fixtures_contract import SMALL
from tests.unit.gates.test_report import MIXED

from physai.gates.execution.command_grid import (
    HEADINGS,
    LENGTH_S,
    LEVELS,
    NONE,
    CommandGrid,
    commands_of,
    judged,
)
from physai.gates.report.html import Page, html_report
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import CommandField, CommandSpec

STEP_S = 0.02
SMALL_CONTRACT = parse_contract(json.dumps(SMALL), source="small")
LOWER, UPPER = (-1.0, -0.5, -1.0), (2.0, 0.5, 1.0)
Answer = Callable[[Any, float], Any]
"""Velocity in the robot's frame for a command and the time since the start [s]."""


def contract(lower: tuple[float, ...] = LOWER, upper: tuple[float, ...] = UPPER) -> PolicyContract:
    field = CommandField(
        name="velocity_command", size=len(lower), unit="m/s, m/s, rad/s", frame="b", lower=lower, upper=upper
    )
    return SMALL_CONTRACT.model_copy(update={"command": CommandSpec(fields=(field,))})


def played(answer: Answer, falls: Callable[[Any], bool] = lambda command: False) -> CommandGrid:
    """The grid of a robot that moves as the answer says, from random headings."""
    asked = commands_of(contract())
    commands = np.repeat(np.array(asked), HEADINGS, axis=0)
    poses = np.zeros((round(LENGTH_S / STEP_S) + 1, len(commands), 3))
    poses[0, :, 2] = np.random.default_rng(0).uniform(-np.pi, np.pi, len(commands))
    for step in range(len(poses) - 1):
        forwards, left, turn = np.array([answer(command, step * STEP_S) for command in commands]).T
        x, y, yaw = poses[step].T
        cos, sin, after = np.cos(yaw), np.sin(yaw), yaw + STEP_S * turn
        moved = [x + STEP_S * (cos * forwards - sin * left), y + STEP_S * (sin * forwards + cos * left)]
        poses[step + 1] = np.stack([*moved, np.arctan2(np.sin(after), np.cos(after))], axis=1)
    fallen = np.array([falls(command) for command in commands])
    return CommandGrid(policy=Path("p"), fingerprint="f", cells=tuple(judged(asked, poses, fallen, STEP_S)))


def test_the_grid_stays_inside_the_ranges_of_the_contract() -> None:
    found = np.array(commands_of(contract()))
    assert (found >= LOWER).all()
    assert (found <= UPPER).all()
    assert len(found) == len(np.unique(found, axis=0)) == 1 + 6 * len(LEVELS) + 8
    assert [0.2, 0.0, 0.0] in found.tolist()
    assert [1.0, -0.25, -0.5] in found.tolist()
    # An axis that is not commanded stays at 0; a range without 0 is not left.
    narrow = np.array(commands_of(contract((0.5, 0.0, -1.0), (1.0, 0.0, 1.0))))
    assert not narrow[:, 1].any()
    assert (narrow[:, 0] >= 0.5).all()


def test_a_policy_without_a_velocity_has_no_grid() -> None:
    with pytest.raises(PhysaiError, match="has no command velocity_command of 3 numbers"):
        commands_of(SMALL_CONTRACT)
    with pytest.raises(PhysaiError, match="has no command velocity_command of 3 numbers"):
        commands_of(contract((-1.0,), (1.0,)))


def test_a_robot_that_sways_and_follows_has_no_dead_zone() -> None:
    found = played(lambda command, t: 0.9 * command + 0.3 * np.sin(2 * np.pi * t / 0.5))
    assert found.dead_zones == ()
    assert found.text == NONE == "none is ignored, falls or is slow"
    cell = next(one for one in found.cells if one.command == (2.0, 0.0, 0.0))
    assert cell.achieved == pytest.approx((1.8, 0.0, 0.0), abs=0.02)
    assert (cell.falls, cell.episodes, cell.ignored, cell.slow) == (0, HEADINGS, (), ())


def test_a_turn_below_a_threshold_is_a_dead_zone() -> None:
    found = played(lambda c, t: c * np.array([1.0, 1.0, 1.0 if abs(c[2]) > 0.4 else 0.1]))
    assert found.dead_zones == ("does not turn left below 0.5 rad/s", "does not turn right below 0.5 rad/s")


def test_an_axis_that_is_ignored_is_named_with_its_range() -> None:
    found = played(lambda c, t: c * np.array([1.0, 0.0 if c[1] > 0.0 else 1.0, 1.0]))
    assert found.dead_zones[0] == "does not walk to the left at all, up to 0.5 m/s"
    assert found.dead_zones[1].startswith("does not follow all of the commands (")
    assert len(found.dead_zones) == 2


def test_the_opposite_of_a_command_is_no_answer() -> None:
    found = played(lambda c, t: c * np.array([1.0, 1.0, -1.0]))
    assert found.dead_zones[:2] == (
        "does not turn left at all, up to 1 rad/s",
        "does not turn right at all, up to 1 rad/s",
    )


def test_a_hole_in_the_middle_of_a_range_is_listed() -> None:
    found = played(lambda c, t: c * np.array([0.2 if c[0] in (0.5, 1.5) else 1.0, 1.0, 1.0]))
    assert found.dead_zones == ("does not walk forwards at 0.5, 1.5 m/s",)


def test_falls_are_told_and_do_not_count_as_ignored() -> None:
    found = played(lambda c, t: c if c[0] < 1.4 else 0.0 * c, lambda c: bool(c[0] >= 1.5))
    assert found.dead_zones == ("falls when it is to walk forwards at 1.5, 2 m/s",)
    assert [cell.achieved for cell in found.cells if cell.falls] == [None, None]
    still = played(lambda c, t: c, lambda c: not c.any())
    assert still.dead_zones == ("falls at the command (0, 0, 0) [m/s, m/s, rad/s]",)


def test_an_answer_after_two_seconds_is_slow() -> None:
    late = played(lambda c, t: c * np.array([1.0, 1.0, float(t > 2.5)]) if c[0] == 0.0 else c)
    assert late.dead_zones == (
        "is slow to turn left at 0.1, 0.25, 0.5, 0.75, 1 rad/s: less than half of it in the first 2 s",
        "is slow to turn right at 0.1, 0.25, 0.5, 0.75, 1 rad/s: less than half of it in the first 2 s",
    )
    soon = played(lambda c, t: c * float(t > 1.2))
    assert soon.dead_zones == ()


def test_the_report_has_the_grid() -> None:
    found = played(lambda c, t: c * np.array([1.0, 1.0, 0.0]))
    page = Page(task="walk", criterion="it walks", policy="p", twin="t", commands=found)
    shown = html_report(MIXED, page)
    assert "<h2>Commands</h2><p>does not turn left at all, up to 1 rad/s<br>" in shown
    assert "<tr><td>0.00, 0.00, 1.00</td><td>0.00, 0.00, 0.00</td><td>0 of 2</td></tr>" in shown
    assert "Commands" not in html_report(MIXED, Page(task="walk", criterion="it walks", policy="p", twin="t"))
