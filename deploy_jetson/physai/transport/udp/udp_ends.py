"""Both ends of a UDP link to a microcontroller: the runtime's (`UdpTransport`) and the robot's (`UdpRobotEndpoint`).

The datagram is described in `physai.transport.udp.packet`. The robot listens on a fixed port and obeys
one runtime at a time, of those that greet it with a packet of its own contract; see
`physai.transport.udp.grants`. The runtime accepts packets of that robot only. IPv4.

A microcontroller without a synchronised clock uses its own (clock 1); see
`physai.transport.udp.packet_source`.
"""

import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import (
    Array,
    JointCommand,
    Sample,
    TransportError,
    WatchdogEndpoint,
    empty_command,
    empty_sample,
    required_fields,
)
from physai.transport.options import only_known
from physai.transport.udp.grants import Grants
from physai.transport.udp.link import DEFAULT_PORT, Address, PeerSocket, UdpEnd, address, bound_socket
from physai.transport.udp.packet import Header, Kind, PacketReader, PacketWriter, packet_layout
from physai.transport.udp.packet_source import PacketSource

OPTIONS = {
    "robot": f"HOST:PORT of the robot (default: 127.0.0.1:{DEFAULT_PORT})",
    "bind": "HOST:PORT to listen on (default: a free port)",
}
# Options of a watchdog only: the runtime's socket, as a robot answers a single address, and its commander number.
SHARED, COMMANDER = "socket", "commander"
ROBOT_OPTIONS = {"bind": f"HOST:PORT to listen on (default: 127.0.0.1:{DEFAULT_PORT})"}
# Time between greetings while waiting for a robot [s].
GREETING_S = 0.1


class UdpTransport(UdpEnd):
    """The runtime's end: receives sensors and commands, sends joint targets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options without connecting.

        Raises:
            UnknownNameError: there is no such option.
            TransportError: an address is invalid.
        """
        super().__init__()
        self.lease_number = 0
        """See `Exclusive`."""
        only_known("udp", options, {**OPTIONS, SHARED: "", COMMANDER: ""})
        self._shared = int(options[SHARED]) if SHARED in options else None
        # Never 0, which stands for no runtime.
        self._commander = int(options.get(COMMANDER, 0)) or secrets.randbelow((1 << 32) - 1) + 1
        self._robot = address(options.get("robot", f"127.0.0.1:{DEFAULT_PORT}"))
        host, port = self._robot
        self._silence = f"UDP: greeted {host}:{port}, nothing has been heard from it; is that the robot, and is it on?"
        # Towards a robot on this machine the socket stays on loopback; otherwise any interface may lead to it.
        local = host.startswith("127.")
        self._bind = address(options.get("bind", "127.0.0.1:0" if local else "0.0.0.0:0"))

    def open(self, contract: PolicyContract) -> None:
        """See `Transport.open`."""
        self._require_closed()
        layouts = tuple(packet_layout(contract, kind) for kind in (Kind.SENSORS, Kind.COMMANDS))
        self._reader = PacketReader((*layouts, packet_layout(contract, Kind.LEASE)))
        self._slices = {layout.kind: layout.slices for layout in layouts}
        self._targets = PacketWriter(packet_layout(contract, Kind.TARGETS))
        self._greeting = PacketWriter(packet_layout(contract, Kind.GREETING))
        self._targets.commander = self._greeting.commander = self._commander
        self._holder, self._greet_s = 0, 0.0
        self._claimed = False
        ahead_s = contract.timing.max_observation_age_s
        self._sources = {
            layout.kind: PacketSource(f"UDP {layout.kind.name.lower()}", ahead_s, self._notices) for layout in layouts
        }
        self._sample = empty_sample(contract)
        self._required = required_fields(contract)
        # A watchdog does not need the operator's commands.
        self._complete = not layouts[1].slices or self._shared is not None
        # A watchdog sends from the runtime's address, the only one that the robot obeys.
        own = bound_socket(self._bind) if self._shared is None else socket.socket(fileno=self._shared)
        self._link = PeerSocket(own, self._robot, self._reader, self._notices)
        self._opened_s = time.monotonic()

    def addresses(self) -> tuple[str, ...]:
        """See `SupportsAddresses`."""
        host, port = self._robot
        return (f"udp:{host}:{port}",)

    def sample(self) -> Sample:
        """See `Transport.sample`."""
        return self._sample

    def poll(self) -> bool:
        """See `Transport.poll`."""
        if not self._opened().packets(self._take) or not self._complete:
            return False
        self._sample.received_ns = time.monotonic_ns()
        self._sample.sequence += 1
        return True

    def _take(self, header: Header, sender: Address) -> bool:
        """Copy a packet into the sample; return whether it was a measurement."""
        if header.kind is Kind.LEASE:
            self._update_holder(header)
            return False
        stamp_ns = self._sources[header.kind].stamp(header)
        if not stamp_ns:
            return False
        self._update_holder(header)
        values = self._reader.values[header.kind]
        for name, part in self._slices[header.kind].items():
            self._sample.fields[name][:] = values[part]
            self._sample.stamps_ns[name] = stamp_ns
        # The operator's commands complete a sample, but only a measurement makes a new one.
        if header.kind is Kind.COMMANDS:
            self._complete = True
            return False
        self._sample.stamp_ns = stamp_ns
        return True

    def _update_holder(self, header: Header) -> None:
        """Store which runtime the robot obeys."""
        self._holder = header.commander
        if self._holder == self._commander:
            self._targets.lease = self.lease_number = header.lease

    def wait(self, timeout_s: float) -> bool:
        """See `Transport.wait`; sends greetings meanwhile, which claim the robot and keep it."""
        link, end = self._opened(), time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            if now >= self._greet_s:
                self._greeting.write({}, time.time_ns())
                link.send(self._greeting.data)
                self._greet_s = now + GREETING_S
            # Polled before the timeout is checked: on a busy machine a short wait must still receive.
            if self.poll():
                return True
            if not now < end:
                return False
            link.wait(min(end, self._greet_s) - now)

    def claim(self) -> str:
        """See `Exclusive`; the robot decides, see `physai.transport.udp.grants`."""
        # The robot grants leases, so there is nothing to ask for here.
        self._claimed = self._holder == self._commander
        return "" if self._claimed else self._unheld()

    def _unheld(self) -> str:
        return "the robot, which obeys another runtime" if self._holder else "the robot's lease"

    def renew(self) -> None:
        """See `Exclusive`; every command renews the lease."""

    def lost(self) -> str:
        """See `Exclusive`."""
        if not self._claimed or self._holder == self._commander:
            return ""
        if self._holder:
            return "the robot obeys another runtime now"
        return "the robot has started anew"

    def release(self) -> None:
        """See `Exclusive`; the lease expires."""
        self._claimed = False

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport.send`."""
        link = self._opened()
        # Nothing is sent if none of the vectors was given.
        if self._targets.write(targets, stamp_ns):
            link.send(self._targets.data)

    def companion(self) -> WatchdogEndpoint:
        """See `SupportsWatchdog`; each packet reaches one of the two processes, so the watchdog receives only while it
        sends.
        """
        host, port = self._robot
        descriptor = self._opened().descriptor
        options = {"robot": f"{host}:{port}", SHARED: str(descriptor), COMMANDER: str(self._commander)}
        return WatchdogEndpoint(self.name, options, (descriptor,))

    def missing(self) -> tuple[tuple[str, float], ...]:
        """See `Transport.missing`."""
        waited_s = time.monotonic() - self._opened_s
        unseen = [name for name in self._required if not self._sample.stamps_ns[name]]
        held = [] if self._holder in (0, self._commander) else [self._unheld()]
        return tuple((name, waited_s) for name in (*held, *unseen))


class UdpRobotEndpoint(UdpEnd):
    """The robot's end: sends sensors and commands to the runtime that it obeys, receives joint targets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options without connecting.

        Raises:
            UnknownNameError: there is no such option.
            TransportError: the address is invalid.
        """
        super().__init__()
        only_known("udp (robot's end)", options, ROBOT_OPTIONS)
        self._bind = address(options.get("bind", f"127.0.0.1:{DEFAULT_PORT}"))
        self._silence = "UDP: no runtime has been heard on {}:{}".format(*self._bind)

    def open(self, contract: PolicyContract) -> None:
        """See `RobotEndpoint.open`."""
        self._require_closed()
        targets, greeting = (packet_layout(contract, kind) for kind in (Kind.TARGETS, Kind.GREETING))
        self._reader = PacketReader((targets, greeting))
        self._slices = targets.slices
        published = (packet_layout(contract, kind) for kind in (Kind.SENSORS, Kind.COMMANDS))
        self._writers = [PacketWriter(layout) for layout in published if layout.slices]
        self._answer = PacketWriter(packet_layout(contract, Kind.LEASE))
        self.grants = Grants(contract.timing.control_dt)
        self._source = PacketSource("UDP targets", contract.timing.max_observation_age_s, self._notices)
        self._command = empty_command(contract)
        self._link = PeerSocket(bound_socket(self._bind), None, self._reader, self._notices)
        self._opened_s = time.monotonic()

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        """See `RobotEndpoint.publish`."""
        link = self._opened()
        for writer in self._writers:
            writer.commander, writer.lease = self.grants.holder, self.grants.number
            if writer.write(fields, stamp_ns):
                link.send(writer.data)

    def command(self) -> JointCommand:
        """See `RobotEndpoint.command`."""
        return self._command

    def poll(self) -> bool:
        """See `RobotEndpoint.poll`."""
        return self._opened().packets(self._take)

    def _take(self, header: Header, sender: Address) -> bool:
        link, grants, now_s = self._opened(), self.grants, time.monotonic()
        if header.kind is Kind.GREETING:
            if grants.greeted(header.commander, now_s):
                # Sensors go to the runtime that holds the lease.
                link.peer = sender
            self._answer_lease(sender)
            return False
        if not grants.commanded(header.commander, header.lease, now_s):
            self._notices.add(f"UDP: targets from {sender[0]} refused: {self._holder_text()}")
            self._answer_lease(sender)
            return False
        stamp_ns = self._source.stamp(header)
        if not stamp_ns:
            return False
        values = self._reader.values[Kind.TARGETS]
        for name, part in self._slices.items():
            self._command.targets[name][:] = values[part]
        self._command.stamp_ns, self._command.received_ns = stamp_ns, time.monotonic_ns()
        self._command.sequence += 1
        return True

    def _holder_text(self) -> str:
        """Describe which runtime is obeyed."""
        if not self.grants.holder or (peer := self._opened().peer) is None:
            return "no runtime has requested the robot"
        return f"the runtime at {peer[0]}:{peer[1]} has the robot, with lease {self.grants.number}"

    def _answer_lease(self, to: Address) -> None:
        """Send the holder of the lease to a runtime."""
        self._answer.commander, self._answer.lease = self.grants.holder, self.grants.number
        self._answer.write({}, time.time_ns())
        # The requester may be gone.
        with suppress(TransportError):
            self._opened().send(self._answer.data, to)

    def wait(self, timeout_s: float) -> bool:
        """Block until `poll` returns True or the timeout."""
        link, end = self._opened(), time.monotonic() + timeout_s
        while not self.poll():
            left = end - time.monotonic()
            if not left > 0.0:
                return False
            link.wait(left)
        return True
