"""Exhaustive exploration of the supervisor's state space, checked by an independent oracle.

`enumerate_sequences` tries all sequences of some events up to a depth. `close` applies all events to every reachable
state, breadth first, until there is no new state, and so covers sequences of any length. For that, supervisor and
oracle together are packed into 64 bits; of the request numbers only their order matters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from tests.harness.supervisor.events import Counts, EventColumns, SupervisorEvent
from tests.harness.supervisor.oracle import ObservedPeriod, Oracle, observe, verdicts

from physai.sdk.safety import NOTHING, GuardState, Reason, RequestAnswer
from physai.sdk.safety.supervisor import Inputs, Outputs, SupervisorState, SupervisorThresholds
from physai.sdk.safety.supervisor import step as supervise

SMALL = SupervisorThresholds(reused=1, hold=2, tolerated=1, effect=2, still=2, confirm=3)
"""Thresholds that are exceeded within a few periods, to keep the state space small."""

SearchStep = Callable[[SupervisorState, Inputs, SupervisorThresholds], tuple[SupervisorState, Outputs]]
Keys = npt.NDArray[np.uint64]
StateRows = npt.NDArray[np.intp]

_NUMBER = 1000
_CHUNK = 200_000
_STARTS = (GuardState.STANDSTILL, GuardState.RUN)


class SearchError(Exception):
    """An assumption of the search does not hold."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A violated safety property, and the shortest counterexample result."""

    promise: str
    start: GuardState
    events: tuple[SupervisorEvent, ...]

    def __str__(self) -> str:
        """The counterexample, one event per line."""
        lines = [f"{self.promise}; from {self.start.name}:", *(f"  {event}" for event in self.events)]
        return "\n".join(lines)


@dataclass
class SearchResult:
    """Result of a search."""

    sequences: int = 0
    """Enumerated sequences, prefixes not counted."""
    states: int = 0
    """Different states of supervisor and oracle together."""
    transitions: int = 0
    """Periods checked."""
    closed: bool = False
    """Whether every event was applied to every reachable state."""
    resets: int = 0
    """Resets obeyed."""
    starts: int = 0
    """Starts obeyed."""
    broken: list[Broken] = field(default_factory=list[Broken])


@dataclass(frozen=True, slots=True)
class SupervisorWorld:
    """Supervisor and oracle of many robots."""

    state: SupervisorState
    oracle: Oracle
    kept: Counts
    """Number in an earlier request."""

    @classmethod
    def initial(cls, level: GuardState) -> "SupervisorWorld":
        """A single robot."""
        state = SupervisorState.initial(1, level)
        state.number[:] = state.read_back[:] = _NUMBER
        return cls(state, Oracle.initial(1, level), np.full(1, _NUMBER - 2))

    def take(self, rows: StateRows) -> "SupervisorWorld":
        """The given rows, in that order."""
        state = SupervisorState(*(getattr(self.state, one.name)[rows] for one in fields(SupervisorState)))
        oracle = Oracle(*(getattr(self.oracle, one.name)[rows] for one in fields(Oracle)))
        return SupervisorWorld(state, oracle, self.kept[rows])


def follow(
    world: SupervisorWorld, events: EventColumns, step: SearchStep, limits: SupervisorThresholds
) -> tuple[SupervisorWorld, ObservedPeriod, list[tuple[str, StateRows]]]:
    """Advances every robot by one period; returns violated properties with their rows."""
    state = world.state
    numbers = np.stack(
        [np.full_like(state.number, NOTHING), state.read_back, world.kept, state.number, state.number + 1]
    )
    rows = np.arange(len(state.number))
    wrong = events.missing | events.violated | events.stop | (events.least > GuardState.RUN)
    wrong |= (state.level == GuardState.STANDSTILL) & ~events.at_rest
    inputs = Inputs(
        missing=events.missing,
        blind=events.blind,
        violated=events.violated,
        too_fast=events.too_fast,
        at_rest=events.at_rest,
        repeated=events.repeated,
        ready=events.ready,
        unreferenced=events.unreferenced,
        reasons=np.where(wrong, np.uint32(Reason.COMMAND_LIMIT), np.uint32(0)),
        skipped=events.skipped,
        least=events.least,
        stop=events.stop,
        reset=numbers[events.reset, rows],
        start=numbers[events.start, rows],
    )
    after, out = step(state, inputs, limits)
    seen = ObservedPeriod(state.level, state.number, state.read_back, events, after, out)
    oracle, expected = observe(world.oracle, seen, limits)
    broken = [
        (text, np.flatnonzero(bad)) for text, bad in verdicts(world.oracle, oracle, expected, seen, limits) if bad.any()
    ]
    kept = np.where(events.keeps, after.read_back, world.kept)
    return SupervisorWorld(after, oracle, kept), seen, broken


_COUNTERS = ("missed", "violated", "ineffective", "rested", "moved", "stopping")
_CLOCKS = ("quiet", "without", "off", "useless", "strays", "waited")


def pack(world: SupervisorWorld) -> Keys:
    """Packs everything that affects the future into 64 bits."""
    state, oracle = world.state, world.oracle
    bits: list[tuple[npt.NDArray[np.generic], int]] = [
        (state.level, 3),
        (state.read_back == state.number, 1),
        (world.kept == state.number, 1),
        (state.causes != 0, 1),
        (oracle.phase, 2),
        (oracle.shown, 1),
        (oracle.valid, 1),
        *((getattr(state, name), 4) for name in _COUNTERS),
        *((getattr(oracle, name), 4) for name in _CLOCKS),
    ]
    key = np.zeros(len(state.level), np.uint64)
    for values, width in bits:
        if int(values.max()) >= 1 << width:
            raise SearchError(f"a value of {int(values.max())} does not fit {width} bits")
        key = key << np.uint64(width) | values.astype(np.uint64)
    return key


def unpack(key: Keys) -> SupervisorWorld:
    """Inverse of `pack`."""
    rest = key.copy()

    def take(width: int) -> Counts:
        values = (rest & np.uint64((1 << width) - 1)).astype(np.int64)
        np.right_shift(rest, np.uint64(width), out=rest)
        return values

    clocks = {name: take(4) for name in reversed(_CLOCKS)}
    counters = {name: take(4) for name in reversed(_COUNTERS)}
    valid, shown, phase, causes = take(1) > 0, take(1) > 0, take(2), take(1).astype(np.uint32)
    number = np.full(len(key), _NUMBER)
    kept, read_back = number - 2 * (1 - take(1)), number - (1 - take(1))
    level = take(3).astype(np.uint8)
    state = SupervisorState(level=level, number=number, read_back=read_back, causes=causes, **counters)
    return SupervisorWorld(state, Oracle(phase=phase, shown=shown, valid=valid, **clocks), kept)


def close(
    events: Sequence[SupervisorEvent],
    *,
    step: SearchStep = supervise,
    limits: SupervisorThresholds = SMALL,
    most_states: int | None = None,
) -> SearchResult:
    """Applies every event to every reachable state; stops early at the first violations.

    Args:
        events: possible events of a period.
        step: transition function of the supervisor.
        limits: thresholds of supervisor and oracle.
        most_states: number of states at which to stop; None for no limit.
    """
    columns, result = EventColumns.of(events), SearchResult()
    levels: list[_Level] = []
    roots = np.concatenate([pack(SupervisorWorld.initial(level)) for level in _STARTS])
    frontier, known = roots, np.sort(roots)
    levels.append(_Level(roots, np.full(len(roots), -1), np.full(len(roots), -1)))
    while len(frontier) and not result.broken and (most_states is None or len(known) < most_states):
        following: list[_Level] = []
        for rows, which in _pairs(len(frontier), len(events)):
            world, seen, broken = follow(unpack(frontier[rows]), columns.take(which), step, limits)
            _count(result, seen)
            for text, bad in broken:
                where = int(rows[bad[0]])
                result.broken.append(_counterexample(text, levels, where, int(which[bad[0]]), events))
            keys, first = np.unique(pack(world), return_index=True)
            following.append(_Level(keys, rows[first], which[first]))
        level = _merged(following).without(known)
        known = np.sort(np.concatenate([known, level.keys]))
        levels.append(level)
        frontier = level.keys
    result.states, result.closed = len(known), not len(frontier) and not result.broken
    return result


@dataclass(frozen=True, slots=True)
class _Level:
    """States first reached after a number of periods, with predecessor and event."""

    keys: Keys
    parents: StateRows
    events: StateRows

    def without(self, known: Keys) -> "_Level":
        at = np.minimum(np.searchsorted(known, self.keys), len(known) - 1)
        new = known[at] != self.keys
        return _Level(self.keys[new], self.parents[new], self.events[new])


def _merged(parts: list[_Level]) -> _Level:
    keys, first = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
    parents, events = (np.concatenate([getattr(part, name) for part in parts])[first] for name in ("parents", "events"))
    return _Level(keys, parents, events)


def _pairs(states: int, events: int) -> list[tuple[StateRows, StateRows]]:
    """All pairs of a state and an event, in chunks."""
    per_chunk = max(1, _CHUNK // events)
    edges = [*range(0, states, per_chunk), states]
    return [
        (np.repeat(np.arange(first, last), events), np.tile(np.arange(events), last - first))
        for first, last in pairwise(edges)
        if last > first
    ]


def _count(result: SearchResult, seen: ObservedPeriod) -> None:
    result.transitions += len(seen.level)
    result.resets += int((seen.out.reset == RequestAnswer.OBEYED).sum())
    result.starts += int((seen.out.start == RequestAnswer.OBEYED).sum())


def _counterexample(
    text: str, levels: list[_Level], where: int, event: int, events: Sequence[SupervisorEvent]
) -> Broken:
    """Reconstructs the path to a violation, backwards from it."""
    path = [events[event]]
    for level in reversed(levels[1:]):
        path.append(events[int(level.events[where])])
        where = int(level.parents[where])
    return Broken(text, _STARTS[where], tuple(reversed(path)))


def enumerate_sequences(
    events: Sequence[SupervisorEvent], depth: int, *, step: SearchStep = supervise, limits: SupervisorThresholds = SMALL
) -> SearchResult:
    """Tries all sequences of length `depth`, from an activation and from the beginning of an episode."""
    columns, result = EventColumns.of(events), SearchResult()
    for start in _STARTS:
        stack: list[tuple[SupervisorWorld, StateRows]] = [(SupervisorWorld.initial(start), np.zeros((1, 0), np.intp))]
        while stack:
            world, ways = stack.pop()
            rows, which = np.divmod(np.arange(len(ways) * len(events)), len(events))
            after, seen, broken = follow(world.take(rows), columns.take(which), step, limits)
            _count(result, seen)
            longer = np.concatenate([ways[rows], which[:, None]], axis=1)
            for text, bad in broken:
                way = tuple(events[int(index)] for index in longer[bad[0]])
                result.broken.append(Broken(text, start, way))
            if longer.shape[1] == depth:
                result.sequences += len(longer)
                continue
            per_part = max(1, _CHUNK // len(events))
            edges = [*range(0, len(longer), per_part), len(longer)]
            parts = [np.arange(first, last) for first, last in pairwise(edges)]
            stack += [(after.take(part), longer[part]) for part in parts]
    return result
