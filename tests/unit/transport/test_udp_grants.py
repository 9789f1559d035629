"""Whom a robot on UDP obeys, over every order of events of two runtimes."""

from itertools import product

import pytest

from physai.transport.udp.grants import LEAST_SILENCE_S, Grants

STEP_S = 0.2


def test_every_order_of_events_of_two_runtimes() -> None:
    """Who is obeyed has the newest lease, and a lease is one runtime's for ever."""
    for events in product(("greets 1", "greets 2", "targets 1", "targets 2", "silence", "nothing"), repeat=6):
        robot, now_s = Grants(0.02), 10.0
        held = {1: 0, 2: 0}
        owners: dict[int, int] = {}
        heard_s = now_s
        for event in events:
            now_s += 3.0 * STEP_S if event == "silence" else STEP_S
            what, _, who = event.partition(" ")
            if what == "greets":
                asked, before = int(who), robot.holder
                granted = robot.greeted(asked, now_s)
                assert granted is (before in (0, asked) or now_s - heard_s > LEAST_SILENCE_S)
                if granted:
                    held[asked], heard_s = robot.number, now_s
                    assert owners.setdefault(robot.number, asked) == asked
            elif what == "targets":
                obeyed = robot.commanded(int(who), held[int(who)], now_s)
                assert obeyed is (int(who) == robot.holder)
                heard_s = now_s if obeyed else heard_s


def test_an_old_lease_of_the_same_runtime_is_not_obeyed() -> None:
    robot = Grants(0.02)
    assert robot.greeted(5, 0.0)
    assert robot.greeted(6, 1.0)
    assert robot.greeted(5, 2.0)
    assert robot.number == 3
    assert not robot.commanded(5, 1, 2.1)
    assert robot.commanded(5, 3, 2.1)
    assert robot.commanded(5, 0, 2.1)
    assert not robot.greeted(0, 9.0)
    assert not robot.commanded(0, 0, 9.0)


@pytest.mark.parametrize(("control_dt", "silence_s"), [(0.002, 0.5), (0.5, 1.5)])
def test_a_slow_policy_is_waited_for(control_dt: float, silence_s: float) -> None:
    assert Grants(control_dt).silence_s == silence_s
