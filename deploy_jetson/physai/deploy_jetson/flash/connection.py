"""A connection to a robot, with the user's own ssh configuration, keys, agent and known hosts, and what went wrong with
it in a sentence.

An unknown host key is refused, whatever the configuration says: a bundle's signatures protect the robot from a wrong
computer, the host key protects the user from a wrong robot.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncssh

from physai.deploy_jetson.flash.errors import FlashError, HostKeyError, LoginError, LostError, UnreachableError
from physai.deploy_jetson.flash.target import Target

CONNECT_TIMEOUT_S = 15.0
_SSH_PORT = 22
KEEPALIVE_S = 5.0
"""An idle connection is asked for a sign of life so often, and given up after three that were not answered [s]."""

KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
"""Where OpenSSH looks, unless its configuration says otherwise (ssh_config(5))."""


class _KnownHosts:
    """Looks a host up in the files that exist, and remembers whether anything was known of it."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = [str(path) for name in files if os.access(path := Path(name).expanduser(), os.R_OK)]
        self.knows_host = False

    def __call__(self, host: str, addr: str, port: int | None) -> Any:
        found = asyncssh.read_known_hosts(self._files).match(host, addr, port)
        self.knows_host = any(found[:2])
        return found


class _Client(asyncssh.SSHClient):
    """Refuses every host key that is not in the known hosts, and remembers it."""

    def __init__(self) -> None:
        self.refused: asyncssh.SSHKey | None = None
        self.known_as = ""
        """What the known hosts call the server; the user may have named it by an alias of the configuration."""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.refused = key
        self.known_as = f"[{host}]:{port}" if port != _SSH_PORT else host
        return False


@asynccontextmanager
async def connect(target: Target) -> AsyncGenerator[asyncssh.SSHClientConnection]:
    """Logs in.

    Raises:
        UnreachableError: no ssh server answers there.
        HostKeyError: its key is unknown, or another than the known one.
        LoginError: it accepts none of our keys.
        FlashError: the ssh configuration, keys or known hosts cannot be used.
        LostError: the connection was lost before anybody was logged in.
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
            f"{target} lets none of your keys in ({error.reason}); try `{_ssh(target)}`, add your key with ssh-copy-id,"
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
    """The user's own, for this host; neither terminal nor forwarding, whatever they say."""
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
        return HostKeyError(f"the host key of {target} is refused: {error.reason}")
    key = f"{client.refused.get_algorithm()} {client.refused.get_fingerprint()}"
    if changed:
        return HostKeyError(
            f"the host key of {target} is {key}, another than the known one: somebody may be in between, or the robot "
            f"was set up anew; if you know it was: ssh-keygen -R '{client.known_as}'"
        )
    return HostKeyError(
        f"the host key of {target}, {key}, is unknown; compare it with `ssh-keygen -lf "
        f"/etc/ssh/ssh_host_ed25519_key.pub` on the robot, then accept it once with `{_ssh(target)}`"
    )


def _ssh(target: Target) -> str:
    """The command that logs in there."""
    user = "" if target.user is None else f"{target.user}@"
    port = "" if target.port is None else f"-p {target.port} "
    return f"ssh {port}{user}{target.host}"


def _reason(error: OSError) -> str:
    """What the operating system says, without what asyncio puts around it."""
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
