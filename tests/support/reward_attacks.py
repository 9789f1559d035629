"""A reward file that tries what a reward may not: each attack returns if it succeeded, and raises if it was refused.

`python reward_attacks.py PATH` runs them without a sandbox and prints the names of those that succeed.
"""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def open_socket(path: str) -> None:
    for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM)):
        socket.socket(family, kind).close()


def open_netlink(path: str) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def open_socket_pair(path: str) -> None:
    socket.socketpair()


def read_secret(path: str) -> None:
    with open(f"{path}/.ssh/id_ed25519", encoding="utf-8") as file:
        assert "secret" in file.read()


def read_accounts(path: str) -> None:
    with open("/etc/passwd", encoding="utf-8") as file:
        assert "root" in file.read()


def read_parents_environment(path: str) -> None:
    with open(f"/proc/{os.getppid()}/environ", "rb") as file:
        file.read()


def read_own_status(path: str) -> None:
    with open("/proc/self/status", "rb") as file:
        file.read()


def list_home(path: str) -> None:
    os.listdir(path)


def write_file(path: str) -> None:
    with open(f"{path}/written", "w", encoding="utf-8") as file:
        file.write("x")


def write_to_tmp(path: str) -> None:
    descriptor = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
    os.close(descriptor)


def empty_file(path: str) -> None:
    os.close(os.open(f"{path}/kept", os.O_TRUNC))


def remove_file(path: str) -> None:
    os.unlink(f"{path}/kept")


def make_folder(path: str) -> None:
    os.mkdir(f"{path}/folder")


def change_mode(path: str) -> None:
    os.chmod(f"{path}/kept", 0o777)


def fork(path: str) -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def start_program(path: str) -> None:
    subprocess.run(["true"], check=True)


def spawn(path: str) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def become_program(path: str) -> None:
    os.execv("/bin/true", ["true"])


def start_thread(path: str) -> None:
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()


def signal_parent(path: str) -> None:
    os.kill(os.getppid(), 0)


def signal_group(path: str) -> None:
    os.killpg(os.getpgid(0), 0)


def own_a_pipe(path: str) -> None:
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())


def trace(path: str) -> None:
    # PTRACE_TRACEME, which asks for no privilege.
    _checked(LIBC.ptrace(0, 0, 0, 0))


def new_namespace(path: str) -> None:
    _checked(LIBC.unshare(0x00020000 if os.geteuid() == 0 else 0x10000000))


def more_limits(path: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))


def set_timer(path: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000.0)


def share_memory(path: str) -> None:
    os.close(os.memfd_create("memory"))


def map_file_for_writing(path: str) -> None:
    with open(f"{path}/kept", "r+b") as file:
        mmap.mmap(file.fileno(), 1).close()


ATTACKS: tuple[Callable[[str], None], ...] = (
    open_socket,
    open_netlink,
    open_socket_pair,
    read_secret,
    read_accounts,
    read_parents_environment,
    read_own_status,
    list_home,
    write_file,
    write_to_tmp,
    map_file_for_writing,
    empty_file,
    make_folder,
    change_mode,
    fork,
    start_program,
    spawn,
    become_program,
    start_thread,
    signal_parent,
    signal_group,
    own_a_pipe,
    trace,
    new_namespace,
    more_limits,
    set_timer,
    share_memory,
    remove_file,
)


def reward(steps: dict[str, Any]) -> Any:
    """Tries the attack of a number on a path given as bytes; 1 if it succeeded."""
    path = bytes(steps["path"].astype(np.uint8).tolist()).decode()
    ATTACKS[int(steps["attack"][0])](path)
    return np.ones(len(steps["path"]))


def _succeeds(attack: Callable[[str], None], path: str) -> bool:
    """Whether an attack succeeds in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            attack(path)
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return os.waitpid(process, 0)[1] == 0


if __name__ == "__main__":
    print(*(attack.__name__ for attack in ATTACKS if _succeeds(attack, sys.argv[1])))
