"""Process of a shadow: `python -m physai.deploy_jetson.runtime.shadow.shadow_process SOCKET ROWS`; settings on stdin.

It gets the flight recorder's memory, which it can only read, and one socket to the runtime. It opens no transport and
has none: what it computes leaves it as numbers in a memory of its own, which the runtime reads and never sends.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.shadow.shadow_meter import ShadowMeter
from physai.deploy_jetson.runtime.shadow.shadow_ticks import DROP_PERIODS, ShadowTicks
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightView
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowMemory, ShadowWord, allocate
from physai.deploy_jetson.update.agent.config import open_config
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.process.isolation import die_with_parent, offer_to_oom_killer
from physai.sdk.bundle.archive import read_file
from physai.sdk.bundle.manifest import Bundle
from physai.sdk.contract.io import parse_contract
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.verify import verify

MAX_MESSAGE_BYTES = 1 << 20
NICENESS = 5
REPORT_S = 1.0
# Polling period for a new row, as a share of the control period, and its bounds [s].
_LOOK_SHARE, _LOOK_LEAST_S, _LOOK_MOST_S = 0.05, 1e-4, 5e-3


@dataclass(frozen=True)
class _Loaded:
    """A verified bundle and its policy."""

    bundle: Bundle
    policy: BoundPolicy
    golden: Any


def load_shadow(data: bytes, root: Path, config: Path | None) -> _Loaded:
    """Verify a bundle as this robot does, but for its verdict, and load its policy.

    Raises:
        VerificationError: it is not signed for this robot.
        PhysaiError: it cannot be loaded.
    """
    owner = open_config(root, config, PosixFileSystem(root))
    identity = owner.identity()
    verified = verify(
        data,
        owner.trust(),
        robot=identity.robot,
        now=datetime.now(UTC),
        floor=0,
        requirements=owner.requirements(),
        require_verdict=False,
    )
    bundle = verified.bundle
    member = bundle.members[POLICY_FILE]
    # No installation has tested it yet. This runs it in another process, with limits of time and memory.
    try_policy(member, source=POLICY_FILE)
    engine = OnnxEngine(member, source=POLICY_FILE)
    policy = BoundPolicy.onnx(member, engine.header, source=POLICY_FILE)
    policy.warm_up()
    golden = read_golden(bundle.members[GOLDEN_FILE], engine.header) if GOLDEN_FILE in bundle.members else None
    return _Loaded(bundle, policy, golden)


class ShadowProcess:
    """Follows the rows until the runtime ends."""

    def __init__(self, connection: socket.socket, view: FlightView, settings: dict[str, Any]) -> None:
        """Load the policy and report that it is ready.

        Raises:
            PhysaiError: it cannot be a shadow here.
        """
        active = parse_contract(settings["contract"], source="the runtime")
        config = settings["config"]
        data = read_file(Path(settings["bundle"]))
        loaded = load_shadow(data, Path(settings["root"]), None if config is None else Path(config))
        self._connection, self._view = connection, view
        self._ticks = ShadowTicks(active, loaded.policy)
        contract = self._ticks.contract
        self._meter = ShadowMeter(active, contract, loaded.golden)
        descriptor = allocate(contract, settings["capacity"])
        self._memory = ShadowMemory(descriptor, contract, settings["capacity"], writes=True)
        self._look_s = min(_LOOK_MOST_S, max(_LOOK_LEAST_S, _LOOK_SHARE * active.timing.control_dt))
        self._row = view.count
        self._memory.words[ShadowWord.DONE] = self._row
        self._memory.words[ShadowWord.READY] = 1
        facts = {
            "version": loaded.bundle.manifest.version,
            "bundle_sha256": loaded.bundle.sha256,
            "policy_sha256": sha256_hex(loaded.bundle.members[POLICY_FILE]),
            "contract_fingerprint": contract.fingerprint,
            "contract": canonical_json(contract).decode(),
        }
        socket.send_fds(connection, [json.dumps({"ready": facts}).encode()], [descriptor])
        os.close(descriptor)

    def run(self) -> None:
        """Answer each row; return when the runtime's end of the socket is closed."""
        report_s = time.monotonic() + REPORT_S
        with np.errstate(all="ignore"):
            while True:
                if self._view.count > self._row:
                    self._answer()
                elif select.select([self._connection], [], [], self._look_s)[0]:
                    # The runtime says nothing but that it ends.
                    break
                if time.monotonic() >= report_s:
                    report_s = time.monotonic() + REPORT_S
                    self._report()
        self._report()

    def _answer(self) -> None:
        end = self._view.count
        flight = self._view.between(self._row, end)
        lost = end - self._row - len(flight.ticks)
        if lost > 0:
            self._meter.lost(lost)
        row = end - len(flight.ticks)
        for tick, values in zip(flight.ticks, flight.rows, strict=True):
            # A late row is computed as well, because the next answers rest on it.
            answer = self._ticks.run(tick, values)
            row += 1
            if self._view.count - row >= DROP_PERIODS and answer is not None:
                self._meter.lost(1)
            else:
                if answer is not None:
                    self._memory.write(row - 1, answer)
                self._meter.add(tick, values, answer)
            # Counted last: a reader up to here finds the answers.
            self._memory.words[ShadowWord.DONE] = row
        self._row = end

    def _report(self) -> None:
        message = json.dumps({"evidence": self._meter.facts()}).encode()
        try:
            self._connection.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            # The runtime is gone, or does not read; the next report says the same and more.
            return


def main(arguments: list[str]) -> None:
    """See the module docstring."""
    os.nice(NICENESS)
    # Not the process that drives the robot, if memory runs out.
    offer_to_oom_killer()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, rows = map(int, arguments)
    settings: dict[str, Any] = json.load(sys.stdin)
    if not die_with_parent(settings["parent"]):
        return
    with socket.socket(fileno=descriptor) as connection:
        try:
            active = parse_contract(settings["contract"], source="the runtime")
            view = FlightView(rows, active, settings["capacity"])
            os.close(rows)
            process = ShadowProcess(connection, view, settings)
        except (PhysaiError, OSError) as error:
            connection.send(json.dumps({"problem": str(error)[:2000]}).encode())
            return
        process.run()


if __name__ == "__main__":
    main(sys.argv[1:])
