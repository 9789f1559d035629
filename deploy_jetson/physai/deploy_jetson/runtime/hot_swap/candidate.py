"""A policy that passed its checks, as plain data for passing between processes."""

import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from physai.deploy_jetson.inference.evidence import latency_evidence
from physai.deploy_jetson.inference.golden import replay
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.active import ActivePolicy
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import Origin, machine_text
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader

# Name of the transport to the simulated twin.
TWIN_TRANSPORT = "sim"

# Relative tolerance between a requested rate and 1 / control_dt.
RATE_TOLERANCE = 1e-3

# Begin of the reason why there is no candidate, if a verdict was revoked.
REVOKED = "revoked: "

_LENGTHS = struct.Struct("<III")


class CandidateError(PhysaiError):
    """A policy is not allowed to run, or contradicts its contract."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A verified policy: its signatures, its verdict and its golden states have been checked."""

    version: int
    slot: str
    bundle_sha256: str
    fingerprint: str
    """Of its contract."""
    member: str
    """The policy's name in the bundle."""
    policy: bytes
    plan: bytes | None
    """The TensorRT engine; None for onnxruntime."""
    state_sizes: dict[str, int]
    unsafe_no_verdict: bool
    """Whether it was installed without a valid verdict."""
    bundle_id: str = ""
    """SHA-256 of the bundle's manifest."""
    recorded_on: str = "unknown"
    """`Origin.mark` of the robot it is installed on."""

    def origin(self, transport: str) -> Origin:
        """Return the origin of what is measured through a transport; the twin behind `sim` is a stand-in."""
        installed = Origin.from_mark(self.recorded_on, source="the candidate")
        # What the twin measures must not pass as a measurement of the robot.
        kind = "stand-in" if transport == TWIN_TRANSPORT else installed.kind
        return Origin(kind=kind, robot=installed.robot, machine=machine_text())

    def latency_evidence(self, ticks_s: tuple[float, ...], transport: str) -> LatencyEvidence:
        """Return latency evidence from the ticks of a run over a transport, for `physai sim validate`.

        Args:
            ticks_s: durations of whole ticks [s].
            transport: name of the transport.
        """
        engine = "onnxruntime" if self.plan is None else "TensorRT"
        text = f"{engine}, whole ticks of physai robot run over {transport}"
        return latency_evidence(self.policy, self.fingerprint, ticks_s, origin=self.origin(transport), runtime=text)

    def facts(self) -> dict[str, Any]:
        """Return everything but the policy and the engine, for JSON."""
        return {name: value for name, value in vars(self).items() if name not in ("policy", "plan")}

    def load(self, contract: PolicyContract) -> BoundPolicy:
        """Load the policy and warm it up.

        Args:
            contract: with this `fingerprint`.

        Raises:
            CandidateError: the contract has a different fingerprint.
            EngineError: the engine does not load or compute.
        """
        if contract.fingerprint != self.fingerprint:
            raise CandidateError(
                f"version {self.version} keeps the contract {self.fingerprint[:12]}, not {contract.fingerprint[:12]}"
            )
        header = PolicyHeader(contract, self.state_sizes)
        if self.plan is None:
            policy = BoundPolicy.onnx(self.policy, header, source=self.member)
        else:
            from physai.deploy_jetson.inference.tensorrt import TensorRtEngine

            policy = BoundPolicy.engine(TensorRtEngine(self.plan, header))
        policy.warm_up()
        return policy


def require_rate(options: RunOptions, contract: PolicyContract) -> None:
    """Raise CandidateError if the policy does not have the required rate."""
    wanted, trained = options.rate_hz, 1.0 / contract.timing.control_dt
    # A policy's memory and its commands have the control period built in.
    if wanted is not None and not abs(wanted / trained - 1.0) <= RATE_TOLERANCE:
        raise CandidateError(
            f"the policy was trained at {trained:g} Hz and means something else at {wanted:g} Hz; leave out "
            f"{options.names.rate}, or train and export for that rate"
        )


def examine(active: ActivePolicy, progress: Callable[[float], None] | None = None) -> Candidate:
    """Start the active policy in its engine and replay its golden states.

    Args:
        active: the policy.
        progress: called with the share of golden states that were replayed.

    Raises:
        EngineError, PolicyError: it does not start here, or its outputs differ from those in training.
    """
    marker, bundle = active.marker, active.bundle
    engine = active.start()
    member = marker.runtime.member
    golden = read_golden(bundle.members[GOLDEN_FILE], engine.header)
    replay(engine, golden, exact=member == POLICY_FILE and active.plan is None, progress=progress)
    return Candidate(
        version=marker.version,
        slot=active.slot,
        bundle_sha256=bundle.sha256,
        fingerprint=bundle.contract.fingerprint,
        member=member,
        policy=bundle.members[member],
        plan=active.plan,
        state_sizes=engine.header.state_sizes,
        unsafe_no_verdict=marker.unsafe_no_verdict,
        bundle_id=bundle.id,
        recorded_on=active.origin.mark,
    )


def send(connection: socket.socket, candidate: Candidate | None, reason: str = "") -> None:
    """Send a candidate to the process at the other end, or the reason why there is none."""
    facts: dict[str, Any] = {"reason": reason}
    policy = plan = b""
    if candidate is not None:
        policy, plan = candidate.policy, candidate.plan or b""
        facts["candidate"] = candidate.facts()
    text = json.dumps(facts).encode()
    # Lengths first, so that the other end knows how much to wait for.
    connection.sendall(_LENGTHS.pack(len(text), len(policy), len(plan)))
    for part in (text, policy, plan):
        connection.sendall(part)


def receive(connection: socket.socket) -> Candidate | str | None:
    """Receive what `send` sent: a candidate, or why there is none; None once the other end is closed.

    Blocks in the kernel, without holding the interpreter lock.
    """
    head = _exactly(connection, _LENGTHS.size)
    if head is None:
        return None
    parts = [_exactly(connection, size) for size in _LENGTHS.unpack(head)]
    text, policy, plan = parts
    if text is None or policy is None or plan is None:
        return None
    facts: dict[str, Any] = json.loads(text)
    if "candidate" not in facts:
        return str(facts["reason"])
    return Candidate(**facts["candidate"], policy=policy, plan=plan or None)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    # `recv` of 0 bytes cannot be told from a closed connection.
    if size == 0:
        return b""
    # Less than that many bytes only if the other end is closed.
    data = connection.recv(size, socket.MSG_WAITALL)
    return data if len(data) == size else None
