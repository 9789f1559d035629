"""The runtime's counters, and the health window that reads them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.update.slots.health import (
    SIZE,
    Counters,
    Health,
    HealthFinding,
    HealthWindow,
    HealthWriter,
    boot_id,
    health_path,
    read_counters,
)
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import HealthLimits

BUNDLE = "ab" * 32
SECOND = 1_000_000_000

HEALTHY = Counters(
    boot_id="boot",
    run_id=b"first run",
    bundle_sha256=BUNDLE,
    pid=7,
    started_ns=10 * SECOND,
    alive_ns=12 * SECOND,
    silence_ns=SECOND // 100,
    ticks=100,
    missed=0,
    interventions=0,
    faults=0,
    message="",
)
LIMITS = HealthLimits(window_s=1.0, max_missed_share=0.01)


def window(limits: HealthLimits = LIMITS) -> HealthWindow:
    """100 ticks of 10 ms; one of them may be late."""
    return HealthWindow(limits, bundle_sha256=BUNDLE, control_dt=0.01, boot_id="boot", now_ns=10 * SECOND)


def judge(counters: Counters | None, *, at_s: float = 12.0, limits: HealthLimits = LIMITS) -> HealthFinding:
    return window(limits).update(counters, round(at_s * SECOND))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "health"
    with HealthWriter(path, bundle_sha256=BUNDLE, now_ns=100) as writer:
        writer.tick(110)
        writer.tick(150, missed=True)
        writer.tick(170, intervened=True)
        writer.fault(175, "joint_vel of elbow is not finite: ∞")
        writer.beat(180)
        found = read_counters(path)
    assert found is not None
    assert (found.ticks, found.missed, found.interventions, found.faults) == (3, 1, 1, 1)
    assert (found.started_ns, found.alive_ns, found.silence_ns) == (100, 180, 40)
    assert (found.boot_id, found.bundle_sha256) == (boot_id(), BUNDLE)
    assert found.message == "joint_vel of elbow is not finite: ∞"
    assert read_counters(path) == found


def test_every_run_is_another(tmp_path: Path) -> None:
    path = tmp_path / "health"
    runs: set[bytes] = set()
    for _ in range(2):
        with HealthWriter(path, bundle_sha256=BUNDLE, now_ns=0):
            found = read_counters(path)
            assert found is not None
            runs.add(found.run_id)
    assert len(runs) == 2


def test_a_message_is_cut_to_what_fits_and_made_printable(tmp_path: Path) -> None:
    with HealthWriter(tmp_path / "health", bundle_sha256=BUNDLE, now_ns=0) as writer:
        writer.fault(1, "\x1b[31m" + "ü" * 200)
        found = read_counters(tmp_path / "health")
    assert found is not None
    assert found.message.startswith("?[31mü")
    assert len(found.message.encode()) <= 165


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SlotError, match="cannot be written: No such file"):
        HealthWriter(tmp_path / "none" / "health", bundle_sha256=BUNDLE, now_ns=0)


@given(data=st.binary(max_size=SIZE + 2))
def test_garbage_is_no_counters(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage"
    path.write_bytes(data)
    assert read_counters(path) is None


@given(bit=st.integers(0, SIZE * 8 - 1))
def test_one_wrong_bit_is_no_counters(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped"
    HealthWriter(path, bundle_sha256=BUNDLE, now_ns=5).close()
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    assert read_counters(path) is None


def test_the_robots_own_tree_keeps_its_counters_in_memory(tmp_path: Path) -> None:
    assert health_path(Path("/var/lib/physai")) == Path("/run/physai/health")
    assert health_path(tmp_path) == tmp_path / "health"


def test_enough_good_ticks_are_healthy() -> None:
    assert judge(HEALTHY).health is Health.HEALTHY
    found = judge(replace(HEALTHY, ticks=99))
    assert (found.health, found.progress) == (Health.WATCHING, 0.99)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"faults": 1, "message": "no engine"}, "the runtime reports a fault: no engine"),
        ({"interventions": 1}, "the guard intervened in 1 ticks, at most 0 are allowed"),
        ({"missed": 2}, "2 of 100 ticks missed their deadline, at most 1 are allowed"),
        ({"silence_ns": 3 * SECOND}, "the runtime stalled for 3.0 s, at most 2 s are allowed"),
    ],
)
def test_what_fails(changes: dict[str, int | str], reason: str) -> None:
    found = judge(replace(HEALTHY, **changes))  # pyright: ignore[reportArgumentType]
    assert (found.health, found.reason) == (Health.FAILED, reason)


def test_one_late_tick_early_on_is_no_failure() -> None:
    found = judge(replace(HEALTHY, ticks=2, missed=1))
    assert found.health is Health.WATCHING


@pytest.mark.parametrize(
    "counters",
    [
        None,
        replace(HEALTHY, bundle_sha256="cd" * 32),
        replace(HEALTHY, boot_id="another kernel"),
        replace(HEALTHY, alive_ns=99 * SECOND),
    ],
    ids=["none", "another bundle", "another boot", "from the future"],
)
def test_counters_of_something_else_are_no_counters(counters: Counters | None) -> None:
    assert judge(counters).reason == "waiting for the runtime to start"
    assert judge(counters, at_s=69.9).health is Health.WATCHING
    late = judge(counters, at_s=71.2)
    assert (late.health, late.reason) == (Health.FAILED, "the runtime has not started: no heartbeat for 61 s")


def test_a_robot_that_waits_for_its_operator_neither_passes_nor_fails() -> None:
    watched = window()
    for second in range(11, 600):
        waiting = replace(HEALTHY, ticks=0, alive_ns=second * SECOND)
        assert watched.update(waiting, second * SECOND).health is Health.WATCHING


def test_silence_is_first_waited_for_then_a_failure() -> None:
    watched = window()
    watched.update(replace(HEALTHY, ticks=5), 12 * SECOND)
    assert watched.update(None, 15 * SECOND).reason == "the runtime has been silent for 3.0 s"
    assert watched.update(None, 73 * SECOND).reason == "the runtime has stopped reporting: no heartbeat for 61 s"


def test_restarts_are_counted() -> None:
    watched = window()
    found = watched.update(replace(HEALTHY, ticks=5), 12 * SECOND)
    for run in (b"2", b"3"):
        found = watched.update(replace(HEALTHY, ticks=5, run_id=run), 12 * SECOND)
        assert found.health is Health.WATCHING
    found = watched.update(replace(HEALTHY, ticks=500, run_id=b"4"), 12 * SECOND)
    assert (found.health, found.reason) == (Health.FAILED, "the runtime restarted 3 times, at most 2 are allowed")


def test_a_restart_begins_the_window_anew() -> None:
    watched = window()
    watched.update(replace(HEALTHY, ticks=99), 12 * SECOND)
    assert watched.update(replace(HEALTHY, ticks=1, run_id=b"2"), 12 * SECOND).progress == 0.01
