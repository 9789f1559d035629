"""Recovery from what the replay of power cuts does not produce: lost links, damaged records, endless restarts."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.lock import locked
from physai.deploy_jetson.update.slots.slot_errors import LockedError, SlotError
from physai.deploy_jetson.update.slots.slot_records import MAX_EVENTS, SlotEvent, State, decode, encode
from physai.deploy_jetson.update.slots.tree import known_time


def test_nothing_to_do(site: Site) -> None:
    site.run(1)
    assert site.agent.recover().actions == ()


def test_one_damaged_copy_of_the_state(site: Site) -> None:
    site.run(1)
    for name in ("state", "state.copy"):
        path = site.agent.root / name
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b'"floor":1', b'"floor":0'))
        assert site.agent.store.state().floor == 1
        path.write_bytes(whole)


def test_both_copies_damaged(site: Site) -> None:
    site.run(1)
    for name in ("state", "state.copy"):
        (site.agent.root / name).write_bytes(b"")
    with pytest.raises(SlotError, match=r"no usable slot state.*`physai robot setup`"):
        site.agent.install(site.bundles[2])
    assert site.active_version == 1
    warned: list[str] = []
    site.on(warn=warned.append).setup(site.agent.config.identity())
    assert warned == ["both copies of the state were damaged; assuming committed slot a, floor 1"]
    assert site.agent.store.state().floor == 1


@pytest.mark.parametrize("target", [None, "slots/c", "slots"])
def test_a_lost_link(site: Site, target: str | None) -> None:
    site.run(1)
    link = site.agent.root / "current"
    link.unlink()
    if target is not None:
        link.symlink_to(target)
    assert site.agent.recover().actions == ("current pointed to no slot; set to slot a",)
    assert site.active_version == 1


def after_boot(site: Site, number: int) -> UpdateAgent:
    return site.on(boot=lambda: f"boot {number}")


def test_a_restarting_machine_is_no_fault_of_the_policy_until_it_never_ends(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    for number in range(2, 9):
        (action,) = after_boot(site, number).recover().actions
        assert action == "the trial of version 2 continues after a reboot"
        assert after_boot(site, number).recover().actions == ()
    (action,) = after_boot(site, 9).recover().actions
    assert action == "rolled back version 2: the machine booted 9 times during the trial"
    assert site.active_version == 1


def test_damaged_settings_keep_no_robot_from_going_back(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    for name in ("robot", "limits"):
        (site.agent.root / name).write_bytes(b"damaged")
    warned: list[str] = []
    site.on(warn=warned.append).rollback("it limps")
    assert site.active_version == 1
    assert [text.partition(":")[0] for text in warned] == ["limits", "robot"]


def test_setup_again_keeps_slots_and_state(site: Site) -> None:
    site.run(1)
    before = site.agent.store.state()
    site.agent.setup(site.agent.config.identity(), site.workshop.signed())
    assert site.agent.store.state() == before
    assert site.active_version == 1


def test_a_tree_that_is_not_there(tmp_path: Path, site: Site) -> None:
    with pytest.raises(SlotError, match=r"no such folder; create it with `physai robot setup`"):
        site.on(root=tmp_path / "none").install(site.bundles[1])


def test_two_at_once(site: Site) -> None:
    with locked(site.agent.root, "physai robot install"):
        with pytest.raises(LockedError, match=r"is in use: process \d+ is running `physai robot install`; .*--wait"):
            site.agent.install(site.bundles[1])
        with pytest.raises(LockedError):
            site.on(wait_s=0.1).install(site.bundles[1])
    site.agent.install(site.bundles[1])


@pytest.mark.parametrize("note", [b"\xff[", b"[" * 1024, b'{"pid": Infinity, "purpose": ""}', b"3"])
def test_an_unreadable_note_in_the_lock(site: Site, note: bytes) -> None:
    with locked(site.agent.root, "x"):
        (site.agent.root / "lock").write_bytes(note)
        with pytest.raises(LockedError, match="another process holds its lock"):
            site.agent.gc()


def test_events_are_bounded(site: Site) -> None:
    moment = site.agent.clock()
    for number in range(MAX_EVENTS + 5):
        site.agent.store.note(SlotEvent(time="2026-11-21T12:00:00Z", kind="repaired", reason=str(number)), now=moment)
    events = site.agent.store.state().events
    assert [event.reason for event in events] == [str(number) for number in range(5, MAX_EVENTS + 5)]


def test_time_only_rises(site: Site) -> None:
    site.run(1)
    state = site.agent.store.state()
    past = site.agent.clock().replace(year=1999)
    assert known_time(state, past) == site.agent.clock()
    site.on(clock=lambda: past).gc()
    assert site.agent.store.state().latest_time == state.latest_time


@given(reason=st.text(max_size=2000))
@settings(max_examples=30, deadline=None)
def test_no_reason_breaks_the_state(tmp_path_factory: pytest.TempPathFactory, reason: str) -> None:
    from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
    from physai.deploy_jetson.update.slots.store import SlotStore
    from physai.deploy_jetson.update.slots.tree import printable_reason

    event = SlotEvent(time="2026-11-21T12:00:00Z", kind="repaired", reason=printable_reason(reason))
    state = State(events=(event,) * MAX_EVENTS)
    assert decode(State, encode(state), source="state") == state
    assert SlotStore(PosixFileSystem(tmp_path_factory.getbasetemp())).is_new()


@given(position=st.integers(0), bit=st.integers(0, 7))
def test_no_wrong_bit_in_a_record_goes_unnoticed(position: int, bit: int) -> None:
    data = bytearray(encode(State(floor=5, generation=9)))
    data[position % len(data)] ^= 1 << bit
    with pytest.raises(SlotError):
        decode(State, bytes(data), source="state")
