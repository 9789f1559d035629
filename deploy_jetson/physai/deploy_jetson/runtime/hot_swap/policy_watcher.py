"""Process that watches for a newly activated policy and checks it outside the runtime."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from physai.deploy_jetson.runtime.hot_swap.candidate import REVOKED, send
from physai.deploy_jetson.runtime.hot_swap.golden_check import examine_apart
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.revocation.kept_words import RevocationError
from physai.deploy_jetson.update.slots.layout import CURRENT
from physai.sdk.base.errors import PhysaiError

# Polling period of the link to the active slot [s].
LOOK_S = 0.1

NICENESS = 10


# A process of its own: verifying signatures, parsing JSON and replaying golden states hold the interpreter lock for
# milliseconds, which would delay a control loop in the same process.
def start_scout(root: Path, config: Path | None, running_sha256: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process; it ends when the socket is closed.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None for the default of that tree.
        running_sha256: hash of the running bundle.

    Returns:
        The process, and the socket from which `candidate.receive` reads.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(root), str(config or ""), running_sha256]
        descriptors = [theirs.fileno()]
        # A session of its own, so that Ctrl-C at the terminal reaches the runtime only.
        return subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL, start_new_session=True), ours


def watch(connection: socket.socket, root: Path, config: Path | None, running_sha256: str) -> None:
    """Send every newly activated policy, or why it must not run, until the other end is closed."""
    seen: str | None = None
    with suppress(BrokenPipeError, ConnectionResetError):
        # Polled: a link is cheap to read, and the end of the runtime is noticed by the same loop.
        while not _is_closed(connection):
            link = _active_link(root)
            if link != seen:
                seen = link
                running_sha256 = _report(connection, root, config, running_sha256)
            time.sleep(LOOK_S)


def _active_link(root: Path) -> str | None:
    try:
        return os.readlink(root / CURRENT)
    except OSError:
        return None


def _report(connection: socket.socket, root: Path, config: Path | None, running_sha256: str) -> str:
    try:
        active = open_active(root, config=config)
        # A rollback to the version that runs needs no change.
        if active.bundle.sha256 == running_sha256:
            return running_sha256
        send(connection, examine_apart(root, config, active.bundle.contract.timing.deadline_s))
    except (PhysaiError, OSError) as error:
        send(connection, None, f"{REVOKED if isinstance(error, RevocationError) else ''}{error}")
        return running_sha256
    return active.bundle.sha256


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end, which never sends, is closed."""
    try:
        # An empty read means closed; without data it raises instead.
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def main(arguments: list[str]) -> None:
    """`python -m physai.deploy_jetson.runtime.hot_swap.policy_watcher SOCKET ROOT CONFIG SHA256`."""
    os.nice(NICENESS)
    descriptor, root, config, running = arguments
    with socket.socket(fileno=int(descriptor)) as connection:
        watch(connection, Path(root), Path(config) if config else None, running)


if __name__ == "__main__":
    main(sys.argv[1:])
