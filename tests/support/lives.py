"""Lives of two runtimes of one robot: they are stopped, die, start again, take over and are updated.

Real are the request queue, the keeper of stops with its files, the wait before driving, the loop's requests and
answers, the note of an update, the decision to drive at a start, and the supervisor. In place of the control period,
the lease and the robot stand the few lines that the supervisor's search has, too: samples are valid, and the joints
rest unless the world says that they move.
"""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from physai.deploy_jetson.runtime.commands.queue import NO_LEVELS, Command, CommandQueue, RequestTicket
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.standby.standby import Standby
from physai.deploy_jetson.runtime.standby.start import drives_at_once, note_driving
from physai.deploy_jetson.runtime.stop.keeper import StopKeeper
from physai.deploy_jetson.runtime.stop.stop_records import FOLDER_VARIABLE, StopRecords
from physai.deploy_jetson.update.slots import resume
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.safety import ANSWERS, GuardState, RequestAnswer
from physai.sdk.safety.decision import Request
from physai.sdk.safety.supervisor import Inputs, SupervisorState, SupervisorThresholds, step

TREES = ("a", "b")
LIMITS = SupervisorThresholds(reused=0, hold=1, tolerated=0, effect=1, still=1, confirm=1)
"""Thresholds that keep the search small."""


@dataclass
class World:
    """A computer with two trees and one robot, and what was promised to the operator."""

    folder: Path
    drive_after_boot: bool = False
    boot: int = 0
    now_s: float = 0.0
    rests: bool = True
    holder: str = ""
    """Tree of the runtime that has the robot's lease."""
    lives: dict[str, "Life"] = field(default_factory=dict[str, "Life"])
    stopped: bool = False
    """Whether a stop was acknowledged as durable, or seen to act, and no reset was answered since."""
    unnoticed: int = 0
    """Periods until a runtime that drives has noticed the stop of another one."""
    allowed: set[str] = field(default_factory=set[str])
    """Trees whose runtime was asked to drive, and not to end or stop since."""
    broken: list[str] = field(default_factory=list[str])
    resets: int = 0
    starts: int = 0

    @property
    def driven(self) -> list[str]:
        """Trees whose runtime is in RUN."""
        return [tree for tree, life in self.lives.items() if life.level == GuardState.RUN]

    def check(self) -> None:
        """Hold what happened until a period has passed against the promises."""
        noticed, self.unnoticed = not self.unnoticed, max(0, self.unnoticed - 1)
        if self.driven and self.stopped and noticed:
            self.broken.append("driven with a stop that was not reset")
        if noticed and not self.allowed.issuperset(self.driven):
            self.broken.append("driven unasked")
        if len(self.driven) > 1:
            self.broken.append("driven by two")
        self.starts += bool(self.driven)

    def stop(self, tree: str) -> None:
        """Note that a runtime is stopped: what was asked before counts no more."""
        if not self.stopped and any(life.active for one, life in self.lives.items() if one != tree):
            self.unnoticed = 1
        self.stopped = True
        self.allowed.clear()


class _Tick:
    """A control period: the supervisor's step for one robot."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.guard: Any = SimpleNamespace(idle=lambda: None)
        self.reasons = self.ended_ns = self.age_ns = 0
        self.error = ""
        self.activate()

    def activate(self) -> None:
        self._state = SupervisorState.initial(1, GuardState.STANDSTILL)
        self.stopped, self.reset_answer, self.start_answer = False, 0, 0

    def outside_start(self) -> str:
        return ""

    @property
    def state(self) -> int:
        return int(self._state.level[0])

    @property
    def read_back(self) -> int:
        return int(self._state.read_back[0])

    def key(self) -> tuple[int, ...]:
        """Everything that affects the future; of the numbers only whether they are equal."""
        state = self._state
        counters = (state.rested, state.stopping, state.missed, state.moved, state.ineffective)
        return self.state, int(state.number[0] == state.read_back[0]), *(int(one[0]) for one in counters)

    def run(self, request: Request) -> None:
        no, yes, moves = np.zeros(1, bool), np.ones(1, bool), not self._world.rests
        inputs = Inputs(
            missing=no,
            blind=no,
            violated=no,
            too_fast=np.array([moves]),
            at_rest=np.array([not moves]),
            repeated=no,
            ready=yes,
            unreferenced=no,
            reasons=np.full(1, request.reasons, np.uint32),
            skipped=np.full(1, request.skipped),
            least=np.full(1, request.least, np.uint8),
            stop=np.array([bool(request.stop)]),
            reset=np.full(1, request.reset),
            start=np.full(1, request.start),
        )
        self._state, out = step(self._state, inputs, LIMITS)
        self.stopped = bool(out.confirmed[0])
        self.reset_answer, self.start_answer = int(out.reset[0]), int(out.start[0])
        self.reasons = request.reasons

    def moving(self) -> str:
        return ""

    def obstacle(self) -> str:
        return ""


class _Lease:
    """A transport whose robot accepts one runtime at a time."""

    lease_number = 0

    def __init__(self, world: World, tree: str) -> None:
        self._world, self._tree = world, tree

    def missing(self) -> list[tuple[str, float]]:
        return []

    def claim(self) -> str:
        self._world.holder = self._world.holder or self._tree
        return "" if self._world.holder == self._tree else "the robot"

    def renew(self) -> None: ...

    def lost(self) -> str:
        return ""

    def release(self) -> None:
        if self._world.holder == self._tree:
            self._world.holder = ""


class _Standstill:
    """Confirms a stop of an inactive runtime as `StandstillWatch` does, after a sample at rest."""

    def __init__(self, world: World, commands: CommandQueue) -> None:
        self._world, self._commands = world, commands
        self._stop, self.rested = -1, 0

    def look(self) -> None:
        commands = self._commands
        if self._stop != commands.stop:
            self._stop, self.rested = commands.stop, 0
        self.rested = int(self._world.rests)
        commands.read_back = -2 - self._stop if self.rested == 1 else -1

    def confirms(self, read_back: int) -> bool:
        return self.rested == 1 and read_back == self._commands.read_back == -2 - self._commands.stop

    def missing(self) -> str:
        return "rest"


class Life:
    """A runtime's process, or a node between `configure` and `cleanup`."""

    def __init__(self, world: World, tree: str, *, stand_by: bool) -> None:
        self.world, self.tree = world, tree
        self.root = world.folder / tree
        self.commands = CommandQueue()
        self.tick, self._lease = _Tick(world), _Lease(world, tree)
        anything: Any = SimpleNamespace(beat=_nothing, tick=_nothing, fault=_nothing, report=_nothing, forget=_nothing)
        tick: Any = self.tick
        loaded: Any = SimpleNamespace(health=anything)
        self.loop = Loop(tick, loaded, self.commands, period_ns=20_000_000, say=_nothing)
        self.active = False
        records = StopRecords(self.root, ("the robot",))
        self.keeper = StopKeeper(
            self.commands, records, shares=None, why=lambda: self.loop.stop_why, drives=lambda: self.active
        )
        standstill: Any = _Standstill(world, self.commands)
        self._standstill: _Standstill = standstill
        lease: Any = self._lease
        self.standby = Standby(
            self.loop,
            tick,
            lease,
            self.commands,
            anything,
            heartbeat_s=None,
            watchdog=None,
            keeper=self.keeper,
            standstill=standstill,
        )
        options = RunOptions(root=self.root, service=True, stand_by=stand_by)
        self.standby.wanted = NO_LEVELS if drives_at_once(options, _nothing) else None
        self.asked: list[RequestTicket] = []

    @property
    def level(self) -> int:
        """State of the guard; STANDSTILL while nothing is driven."""
        return self.tick.state if self.active else int(GuardState.STANDSTILL)

    def key(self) -> tuple[Any, ...]:
        """Everything that affects the future."""
        commands, loop = self.commands, self.loop
        return (
            self.active,
            self.tick.key() if self.active else self._standstill.rested,
            commands.stopped,
            self.standby.wanted is not None,
            bool(self.keeper.elsewhere),
            bool(self.keeper.inherited),
            self.keeper.settled(commands.stop),
            tuple(new == old for new, old in zip(commands.levels, loop.seen, strict=True)),
            loop.drove,
            loop._end,  # pyright: ignore[reportPrivateUsage]
            loop._starting,  # pyright: ignore[reportPrivateUsage]
            tuple((one.command, one.levels == commands.levels) for one in self.asked),
        )

    def ask(self, word: Command) -> None:
        """Make a request; a stop is acknowledged once it is recorded."""
        if self.asked and word not in (Command.STOP, Command.DEACTIVATE, Command.DAMP):
            # One request a period, so that the search ends.
            return
        ticket = self.commands.put(word)
        if ticket is not None:
            self.asked.append(ticket)
        elif word is Command.STOP:
            self.keep()
            assert self.keeper.settled(self.commands.stop) == ""
            self.world.stop(self.tree)
        else:
            self.world.allowed.discard(self.tree)

    def keep(self) -> None:
        """Have the keeper look at the requests."""
        self.keeper.step(self.world.now_s)

    def advance(self) -> LoopEnd | None:
        """One control period, or one look while inactive; return why the process ends."""
        end: LoopEnd | None = None
        if self.active:
            self._control()
            end = self._departed()
        else:
            result = self.standby.look()
            if isinstance(result, LoopEnd):
                end = result
            elif result is not None:
                self._activate(result)
        self._note_answers()
        self.keep()
        return end

    def _activate(self, levels: Any) -> None:
        self.active, self.loop._levels = True, levels  # pyright: ignore[reportPrivateUsage]
        self.loop._begin()  # pyright: ignore[reportPrivateUsage]

    def _control(self) -> None:
        request = self.loop._request()  # pyright: ignore[reportPrivateUsage]
        self.tick.run(request)
        self.commands.read_back = self.tick.read_back
        self.loop._attend(request)  # pyright: ignore[reportPrivateUsage]
        if self.tick.state == GuardState.PROTECTIVE_STOP:
            self.world.stop(self.tree)

    def _departed(self) -> LoopEnd | None:
        loop: Any = self.loop
        if not loop._ended:
            return None
        self.active = False
        self._lease.release()
        if loop.drove and not self.commands.stopped:
            note_driving(self.root, loop._end)
        return None if loop._end is LoopEnd.DEACTIVATED else loop._end

    def _note_answers(self) -> None:
        world = self.world
        for ticket in [one for one in self.asked if one.answered]:
            self.asked.remove(ticket)
            if ticket.obeyed and ticket.command is Command.RESET:
                if ticket.text == ANSWERS[RequestAnswer.ALREADY]:
                    continue
                if not world.rests:
                    world.broken.append("reset while a joint moves")
                world.stopped = False
                world.resets += 1
            elif ticket.obeyed:
                world.allowed.add(self.tree)


def _nothing(*_given: Any, **_options: Any) -> None: ...


def _begin(world: World, tree: str, *, stand_by: bool = False) -> None:
    if tree in world.lives:
        return
    world.lives[tree] = life = Life(world, tree, stand_by=stand_by)
    if life.standby.wanted is not None and world.drive_after_boot:
        world.allowed.add(tree)


def _kill(world: World, tree: str) -> None:
    world.allowed.discard(tree)
    if world.lives.pop(tree, None) is not None and world.holder == tree:
        world.holder = ""


def _until_ended(world: World, tree: str) -> None:
    """As the service manager: SIGTERM, then SIGKILL for what does not end."""
    life = world.lives[tree]
    life.commands.shutdown = True
    for _ in range(12):
        if life.advance() is not None:
            break
    life.keeper.close()


def _term(world: World, tree: str) -> None:
    if tree in world.lives:
        _until_ended(world, tree)
        _kill(world, tree)


def _update(world: World, tree: str) -> None:
    """Activation or rollback of a bundle: the agent leaves a note and restarts the service."""
    goes_on = tree in world.driven and not world.stopped
    resume.leave_note(world.folder / tree)
    _term(world, tree)
    if goes_on and not world.stopped:
        world.allowed.add(tree)
    _begin(world, tree)


def _update_and_power_cut(world: World, tree: str) -> None:
    """The service had ended, and its note was signed, when the power failed."""
    resume.leave_note(world.folder / tree)
    _term(world, tree)
    _boot(world, tree)


def _configure_again(world: World, tree: str) -> None:
    """Deactivate, `cleanup` and `configure` of a node."""
    _term(world, tree)
    _begin(world, tree, stand_by=True)


def _boot(world: World, tree: str) -> None:
    """Power cut, and start of everything that was there."""
    there = [*world.lives] or [tree]
    for one in TREES:
        _kill(world, one)
    world.boot += 1
    for one in there:
        _begin(world, one)


def _advance(world: World, _tree: str) -> None:
    world.now_s += 1.0
    for tree in [*world.lives]:
        if world.lives[tree].advance() is not None:
            _kill(world, tree)


def _move(world: World, _tree: str) -> None:
    world.rests = not world.rests


def _request(word: Command) -> Callable[[World, str], None]:
    def ask(world: World, tree: str) -> None:
        if tree in world.lives:
            world.lives[tree].ask(word)

    return ask


_OF_A_TREE: dict[str, Callable[[World, str], None]] = {
    **{word.value: _request(word) for word in (Command.STOP, Command.RESET, Command.ACTIVATE, Command.START)},
    **{word.value: _request(word) for word in (Command.DEACTIVATE, Command.DAMP)},
    "begin": _begin,
    "kill": _kill,
    "term": _term,
    "update": _update,
    "update and power cut": _update_and_power_cut,
    "configure again": _configure_again,
    "boot": _boot,
}
_OF_THE_WORLD: dict[str, Callable[[World, str], None]] = {"advance": _advance, "move or rest": _move}

Way = tuple[tuple[str, str], ...]


def events(trees: tuple[str, ...], *, without: tuple[str, ...] = ()) -> Way:
    """Everything that can happen, with the tree that it happens to."""
    of_trees = ((name, tree) for tree in trees for name in _OF_A_TREE)
    return tuple(one for one in ((("advance", ""), ("move or rest", ""), *of_trees)) if one[0] not in without)


@contextmanager
def computer(folder: Path, *, drive_after_boot: bool) -> Generator[Callable[[Way], World]]:
    """Trees on a computer; yields what lives through a sequence of events, from nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder / "stops"))
        world = World(folder)
        for tree in TREES:
            (folder / tree).mkdir(parents=True)

        def settings(_options: RunOptions) -> Requirements:
            return Requirements(drive_after_boot=drive_after_boot)

        patch.setattr("physai.deploy_jetson.runtime.standby.start.settings_of", settings)

        def live(way: Way) -> World:
            nonlocal world
            for path in (*(path for tree in TREES for path in (folder / tree).iterdir()), *_files(folder / "stops")):
                path.unlink()
            world = World(folder, drive_after_boot)
            for name, tree in way:
                {**_OF_A_TREE, **_OF_THE_WORLD}[name](world, tree)
                if name == "advance":
                    world.check()
            return world

        patch.setattr(resume, "boot_id", lambda: f"boot {world.boot}")
        yield live


def empty(folder: Path) -> None:
    """Remove a computer's folders."""
    shutil.rmtree(folder)


def _files(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.exists() else []


def key(world: World) -> tuple[Any, ...]:
    """Everything that affects the future of a world."""
    lives = tuple((tree, world.lives[tree].key()) for tree in sorted(world.lives))
    records = tuple(StopRecords(world.folder / tree).found() is not None for tree in TREES)
    notes = tuple((world.folder / tree / resume.RESUME_FILE).exists() for tree in TREES)
    shared = len(_files(world.folder / "stops"))
    return (
        lives,
        records,
        notes,
        shared,
        world.rests,
        world.holder,
        world.stopped,
        tuple(sorted(world.allowed)),
        world.unnoticed,
    )


@dataclass
class Found:
    """Result of a search."""

    states: int = 0
    closed: bool = False
    resets: int = 0
    starts: int = 0
    broken: list[tuple[str, Way]] = field(default_factory=list[tuple[str, Way]])


def search(live: Callable[[Way], World], what: Way, *, most_states: int) -> Found:
    """Apply every event to every state that can be reached, breadth first, until there is no new one."""
    found, known = Found(), {key(live(()))}
    frontier: list[Way] = [()]
    while frontier and not found.broken and len(known) < most_states:
        following: list[Way] = []
        for way in frontier:
            for event in what:
                world = live((*way, event))
                found.broken += [(text, (*way, event)) for text in world.broken]
                found.resets, found.starts = found.resets + world.resets, found.starts + world.starts
                if (state := key(world)) not in known:
                    known.add(state)
                    following.append((*way, event))
        frontier = following
    found.states, found.closed = len(known), not frontier and not found.broken
    return found
