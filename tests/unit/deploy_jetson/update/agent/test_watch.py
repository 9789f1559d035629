"""The health window commits or goes back by itself."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.harness.fixtures.site import BOOT_ID, Site
from tests.harness.power_cuts.failing_files import FaultyFileSystem

from physai.deploy_jetson.update.agent.watch import TrialWatcher, Watched
from physai.deploy_jetson.update.slots import health
from physai.deploy_jetson.update.slots.health import Health, HealthWriter, health_path
from physai.deploy_jetson.update.slots.slot_errors import SlotError

SECOND = 1_000_000_000


class Machine:
    """A clock that only sleeping moves, and a runtime that lives by it."""

    def __init__(self, site: Site, live: Callable[["Machine"], None] = lambda machine: None) -> None:
        self.site = site
        self.now_ns = SECOND
        self.live = live
        self.writer: HealthWriter | None = None

    def start(self) -> HealthWriter:
        active = self.site.active
        assert active is not None
        path = health_path(self.site.agent.root)
        self.writer = HealthWriter(path, bundle_sha256=active.bundle_sha256, now_ns=self.now_ns)
        return self.writer

    def sleep(self, seconds: float) -> None:
        for _ in range(20):
            self.now_ns += round(seconds * SECOND / 20)
            self.live(self)

    def watcher(self, **changes: Any) -> TrialWatcher:
        agent = self.site.on(**changes)
        return TrialWatcher(agent, monotonic_ns=lambda: self.now_ns, sleep=self.sleep)


@pytest.fixture(autouse=True)
def one_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime and the agent are on the same kernel, which is not this machine's."""
    monkeypatch.setattr(health, "boot_id", lambda: BOOT_ID)


def tick(machine: Machine) -> None:
    (machine.writer or machine.start()).tick(machine.now_ns)


def limp(machine: Machine) -> None:
    writer = machine.writer or machine.start()
    writer.tick(machine.now_ns, intervened=machine.now_ns > 1.5 * SECOND)


def test_no_trial(site: Site) -> None:
    site.run(1)
    assert Machine(site).watcher().watch_trial() == Watched("none", None, "no version is on trial")
    assert Machine(site).watcher().look() is None


def test_a_healthy_version_is_committed(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    watched = Machine(site, tick).watcher().watch_trial()
    assert (watched.end, watched.version) == ("committed", 2)
    assert "0 missed, no fault" in watched.reason
    assert site.agent.store.state().floor == 2
    assert site.agent.store.state().events[-1].reason == watched.reason


def test_a_version_that_installs_but_limps_is_rolled_back(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    watched = Machine(site, limp).watcher().watch_trial()
    assert (watched.end, watched.version) == ("rolled-back", 2)
    assert "the guard intervened" in watched.reason
    assert (site.active_version, site.agent.store.state().floor) == (1, 1)
    event = site.agent.store.state().last_rollback
    assert event is not None
    assert event.reason == watched.reason


def test_a_version_whose_runtime_never_starts_is_rolled_back(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    watched = Machine(site).watcher().watch_trial()
    assert (watched.end, watched.reason[:27]) == ("rolled-back", "the runtime has not started")
    assert site.active_version == 1


def test_the_first_version_of_a_robot_can_fail_too(site: Site) -> None:
    site.run(1, commit=False)
    assert Machine(site).watcher().watch_trial().end == "rolled-back"
    assert site.agent.store.active() is None


def test_somebody_else_ends_the_trial(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    machine = Machine(site, lambda machine: None)

    def lose_patience(machine: Machine) -> None:
        if machine.now_ns > 3 * SECOND and site.active_version == 2:
            site.agent.rollback("by hand")

    machine.live = lose_patience
    assert machine.watcher().watch_trial().end == "ended elsewhere"
    assert site.active_version == 1


def test_a_full_disk_delays_the_commit(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    warned: list[str] = []
    fs = FaultyFileSystem(site.agent.root, at=0)
    watched = Machine(site, tick).watcher(fs=fs, warn=warned.append).watch_trial()
    assert fs.failed
    assert watched.end == "committed"
    assert "No space left" in warned[0]
    assert warned[1:] == ["removed .state.new, left by an interrupted write"]


def test_a_look_changes_nothing(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    machine = Machine(site, tick)
    machine.sleep(20.0)
    found = machine.watcher().look()
    assert found is not None
    assert found.health in (Health.HEALTHY, Health.WATCHING)
    assert site.agent.store.state().trial is not None


def test_a_slot_that_vanished_on_trial(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    (site.agent.root / "slots/b/installed").unlink()
    with pytest.raises(SlotError, match="slot b is on trial but damaged; roll back with `physai robot recover`"):
        Machine(site).watcher().watch_trial()
    assert "rolled back version 2" in site.agent.recover().actions[0]
    assert site.active_version == 1
