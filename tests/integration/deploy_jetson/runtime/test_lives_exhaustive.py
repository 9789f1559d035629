"""Every order in which runtimes of one robot are stopped, die, start again, take over and are updated."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support import lives
from tests.support.lives import Way, computer, events, search

from physai.deploy_jetson.runtime.loop import loop
from physai.deploy_jetson.runtime.standby import standby, start
from physai.deploy_jetson.runtime.stop import keeper
from physai.deploy_jetson.update.slots import resume

FAST = 250
"""States that are enough to catch every mutant below, with these events:"""
FEW = events(("a",), without=("damp", "configure again", "boot", "move or rest"))

AFTER_BOOT = pytest.mark.parametrize("drive_after_boot", [False, True], ids=["stands by", "drives after boot"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where records are durable sooner."""
    memory = Path("/dev/shm") / f"physai-{tmp_path.parent.name}-{tmp_path.name}"
    if not memory.parent.is_dir():
        yield tmp_path
        return
    memory.mkdir()
    yield memory
    lives.empty(memory)


@AFTER_BOOT
def test_no_promise_is_broken_in_the_states_near_the_start(folder: Path, drive_after_boot: bool) -> None:
    with computer(folder, drive_after_boot=drive_after_boot) as live:
        found = search(live, FEW, most_states=FAST)
    assert not found.broken, found.broken[0]
    assert found.resets
    assert found.starts > 100


@pytest.mark.slow
@AFTER_BOOT
def test_no_promise_is_broken_in_a_thousand_states(folder: Path, drive_after_boot: bool) -> None:
    with computer(folder, drive_after_boot=drive_after_boot) as live:
        found = search(live, events(("a",)), most_states=1000)
    assert not found.broken, found.broken[0]
    assert found.resets > 10
    assert found.starts > 1000


@pytest.mark.exhaustive
@AFTER_BOOT
def test_no_promise_is_broken_in_any_state_that_can_be_reached(folder: Path, drive_after_boot: bool) -> None:
    """Of one tree; lives of any number and length."""
    with computer(folder, drive_after_boot=drive_after_boot) as live:
        found = search(live, events(("a",)), most_states=100_000)
    assert not found.broken, found.broken[0]
    assert found.closed
    assert found.resets > 1000
    assert found.starts > 1000


@pytest.mark.exhaustive
@AFTER_BOOT
def test_no_promise_is_broken_by_two_trees(folder: Path, drive_after_boot: bool) -> None:
    with computer(folder, drive_after_boot=drive_after_boot) as live:
        found = search(live, events(("a", "b")), most_states=60_000)
    assert not found.broken, found.broken[0]
    assert found.resets > 1000


MUTANTS = {
    "a stop of an earlier process does not bind": (keeper, "self._recorded = commands.latch()", "self._recorded = 1"),
    "a stop is not recorded": (keeper, 'self._records.record(self._why() or "requested")', "pass"),
    "the end of a process lifts the record": (
        keeper,
        "self._thread.join()\n        self.step(time.monotonic())",
        "self._thread.join()\n        self._clear()",
    ),
    "an update lets the robot be driven": (resume, 'return note is not None and note["drove"] is True', "return True"),
    "a note of an earlier boot counts": (resume, 'note["boot"] == boot_id() and ', ""),
    "a service drives at once": (start, "return not options.service or drove", "return True or drove"),
}
DEEP = {
    "a stop of a fault is no stop": (loop, "if not self._commands.stopped:", "if False:"),
    "a reset while joints move": (standby, "elif not self._standstill.confirms(ticket.read_back):", "elif False:"),
}
"""Faults that a careless change could bring: what a module has, and what it has instead; the deep ones are
seen far from the start only."""


def mutated(module: ModuleType, old: str, new: str) -> ModuleType:
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{module.__name__} has {source.count(old)} times: {old}"
    made = ModuleType(f"mutated_{module.__name__}")
    sys.modules[made.__name__] = made  # dataclasses look their module up
    exec(compile(source.replace(old, new), made.__name__, "exec"), made.__dict__)
    return made


@pytest.mark.parametrize(
    ("module", "old", "new", "what", "most_states"),
    [
        *(pytest.param(*mutant, FEW, FAST, id=name) for name, mutant in MUTANTS.items()),
        *(
            pytest.param(*mutant, events(("a",)), 100_000, id=name, marks=pytest.mark.exhaustive)
            for name, mutant in DEEP.items()
        ),
    ],
)
def test_the_search_catches_a_wrong_runtime(
    folder: Path, module: ModuleType, old: str, new: str, what: Way, most_states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = mutated(module, old, new)
    for holder in (lives, start):
        for name, value in vars(made).items():
            if getattr(value, "__module__", "") == made.__name__ and name in vars(holder):
                monkeypatch.setattr(holder, name, value)
    if module is resume:
        # Called by its module's name, too.
        monkeypatch.setattr(made, "boot_id", lambda: resume.boot_id())
    with computer(folder, drive_after_boot=False) as live:
        found = search(live, what, most_states=most_states)
    assert found.broken
