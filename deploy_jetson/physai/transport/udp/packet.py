"""The datagram between a runtime and a microcontroller: fixed, little-endian, no larger than an Ethernet frame.

    offset  type        field
    0       4 bytes     magic, `PHYS`
    4       uint8       version, 2
    5       uint8       kind: 1 sensors, 2 commands of an operator, 3 joint targets; without values: 4 a greeting, by
                        which a runtime asks for the robot, 5 the robot's answer to it and to targets that it refuses
    6       uint8       clock of the stamp: 0 CLOCK_REALTIME (synchronised, PTP or NTP), 1 the sender's own since it
                        started (a microcontroller's)
    7       uint8       0
    8       8 bytes     first 8 bytes of the contract's SHA-256 fingerprint
    16      uint32      sequence, one more than that of the packet before of the same kind; wraps around
    20      uint32      count of values
    24      uint64      stamp [ns]: when the sensors were read, or the targets were computed
    32      uint32      commander: a number other than 0 that a runtime draws at random when it starts. From the robot:
                        that of the runtime that it obeys, 0 for none
    36      uint32      lease: how many the robot has granted since it started. From a runtime: the number of the lease
                        that it holds; 0 if it does not know it
    40      float32[n]  values, SI units
    40+4n   uint32      CRC-32 (IEEE 802.3, as zlib's crc32) of all before it

Version 1 had no commander and no lease. How a robot grants one: `physai.transport.udp.grants`.

The values of a kind are all vectors of the contract, one after the other in its own order: sensors in the order of
`robot.sensors`, commands in that of `command.fields`, targets in that of `action.terms`; joint vectors in the joint
order of the contract. The fingerprint is what makes that order the same on both sides: a microcontroller is built
with `physai contract show`'s fingerprint and refuses any other. What a robot does not measure is NaN.

The CRC detects corruption, not attacks: packets are not signed. Use a private link.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array, TransportError

MAGIC = b"PHYS"
VERSION = 2
HEADER = struct.Struct("<4sBBBB8sIIQII")
CRC = struct.Struct("<I")
# Payload of an Ethernet frame of 1500 bytes after the headers of IPv4 and UDP.
MAX_PACKET_BYTES = 1472
MAX_VALUES = (MAX_PACKET_BYTES - HEADER.size - CRC.size) // 4
WRAP = 1 << 32


class Kind(IntEnum):
    """Content of a packet."""

    SENSORS = 1
    COMMANDS = 2
    TARGETS = 3
    GREETING = 4
    LEASE = 5


class Clock(IntEnum):
    """Clock of a packet's stamp."""

    REALTIME = 0
    OWN = 1


@dataclass(frozen=True)
class PacketLayout:
    """Vectors of one kind of packet."""

    kind: Kind
    fingerprint: bytes
    """First 8 bytes of the contract's fingerprint."""
    slices: dict[str, slice]
    """Position of each vector among the values."""

    @property
    def count(self) -> int:
        """Number of values."""
        return max((part.stop for part in self.slices.values()), default=0)


def packet_layout(contract: PolicyContract, kind: Kind) -> PacketLayout:
    """Return the layout of a contract's packets of one kind.

    Raises:
        TransportError: its values do not fit into one packet.
    """
    sizes = {
        Kind.SENSORS: {sensor.name: sensor.size for sensor in contract.robot.sensors},
        Kind.COMMANDS: {field.name: field.size for field in contract.command.fields},
        Kind.TARGETS: graph_interface(contract).targets,
        Kind.GREETING: {},
        Kind.LEASE: {},
    }[kind]
    bounds = list(accumulate(sizes.values(), initial=0))
    if not (count := bounds[-1]) <= MAX_VALUES:
        raise TransportError(
            f"the {kind.name.lower()} of {contract.robot.name} are {count} values, a packet holds {MAX_VALUES}: use dds"
        )
    slices = {name: slice(*pair) for name, pair in zip(sizes, pairwise(bounds), strict=True)}
    return PacketLayout(kind, bytes.fromhex(contract.fingerprint[:16]), slices)


class PacketWriter:
    """One preallocated packet, written in place."""

    def __init__(self, layout: PacketLayout, clock: Clock = Clock.REALTIME) -> None:
        """Allocate a packet of NaN; its sequence starts at 0."""
        self._layout = layout
        self._clock = clock
        size = HEADER.size + 4 * layout.count
        self._room = bytearray(size + CRC.size)
        self.data = memoryview(self._room)
        """The packet as last written."""
        self._body = self.data[:size]
        self._values: npt.NDArray[np.float32] = np.frombuffer(self._room, "<f4", layout.count, HEADER.size)
        # A field that is never written counts as not measured.
        self._values[:] = np.nan
        self._sequence = 0
        self.commander = self.lease = 0
        """Header fields of the next packet; see the module."""

    def write(self, vectors: Mapping[str, Array], stamp_ns: int) -> bool:
        """Write vectors into the packet; return whether any of its vectors was given, or it has none.

        Raises:
            TransportError: a vector has another number of elements than the contract's.
        """
        found = not self._layout.slices
        for name, part in self._layout.slices.items():
            values = vectors.get(name)
            if values is None:
                continue
            if values.size != part.stop - part.start:
                raise TransportError(f"{name} has {values.size} elements, expected {part.stop - part.start}")
            self._values[part] = values.reshape(-1)
            found = True
        if found:
            layout, sequence = self._layout, self._sequence
            HEADER.pack_into(
                self._room, 0, MAGIC, VERSION, layout.kind, self._clock, 0, layout.fingerprint, sequence, layout.count,
                stamp_ns, self.commander, self.lease,
            )  # fmt: skip
            # Last, over everything before it.
            CRC.pack_into(self._room, len(self._body), zlib.crc32(self._body))
            self._sequence = (sequence + 1) % WRAP
        return found


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a valid packet."""

    kind: Kind
    clock: Clock
    sequence: int
    stamp_ns: int
    commander: int
    lease: int


class PacketReader:
    """Reads packets of one contract from a buffer."""

    def __init__(self, layouts: tuple[PacketLayout, ...]) -> None:
        """Accept the kinds of these layouts; receive the datagrams into `room`."""
        self._layouts = {int(layout.kind): layout for layout in layouts}
        self.room = bytearray(MAX_PACKET_BYTES + 1)
        """One byte more than the maximum, to detect longer packets."""
        self._view = memoryview(self.room)
        self.values: dict[Kind, npt.NDArray[np.float32]] = {
            layout.kind: np.frombuffer(self.room, "<f4", layout.count, HEADER.size) for layout in layouts
        }
        """The values of the packet in `room`, if it is of that kind."""

    def read(self, size: int) -> Header:
        """Check the packet in the first `size` bytes of `room`.

        Raises:
            TransportError: it is not a packet of this contract, or corrupted.
        """
        least = HEADER.size + CRC.size
        if not least <= size <= MAX_PACKET_BYTES:
            raise TransportError(f"a packet of {size} bytes, expected {least} to {MAX_PACKET_BYTES}")
        magic, version, kind, clock, _, fingerprint, sequence, count, stamp_ns, commander, lease = HEADER.unpack_from(
            self.room
        )
        if magic != MAGIC:
            raise TransportError(f"a packet starts with {bytes(magic)!r}, expected {MAGIC!r}")
        if version != VERSION:
            raise TransportError(f"a packet of version {version}, expected {VERSION}")
        # After the version, whose packets may place the CRC elsewhere, and before everything else that the packet says.
        if CRC.unpack_from(self.room, size - CRC.size)[0] != zlib.crc32(self._view[: size - CRC.size]):
            raise TransportError("a packet whose CRC does not fit: damaged on its way")
        layout = self._layouts.get(kind)
        if layout is None:
            raise TransportError(f"a packet of kind {kind}, expected {', '.join(map(str, sorted(self._layouts)))}")
        if fingerprint != layout.fingerprint:
            raise TransportError(
                f"a packet of the contract {fingerprint.hex()}…, expected {layout.fingerprint.hex()}…: build the "
                "microcontroller and export the policy from one contract"
            )
        if count != layout.count or size != least + 4 * count:
            raise TransportError(f"a packet of {count} values and {size} bytes, expected {layout.count} values")
        if clock not in (Clock.REALTIME, Clock.OWN):
            raise TransportError(f"a packet with clock {clock}, expected 0 or 1")
        return Header(layout.kind, Clock(clock), sequence, stamp_ns, commander, lease)


def is_newer(sequence: int, last: int) -> bool:
    """Whether a sequence number follows another, across the wrap (serial numbers of RFC 1982)."""
    # Half of the range lies ahead of `last`, the other half behind.
    return 0 < (sequence - last) % WRAP < WRAP // 2
