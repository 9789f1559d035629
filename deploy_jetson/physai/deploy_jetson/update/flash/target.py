"""Address of a robot: `[user@]HOST[:port]`, as for ssh."""

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from physai.deploy_jetson.update.flash.flash_errors import FlashError

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:]{2,45}(?:%[A-Za-z0-9._-]{1,32})?")
_ADDRESS = re.compile(r"(?:(?P<user>[^@]*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[^:]*))?")


@dataclass(frozen=True)
class Target:
    """A robot to flash."""

    host: str
    """Name, address, or alias in the ssh configuration."""
    user: str | None = None
    """None uses the ssh configuration."""
    port: int | None = None
    """None uses the ssh configuration."""
    root: PurePosixPath | None = None
    """The robot's tree; None uses its default."""
    physai: str = "physai"
    """The command on the robot, with a prefix if needed: `/opt/physai/bin/physai`, `sudo -n physai`."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = "" if self.user is None else f"{self.user}@"
        return f"{user}{host}" + ("" if self.port is None else f":{self.port}")

    @classmethod
    def parse(cls, address: str, *, root: PurePosixPath | None = None, physai: str = "physai") -> "Target":
        """Parses an address.

        Raises:
            FlashError: the address or command is invalid.
        """
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise FlashError(f"{address!r} is not [user@]HOST[:port]; an IPv6 address with a port needs brackets")
        user, host, port = match["user"], match["six"] or match["host"] or "", match["port"]
        if not _HOST.fullmatch(host):
            raise FlashError(f"{address!r}: {host!r} is not a host name or address")
        if user is not None and not _USER.fullmatch(user):
            raise FlashError(f"{address!r}: {user!r} is not a user name")
        if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
            raise FlashError(f"{address!r}: a port is a number from 1 to 65535, got {port!r}")
        try:
            if not shlex.split(physai):
                raise ValueError("it is empty")
        except ValueError as error:
            raise FlashError(f"{physai!r} is not a command: {error}") from None
        return cls(host, user, None if port is None else int(port), root, physai)
