"""Both ends of the wire by name: what the entry points of `physai.transports` and `physai.robot_links` contribute.

An entry point is a function from options (str to str) to a `Transport`, or to a `RobotEndpoint`; nothing of a
transport is
imported before it is asked for by name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from physai.sdk.base.errors import MissingExtraError, unknown_name
from physai.sdk.base.plugins import contributions
from physai.sdk.transport.protocol import RobotEndpoint, Transport

TRANSPORTS = "physai.transports"
ROBOT_LINKS = "physai.robot_links"

EXTRAS = {"dds": "robot", "udp": "robot", "sim": "sim"}
"""The extra of physai-sdk that brings what a transport of this project needs."""


def transport_names() -> tuple[str, ...]:
    """Transports of this machine by name, in alphabetical order; whether their libraries are there is not asked."""
    return tuple(contributions(TRANSPORTS))


def robot_link_names() -> tuple[str, ...]:
    """Transports that have a robot's end, in alphabetical order."""
    return tuple(contributions(ROBOT_LINKS))


def open_transport(name: str, options: Mapping[str, str]) -> Transport:
    """The runtime's end of a transport; its `open` connects it.

    Args:
        name: one of `transport_names`.
        options: the transport's own, as given on a command line.

    Raises:
        UnknownNameError: there is no transport or option of that name.
        MissingExtraError: a library that it needs is not installed.
        TransportError: an option has a value it cannot have.
    """
    transport: Transport = _made(TRANSPORTS, "transport", name, options)
    return transport


def open_robot_link(name: str, options: Mapping[str, str]) -> RobotEndpoint:
    """The robot's end of a transport; its `open` connects it.

    Raises:
        UnknownNameError: there is no transport with a robot's end, or no option, of that name.
        MissingExtraError, TransportError: see `open_transport`.
    """
    link: RobotEndpoint = _made(ROBOT_LINKS, "transport with a robot's end", name, options)
    return link


def _made(group: str, kind: str, name: str, options: Mapping[str, str]) -> Any:
    found = contributions(group)
    if name not in found:
        raise unknown_name(kind, name, found)
    try:
        make: Callable[[Mapping[str, str]], Any] = found[name].load()
    except ModuleNotFoundError as error:
        way_out = f"; install physai-sdk[{EXTRAS[name]}]" if name in EXTRAS else ""
        raise MissingExtraError(f"transport {name} needs {error.name}, which is not installed{way_out}") from error
    return make(options)
