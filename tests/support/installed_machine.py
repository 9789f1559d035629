"""A machine of its own for install.sh, as far as a mount namespace makes one: this machine's files, changed for nobody
else, its accounts and a real ssh server; root alone can make it.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness.fixtures.sshd import find_sshd

from physai.sdk.base.errors import DeviceError

INSTALL = Path(__file__).parents[2] / "deploy_jetson" / "systemd" / "install.sh"
CHANGED = ("/etc", "/home", "/var/lib", "/opt", "/usr/local")
"""Folders that install.sh changes."""
START_TIMEOUT_S = 20.0

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
UsePAM no
AcceptEnv PHYSAI_*
AllowTcpForwarding yes
AllowAgentForwarding yes
PermitTunnel yes
Subsystem sftp internal-sftp
"""
"""Everything allowed that a server may allow, and the usual StrictModes; the environment variables are a trap."""

_PHYSAI = """\
#!{python}
import sys
sys.path[:0] = {search}
from physai.sdk.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Machine:
    """A mount namespace in which a process holds its place."""

    folder: Path
    """For keys and the like, the same inside and outside."""
    holder: int
    port: int

    def run(self, *words: str, account: str = "", check: bool = False) -> "subprocess.CompletedProcess[str]":
        """Runs a command there, as root or another account."""
        inside = ["nsenter", "--mount", f"--target={self.holder}", "--"]
        words = (*(("runuser", "-u", account, "--") if account else ()), *words)
        result = subprocess.run([*inside, *words], capture_output=True, text=True, timeout=300.0, cwd="/")
        assert not (check and result.returncode), result.stderr
        return result

    def ssh(self, *words: str, program: str = "ssh", options: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        """Logs in from outside with the one key, or tries to."""
        home = self.folder / "home" / ".ssh"
        command = [program, "-F", "none", "-i", str(home / "id_ed25519"), "-o", "BatchMode=yes", *options]
        command += ["-o", f"UserKnownHostsFile={home / 'known_hosts'}", "-o", f"Port={self.port}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60.0, stdin=subprocess.DEVNULL)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Writes a file there."""
        draft = self.folder / "draft"
        draft.write_text(text)
        self.run("install", "-D", "-m", f"{mode:o}", str(draft), path, check=True)


@contextmanager
def machine(folder: Path) -> Generator[Machine]:
    """Makes one, with an environment in /opt/physai in which this physai is installed, and its ssh server running.

    Raises:
        DeviceError: only root may, or this machine lacks the programs.
    """
    sshd = find_sshd()
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "useradd", "runuser"))):
        raise DeviceError("only root can make accounts and mount namespaces")
    layers = folder / "layers"
    layers.mkdir()
    private = [path for path in Path(sys.base_prefix).parents if not path.stat().st_mode & 0o001]
    lines = ["set -e", f"mount -t tmpfs none {layers}"]
    for number, path in enumerate([*CHANGED, *map(str, private)]):
        layer = layers / str(number)
        lines += [
            f"mkdir -p {layer}/upper {layer}/work",
            f"chmod --reference={path} {layer}/upper",
            f"mount -t overlay overlay -o lowerdir={path},upperdir={layer}/upper,workdir={layer}/work {path}",
        ]
    # The account that runs the robot must find the interpreter.
    lines += [f"chmod a+x {path}" for path in private]
    lines += ["mkdir -p /run/sshd", "echo ready", "exec sleep infinity"]
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            raise DeviceError(f"no mount namespace here: {holder.stderr.read().strip()}")
        made = Machine(folder, holder.pid, _free_port())
        _furnish(made)
        with _listening(made, sshd):
            yield made
    finally:
        holder.kill()
        holder.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _furnish(made: Machine) -> None:
    folder, home = made.folder, made.folder / "home" / ".ssh"
    home.mkdir(parents=True)
    for key in (folder / "host", home / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, key = (folder / "host.pub").read_text().split()[:2]
    (home / "known_hosts").write_text(f"[127.0.0.1]:{made.port} {kind} {key}\n")
    (folder / "sshd_config").write_text(_SSHD.format(port=made.port, folder=folder))
    made.write("/opt/physai/bin/python", "#!/bin/sh\nexit 0\n", 0o755)
    search = [entry for entry in sys.path if entry]
    made.write("/opt/physai/bin/physai", _PHYSAI.format(python=sys.executable, search=search), 0o755)
    # There is no systemd in there.
    made.write("/usr/local/bin/systemctl", "#!/bin/sh\nexit 0\n", 0o755)


@contextmanager
def _listening(made: Machine, program: str) -> Generator[None]:
    command = ["nsenter", "--mount", f"--target={made.holder}", "--", program, "-D", "-e"]
    with (made.folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, "-f", str(made.folder / "sshd_config")], stderr=log, cwd="/")
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", made.port), timeout=1.0) as connection:
                if connection.recv(4) == b"SSH-":
                    break
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        server.wait()
