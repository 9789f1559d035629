"""Scheduled segments in the recorder's process: next to a loop that never waits, and over kills."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mcap.reader import make_reader
from tests.harness.fixtures.sample import sample_contract
from tests.support.patience import until

from physai.deploy_jetson.telemetry.flight.file import FlightFolder, is_scheduled
from physai.deploy_jetson.telemetry.flight.flight_process import ENDED, GONE
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions, FlightRecorder
from physai.deploy_jetson.telemetry.flight.segment_schedule import SegmentLedger, SegmentSchedule
from physai.sdk.base.formats.column_blocks import decode_block
from physai.sdk.evidence.requirements import SegmentRules
from physai.sdk.transport.protocol import empty_sample

CONTRACT = sample_contract()
PERIOD_S = CONTRACT.timing.control_dt
RULES = SegmentRules(per_hour=60.0, seconds=20.0)
LENGTH = 2000
"""Ticks of a segment."""
SEED = bytes(range(32)).hex()


def window_ahead(folder: Path, before_s: float = 0.0) -> None:
    """Let the driven time of a folder begin so long before a window."""
    start_s = SegmentSchedule(bytes.fromhex(SEED), RULES).window(7).start_s
    SegmentLedger(seed=SEED, driven_s=start_s - before_s).save(folder)


def started(folder: Path, *, seconds: float = 100.0) -> FlightRecorder:
    options = FlightOptions(folder=folder, seconds=seconds, after_s=0.0, segments=RULES)
    return FlightRecorder(options, CONTRACT, empty_sample(CONTRACT), {"version": "3", "bundle_sha256": "a"})


def push(recorder: FlightRecorder, count: int) -> None:
    ring = recorder.ring
    for _ in range(count):
        due = round(ring.count * PERIOD_S * 1e9)
        record = (ring.count, due, due, 10**18 + due, 1, 1, 1, 1, 1, 0, 0, False, False)
        ring.push(record, {"joint_effort_target": np.array([[0.5]])})


def segments(folder: Path) -> list[tuple[str, list[int], dict[str, str]]]:
    """End, ticks and metadata of each segment."""
    found: list[tuple[str, list[int], dict[str, str]]] = []
    for path in FlightFolder(folder).recordings():
        if is_scheduled(path.name):
            with path.open("rb") as file:
                reader = make_reader(file, validate_crcs=True)
                (metadata,) = reader.iter_metadata()
                ticks: list[int] = []
                for _, _, message in reader.iter_messages(["/physai/tick"]):
                    ticks += decode_block(message.data).columns["tick"].tolist()
            found.append((metadata.metadata["ended"], ticks, metadata.metadata))
    return found


def test_a_segment_is_written_among_incidents(tmp_path: Path) -> None:
    window_ahead(tmp_path, before_s=5.0)
    recorder = started(tmp_path)
    push(recorder, 1000)
    recorder.request("HOLD: sensor stale")
    push(recorder, 3000)
    said = recorder.close()
    ((ended, ticks, metadata),) = segments(tmp_path)
    assert (ended, ticks) == ("complete", list(range(500, 500 + LENGTH)))
    assert metadata["segment"] == "scheduled"
    assert len(FlightFolder(tmp_path).recordings()) == 2
    # A segment is no news for the operator; an incident is.
    assert len(said) == 1
    assert recorder.status.segments["written"] == 1
    assert recorder.status.segments["last"].endswith("-scheduled.mcap")
    assert (recorder.status.files, recorder.status.waiting, recorder.status.problem) == (1, [], "")


def test_driven_time_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    window_ahead(tmp_path, before_s=1.0)
    for count in (1100, 500, 1000):
        recorder = started(tmp_path)
        push(recorder, count)
        recorder.close()
    # The window is ticks 100 to 2100 of driven time, and the runs are 1100, 500 and 1000 of it.
    assert [(ended, len(ticks), ticks[0]) for ended, ticks, _ in segments(tmp_path)] == [
        ("the run ended", 1000, 100),
        ("the run ended", 500, 0),
        ("complete", 500, 0),
    ]


SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from test_segment_recorder import push, started
recorder = started(Path(sys.argv[2]))
push(recorder, 700)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_runtime_that_is_killed_in_a_segment_the_part_is_kept(tmp_path: Path) -> None:
    window_ahead(tmp_path)
    search = ":".join([str(Path(__file__).parent), *sys.path])
    process = subprocess.run([sys.executable, "-c", SCRIPT, search, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    until(lambda: segments(tmp_path))
    assert [(ended, len(ticks)) for ended, ticks, _ in segments(tmp_path)] == [(GONE, 700)]
    start_s = SegmentSchedule(bytes.fromhex(SEED), RULES).window(7).start_s
    # The driven time is written last.
    until(lambda: SegmentLedger.load(tmp_path)[0].driven_s < start_s + 20.0)
    assert SegmentLedger.load(tmp_path)[0].driven_s == pytest.approx(start_s + 7.0)


def test_a_recorder_that_is_killed_in_a_segment_is_said_and_counted(tmp_path: Path) -> None:
    window_ahead(tmp_path)
    recorder = started(tmp_path)
    push(recorder, 500)
    until(lambda: json.loads((tmp_path / "segments.json").read_text())["open"])
    recorder._process.kill()  # pyright: ignore[reportPrivateUsage]
    ended, lost = recorder.close()
    assert ended == ENDED
    assert lost.startswith("a scheduled segment is lost: the recorder ended without writing it")
    assert segments(tmp_path) == []
    again = started(tmp_path)
    push(again, 1)
    assert again.close() == []
    assert again.status.segments["lost"] == 1


def test_a_recorder_that_is_killed_between_segments_is_said_and_the_time_counts_as_driven(tmp_path: Path) -> None:
    schedule = SegmentSchedule(bytes.fromhex(SEED), RULES)
    ends = {number: schedule.window(number).end_s for number in range(100)}
    begun_s = next(end + 1.0 for number, end in ends.items() if schedule.window(number + 1).start_s - end > 20.0)
    SegmentLedger(seed=SEED, driven_s=begun_s).save(tmp_path)
    recorder = started(tmp_path)
    push(recorder, 10)
    until(lambda: SegmentLedger.load(tmp_path)[0].driven_s > begun_s)
    recorder._process.kill()  # pyright: ignore[reportPrivateUsage]
    recorder._process.wait()  # pyright: ignore[reportPrivateUsage]
    push(recorder, 15_000)
    assert (recorder.read(), recorder.read()) == ([ENDED], [])
    recorder.set_origin({"version": "4"})
    recorder.request("HOLD: sensor stale")
    assert (recorder.status.problem, recorder.status.waiting) == (ENDED, [])
    assert recorder.close() == []
    # 150 s and the 30 s by which the ledger was ahead are not the same.
    assert SegmentLedger.load(tmp_path)[0].driven_s == pytest.approx(begun_s + 15_010 * PERIOD_S)
    again = started(tmp_path)
    push(again, 100)
    again.close()
    assert SegmentLedger.load(tmp_path)[0].driven_s == pytest.approx(begun_s + 15_110 * PERIOD_S)


def test_a_ledger_that_cannot_be_written_after_a_kill_is_said(tmp_path: Path) -> None:
    window_ahead(tmp_path)
    recorder = started(tmp_path)
    recorder._process.kill()  # pyright: ignore[reportPrivateUsage]
    recorder._process.wait()  # pyright: ignore[reportPrivateUsage]
    push(recorder, 10)
    shutil.rmtree(tmp_path)
    ended, problem = recorder.close()
    assert ended == ENDED
    assert "segments.json: cannot be written" in problem


def test_a_recorder_that_hangs_delays_no_tick_and_counts_what_it_missed(tmp_path: Path) -> None:
    """As on a disk that takes seconds for a write."""
    window_ahead(tmp_path)
    recorder = started(tmp_path, seconds=10.0)
    push(recorder, 100)
    until(lambda: json.loads((tmp_path / "segments.json").read_text())["open"])
    process = recorder._process  # pyright: ignore[reportPrivateUsage]
    process.send_signal(signal.SIGSTOP)
    begun = time.process_time()
    push(recorder, LENGTH + 500)
    # Nothing was waited for: the ticks took processor time only, of which a busy machine takes none.
    assert time.process_time() - begun < 2.0
    process.send_signal(signal.SIGCONT)
    recorder.close()
    ((ended, ticks, metadata),) = segments(tmp_path)
    # Of 2600 ticks the memory has the last 1000, of which the window ends with tick 1999.
    assert (ended, ticks[-400:]) == ("complete", list(range(1600, LENGTH)))
    assert int(metadata["lost_ticks"]) == LENGTH - len(ticks)
    assert 1500 <= recorder.status.segments["lost_ticks"] == int(metadata["lost_ticks"]) <= 1600


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorder = started(tmp_path / "file" / "recordings")
    push(recorder, 10)
    assert any("segments.json: cannot be" in said for said in recorder.close())
