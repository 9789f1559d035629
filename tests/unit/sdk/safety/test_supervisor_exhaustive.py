"""Every order of events that the supervisor can meet, and whether the oracle that judges it can fail."""

import inspect
import sys
from types import ModuleType

import numpy as np
import pytest
from tests.harness.supervisor.events import EventColumns, every_event, frequent_events, varied_events
from tests.harness.supervisor.search import (
    SMALL,
    SearchStep,
    SupervisorWorld,
    close,
    enumerate_sequences,
    follow,
    pack,
    unpack,
)

from physai.sdk.safety import GuardState, supervisor
from physai.sdk.safety.supervisor import SupervisorThresholds, step

THRESHOLDS = {
    "small": SMALL,
    "at once": SupervisorThresholds(reused=0, hold=1, tolerated=0, effect=1, still=1, confirm=1),
    "still late": SupervisorThresholds(reused=2, hold=3, tolerated=2, effect=3, still=6, confirm=2),
    "larger": SupervisorThresholds(reused=3, hold=7, tolerated=2, effect=6, still=5, confirm=9),
}


@pytest.mark.parametrize("limits", THRESHOLDS.values(), ids=THRESHOLDS)
def test_no_promise_is_broken_in_any_state_that_can_be_reached(limits: SupervisorThresholds) -> None:
    events = every_event() if limits is SMALL else varied_events()
    found = close(events, limits=limits)
    assert not found.broken, "\n".join(map(str, found.broken))
    assert found.closed
    assert found.states > 100
    assert found.resets > 50
    assert found.starts > 10


def test_no_promise_is_broken_in_a_million_sequences() -> None:
    varied, frequent = enumerate_sequences(varied_events(), 4), enumerate_sequences(frequent_events(), 6)
    for found in (varied, frequent):
        assert not found.broken, "\n".join(map(str, found.broken[:3]))
        assert found.resets > 1000
        assert found.starts > 1000
    assert varied.sequences + frequent.sequences >= 1_000_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("limits", THRESHOLDS.values(), ids=THRESHOLDS)
def test_no_promise_is_broken_in_a_hundred_million_sequences(limits: SupervisorThresholds) -> None:
    for events, depth in ((varied_events(), 5), (frequent_events(), 8)):
        found = enumerate_sequences(events, depth, limits=limits)
        assert not found.broken, "\n".join(map(str, found.broken[:3]))
        assert found.sequences == 2 * len(events) ** depth


MUTANTS = {
    "a stop is ignored while stopped": (
        "asked = inputs.stop | (inputs.least > _RUN)",
        "asked = (inputs.stop | (inputs.least > _RUN)) & (state.level < _STOP)",
    ),
    "a repeated HOLD supersedes nothing": (
        "asked = inputs.stop | (inputs.least > _RUN)",
        "asked = inputs.stop",
    ),
    "a stop only stops what runs": (
        "stop = inputs.stop | (counted",
        "stop = (inputs.stop & (state.level == _RUN)) | (counted",
    ),
    "a fault supersedes nothing": ("changed = asked | risen", "changed = asked"),
    "rest counts through a stop": (
        "rested = np.where(changed, 0, counted.rested)",
        "rested = np.where(inputs.stop, 0, counted.rested)",
    ),
    "a standstill is believed a period too early": (
        "read_back = np.where(rested >= limits.still,",
        "read_back = np.where(rested >= limits.still - 1,",
    ),
    "a standstill is believed without rest": (
        "read_back = np.where(rested >= limits.still, number, state.read_back)",
        "read_back = number",
    ),
    "rest counts while the policy runs": ("rests = inputs.at_rest & ~in_run", "rests = inputs.at_rest"),
    "a sample proves rest again and again": ("rests & ~inputs.repeated", "rests"),
    "a period without a newer sample ends a rest": ("limits.still, keep=rests)", "limits.still)"),
    "a sample shows motion again and again": ("~inputs.at_rest & ~unknown", "~inputs.at_rest & ~inputs.blind"),
    "a period without a newer sample forgives a motion": (
        "limits.tolerated, keep=unknown)",
        "limits.tolerated, keep=inputs.blind)",
    ),
    "rest need not last": (
        "limits.still, keep=rests)",
        "limits.still, keep=~in_run)",
    ),
    "a reset with an older number": ("(inputs.reset != seen.number, RequestAnswer.SUPERSEDED),", ""),
    "a reset that nothing was read back for": ("(seen.read_back != seen.number, RequestAnswer.NOT_READ_BACK),", ""),
    "a reset with any number that is not too great": (
        "(inputs.reset != seen.number, RequestAnswer.SUPERSEDED),",
        "(inputs.reset > seen.number, RequestAnswer.SUPERSEDED),",
    ),
    "a reset while joints move": (
        "        (~inputs.at_rest, RequestAnswer.NOT_AT_REST),\n    )\n\n\ndef _answer_start",
        "    )\n\n\ndef _answer_start",
    ),
    "a reset in the period of a stop": (
        "(seen.changed, RequestAnswer.SUPERSEDED),\n        (state.level <= _STANDSTILL, RequestAnswer.ALREADY),",
        "(state.level <= _STANDSTILL, RequestAnswer.ALREADY),",
    ),
    "a reset leads to RUN": ("level = np.where(down, _STANDSTILL,", "level = np.where(down, _RUN,"),
    "a start from HOLD": (
        "(state.level != _STANDSTILL, RequestAnswer.NOT_RESET),",
        "(state.level > _HOLD, RequestAnswer.NOT_RESET),",
    ),
    "a start with the number of before the reset": (
        "(inputs.start != seen.number, RequestAnswer.SUPERSEDED),",
        "(inputs.start < seen.number - 1, RequestAnswer.SUPERSEDED),",
    ),
    "a start of a robot that is not ready": ("(~inputs.ready, RequestAnswer.NOT_READY),", ""),
    "a start in the period of a stop": (
        "(seen.changed, RequestAnswer.SUPERSEDED),\n        (state.level == _RUN, RequestAnswer.ALREADY),",
        "(state.level == _RUN, RequestAnswer.ALREADY),",
    ),
    "a start moves in spite of a rise": (
        "level = np.where(down, _STANDSTILL, np.where(up, _RUN, level))",
        "level = np.where(down, _STANDSTILL, np.where(up | (inputs.start == state.number), _RUN, level))",
    ),
    "an obeyed reset changes no number": ("number = number + (down | up)", "number = number + up"),
    "an obeyed start changes no number": ("number = number + (down | up)", "number = number + down"),
    "a reset publishes no standstill": ("read_back = np.where(down, number, read_back)", "read_back = read_back + 0"),
    "a level falls": (
        "level = np.maximum(state.level, inputs.least)",
        "level = np.where(inputs.least > _RUN, inputs.least, state.level)",
    ),
    "one more late command": ("hold = (counted.missed > limits.reused)", "hold = (counted.missed > limits.reused + 1)"),
    "one late command fewer": ("hold = (counted.missed > limits.reused)", "hold = (counted.missed >= limits.reused)"),
    "skipped periods do not count": ("state.missed + np.where(awaits, inputs.skipped, 0)", "state.missed"),
    "blind in HOLD for ever": (
        "awaits = np.where(in_run, inputs.missing, inputs.blind)",
        "awaits = in_run & inputs.missing",
    ),
    "HOLD waits for commands": (
        "awaits = np.where(in_run, inputs.missing, inputs.blind)",
        "awaits = inputs.missing",
    ),
    "a blind sample forgives a violation": (
        "_in_a_row(state.violated, inputs.violated, limits.tolerated, keep=inputs.blind)",
        "_in_a_row(state.violated, inputs.violated, limits.tolerated)",
    ),
    "violations only brake what runs": (
        "| (counted.violated > limits.tolerated)",
        "| ((counted.violated > limits.tolerated) & (state.level == _RUN))",
    ),
    "DAMP without effect for ever": ("| (counted.ineffective > limits.effect)", ""),
    "DAMP while blind is taken for effective": (
        "damping & (inputs.blind | inputs.too_fast)",
        "damping & inputs.too_fast",
    ),
    "a robot that strays at standstill": ("| (counted.moved > limits.tolerated)", ""),
    "the policy runs without a reference": ("| (inputs.unreferenced & (state.level == _RUN))", ""),
    "violations survive a reset": (
        "violated=np.where(cleared, 0, counted.violated),",
        "violated=np.where(up, 0, counted.violated),",
    ),
    "causes survive a reset": ("causes=np.where(cleared,", "causes=np.where(up,"),
    "a stop has no causes": ("np.where(risen | asked, inputs.reasons", "np.where(state.level < _HOLD, inputs.reasons"),
    "a stop is confirmed once and for all": (
        "confirmed = (level > _RUN) & (rested >= limits.still)",
        "confirmed = (level > _RUN) & (read_back == number)",
    ),
    "an unconfirmed stop is not reported": ("(stopping > limits.confirm)", "(stopping > limits.confirm + 1)"),
    "a refused request is not answered": (
        "(inputs.start == NOTHING, RequestAnswer.NONE),",
        "(inputs.start != seen.number, RequestAnswer.NONE),",
    ),
    "an answer that is not true": (
        "(state.level != _STANDSTILL, RequestAnswer.NOT_RESET)",
        "(state.level != _STANDSTILL, RequestAnswer.ALREADY)",
    ),
}
"""Faults that a careless change could bring, a line each: what the supervisor has, and what it has instead."""


def mutated(old: str, new: str) -> SearchStep:
    """The supervisor's step with one place changed."""
    source = inspect.getsource(supervisor)
    assert source.count(old) == 1, f"the supervisor has {source.count(old)} times: {old}"
    module = ModuleType("mutated_supervisor")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source.replace(old, new), module.__name__, "exec"), module.__dict__)
    return module.step


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_the_oracle_catches_a_wrong_supervisor(old: str, new: str) -> None:
    found = close(every_event(), step=mutated(old, new), most_states=20_000)
    assert found.broken, f"{found.states} states, and every promise kept"


def test_an_unchanged_supervisor_passes() -> None:
    line = "asked = inputs.stop | (inputs.least > _RUN)"
    assert not close(varied_events(), step=mutated(line, line)).broken


def test_a_broken_promise_is_told_with_the_shortest_way_to_it() -> None:
    old, new = MUTANTS["a reset leads to RUN"]
    found = close(frequent_events(), step=mutated(old, new))
    way = next(broken for broken in found.broken if broken.promise == "a reset does not move")
    assert [str(event) for event in way.events[-1:]] == ["at_rest, reset fresh"]
    assert len(way.events) == 1 + 1 + SMALL.still  # a stop, rest until it is believed, the reset
    assert way.promise in str(way)


def test_what_is_packed_is_the_same_afterwards() -> None:
    keys = np.array([pack(SupervisorWorld.initial(level))[0] for level in (GuardState.RUN, GuardState.STANDSTILL)])
    columns = EventColumns.of(varied_events())
    rows = np.repeat(np.arange(len(keys)), len(columns.stop))
    events = columns.take(np.tile(np.arange(len(columns.stop)), len(keys)))
    after, _, broken = follow(unpack(keys[rows]), events, step, SMALL)
    assert not broken
    np.testing.assert_array_equal(pack(unpack(pack(after))), pack(after))
    assert len(np.unique(pack(after))) > 10
