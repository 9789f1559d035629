"""The recorder's process: it writes when told to, and when the runtime is gone."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.reader import make_reader
from tests.harness.fixtures.sample import sample_contract
from tests.support.patience import until

from physai.deploy_jetson.telemetry.flight.file import FlightFolder
from physai.deploy_jetson.telemetry.flight.flight_process import ENDED, GONE
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions, FlightRecorder
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import empty_sample

CONTRACT = sample_contract()
PERIOD_S = CONTRACT.timing.control_dt
ORIGIN = {"version": "3"}


def started(
    folder: Path, *, seconds: float = 1.0, after_s: float = 0.0, contract: PolicyContract = CONTRACT
) -> FlightRecorder:
    options = FlightOptions(folder=folder, seconds=seconds, after_s=after_s)
    return FlightRecorder(options, contract, empty_sample(contract), ORIGIN)


def push(recorder: FlightRecorder, count: int) -> None:
    ring = recorder.ring
    for _ in range(count):
        due = round(ring.count * PERIOD_S * 1e9)
        targets = {"joint_effort_target": np.array([[0.5]])}
        record = (ring.count, due, due, 10**18 + due, 1, 1, 1, 1, 1, 0, 0, False, False)
        ring.push(record, targets)


def recordings(folder: Path) -> list[tuple[str, int]]:
    """Causes and number of ticks of each recording."""
    found: list[tuple[str, int]] = []
    for path in FlightFolder(folder).recordings():
        with path.open("rb") as file:
            reader = make_reader(file, validate_crcs=True)
            (metadata,) = reader.iter_metadata()
            ticks = sum(1 for _ in reader.iter_messages(["/physai/tick"]))
        found.append((metadata.metadata["causes"], ticks))
    return found


def test_the_last_seconds_are_written(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    push(recorder, 3 * round(1.0 / PERIOD_S))
    recorder.request("HOLD: sensor stale")
    (said,) = recorder.close()
    assert recorder.status.files == 1
    assert said == f"the last ticks are in {recorder.status.last} (HOLD: sensor stale)"
    assert recordings(tmp_path) == [("HOLD: sensor stale", round(1.0 / PERIOD_S))]


def test_a_file_is_there_at_once_and_what_comes_after_is_added(tmp_path: Path) -> None:
    recorder = started(tmp_path, after_s=1000.0)
    push(recorder, 10)
    recorder.request("HOLD: sensor stale")
    until(recorder.read)
    assert recordings(tmp_path) == [("HOLD: sensor stale", 10)]
    push(recorder, 5)
    recorder.request("DAMP: sensor stale")
    recorder.close()
    assert recordings(tmp_path) == [("HOLD: sensor stale; DAMP: sensor stale", 15)]
    assert (recorder.status.files, recorder.status.waiting) == (1, [])


def test_the_next_cause_gets_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = started(tmp_path)
    answers: list[Mapping[str, Any]] = []
    take = recorder._take  # pyright: ignore[reportPrivateUsage]

    def noted(answer: Mapping[str, Any]) -> list[str]:
        answers.append(answer)
        return take(answer)

    def answered(count: int) -> bool:
        recorder.read()
        return len(answers) == count

    monkeypatch.setattr(recorder, "_take", noted)
    push(recorder, 2)
    for number in range(2):
        recorder.request(f"cause {number}")
        # A file is written twice: at once, and with what came after, here nothing.
        until(lambda number=number: answered(2 * (number + 1)))
        assert recorder.status.files == number + 1
    recorder.close()
    assert [cause for cause, _ in recordings(tmp_path)] == ["cause 0", "cause 1"]


def test_without_a_tick_there_is_nothing_to_write(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    recorder.request("requested")
    assert recorder.close() == ["nothing was recorded: there was no tick yet"]
    assert recordings(tmp_path) == []


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recorder = started(tmp_path / "file" / "recordings")
    push(recorder, 2)
    recorder.request("requested")
    (said,) = recorder.close()
    assert "Not a directory" in said
    assert recorder.status.problem == said


def test_a_process_that_is_gone_is_noticed(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    process = recorder._process  # pyright: ignore[reportPrivateUsage]
    process.kill()
    process.wait()
    recorder.request("requested")
    assert "the flight recorder does not answer" in recorder.status.problem
    assert recorder.close() == [ENDED]
    assert (recorder.status.problem, recorder.status.waiting) == (ENDED, [])


def test_a_process_that_ends_with_an_error_says_which(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    message = json.dumps({"shadow": "{}"}).encode()
    socket.send_fds(recorder._connection, [message], [recorder.ring.descriptor])  # pyright: ignore[reportPrivateUsage]
    recorder._process.wait()  # pyright: ignore[reportPrivateUsage]
    (said,) = recorder.read()
    assert said.startswith(f"{ENDED}: the shadow: ")
    recorder.set_origin(ORIGIN | {"version": "4"})
    assert (recorder.read(), recorder.close(), recorder.status.problem) == ([], [], said)


def test_a_process_that_is_killed_with_requests_unread_is_noticed_at_once(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    push(recorder, 2)
    recorder.request("requested")
    until(recorder.read)
    process = recorder._process  # pyright: ignore[reportPrivateUsage]
    process.send_signal(signal.SIGSTOP)
    recorder.request("HOLD: sensor stale")
    process.kill()
    process.wait()
    assert (recorder.read(), recorder.read()) == ([ENDED], [])
    assert recorder.close() == []


def test_a_service_manager_that_ends_all_processes_at_once_ends_it_last(tmp_path: Path) -> None:
    recorder = started(tmp_path, after_s=1000.0)
    push(recorder, 2)
    recorder.request("HOLD: sensor stale")
    until(recorder.read)
    recorder._process.send_signal(signal.SIGTERM)  # pyright: ignore[reportPrivateUsage]
    push(recorder, 3)
    recorder.close()
    assert recordings(tmp_path) == [("HOLD: sensor stale", 5)]


def test_of_a_row_with_many_numbers_fewer_seconds_are_kept(tmp_path: Path) -> None:
    robot = CONTRACT.robot
    wide = robot.sensors[0].model_copy(update={"name": "scan", "size": 4096, "unit": "m"})
    contract = CONTRACT.model_copy(update={"robot": robot.model_copy(update={"sensors": (*robot.sensors, wide)})})
    recorder = started(tmp_path, seconds=600.0, contract=contract)
    recorder.close()
    # 256 MiB are room for 8166 rows of 4098 numbers and a record, 32872 bytes each; one is being written.
    assert recorder.shortened
    assert recorder.seconds == pytest.approx(8165 * PERIOD_S)


SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from test_flight_recorder import push, started
recorder = started(Path(sys.argv[2]))
push(recorder, 7)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_runtime_that_is_killed_leaves_a_recording(tmp_path: Path) -> None:
    search = ":".join([str(Path(__file__).parent), *sys.path])
    process = subprocess.run([sys.executable, "-c", SCRIPT, search, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    until(lambda: recordings(tmp_path))
    assert recordings(tmp_path) == [(GONE, 7)]
