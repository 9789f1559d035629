"""DDS domain and discovery range of a process, from the environment variables of ROS 2.

ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE (SUBNET, LOCALHOST, OFF, SYSTEM_DEFAULT), ROS_STATIC_PEERS and
ROS_LOCALHOST_ONLY have the same meaning as for rmw_cyclonedds of ROS 2 Jazzy, and CYCLONEDDS_URI overrides them as
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

# Highest domain with valid ports: DDSI-RTPS 2.5, 9.6.1.1 (7400 + 250·domain + …).
MAX_DOMAIN = 232
# Bound of participants per machine without multicast, as in rmw_cyclonedds.
MAX_PARTICIPANTS = 32
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")

# Loopback, too: Cyclone DDS 11 takes no discovery from an interface it does not use, and rmw_cyclonedds of Jazzy
# (0.10.5) sends it to 127.0.0.1, whichever interface it uses itself.
_INTERFACES = "<Interfaces><NetworkInterface autodetermine='true'/><NetworkInterface name='lo'/></Interfaces>"
# See netdevice(7).
_SIOCGIFFLAGS, _SIOCGIFADDR, _IFF_UP, _IFF_LOOPBACK = 0x8913, 0x8915, 1 << 0, 1 << 3

# Value of CYCLONEDDS_URI that isolates processes on one machine. Loopback has no multicast, so the processes must name
# each other as peers.
LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo' multicast='false'/></Interfaces>"
    "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    "<MaxAutoParticipantIndex>100</MaxAutoParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"
    "</Domain></CycloneDDS>"
)


def domain_id(options: Mapping[str, str]) -> int:
    """Return the domain: the option, else ROS_DOMAIN_ID, else 0, as in ROS 2.

    Raises:
        TransportError: it is not in 0 … 232.
    """
    text = options.get("domain") or os.environ.get("ROS_DOMAIN_ID") or "0"
    # `isdigit` alone accepts digits that `int` does not, such as superscripts.
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_DOMAIN):
        raise TransportError(f"DDS domain {text!r} (option domain or ROS_DOMAIN_ID): expected 0 … {MAX_DOMAIN}")
    return int(text)


def import_cyclonedds() -> None:
    """Import Cyclone DDS for Python.

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
        raise TransportError(f"Cyclone DDS cannot be loaded: {one_line(error)}; use the transport udp") from error


def discovery_range(options: Mapping[str, str]) -> str | None:
    """Return the range of the option; None to leave it to the environment.

    Raises:
        TransportError: the range is unknown.
    """
    reach = options.get("range")
    if reach is not None and reach not in RANGES:
        raise TransportError(f"option range: {reach!r}, expected {', '.join(RANGES)}")
    return reach


def configuration(reach: str | None = None) -> str:
    """Return the Cyclone DDS configuration for a discovery range.

    Args:
        reach: one of `RANGES`, which then overrides CYCLONEDDS_URI; None for that of the environment.

    Raises:
        TransportError: the range or a peer in the environment is invalid.
    """
    own = os.environ.get("CYCLONEDDS_URI", "")
    if reach is not None:
        # Cyclone DDS merges configurations in this order, so the later one wins.
        return f"{own},{_discovery(reach)}"
    reach = os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") or "SUBNET"
    # Deprecated since ROS 2 Iron, but it still has precedence there.
    if os.environ.get("ROS_LOCALHOST_ONLY") == "1":
        reach = "LOCALHOST"
    if reach not in RANGES:
        raise TransportError(f"ROS_AUTOMATIC_DISCOVERY_RANGE is {reach!r}, expected {', '.join(RANGES)}")
    return f"{_discovery(reach)},{own}"


def _discovery(reach: str) -> str:
    if reach == "SYSTEM_DEFAULT":
        return ""
    general = ""
    # Loopback has no multicast, so discovery has to be by unicast to named peers.
    if reach in ("LOCALHOST", "OFF"):
        own = _names_interfaces(os.environ.get("CYCLONEDDS_URI", ""))
        interfaces = _INTERFACES if reach == "LOCALHOST" and not own and not _only_loopback() else ""
        general = f"<General>{interfaces}<AllowMulticast>false</AllowMulticast></General>"
    if reach == "OFF":
        # A tag of its own hides a participant even from others on the same machine.
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
    """Whether CYCLONEDDS_URI names interfaces."""
    # Ours would be added to its list, and Cyclone DDS rejects duplicates.
    texts = [uri]
    for path in re.findall(r"file://([^,]+)", uri):
        # Cyclone DDS reports the problem.
        with suppress(OSError):
            texts.append(Path(path).read_text(errors="replace"))
    return any("<NetworkInterface" in text for text in texts)


def _only_loopback() -> bool:
    """Whether no other network interface is up with an address; Cyclone DDS rejects duplicates of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            # A struct ifreq: 16 bytes of name, then a union.
            request = struct.pack("16s16x", name.encode())
            try:
                (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)
                # Raises without an IPv4 address, and Cyclone DDS does not use such an interface.
                fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
            except OSError:
                continue
            if flags & _IFF_UP and not flags & _IFF_LOOPBACK:
                return False
    return True


def _static_peers() -> list[str]:
    peers = [peer.strip() for peer in os.environ.get("ROS_STATIC_PEERS", "").split(";") if peer.strip()]
    for peer in peers:
        # The value becomes part of an XML document.
        if re.fullmatch(r"[A-Za-z0-9.:_%\[\]-]{1,255}", peer) is None:
            raise TransportError(f"ROS_STATIC_PEERS names {peer!r}, which is no address")
    return peers


# The domains of this process, and how often each was joined. DDS has one configuration per domain and process: that
# under which the domain was first joined.
_JOINED: dict[int, tuple[Any, int]] = {}


def join_domain(domain: int, reach: str | None) -> None:
    """Create a domain with a discovery range, or increment its reference count.

    Raises:
        TransportError: the range in the environment is invalid.
        DDSException: DDS rejects the configuration.
    """
    from cyclonedds.domain import Domain

    created, count = _JOINED.get(domain) or (Domain(domain, configuration(reach)), 0)
    _JOINED[domain] = (created, count + 1)


def leave_domain(domain: int) -> None:
    """Decrement the reference count of a domain, and delete it at 0."""
    created, count = _JOINED.pop(domain)
    if count > 1:
        _JOINED[domain] = (created, count - 1)
    else:
        # cyclonedds-python has no other way to delete a domain at a given time.
        created.__del__()


def one_line(error: Exception) -> str:
    """Return the message of an exception in one line."""
    return " ".join(str(error).split()) or type(error).__name__
