"""Run untrusted work in a subprocess, such as the first inference of a policy, which may hang or crash.

The subprocess is killed if it sends no message for too long or exceeds its memory limit. It is the OOM killer's first
candidate, and it dies with its parent.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError

START_S = 90.0
"""Maximum time to start Python and load its libraries [s]: onnxruntime from a slow disk, under load."""

LOOK_S = 0.05
"""Period at which the subprocess's memory is polled [s]; a graph can allocate a few hundred MiB in that time."""

MEMORY_SHARE = 0.5
"""Share of the memory available at the start that the subprocess may use; the robot's own processes need the rest."""

_SET_PDEATHSIG = 1

JsonFacts = dict[str, Any]
ReportProgress = Callable[[JsonFacts], None]
Work = Callable[[bytes, ReportProgress], tuple[JsonFacts, Sequence[bytes]]]


class ApartError(PhysaiError):
    """The subprocess hung, crashed, exceeded its memory limit, or reported an error."""


def call_apart(
    module: str,
    request: bytes,
    *,
    what: str,
    limit_s: Callable[[JsonFacts], float],
    heard: ReportProgress = lambda facts: None,
) -> tuple[JsonFacts, list[bytes]]:
    """Run `python -P -m module`, which calls `serve`, and return its answer and blobs.

    With -P it imports nothing from the working folder, which may be somebody else's.

    Args:
        module: name of the module.
        request: input of the work.
        what: description of the work, for messages.
        limit_s: returns the maximum time until the next message [s], given the latest progress message.
        heard: receives the progress messages.

    Raises:
        ApartError: the subprocess hung, crashed, exceeded its memory limit, or reported an error.
    """
    ours, theirs = Pipe()
    descriptor = _memory_file(request)
    descriptors = (theirs.fileno(), descriptor)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(os.getpid()), *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            # To stderr: the caller's stdout may carry a JSON document.
            stdout=2,
        )
    finally:
        theirs.close()
        os.close(descriptor)
    with ours:
        try:
            return _answer(ours, process, what, limit_s, heard)
        except (EOFError, OSError):
            raise ApartError(f"{what} crashed: its process ended with {_exit_reason(process)}") from None
        finally:
            process.kill()
            process.wait()


def _answer(
    connection: "Connection[Any, Any]",
    process: "subprocess.Popen[bytes]",
    what: str,
    limit_s: Callable[[JsonFacts], float],
    heard: ReportProgress,
) -> tuple[JsonFacts, list[bytes]]:
    limit, stage = START_S, "start"
    allowed = round(MEMORY_SHARE * free_bytes())
    while True:
        deadline = time.monotonic() + limit
        while not connection.poll(max(0.0, min(LOOK_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise ApartError(f"{what} hung: no message for {limit:g} s ({stage}); killed")
            # Resident memory, not RLIMIT_AS: libraries such as CUDA reserve hundreds of GiB of addresses.
            used = _resident_bytes(process.pid)
            if used > allowed:
                raise ApartError(
                    f"{what} used {used >> 20} MiB of memory ({stage}), the limit is {allowed >> 20} MiB, half of the "
                    "available memory; killed"
                )
        try:
            message: JsonFacts = json.loads(_receive(connection, process, limit))
        except ValueError:
            raise ApartError(f"{what} failed: its process sent a message that is not JSON") from None
        if "error" in message:
            raise ApartError(str(message["error"]))
        if "answer" in message:
            return message["answer"], [_receive(connection, process, limit) for _ in range(message["blobs"])]
        heard(message)
        limit, stage = limit_s(message), str(message.get("stage", stage))


def free_bytes() -> int:
    """Return the available memory of this machine."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise ApartError("/proc/meminfo has no MemAvailable")


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def _receive(connection: "Connection[Any, Any]", process: "subprocess.Popen[bytes]", limit_s: float) -> bytes:
    """Receive a message."""
    # `recv_bytes` blocks if the subprocess stops in the middle of a message; killing it ends the read.
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    try:
        return connection.recv_bytes()
    finally:
        timer.cancel()


def _exit_reason(process: "subprocess.Popen[bytes]") -> str:
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "a closed connection"
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _memory_file(data: bytes) -> int:
    """Return the descriptor of an anonymous file with this content."""
    descriptor = os.memfd_create("physai-request")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def offer_to_oom_killer() -> None:
    """Make the kernel kill this process first if memory runs out."""
    # If memory runs out, the kernel kills this process and not the one that drives the robot.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def die_with_parent(parent: int, *, by: signal.Signals = signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal when its parent dies; return False if the parent is dead already."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, by, 0, 0, 0)
    # The parent may have died before the call above took effect.
    return os.getppid() == parent


def serve(work: Work, arguments: Sequence[str]) -> None:
    """Main function of the subprocess.

    Args:
        work: maps a request to a JSON object and any number of blobs, and may report progress.
        arguments: command-line arguments of the subprocess.
    """
    parent, channel, request = map(int, arguments)
    if not die_with_parent(parent):
        return
    offer_to_oom_killer()
    with Connection(channel) as connection, open(request, "rb") as file:

        def report(facts: JsonFacts) -> None:
            connection.send_bytes(json.dumps(facts).encode())

        try:
            answer, blobs = work(file.read(), report)
        except PhysaiError as error:
            report({"error": str(error)})
        except Exception as error:  # forwarded to the parent, whatever a library raises
            report({"error": f"{type(error).__name__}: {error}"})
        else:
            report({"answer": answer, "blobs": len(blobs)})
            for blob in blobs:
                connection.send_bytes(blob)
