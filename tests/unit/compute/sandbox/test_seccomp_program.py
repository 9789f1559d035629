"""The filter of system calls, carried out by hand for machines that this may not be."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.compute.sandbox.lockdown import CALLS, GUARDED, MACHINES, LockdownError, seccomp_program

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM
PID = 4321


def decide(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would do, which reads a `struct seccomp_data`."""
    program = seccomp_program(machine, PID)
    six = [value & (1 << 64) - 1 for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number, MACHINES[machine] if audit is None else audit, 0, *six)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, constant = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, constant)
        elif code == 0x06:
            return constant
        else:
            holds = {0x15: accumulator == constant, 0x45: bool(accumulator & constant)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the kernel's headers are not installed")
    text = HEADERS[machine].read_text()
    found = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    # The generic header gives these two names of 32-bit machines first.
    found |= {new: found[old] for new, old in (("newfstatat", "fstatat"),) if new not in found and old in found}
    column = list(MACHINES).index(machine)
    listed = {name: numbers[column] for name, numbers in (CALLS | GUARDED).items() if numbers[column] is not None}
    assert listed == {name: found[name] for name in listed}
    # Every other call that the header knows is refused.
    for name in [name for name in found if found[name] not in listed.values()]:
        assert decide(machine, found[name]) == REFUSE, name
    for name in CALLS.keys() & listed.keys():
        assert decide(machine, found[name]) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    column = list(MACHINES).index(machine)

    def call(name: str, *arguments: int) -> int:
        return decide(machine, GUARDED[name][column], *arguments)

    assert call("openat", -100, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND):
        assert call("openat", -100, 0, flag | os.O_CLOEXEC) == REFUSE
    assert (call("tgkill", PID, 1, 9), call("tgkill", PID + 1, 1, 9)) == (ALLOW, REFUSE)
    assert (call("prlimit64", 0, 7, 0, 99), call("prlimit64", 0, 7, 8), call("prlimit64", 0, 7, 1 << 32)) == (
        ALLOW,
        REFUSE,
        REFUSE,
    )
    assert [call("fcntl", 0, command) for command in (0, 1, 2, 3, 1030)] == [ALLOW] * 5
    # F_SETFL, F_SETOWN and F_SETSIG.
    assert [call("fcntl", 0, command) for command in (4, 8, 10)] == [REFUSE] * 3
    assert call("ioctl", 0, 0x5401) == 0x50000 | errno.ENOTTY
    assert call("clone3") == 0x50000 | errno.ENOSYS


@given(number=st.integers(0, 2**32 - 1), audit=st.integers(0, 2**32 - 1), machine=st.sampled_from([*MACHINES]))
def test_another_architectures_calls_kill_and_unknown_ones_are_refused(number: int, audit: int, machine: str) -> None:
    if audit != MACHINES[machine]:
        assert decide(machine, number, audit=audit) == KILL
    column = list(MACHINES).index(machine)
    if number not in {numbers[column] for numbers in (CALLS | GUARDED).values()}:
        assert decide(machine, number) == REFUSE


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(LockdownError, match="system calls of riscv64 are not known, only those of x86_64 and aarch64"):
        seccomp_program("riscv64", 1)
