"""Sessions keep to their limits, and close when nobody uses them."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.service.problems import ProblemError
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.session import Session
from physai.service.sessions.worlds import TargetWorlds, WorldsOptions
from physai.service.settings import ServiceLimits

TASK = "cartpole-swingup"
EFFORT = "joint_effort_target"


def step(worlds: int = 1, value: float = 0.0) -> dict[str, Any]:
    return {"op": "step", "actions": {EFFORT: np.full((worlds, 1), value)}}


def test_places_are_limited() -> None:
    manager = SessionManager(ServiceLimits(sessions=2, total_worlds=5))
    first = manager.create(WorldsOptions(task=TASK, worlds=3))
    with pytest.raises(ProblemError, match="3 more worlds exceed the limit of 5, of which 3 are in use"):
        manager.create(WorldsOptions(task=TASK, worlds=3))
    manager.create(WorldsOptions(task=TASK, worlds=2))
    with pytest.raises(ProblemError, match="all 2 sessions are in use"):
        manager.create(WorldsOptions(task=TASK))
    manager.close(first.identifier)
    assert manager.create(WorldsOptions(task=TASK))


def test_a_failed_creation_gives_its_place_back() -> None:
    manager = SessionManager(ServiceLimits(sessions=1))
    for _ in range(3):
        with pytest.raises(ProblemError, match="no task named"):
            manager.create(WorldsOptions(task="none"))
    assert manager.create(WorldsOptions(task=TASK))


def moved(session: Session, *, unused_s: float, lost_s: float | None) -> None:
    now = time.monotonic()
    session.used = now - unused_s
    session.lost = None if lost_s is None else now - lost_s


@pytest.mark.parametrize(
    ("unused_s", "lost_s", "connections", "reaped"),
    [
        (5.0, None, 0, False),
        (601.0, None, 0, True),
        # Connected, but silent: a half-open connection must not hold its place for ever.
        (601.0, None, 1, True),
        (61.0, 61.0, 0, True),
        (59.0, 59.0, 0, False),
        # Its connection broke off, but it was used over HTTP since.
        (5.0, 61.0, 0, False),
        # It came back on another connection.
        (61.0, 61.0, 1, False),
    ],
)
def test_what_is_reaped(unused_s: float, lost_s: float | None, connections: int, reaped: bool) -> None:
    manager = SessionManager(ServiceLimits(idle_s=600.0, resume_s=60.0))
    session = manager.create(WorldsOptions(task=TASK))
    moved(session, unused_s=unused_s, lost_s=lost_s)
    session.connections = connections
    assert manager.reap() == ([session.identifier] if reaped else [])
    if reaped:
        with pytest.raises(ProblemError, match="does not exist or was closed"):
            manager.use(session.identifier, session.token)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["step", "again", "bad", "bad again", "reset", "snapshot"]), max_size=12))
def test_repeated_requests_change_nothing(operations: list[str]) -> None:
    session = Session("0", WorldsOptions(task=TASK), TargetWorlds(WorldsOptions(task=TASK)), ServiceLimits())
    plain = TargetWorlds(WorldsOptions(task=TASK))
    sequence, steps, last = 0, 0, None
    requests: Mapping[str, dict[str, Any]] = {
        "step": step(value=1.0),
        "bad": step(value=float("nan")),
        "reset": {"op": "reset", "seed": 3},
        "snapshot": {"op": "snapshot"},
    }
    for operation in operations:
        if operation.endswith("again"):
            if last is not None:
                answer(session, last)
            continue
        sequence += 1
        last = dict[str, Any](requests[operation], seq=sequence)
        reply = answer(session, last)
        if operation == "step":
            steps += 1
            assert reply is not None
            assert np.array_equal(reply["reward"], plain.step(last["actions"])["reward"])
        elif operation == "reset":
            steps = 0
            plain.reset(3)
        assert session.steps == steps


def answer(session: Session, message: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return session.handle(message)
    except ProblemError:
        return None


def test_old_snapshots_make_room() -> None:
    session = Session("0", WorldsOptions(task=TASK), TargetWorlds(WorldsOptions(task=TASK)), ServiceLimits(snapshots=2))
    names = [session.handle({"op": "snapshot"})["snapshot"] for _ in range(3)]
    with pytest.raises(ProblemError, match=f"snapshot '{names[0]}' is not kept here"):
        session.handle({"op": "restore", "snapshot": names[0]})
    assert session.handle({"op": "restore", "snapshot": names[1]})["observations"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({}, "op must be one of"),
        ({"op": ["step"]}, "op must be one of"),
        ({"op": "step"}, "a step needs `actions`"),
        ({"op": "step", "actions": {EFFORT: [[0.0]]}}, "must be an array of numbers"),
        ({"op": "steps", "actions": {EFFORT: 1.0}}, "one row per step"),
        ({"op": "steps", "actions": {}}, "one row per step"),
        ({"op": "reset", "seed": -1}, "seed must be an integer"),
        ({"op": "reset", "seed": True}, "seed must be an integer"),
        ({"op": "restore"}, "is not kept here; kept: none"),
        ({"op": "state", "seq": 1.5}, "seq must be an integer"),
        ({"op": "state", "seq": 7}, "seq is 7, expected 1"),
    ],
)
def test_bad_messages(message: dict[str, Any], problem: str) -> None:
    session = Session("0", WorldsOptions(task=TASK), TargetWorlds(WorldsOptions(task=TASK)), ServiceLimits())
    with pytest.raises(ProblemError, match=problem):
        session.handle(message)
    assert session.steps == 0
