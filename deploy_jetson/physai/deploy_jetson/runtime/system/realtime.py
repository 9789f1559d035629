"""Optional real-time settings of the control loop: CPU affinity, priority, locked memory."""

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
from typing import Annotated

from physai.sdk.base.parameters.option import Option

# Highest priority to use; 99 is for the kernel's own watchdogs.
MAX_PRIORITY = 98

# Longest time another thread holds the interpreter lock while the loop waits [s]; Python's default is 5 ms.
SWITCH_INTERVAL_S = 1e-4

# From sys/mman.h, linux/prctl.h and linux/capability.h; Python has no names for them.
_LOCK_CURRENT, _LOCK_FUTURE = 1, 2
_SET_TIMER_SLACK, _SET_THP_DISABLE = 29, 41
_CAP_IPC_LOCK = 14
_STATUS = Path("/proc/self/status")
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Realtime:
    """Real-time settings to request.

    Attributes:
        priority: SCHED_FIFO priority of the loop, 1 to 98. None for the default scheduler.
        cpu: core reserved for the loop. None for any.
        lock_memory: keep all pages in memory.
    """

    priority: Annotated[int | None, Option(metavar="P")] = None
    cpu: int | None = None
    lock_memory: Annotated[bool, Option(flags=("--no-lock",), help="do not lock the process's memory")] = True


def acquire(wanted: Realtime) -> tuple[str, ...]:
    """Apply the settings to the calling thread, and make all other threads of the process helpers.

    Returns:
        A warning for each setting that was not granted, with the way to get it.
    """
    control = ctypes.CDLL(None).prctl
    # The default timer slack delays a wake-up by up to 50 µs to batch it with others.
    control(_SET_TIMER_SLACK, 1, 0, 0, 0)
    # Merging pages to huge ones blocks access to them meanwhile, and inflates the resident size.
    control(_SET_THP_DISABLE, 1, 0, 0, 0)
    others = os.sched_getaffinity(0) - {wanted.cpu}
    warnings = (_pin(wanted.cpu), _schedule(wanted.priority), _lock() if wanted.lock_memory else "")
    # Threads are helpers whether or not the settings above were granted.
    own = threading.get_native_id()
    # Includes threads of libraries, such as the receiving threads of a transport.
    for name in os.listdir("/proc/self/task"):
        if int(name) != own:
            _help(int(name), wanted.priority, others)
    return tuple(warning for warning in warnings if warning)


def become_helper(wanted: Realtime) -> None:
    """Move the calling thread off the loop's core, one priority below the loop, if permitted."""
    _help(0, wanted.priority, os.sched_getaffinity(0) - {wanted.cpu})


def _help(thread: int, priority: int | None, cores: set[int]) -> None:
    """Make a thread a helper; 0 for the calling one."""
    with suppress(OSError):
        if cores:
            os.sched_setaffinity(thread, cores)
        if priority is not None:
            # Priority inversion: a helper of default priority can be preempted by any program while it holds the
            # interpreter lock, for which the loop then waits: 5 to 15 ms on a loaded machine, at most 0.5 ms with this.
            below = os.sched_param(max(1, priority - 1))
            os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, below)


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
        # RESET_ON_FORK: a child such as the policy watcher starts with default priority.
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
    """Disable garbage collection and shorten the interpreter's switch interval to `SWITCH_INTERVAL_S`."""
    # A tick makes no reference cycles, so reference counting frees all of its objects.
    interval, enabled = sys.getswitchinterval(), gc.isenabled()
    # Objects that the caller froze stay frozen; Python cannot unfreeze ours alone.
    frozen = gc.get_freeze_count() > 0
    # What exists now lives as long as the run: moved out of the collector's sight after one last collection.
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if not frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()
