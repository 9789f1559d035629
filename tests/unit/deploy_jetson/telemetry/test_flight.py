"""The flight recorder's memory, file and folder."""

import errno
import math
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.reader import make_reader
from tests.harness.fixtures.sample import sample_contract

from physai.deploy_jetson.telemetry.flight import file as flight_files
from physai.deploy_jetson.telemetry.flight.file import (
    METADATA,
    TICK_TOPIC,
    FlightError,
    FlightFolder,
    file_name,
    flight_file,
)
from physai.deploy_jetson.telemetry.flight.flight_ring import Flight, FlightRing, FlightView, RowLayout
from physai.sdk.contract.io import parse_contract
from physai.sdk.safety import GuardState, Reason
from physai.sdk.transport.protocol import Array, Sample, empty_sample

CONTRACT = sample_contract()
PERIOD_NS = round(CONTRACT.timing.control_dt * 1e9)
DEADLINE_NS = round(CONTRACT.timing.deadline_s * 1e9)
EPOCH_NS = 1_790_000_000 * 10**9
NOW = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)


class Recording:
    """A ring that ticks are pushed to, and what another process would see of it."""

    def __init__(self, capacity: int) -> None:
        self.sample: Sample = empty_sample(CONTRACT)
        self.ring = FlightRing(CONTRACT, self.sample, capacity)
        self.view = FlightView(os.dup(self.ring.descriptor), CONTRACT, capacity)
        self.ring.close()

    def tick(
        self, number: int, position: float, sent: Mapping[str, Array] | None, *, new: bool = True, **more: Any
    ) -> None:
        self.sample.fields["joint_pos"][:] = position
        due = number * PERIOD_NS
        self.sample.stamp_ns = EPOCH_NS + due - 1000 if new else self.sample.stamp_ns
        record = (
            number,
            due + DEADLINE_NS,
            due + 2000,
            self.sample.stamp_ns,
            3000,
            4000,
            5000,
            6000,
            7000,
            more.get("state", 0),
            more.get("reasons", 0),
            more.get("missed", False),
            False,
        )
        self.ring.push(record, sent)


def effort(value: float) -> dict[str, Array]:
    return {"joint_effort_target": np.array([[value]])}


def messages(data: bytes) -> dict[str, list[Any]]:
    """Decoded messages by topic, in their order."""
    import json

    found: dict[str, list[Any]] = {}
    for _, channel, message in make_reader(BytesIO(data), validate_crcs=True).iter_messages():
        found.setdefault(channel.topic, []).append(json.loads(message.data))
    return found


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 15))
def test_another_process_sees_the_last_ticks(capacity: int, pushed: int, most: int) -> None:
    recording = Recording(capacity)
    for number in range(pushed):
        recording.tick(number, 0.5 * number, effort(-number) if number % 3 else None)
    flight = recording.view.last(most)
    expected = list(range(pushed - min(pushed, capacity, most), pushed))
    assert flight.ticks["tick"].tolist() == expected
    layout = RowLayout.of(CONTRACT)
    assert flight.rows[:, layout.fields["joint_pos"]].ravel().tolist() == [0.5 * number for number in expected]
    sent = flight.rows[:, layout.targets["joint_effort_target"]].ravel()
    assert np.array_equal(sent, [-number if number % 3 else np.nan for number in expected], equal_nan=True)
    assert recording.ring.last()["tick"].tolist() == list(range(max(0, pushed - capacity), pushed))


def test_what_is_read_while_it_is_written_is_whole() -> None:
    recording, written = Recording(20), threading.Event()

    def write() -> None:
        for number in range(20_000):
            recording.tick(number, float(number), effort(float(number)))
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    layout = RowLayout.of(CONTRACT)
    while not written.is_set():
        flight = recording.view.last(20)
        numbers = flight.ticks["tick"].tolist()
        assert numbers == [numbers[-1] - ago for ago in reversed(range(len(numbers)))]
        for part in (layout.fields["joint_pos"], layout.targets["joint_effort_target"]):
            assert flight.rows[:, part].ravel().tolist() == numbers
    writer.join()


def recorded() -> bytes:
    recording = Recording(10)
    recording.tick(0, 0.0, effort(0.1))
    recording.tick(1, 0.1, effort(0.2), new=False)
    hold: dict[str, Any] = {"state": int(GuardState.HOLD), "reasons": int(Reason.SENSOR_STALE), "missed": True}
    recording.tick(2, 0.2, None, **hold)
    flight = recording.view.last(10)
    return flight_file(CONTRACT, flight, wall_minus_monotonic_ns=EPOCH_NS, origin={"version": "3", "causes": "HOLD"})


def test_a_file_says_what_happened() -> None:
    found = messages(recorded())
    assert set(found) == {"/joint_states", "/targets/joint_effort_target", TICK_TOPIC}
    assert [state["position"] for state in found["/joint_states"]] == [[0.0], [0.2]]
    stamps = [state["header"]["stamp"] for state in found["/joint_states"]]
    assert stamps[1]["sec"] * 10**9 + stamps[1]["nanosec"] == EPOCH_NS + 2 * PERIOD_NS - 1000
    targets = found["/targets/joint_effort_target"]
    assert [target["effort"] for target in targets] == [[0.1], [0.2]]
    first = targets[0]["header"]["stamp"]
    assert first["sec"] * 10**9 + first["nanosec"] == EPOCH_NS + 7000
    last = found[TICK_TOPIC][-1]
    assert (last["state"], last["reasons"], last["missed"]) == ("HOLD", "sensor stale", True)
    times = ("sensor_age_s", "late_s", "inference_s", "guard_s", "send_s", "whole_s")
    assert [last[name] for name in times] == pytest.approx([3e-6, 2e-6, 4e-6, 5e-6, 6e-6, 7e-6])


def test_a_file_brings_its_contract_along() -> None:
    (metadata,) = make_reader(BytesIO(recorded())).iter_metadata()
    assert metadata.name == METADATA
    assert metadata.metadata["causes"] == "HOLD"
    assert parse_contract(metadata.metadata["contract"], source="it").fingerprint == CONTRACT.fingerprint
    assert metadata.metadata["fingerprint"] == CONTRACT.fingerprint


def positions(*measured: float) -> list[Any]:
    """The positions in the file of a robot that measured these."""
    recording = Recording(4)
    for number, position in enumerate(measured):
        recording.tick(number, position, effort(0.5))
    data = flight_file(CONTRACT, recording.view.last(4), wall_minus_monotonic_ns=EPOCH_NS, origin={})
    return [state["position"] for state in messages(data)["/joint_states"]]


def test_what_was_lost_is_null_and_what_was_never_measured_is_left_out() -> None:
    assert positions(0.5, math.nan) == [[0.5], [None]]
    assert positions(math.nan, math.nan) == [[], []]


def test_an_empty_flight_is_a_whole_file() -> None:
    recording = Recording(4)
    flight: Flight = recording.view.last(4)
    assert messages(flight_file(CONTRACT, flight, wall_minus_monotonic_ns=0, origin={})) == {}


@given(st.text(max_size=80), st.integers(0, 10**6))
def test_every_cause_has_a_name(cause: str, version: int) -> None:
    name = file_name(7, NOW, version, cause)
    assert flight_files._NAME.fullmatch(name)  # pyright: ignore[reportPrivateUsage]
    assert name.startswith("00000007-20261121T120000.250Z-v")


def names(count: int) -> list[str]:
    return [file_name(number, NOW + timedelta(seconds=number), 1, "hold") for number in range(count)]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    folder = FlightFolder(tmp_path, max_files=3)
    (tmp_path / "notes.mcap").write_bytes(b"somebody's own")
    for name in names(5):
        folder.store(name, b"x")
    assert [file.name for file in folder.recordings()] == names(5)[2:]
    assert (tmp_path / "notes.mcap").exists()


def test_a_clock_that_was_set_back_deletes_nothing_newer(tmp_path: Path) -> None:
    """After a boot in 1970 each new recording deleted the one before, and 19 old ones stayed."""
    folder = FlightFolder(tmp_path, max_files=3)
    older = "20261121T115900.250Z-v1-hold.mcap"
    kept = [folder.store(older, b"x").name]
    for hours in (0, 1):
        name = file_name(folder.next_number(), NOW + timedelta(hours=hours), 1, "hold")
        kept.append(folder.store(name, b"x").name)
    for minutes in range(4):
        name = file_name(folder.next_number(), datetime(1970, 1, 1, 0, minutes, tzinfo=UTC), 1, "hold")
        kept.append(folder.store(name, b"x").name)
        assert [file.name for file in folder.recordings()] == kept[-3:]
    assert folder.next_number() == 6


def test_bytes_are_bounded(tmp_path: Path) -> None:
    folder = FlightFolder(tmp_path, max_bytes=10)
    for name in names(3):
        folder.store(name, b"1234")
    assert [file.name for file in folder.recordings()] == names(3)[1:]
    folder.store(names(3)[2], b"12345678")
    assert [file.name for file in folder.recordings()] == names(3)[2:]
    with pytest.raises(FlightError, match="has 11 bytes, at most 10 are kept"):
        folder.store(names(4)[3], b"x" * 11)
    assert [file.name for file in folder.recordings()] == names(3)[2:]


def test_a_recording_is_replaced_by_its_longer_self(tmp_path: Path) -> None:
    folder = FlightFolder(tmp_path, max_files=2)
    for name in names(2):
        folder.store(name, b"before")
    folder.store(names(2)[1], b"before and after")
    assert [file.read_bytes() for file in folder.recordings()] == [b"before", b"before and after"]


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f".{names(1)[0]}.0123456789abcdef"
    left.write_bytes(b"half")
    other = tmp_path / ".notes"
    other.touch()
    FlightFolder(tmp_path).prepare()
    assert [file.name for file in tmp_path.iterdir()] == [".notes"]


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "recordings").touch()
    with pytest.raises(FlightError, match="no recordings can be written there: File exists"):
        FlightFolder(tmp_path / "recordings").prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FlightError, match="Permission denied"):
        FlightFolder(tmp_path / "recordings").prepare()


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = FlightFolder(tmp_path)
    folder.store(names(1)[0], b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlightError, match="cannot be written: No space left on device"):
        folder.store(names(2)[1], b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]
