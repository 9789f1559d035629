"""ssh connection to a robot with the user's own configuration, keys, agent and known hosts.

An unknown host key is always refused, regardless of the configuration: a bundle's signatures protect the robot from a
malicious computer, the host key protects the user from an impostor robot.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncssh

from physai.deploy_jetson.update.flash.flash_errors import (
    FlashError,
    HostKeyError,
    LoginError,
    LostError,
    UnreachableError,
)
from physai.deploy_jetson.update.flash.target import Target

CONNECT_TIMEOUT_S = 15.0
_SSH_PORT = 22
KEEPALIVE_S = 5.0
"""Keepalive interval of an idle connection [s]; three unanswered keepalives close it."""

KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
"""OpenSSH's default files (ssh_config(5))."""


class _KnownHosts:
    """Looks up a host in the existing files and records whether it is known."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = [str(path) for name in files if os.access(path := Path(name).expanduser(), os.R_OK)]
        self.knows_host = False

    def __call__(self, host: str, addr: str, port: int | None) -> Any:
        keys = asyncssh.read_known_hosts(self._files).match(host, addr, port)
        self.knows_host = any(keys[:2])
        return keys


class _Client(asyncssh.SSHClient):
    """Refuses and records every host key that is not in the known hosts."""

    def __init__(self) -> None:
        self.refused: asyncssh.SSHKey | None = None
        self.known_as = ""
        """Name of the server in the known hosts, which can differ from the alias that the user gave."""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.refused = key
        self.known_as = f"[{host}]:{port}" if port != _SSH_PORT else host
        return False


@asynccontextmanager
async def connect(target: Target) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """Opens an ssh connection.

    Raises:
        UnreachableError: no ssh server answers.
        HostKeyError: the host key is unknown or has changed.
        LoginError: the server accepts none of the user's keys.
        FlashError: the ssh configuration, keys or known hosts cannot be used.
        LostError: the connection was lost during the login.
    """
    client = _Client()
    known: _KnownHosts | None = None
    try:
        options = await _options(target)
        known = _KnownHosts(_known_hosts_files(options))
        opened = await asyncssh.connect(
            target.host, options=options, config=None, client_factory=lambda: client, known_hosts=known
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise _host_key_error(target, client, error, changed=known is not None and known.knows_host) from None
    except asyncssh.PermissionDenied as error:
        raise LoginError(
            f"{target} accepts none of your keys ({error.reason}); try `{_ssh(target)}`, add your key with ssh-copy-id,"
            " or unlock it with ssh-add"
        ) from None
    except TimeoutError:
        raise UnreachableError(f"{target} does not answer within {CONNECT_TIMEOUT_S:g} s") from None
    except socket.gaierror as error:
        raise UnreachableError(f"{target}: no such host: {error.strerror}") from None
    except asyncssh.ConnectionLost as error:
        raise LostError(f"{target}: the connection was lost during the login: {error.reason}") from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, asyncssh.ConfigParseError, ValueError) as error:
        raise FlashError(f"{target}: the ssh configuration, a key or the known hosts cannot be used: {error}") from None
    except asyncssh.Error as error:
        raise FlashError(f"{target}: ssh: {error.reason}") from None
    except OSError as error:
        raise UnreachableError(f"{target} cannot be reached: {_reason(error)}") from None
    try:
        yield opened
    finally:
        opened.abort()
        await asyncio.wait([asyncio.ensure_future(opened.wait_closed())], timeout=1.0)


async def _options(target: Target) -> asyncssh.SSHClientConnectionOptions:
    """The user's options for this host, with terminal and forwarding disabled."""
    options = cast("Any", asyncssh.SSHClientConnectionOptions)
    return await options.construct(
        config=(),
        host=target.host,
        port=() if target.port is None else target.port,
        username=() if target.user is None else target.user,
        connect_timeout=CONNECT_TIMEOUT_S,
        login_timeout=CONNECT_TIMEOUT_S,
        keepalive_interval=KEEPALIVE_S,
        request_pty=False,
        agent_forwarding=False,
        x11_forwarding=False,
    )


def _known_hosts_files(options: asyncssh.SSHClientConnectionOptions) -> Sequence[str]:
    configured: Any = options.known_hosts
    return cast("list[str]", configured) if isinstance(configured, list) and configured else KNOWN_HOSTS


def _host_key_error(target: Target, client: _Client, error: asyncssh.Error, *, changed: bool) -> HostKeyError:
    if client.refused is None:
        return HostKeyError(f"the host key of {target} was refused: {error.reason}")
    key = f"{client.refused.get_algorithm()} {client.refused.get_fingerprint()}"
    if changed:
        return HostKeyError(
            f"the host key of {target} is {key}, another than the known one: this may be a man-in-the-middle attack, "
            f"or the robot was reinstalled; if you know it was: ssh-keygen -R '{client.known_as}'"
        )
    return HostKeyError(
        f"the host key of {target}, {key}, is unknown; compare it with `ssh-keygen -lf "
        f"/etc/ssh/ssh_host_ed25519_key.pub` on the robot, then accept it once with `{_ssh(target)}`"
    )


def _ssh(target: Target) -> str:
    """The command line that logs in to a target."""
    user = "" if target.user is None else f"{target.user}@"
    port = "" if target.port is None else f"-p {target.port} "
    return f"ssh {port}{user}{target.host}"


def _reason(error: OSError) -> str:
    # asyncio wraps the operating system's message; unwrap it.
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
