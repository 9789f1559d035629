"""Which DDS domain a process joins, and how far it looks for others there: ROS 2's own environment variables.

ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE (SUBNET, LOCALHOST, OFF, SYSTEM_DEFAULT), ROS_STATIC_PEERS and
ROS_LOCALHOST_ONLY mean what they mean to rmw_cyclonedds of ROS 2 Jazzy, and CYCLONEDDS_URI overrides them as it does
there. Source: https://github.com/ros2/rmw_cyclonedds, rmw_cyclonedds_cpp/src/rmw_node.cpp, check_create_domain.
"""

import fcntl
import os
import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import MissingExtraError
from physai.sdk.transport.protocol import TransportError

MAX_DOMAIN = 232
"""Greatest domain whose ports exist: DDSI-RTPS 2.5, 9.6.1.1 (7400 + 250·domain + …)."""
MAX_PARTICIPANTS = 32
"""Processes of one machine that find each other without multicast, as in rmw_cyclonedds."""
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")

_INTERFACES = "<Interfaces><NetworkInterface autodetermine='true'/><NetworkInterface name='lo'/></Interfaces>"
"""Loopback, too: Cyclone DDS 11 takes no discovery from an interface it does not use, and rmw_cyclonedds of Jazzy
(0.10.5) sends it to 127.0.0.1, whichever interface it uses itself."""
_SIOCGIFFLAGS, _SIOCGIFADDR, _IFF_UP, _IFF_LOOPBACK = 0x8913, 0x8915, 1 << 0, 1 << 3
"""See netdevice(7)."""

LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo' multicast='false'/></Interfaces>"
    "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    "<MaxAutoParticipantIndex>100</MaxAutoParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
    "</Domain></CycloneDDS>"
)
"""Configuration that keeps two processes of one machine among themselves, for CYCLONEDDS_URI. Loopback has no
multicast: both sides must name each other as peers."""


def domain_id(options: Mapping[str, str]) -> int:
    """The domain: the option, else ROS_DOMAIN_ID, else 0, as in ROS 2.

    Raises:
        TransportError: it is no number from 0 to 232.
    """
    text = options.get("domain") or os.environ.get("ROS_DOMAIN_ID") or "0"
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_DOMAIN):
        raise TransportError(f"DDS domain {text!r} (option domain or ROS_DOMAIN_ID): expected 0 … {MAX_DOMAIN}")
    return int(text)


def import_cyclonedds() -> None:
    """Loads Cyclone DDS for Python.

    Raises:
        MissingExtraError: it is not installed.
        TransportError: its library cannot be loaded.
    """
    try:
        import_module("cyclonedds.domain")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"transport dds needs {error.name}, which is not installed; install physai-sdk[robot] (on aarch64 "
            "cyclonedds is built against Debian's cyclonedds-dev), or use the transport udp"
        ) from error
    except Exception as error:
        raise TransportError(f"Cyclone DDS cannot be loaded: {told(error)}; use the transport udp") from error


def discovery_range(options: Mapping[str, str]) -> str | None:
    """The range that an option asks for; None to leave it to the environment.

    Raises:
        TransportError: it is none.
    """
    reach = options.get("range")
    if reach is not None and reach not in RANGES:
        raise TransportError(f"option range: {reach!r}, expected {', '.join(RANGES)}")
    return reach


def configuration(reach: str | None = None) -> str:
    """Cyclone DDS's configuration for a discovery range.

    Args:
        reach: one of `RANGES`, which then overrides CYCLONEDDS_URI; None for that of the environment.

    Raises:
        TransportError: the environment's range is none, or a peer is no address.
    """
    own = os.environ.get("CYCLONEDDS_URI", "")
    if reach is not None:
        return f"{own},{_discovery(reach)}"
    reach = os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") or "SUBNET"
    if os.environ.get("ROS_LOCALHOST_ONLY") == "1":
        reach = "LOCALHOST"
    if reach not in RANGES:
        raise TransportError(f"ROS_AUTOMATIC_DISCOVERY_RANGE is {reach!r}, expected {', '.join(RANGES)}")
    return f"{_discovery(reach)},{own}"


def _discovery(reach: str) -> str:
    if reach == "SYSTEM_DEFAULT":
        return ""
    general = ""
    if reach in ("LOCALHOST", "OFF"):
        own = _names_interfaces(os.environ.get("CYCLONEDDS_URI", ""))
        interfaces = _INTERFACES if reach == "LOCALHOST" and not own and not _only_loopback() else ""
        general = f"<General>{interfaces}<AllowMulticast>false</AllowMulticast></General>"
    if reach == "OFF":
        discovery = f"<ParticipantIndex>none</ParticipantIndex><Tag>physai_discovery_off_{os.getpid()}</Tag>"
    else:
        peers = ["localhost"] if reach == "LOCALHOST" else []
        peers += _static_peers()
        named = "".join(f"<Peer address='{peer}'/>" for peer in peers)
        discovery = (
            f"<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>{MAX_PARTICIPANTS}"
            f"</MaxAutoParticipantIndex>{f'<Peers>{named}</Peers>' if named else ''}"
        )
    return f"<CycloneDDS><Domain>{general}<Discovery>{discovery}</Discovery></Domain></CycloneDDS>"


def _names_interfaces(uri: str) -> bool:
    """Whether CYCLONEDDS_URI says which interfaces are used; ours would be added to its list, and none may be twice."""
    texts = [uri]
    for path in re.findall(r"file://([^,]+)", uri):
        with suppress(OSError):  # Cyclone DDS says what is wrong with it
            texts.append(Path(path).read_text(errors="replace"))
    return any("<NetworkInterface" in text for text in texts)


def _only_loopback() -> bool:
    """Whether no other network interface is up and has an address; Cyclone DDS refuses to use one twice."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s16x", name.encode())
            try:
                (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
                fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
            except OSError:
                continue
            if flags & _IFF_UP and not flags & _IFF_LOOPBACK:
                return False
    return True


def _static_peers() -> list[str]:
    peers = [peer.strip() for peer in os.environ.get("ROS_STATIC_PEERS", "").split(";") if peer.strip()]
    for peer in peers:
        if re.fullmatch(r"[A-Za-z0-9.:_%\[\]-]{1,255}", peer) is None:
            raise TransportError(f"ROS_STATIC_PEERS names {peer!r}, which is no address")
    return peers


class JoinedDomains:
    """DDS domains of this process, each with the configuration under which it was first joined."""

    def __init__(self) -> None:
        """None yet."""
        self._joined: dict[int, tuple[Any, int]] = {}

    def join(self, domain: int, reach: str | None) -> None:
        """Creates a domain with a discovery range, or counts one more in it.

        Raises:
            TransportError: the environment asks for no known range.
            DDSException: DDS refuses the configuration.
        """
        from cyclonedds.domain import Domain

        if domain in self._joined:
            made, count = self._joined[domain]
        else:
            made, count = Domain(domain, configuration(reach)), 0
        self._joined[domain] = (made, count + 1)

    def leave(self, domain: int) -> None:
        """Ends a domain with the last one in it."""
        made, count = self._joined.pop(domain)
        if count > 1:
            self._joined[domain] = (made, count - 1)
        else:
            made.__del__()


DOMAINS = JoinedDomains()
"""Those of this process: DDS has one configuration per domain and process."""


def told(error: Exception) -> str:
    """What an exception of the library says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
