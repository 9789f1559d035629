"""Transports and robot endpoints by name, from the entry points `physai.transports` and `physai.robot_links`.

An entry point is a function from options (str to str) to a `Transport` or a `RobotEndpoint`. A transport is imported
only when it is opened.
"""

from collections.abc import Callable, Mapping
from typing import Any

from physai.sdk.base.errors import unknown_name
from physai.sdk.base.extras import missing_extra
from physai.sdk.base.plugins import contributions
from physai.sdk.transport.protocol import RobotEndpoint, Transport, TransportError

TRANSPORTS = "physai.transports"
ROBOT_LINKS = "physai.robot_links"

EXTRAS = {"dds": "robot", "udp": "robot", "sim": "sim"}
"""Extra of physai-sdk that installs the libraries of a built-in transport."""


def transport_names() -> tuple[str, ...]:
    """Return the names of registered transports, sorted; their libraries may be missing."""
    return tuple(contributions(TRANSPORTS))


def robot_link_names() -> tuple[str, ...]:
    """Return the names of transports with a robot endpoint, sorted."""
    return tuple(contributions(ROBOT_LINKS))


def open_transport(name: str, options: Mapping[str, str]) -> Transport:
    """Create the runtime's side of a transport, not yet connected.

    Args:
        name: one of `transport_names`.
        options: options of the transport, as on the command line.

    Raises:
        UnknownNameError: no transport or option has that name.
        MissingExtraError: a required library is not installed.
        TransportError: an option has an invalid value, or the transport lacks a part of the protocol.
    """
    transport: Transport = _create(TRANSPORTS, "transport", name, options, Transport)
    return transport


def open_robot_link(name: str, options: Mapping[str, str]) -> RobotEndpoint:
    """Create the robot's side of a transport, not yet connected.

    Raises:
        UnknownNameError: no transport with a robot endpoint, or no option, has that name.
        MissingExtraError, TransportError: see `open_transport`.
    """
    link: RobotEndpoint = _create(ROBOT_LINKS, "transport with a robot endpoint", name, options, RobotEndpoint)
    return link


def _create(group: str, kind: str, name: str, options: Mapping[str, str], protocol: type) -> Any:
    registered = contributions(group)
    if name not in registered:
        raise unknown_name(kind, name, registered)
    try:
        factory: Callable[[Mapping[str, str]], Any] = registered[name].load()
    except ModuleNotFoundError as error:
        raise missing_extra(f"transport {name}", error, preferred=EXTRAS.get(name)) from error
    except (AttributeError, SyntaxError) as error:
        raise TransportError(f"{kind} {name}: {registered[name].value} cannot be loaded: {error}") from error
    try:
        made = factory(options)
    except TypeError as error:
        raise TransportError(
            f"{kind} {name}: {registered[name].value} cannot be made with its options: {error}"
        ) from error
    require_members(made, protocol, f"{kind} {name} ({registered[name].value})")
    return made


def require_members(made: object, protocol: type, called: str) -> None:
    """Check that an object has the attributes and methods of `Transport` or `RobotEndpoint`.

    A missing method would otherwise be noticed only when it is called, possibly in a tick.

    Args:
        made: the object.
        protocol: one of the two protocols.
        called: name of the object at the beginning of the message.

    Raises:
        TransportError: one is missing, or the object is a class.
    """
    if isinstance(made, type):
        raise TransportError(f"{called}: {made.__name__} is a class, expected an object of it")
    lacking = [member for member in _members(protocol) if not _has(made, member, protocol)]
    if lacking:
        raise TransportError(
            f"{called}: {type(made).__name__} lacks {', '.join(lacking)} of physai.sdk.{protocol.__name__}; "
            "examples/custom_transport.py has all of them"
        )


def _has(made: object, member: str, protocol: type) -> bool:
    """Whether an object has a member of a protocol, which must be a method where the protocol has one."""
    return callable(getattr(made, member, None)) if callable(getattr(protocol, member, None)) else hasattr(made, member)


def _members(protocol: type) -> list[str]:
    names = {*vars(protocol), *getattr(protocol, "__annotations__", {})}
    return sorted(name for name in names if not name.startswith("_"))
