"""Real-time settings of the control loop: CPU affinity, priority, locked memory. All of it optional."""

import ctypes
import gc
import os
import resource
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MAX_PRIORITY = 98
"""99 is for the kernel's own watchdogs."""

SWITCH_INTERVAL_S = 1e-4
"""Longest time another thread of the process keeps Python's lock from the loop [s]; Python's own default is 5 ms."""

_LOCK_CURRENT, _LOCK_FUTURE = 1, 2
_SET_TIMER_SLACK, _SET_THP_DISABLE = 29, 41
_CAP_IPC_LOCK = 14
_STATUS = Path("/proc/self/status")
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Realtime:
    """What to ask for."""

    priority: int | None = None
    """SCHED_FIFO priority, 1 … 98; None for the ordinary scheduler."""
    cpu: int | None = None
    """Core for the loop alone; None for any."""
    lock_memory: bool = True
    """Whether no page may be swapped out."""


def acquire(wanted: Realtime) -> tuple[str, ...]:
    """Asks for it, for the thread that calls, and returns what was not granted and how to get it, a sentence each.

    Threads started later inherit the core but not the priority, so helpers are started before. Those that others have
    started, a transport's receiving ones say, become helpers, too.
    """
    control = ctypes.CDLL(None).prctl
    # By default a sleeper may be woken 50 µs late so that wake-ups coincide.
    control(_SET_TIMER_SLACK, 1, 0, 0, 0)
    # Small pages that the kernel joins to huge ones cannot be used meanwhile, and memory seems to grow.
    control(_SET_THP_DISABLE, 1, 0, 0, 0)
    others = os.sched_getaffinity(0) - {wanted.cpu}
    found = (_pin(wanted.cpu), _schedule(wanted.priority), _lock() if wanted.lock_memory else "")
    own = threading.get_native_id()
    for name in os.listdir("/proc/self/task"):
        if int(name) != own:
            _help(int(name), wanted.priority, others)
    return tuple(warning for warning in found if warning)


def become_helper(wanted: Realtime) -> None:
    """For threads beside the loop: off its core, and next in line after it, as far as that is granted.

    A helper of ordinary priority can be put aside by any other program while it holds Python's lock, for which the loop
    then waits: 5 to 15 ms on a machine with work to do, 0.5 ms at most with this.
    """
    _help(0, wanted.priority, os.sched_getaffinity(0) - {wanted.cpu})


def _help(thread: int, priority: int | None, cores: set[int]) -> None:
    """Moves a thread, 0 for the one that calls, next in line after the loop, as far as that is granted."""
    with suppress(OSError):
        if cores:
            os.sched_setaffinity(thread, cores)
        if priority is not None:
            beside = os.sched_param(max(1, priority - 1))
            os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, beside)


def _pin(cpu: int | None) -> str:
    if cpu is None:
        return ""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {cpu})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"core {cpu} refused ({reason}); this process may use {', '.join(map(str, allowed))}"
    try:
        governor = (_CPUS / f"cpu{cpu}/cpufreq/scaling_governor").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    if governor in ("performance", "userspace"):
        return ""
    return f"core {cpu} saves power (governor {governor!r}) and wakes slowly; on a Jetson run `jetson_clocks`"


def _schedule(priority: int | None) -> str:
    if priority is None:
        return "without --priority other programs may delay a tick by milliseconds"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as error:
        return (
            f"SCHED_FIFO {priority} refused ({error.strerror}): other programs may delay a tick by milliseconds; give "
            f"the process CAP_SYS_NICE, or `LimitRTPRIO={priority}` in its systemd unit"
        )
    return ""


def _lock() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    # Under a finite limit every later allocation could fail, which is worse than a page fault.
    if limit != resource.RLIM_INFINITY and not _has_capability(_CAP_IPC_LOCK):
        return (
            f"memory not locked: the limit is {limit >> 10} KiB, so a tick may wait for a page; give the process "
            "CAP_IPC_LOCK, or `LimitMEMLOCK=infinity` in its systemd unit"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_LOCK_CURRENT | _LOCK_FUTURE) != 0:
        return f"memory not locked ({os.strerror(ctypes.get_errno())}): a tick may wait for a page"
    return ""


def _has_capability(number: int) -> bool:
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)


@contextmanager
def undisturbed() -> Generator[None]:
    """No garbage collection, and Python's lock back within `SWITCH_INTERVAL_S`, while this lasts.

    Reference counts free what a tick makes, which holds no cycles.
    """
    interval = sys.getswitchinterval()
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.unfreeze()
        if enabled:
            gc.enable()
