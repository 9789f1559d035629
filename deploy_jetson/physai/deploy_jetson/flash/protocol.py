"""What the computer that flashes and the robot say to each other over one ssh channel: a JSON object a line.

    computer                                      robot
                                                  hello      protocol, robot
    offer    protocol, bundle, version, robot,    waiting    text: another flash is at it
             members, wait_s                      holds      active, trial; needs: [[sha256, bytes it has], …]
    put      sha256, start; then raw bytes        got        bytes so far
                                                  stored     sha256 (or `damaged`: the upload was thrown away)
    time     statement, signed; or nothing
    install  unsafe_no_verdict, retry             stage      stage, share
                                                  note       text
                                                  installed  slot, was_there, runs, version
                                                  trial      version
    watch                                         health     text, share
                                                  end        end, text
                                                  alive      where nothing else was said for ALIVE_S
                                                  error      kind, text; and nothing after it

Nothing either side says is trusted: lines, names, numbers and the sum of all sizes are bounded, every byte of a bundle
is hashed where it is used, and the robot verifies signatures and verdict of the whole as if it had come on a disk.
This module and what it imports start in milliseconds, as the robot imports them before it answers.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, MAX_MEMBERS

PROTOCOL = 2
"""Changes when an older side could misunderstand a newer one."""

ALIVE_S = 2.0
"""A robot that is busy says so this often [s]."""

SILENCE_S = 20.0
"""Longest silence of somebody who is still there [s]."""

MAX_UPLOADS = 2
"""How often a member is sent before an upload that arrives damaged is an error."""

TURN_LOST = "TurnLostError"
"""Kind of the error of a sender who was too slow while another waited; may try again."""

MAX_LINE_BYTES = 1 << 16
"""Longest line; an offer of a bundle with sixteen signatures takes some 5 kB."""

MAX_TEXT = 2000
"""Longest text in a message; what is longer is cut off by who says it."""

MAX_NUMBER = (1 << 53) - 1

Message = dict[str, Any]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MEMBER = re.compile(r"[A-Za-z0-9._/-]{1,128}")


class ProtocolError(PhysaiError):
    """The other side does not speak as agreed."""


def encode(what: str, **fields: Any) -> bytes:
    """A message as a line; texts are cut to what a line may hold."""
    cut = {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in fields.items()}
    return json.dumps({"say": what, **cut}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line.

    Raises:
        ProtocolError: it is too long, was cut off, or holds no message.
    """
    if not len(line) <= MAX_LINE_BYTES or not line.endswith(b"\n"):
        raise ProtocolError(f"a line of {len(line)} bytes or more, at most {MAX_LINE_BYTES} are allowed, or cut off")
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(cast("Message", document).get("say"), str):
        raise ProtocolError(f"expected a message, got {line[:80]!r}")
    return cast("Message", document)


def text(message: Message, name: str) -> str:
    """A text in a message; ProtocolError if it is none."""
    value = message.get(name)
    if not isinstance(value, str) or not len(value) <= MAX_TEXT:
        raise _wrong(message, name, "a text")
    return value


def digest(message: Message, name: str) -> str:
    """A SHA-256 in a message; ProtocolError if it is none."""
    value = message.get(name)
    if not is_digest(value):
        raise _wrong(message, name, "a SHA-256")
    return cast("str", value)


def number(message: Message, name: str, limit: int = MAX_NUMBER) -> int:
    """A whole number from 0 to a limit in a message; ProtocolError if it is none."""
    value = message.get(name)
    if not is_number(value, limit):
        raise _wrong(message, name, f"a whole number up to {limit}")
    return cast("int", value)


def seconds(message: Message, name: str) -> float:
    """A duration of up to a day in a message [s]; ProtocolError if it is none."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 86400.0:
        raise _wrong(message, name, "seconds up to a day")
    return float(value)


def share(message: Message, name: str) -> float:
    """A number from 0 to 1 in a message; ProtocolError if it is none."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise _wrong(message, name, "a share from 0 to 1")
    return float(value)


def flag(message: Message, name: str) -> bool:
    """A truth value in a message; ProtocolError if it is none."""
    value = message.get(name)
    if not isinstance(value, bool):
        raise _wrong(message, name, "true or false")
    return value


def is_digest(value: object) -> bool:
    """Whether something is a SHA-256 in lower-case hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def is_number(value: object, limit: int = MAX_NUMBER) -> bool:
    """Whether something is a whole number from 0 to a limit."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _wrong(message: Message, name: str, kind: str) -> ProtocolError:
    return ProtocolError(f"{message['say']!r:.40} should have {kind} as {name!r}, got {message.get(name)!r:.80}")


@dataclass(frozen=True)
class Member:
    """One member of a bundle that is offered."""

    sha256: str
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Offer:
    """A bundle that a robot is to run, by the hashes of what it consists of."""

    bundle: str
    """SHA-256 of the whole file."""
    version: int
    robot: str
    """Robot model of its contract."""
    members: dict[str, Member]
    wait_s: float = 0.0
    """How long to wait for another flash, or another command that changes the slots [s]."""

    @property
    def recipe(self) -> dict[str, str]:
        """SHA-256 by member."""
        return {name: member.sha256 for name, member in self.members.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by SHA-256: equal members are sent once."""
        return {member.sha256: member.size for member in self.members.values()}

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members.values())

    def encode(self) -> bytes:
        """The offer as a line."""
        members = {name: [member.sha256, member.size] for name, member in self.members.items()}
        return encode(
            "offer",
            protocol=PROTOCOL,
            bundle=self.bundle,
            version=self.version,
            robot=self.robot,
            members=members,
            wait_s=self.wait_s,
        )

    @classmethod
    def parse(cls, message: Message) -> "Offer":
        """The offer in a message.

        Raises:
            ProtocolError: it is malformed or beyond a bundle's limits.
        """
        check_protocol(message)
        listed: Any = message.get("members")
        if not isinstance(listed, dict) or not 0 < len(cast("Message", listed)) <= MAX_MEMBERS:
            raise _wrong(message, "members", f"1 to {MAX_MEMBERS} members")
        members: dict[str, Member] = {}
        for name, facts in cast("Message", listed).items():
            if not _MEMBER.fullmatch(name) or not isinstance(facts, list) or len(cast("list[Any]", facts)) != 2:
                raise _wrong(message, "members", "SHA-256 and size by name")
            sha256, size = cast("list[Any]", facts)
            if not is_digest(sha256) or not is_number(size, MAX_BUNDLE_BYTES):
                raise _wrong(message, "members", "SHA-256 and size by name")
            members[name] = Member(sha256, size)
        offer = cls(
            digest(message, "bundle"),
            number(message, "version"),
            text(message, "robot"),
            members,
            seconds(message, "wait_s"),
        )
        if not offer.size <= MAX_BUNDLE_BYTES:
            raise ProtocolError(f"members of {offer.size} bytes, a bundle has at most {MAX_BUNDLE_BYTES}")
        return offer


def check_protocol(message: Message) -> None:
    """Raises ProtocolError where the other side speaks another protocol."""
    theirs = number(message, "protocol")
    if theirs != PROTOCOL:
        raise ProtocolError(
            f"protocol {theirs} there, {PROTOCOL} here: install the same version of physai-sdk on both computers"
        )
