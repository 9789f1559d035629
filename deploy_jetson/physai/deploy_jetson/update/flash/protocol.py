"""The protocol between the flashing computer and the robot: one JSON object per line over an ssh channel.

    computer                                      robot
                                                  hello      protocol, robot
    offer    protocol, bundle, version, robot,    waiting    text: another flash is in progress
             members, wait_s                      holds      active, trial; needs: [[sha256, bytes present], …]
    put      sha256, start; then raw bytes        got        bytes received since the last `got`
                                                  stored     sha256 (or `damaged`: the upload was discarded)
    time     statement, signed; optional
    install  unsafe_no_verdict, retry             stage      stage, share
                                                  note       text
                                                  installed  slot, was_there, runs, version
                                                  trial      version
    watch                                         health     text, share
                                                  end        end, text
                                                  alive      if nothing else was sent for ALIVE_S
                                                  error      kind, text; the last message

Neither side trusts the other: lines, names, numbers and the total size are bounded, every byte of a bundle is hashed
when it is used, and the robot verifies the assembled bundle as in any other installation. This module must import in
milliseconds, because the robot imports it before it answers.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, MAX_MEMBERS

PROTOCOL = 2
"""Incremented when an older side could misinterpret a newer one."""

ALIVE_S = 2.0
"""Keepalive interval of a busy robot [s]."""

SILENCE_S = 20.0
"""Timeout after which a silent peer counts as gone [s]."""

MAX_UPLOADS = 2
"""Attempts to send a member before a damaged upload is an error."""

TURN_LOST = "TurnLostError"
"""Error kind for a sender that was too slow while another waited; it may retry."""

MAX_LINE_BYTES = 1 << 16
"""Maximum length of a line; an offer of a bundle with sixteen signatures takes about 5 kB."""

MAX_TEXT = 2000
"""Maximum length of a text in a message; the sender truncates longer ones."""

MAX_NUMBER = (1 << 53) - 1

Message = dict[str, Any]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MEMBER = re.compile(r"[A-Za-z0-9._/-]{1,128}")


class ProtocolError(PhysaiError):
    """The peer violates the protocol."""


def encode(what: str, **fields: Any) -> bytes:
    """Encodes a message as a line; truncates its texts."""
    cut = {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in fields.items()}
    return json.dumps({"say": what, **cut}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Decodes a message.

    Raises:
        ProtocolError: the line is too long, truncated, or not a message.
    """
    if not len(line) <= MAX_LINE_BYTES or not line.endswith(b"\n"):
        raise ProtocolError(f"a line of {len(line)} bytes is truncated or longer than {MAX_LINE_BYTES}")
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(cast("Message", document).get("say"), str):
        raise ProtocolError(f"expected a message, got {line[:80]!r}")
    return cast("Message", document)


def text(message: Message, name: str) -> str:
    """A text field; raises ProtocolError."""
    value = message.get(name)
    if not isinstance(value, str) or not len(value) <= MAX_TEXT:
        raise _wrong(message, name, "a text")
    return value


def digest(message: Message, name: str) -> str:
    """A SHA-256 field; raises ProtocolError."""
    value = message.get(name)
    if not is_digest(value):
        raise _wrong(message, name, "a SHA-256")
    return cast("str", value)


def number(message: Message, name: str, limit: int = MAX_NUMBER) -> int:
    """An integer field from 0 to a limit; raises ProtocolError."""
    value = message.get(name)
    if not is_number(value, limit):
        raise _wrong(message, name, f"a whole number up to {limit}")
    return cast("int", value)


def seconds(message: Message, name: str) -> float:
    """A duration field of up to a day [s]; raises ProtocolError."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 86400.0:
        raise _wrong(message, name, "seconds up to a day")
    return float(value)


def share(message: Message, name: str) -> float:
    """A field from 0 to 1; raises ProtocolError."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise _wrong(message, name, "a share from 0 to 1")
    return float(value)


def flag(message: Message, name: str) -> bool:
    """A Boolean field; raises ProtocolError."""
    value = message.get(name)
    if not isinstance(value, bool):
        raise _wrong(message, name, "true or false")
    return value


def is_digest(value: object) -> bool:
    """Whether a value is a SHA-256 in lower-case hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def is_number(value: object, limit: int = MAX_NUMBER) -> bool:
    """Whether a value is an integer from 0 to a limit."""
    # bool is a subclass of int.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _wrong(message: Message, name: str, kind: str) -> ProtocolError:
    return ProtocolError(f"{message['say']!r:.40} should have {kind} as {name!r}, got {message.get(name)!r:.80}")


@dataclass(frozen=True)
class OfferedMember:
    """One member of an offered bundle."""

    sha256: str
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Offer:
    """A bundle offered to a robot, described by the hashes of its members."""

    bundle: str
    """SHA-256 of the bundle file."""
    version: int
    robot: str
    """Robot model of its contract."""
    members: dict[str, OfferedMember]
    wait_s: float = 0.0
    """How long to wait for another flash or command that changes the slots [s]."""

    @property
    def recipe(self) -> dict[str, str]:
        """SHA-256 by member name."""
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
        """Parses an offer.

        Raises:
            ProtocolError: the offer is malformed or exceeds a bundle's limits.
        """
        check_protocol(message)
        listed: Any = message.get("members")
        if not isinstance(listed, dict) or not 0 < len(cast("Message", listed)) <= MAX_MEMBERS:
            raise _wrong(message, "members", f"1 to {MAX_MEMBERS} members")
        members: dict[str, OfferedMember] = {}
        for name, facts in cast("Message", listed).items():
            if not _MEMBER.fullmatch(name) or not isinstance(facts, list) or len(cast("list[Any]", facts)) != 2:
                raise _wrong(message, "members", "SHA-256 and size by name")
            sha256, size = cast("list[Any]", facts)
            if not is_digest(sha256) or not is_number(size, MAX_BUNDLE_BYTES):
                raise _wrong(message, "members", "SHA-256 and size by name")
            members[name] = OfferedMember(sha256, size)
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
    """Raises ProtocolError if the peer has another protocol version."""
    theirs = number(message, "protocol")
    if theirs != PROTOCOL:
        raise ProtocolError(
            f"the peer has protocol {theirs}, this side {PROTOCOL}: install the same version of physai-sdk on both"
        )
