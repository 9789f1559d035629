"""Runs work that may hang or crash, such as loading an untrusted policy, in a separate process.

The process is killed when it does not report progress for too long or exceeds its memory limit. It is the first to be
killed when memory runs out, and it cannot outlive its parent.
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
"""Longest time for Python and its libraries to load [s]: onnxruntime from a slow disk, on a busy machine."""

LOOK_S = 0.05
"""Time between looks at the process's memory [s]: a graph fills a few hundred MiB in that."""

MEMORY_SHARE = 0.5
"""Share of the memory that is free at the start which the process may take: the robot's own work needs the rest.

Resident memory is what counts: libraries such as CUDA reserve addresses by the hundred GiB, so a limit of addresses
(RLIMIT_AS) would stop them and not the graph."""

_SET_PDEATHSIG = 1

JsonFacts = dict[str, Any]
ReportProgress = Callable[[JsonFacts], None]
Work = Callable[[bytes, ReportProgress], tuple[JsonFacts, Sequence[bytes]]]


class ApartError(PhysaiError):
    """The process hung, died, or says that its work failed."""


def call_apart(
    module: str,
    request: bytes,
    *,
    what: str,
    limit_s: Callable[[JsonFacts], float],
    heard: ReportProgress = lambda facts: None,
) -> tuple[JsonFacts, list[bytes]]:
    """Runs `python -m module`, which calls `serve`, and waits for its answer.

    Args:
        module: its name.
        request: what it works on.
        what: the work, for messages.
        limit_s: longest silence that is allowed after the process has told that [s].
        heard: called with each progress report.

    Returns:
        The answer.

    Raises:
        ApartError: it hung and was killed, crashed, or failed.
    """
    ours, theirs = Pipe()
    descriptor = _file_of(request)
    descriptors = (theirs.fileno(), descriptor)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(os.getpid()), *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            # Standard output is the caller's, for one JSON object say.
            stdout=2,
        )
    finally:
        theirs.close()
        os.close(descriptor)
    with ours:
        try:
            return _answer(ours, process, what, limit_s, heard)
        except (EOFError, OSError):
            raise ApartError(f"{what} crashed: its process ended with {_end_of(process)}") from None
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
    limit, doing = START_S, "start"
    allowed = round(MEMORY_SHARE * free_bytes())
    while True:
        silent_until = time.monotonic() + limit
        while not connection.poll(max(0.0, min(LOOK_S, silent_until - time.monotonic()))):
            if time.monotonic() >= silent_until:
                raise ApartError(f"{what} hung: nothing was heard of it for {limit:g} s ({doing}); it was killed")
            taken = _resident_bytes(process.pid)
            if taken > allowed:
                raise ApartError(
                    f"{what} took {taken >> 20} MiB of memory ({doing}), it may take {allowed >> 20} MiB, half of what "
                    "was free; it was killed"
                )
        try:
            told: JsonFacts = json.loads(_whole(connection, process, limit))
        except ValueError:
            raise ApartError(f"{what} failed: its process said something that is no JSON") from None
        if "error" in told:
            raise ApartError(str(told["error"]))
        if "answer" in told:
            return told["answer"], [_whole(connection, process, limit) for _ in range(told["blobs"])]
        heard(told)
        limit, doing = limit_s(told), str(told.get("stage", doing))


def free_bytes() -> int:
    """Memory that programs can still get on this machine."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise ApartError("/proc/meminfo does not say how much memory is free")


def _resident_bytes(pid: int) -> int:
    """Memory a process has at the moment; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def _whole(connection: "Connection[Any, Any]", process: "subprocess.Popen[bytes]", limit_s: float) -> bytes:
    """The next message; a process that stops in the middle of one is killed after a time."""
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    try:
        return connection.recv_bytes()
    finally:
        timer.cancel()


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "a closed connection"
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _file_of(data: bytes) -> int:
    """A file without a name that holds some bytes; its descriptor."""
    descriptor = os.memfd_create("physai-request")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _offer_to_oom_killer() -> None:
    """Where memory runs out, the kernel ends this process, and not the one that drives the robot."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def serve(work: Work, arguments: Sequence[str]) -> None:
    """The main program of such a process.

    Args:
        work: answers a request with JSON facts and any number of blobs, and reports progress.
        arguments: of the process.
    """
    parent, channel, request = map(int, arguments)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    _offer_to_oom_killer()
    with Connection(channel) as connection, open(request, "rb") as file:

        def tell(facts: JsonFacts) -> None:
            connection.send_bytes(json.dumps(facts).encode())

        try:
            answer, blobs = work(file.read(), tell)
        except PhysaiError as error:
            tell({"error": str(error)})
        except Exception as error:  # whatever a library raises, the one that waits is to know
            tell({"error": f"{type(error).__name__}: {error}"})
        else:
            tell({"answer": answer, "blobs": len(blobs)})
            for blob in blobs:
                connection.send_bytes(blob)
