"""A real OpenSSH server on loopback, an ordinary process with keys of its own: for benchmarks and tests."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from physai.sdk.errors import DeviceError, PhysaiError

START_TIMEOUT_S = 20.0
PORTS = 5
"""Most ports that are tried: a free one may be taken before the server comes to it."""

_PRIVILEGE_SEPARATION_FOLDER = Path("/run/sshd")
"""The server wants it where root starts it."""

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
SetEnv PATH={path}
Subsystem sftp internal-sftp
"""

_COMMAND = """\
#!{python}
import sys
sys.path[:0] = {search}
from physai.sdk.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class SshServer:
    """A server that lets one key in, and a home with that key and the server's key in its known hosts."""

    port: int
    folder: Path
    home: Path
    """For the environment variable HOME of whoever is to log in."""
    process: "subprocess.Popen[bytes]"

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def sessions(self) -> list[int]:
        """Process ids of the server's descendants that serve a connection; not of what they run."""
        parents = dict(_processes())
        family = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return sorted(family - {self.process.pid})


def _processes() -> Generator[tuple[int, int]]:
    """Process id of every ssh server, and of its parent."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith("sshd"):
                yield int(folder.name), int(fields.split()[1])


def find_sshd() -> str:
    """The server's program.

    Raises:
        DeviceError: it is not installed.
    """
    found = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh-keygen") is None:
        raise DeviceError("there is no ssh server on this machine: apt-get install openssh-server")
    return found


@contextmanager
def ssh_server(folder: Path) -> Generator[SshServer]:
    """Runs a server until the end of the block; a login finds this very physai on its PATH.

    Args:
        folder: empty, for keys, configuration and home.

    Raises:
        DeviceError: there is no server on this machine.
        PhysaiError: it does not start.
    """
    program = find_sshd()
    if os.geteuid() == 0:
        _PRIVILEGE_SEPARATION_FOLDER.mkdir(exist_ok=True)
    home, log = folder / "home", folder / "log"
    _prepare(folder, home)
    for _ in range(PORTS):
        port = _choose_port(folder, home)
        with log.open("wb") as output:
            process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=output)
        try:
            if _listens(process, port, log):
                yield SshServer(port, folder, home, process)
                return
        finally:
            process.terminate()
            process.wait()
    raise PhysaiError(f"the ssh server does not start: {PORTS} free ports were taken before it came to them")


def _prepare(folder: Path, home: Path) -> None:
    """Makes keys, home and command."""
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (folder / "bin").mkdir()
    for key in (folder / "host", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(home / ".ssh" / "id_ed25519.pub", folder / "authorized_keys")
    command = folder / "bin" / "physai"
    command.write_text(_COMMAND.format(python=sys.executable, search=[entry for entry in sys.path if entry]))
    command.chmod(0o755)


def _choose_port(folder: Path, home: Path) -> int:
    """A port that is free now; configures the server and its users for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kind, key = (folder / "host.pub").read_text().split()[:2]
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    (folder / "sshd_config").write_text(_CONFIG.format(port=port, folder=folder, path=path))
    return port


def _listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    """Waits until it does; False where its port was taken before.

    Raises:
        PhysaiError: it does not, for another reason.
    """
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        # Who has taken the port may be an ssh server, too.
        if "Server listening" in log.read_text(errors="replace"):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                if connection.recv(4) == b"SSH-":
                    return True
        time.sleep(0.02)
    said = log.read_text(errors="replace")
    if "Address already in use" in said:
        return False
    raise PhysaiError(f"the ssh server does not start: {(said.strip().splitlines() or ['no message'])[-1]}")
