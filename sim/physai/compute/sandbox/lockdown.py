"""Takes from this process all that computing numbers does not need: Linux, x86_64 and aarch64.

Always: rlimits, no capabilities, no new privileges, and a seccomp filter that allows the system calls of `CALLS` and
no other, so that the process opens no socket, starts no process or thread, sends no signal to another process, and
writes no file. Two layers may be missing where the kernel or a container has none: user namespaces (an empty network,
and none of the host's IPC) and Landlock (reads Python's libraries, and no other file).
"""

import ctypes
import errno
import importlib.util
import os
import platform
import resource
import signal
import struct
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

# From here on: linux/prctl.h, linux/sched.h, linux/capability.h, linux/landlock.h, linux/seccomp.h, linux/audit.h and
# linux/filter.h.
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2
_CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x04000000, 0x08000000, 0x10000000, 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""First right of files that a version of Landlock does not know, by the version that added those below it."""
_RET_KILL, _RET_ERRNO, _RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06

CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "faccessat2": (439, 439),
}
"""System calls that are allowed whatever their arguments, with their numbers on x86_64 and aarch64."""
GUARDED: dict[str, tuple[int, int]] = {
    "fcntl": (72, 25),
    "tgkill": (234, 131),
    "openat": (257, 56),
    "prlimit64": (302, 261),
    "ioctl": (16, 29),
    "clone3": (435, 435),
}
"""System calls that are allowed for some arguments, or whose refusal libraries expect with another errno."""
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machines whose numbers are known here, with their names in `linux/audit.h`."""
# What fcntl may do: duplicate, and tell and set the flags of descriptors. Not F_SETOWN, which sends signals.
_FCNTL = (0, 1, 2, 3, 1030)

_libc = ctypes.CDLL(None, use_errno=True)


class LockdownError(Exception):
    """A layer that is never done without is not to be had here."""


def lock_down(limits: Mapping[str, int]) -> dict[str, str]:
    """Locks this process down for good; call it while the process has one thread.

    Args:
        limits: `memory_bytes`, the greatest address space, and `cpu_s`, the greatest processor time [s].

    Returns:
        The layers that are missing, of `namespaces` and `landlock`, each with the reason.

    Raises:
        LockdownError: the limits or the system call filter cannot be set.
    """
    program = seccomp_program(platform.machine(), os.getpid())
    missing: dict[str, str] = {}
    _attempt("namespaces", missing, _leave_namespaces)
    _set_limits(**limits)
    _require(_libc.capset(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), bytes(24)), "capset")
    _require(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # Not earlier: a change of credentials clears it.
    _require(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "PR_SET_PDEATHSIG")
    _attempt("landlock", missing, _restrict_files)
    filter_calls(program)
    return missing


def _attempt(name: str, missing: dict[str, str], layer: Callable[[], None]) -> None:
    try:
        layer()
    except OSError as error:
        missing[name] = error.strerror or str(error)


def _require(result: int, what: str) -> int:
    if result < 0:
        raise LockdownError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _leave_namespaces() -> None:
    # A new user namespace first, which needs no privilege and brings the right to the others.
    _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS))


def _set_limits(*, memory_bytes: int, cpu_s: int) -> None:
    wanted = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_CORE: 0,
    }
    for what, value in wanted.items():
        _, most = resource.getrlimit(what)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(what, (value, value))


def readable_paths() -> list[str]:
    """Files and folders that hold Python, the packages installed with it, and shared libraries."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # Of a Python that brings its own libraries.
    paths.append(str(sysconfig.get_config_var("LIBDIR") or sysconfig.get_path("stdlib")))
    numpy = importlib.util.find_spec("numpy")
    if numpy is not None and numpy.origin is not None:
        paths.append(str(Path(numpy.origin).parents[1]))
    shared = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"]
    return list(dict.fromkeys([*paths, *shared]))


def _restrict_files() -> None:
    version = _check(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))
    rights = _FILE_RIGHTS[max(known for known in _FILE_RIGHTS if known <= version)] - 1
    # Version 4 added TCP, version 6 abstract sockets and signals to processes outside.
    attributes = struct.pack("<QQQ", rights, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    attributes = attributes[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _check(_libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    try:
        for path in readable_paths():
            _allow_reading(ruleset, path)
        _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow_reading(ruleset: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
        _check(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, descriptor), 0))
    finally:
        os.close(descriptor)


def seccomp_program(machine: str, process: int) -> bytes:
    """The filter of system calls, as instructions of classic BPF (`struct sock_filter`).

    Args:
        machine: one of `MACHINES`.
        process: identifier of the process, which may send signals to itself.

    Raises:
        LockdownError: the numbers of the machine's system calls are not known here.
    """
    if machine not in MACHINES:
        raise LockdownError(f"system calls of {machine} are not known, only those of {' and '.join(MACHINES)}")
    column = list(MACHINES).index(machine)
    # Another architecture's numbers mean other calls.
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, MACHINES[machine]), (_RETURN, 0, 0, _RET_KILL), (_LOAD, 0, 0, 0)]
    for numbers in CALLS.values():
        number = numbers[column]
        if number is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _RET_ALLOW)]
    for name, body in _guards(process):
        program += [(_EQUAL, 0, len(body), GUARDED[name][column]), *body]
    program.append(_refuse(errno.EPERM))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, and constant."""


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, _RET_ERRNO | number)


def _guards(process: int) -> Iterator[tuple[str, Sequence[Instruction]]]:
    allow, refuse = (_RETURN, 0, 0, _RET_ALLOW), _refuse(errno.EPERM)
    command = [item for value in _FCNTL for item in ((_EQUAL, 0, 1, value), allow)]
    yield "fcntl", [_argument(1), *command, refuse]
    yield "tgkill", [_argument(0), (_EQUAL, 1, 0, process), refuse, allow]
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    yield "openat", [_argument(2), (_ANY_BIT, 0, 1, writing), refuse, allow]
    # Reading limits is allowed, setting them (the third argument is a pointer) is not.
    null = [(_EQUAL, 1, 0, 0), refuse]
    yield "prlimit64", [_argument(2), *null, _argument(2, high=True), *null, allow]
    # Whether a file is a terminal; and threads, for which the C library then tries a call that is refused.
    yield "ioctl", [_refuse(errno.ENOTTY)]
    yield "clone3", [_refuse(errno.ENOSYS)]


def _argument(index: int, *, high: bool = False) -> Instruction:
    """Loads one half of an argument, of `struct seccomp_data` on a little-endian machine."""
    return (_LOAD, 0, 0, 16 + 8 * index + 4 * high)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(program: bytes) -> None:
    """Filters the system calls of this process, and of all that it starts, for good.

    Raises:
        LockdownError: the kernel has no such filters, or the process neither is privileged nor has given privileges up.
    """
    filter_ = _Program(len(program) // 8, program)
    _require(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0), "seccomp")
