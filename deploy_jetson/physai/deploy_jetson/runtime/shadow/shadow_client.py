"""The runtime's side of a shadow: starts its process, drops one that falls behind, and keeps its evidence."""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physai.deploy_jetson.runtime.shadow import shadow_process
from physai.deploy_jetson.runtime.shadow.shadow_ticks import DROP_PERIODS, ShadowError
from physai.deploy_jetson.runtime.system.realtime import Realtime, become_helper
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowMemory, ShadowWord
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract

RESTARTS = 3
"""Times that a shadow which has ended by itself is started again."""

HANG_NS = 500_000_000
"""Time for which a shadow may be dropped before its process is ended [ns]; a busy machine delays one by less."""

# Wait before that [s].
RESTART_S = 1.0

# Longest wait for a shadow to report for the last time and end [s].
END_S = 3.0

# Period in which the evidence on disk is replaced [s].
KEEP_S = 10.0

MOST_JOINTS = 64
"""Joints whose divergence the status shows."""

_SHOWN = (
    "began",
    "ended",
    "ticks",
    "starts",
    "unanswered",
    "late",
    "stops",
    "command_share",
    "interventions",
    "compute_s",
)

_READY, _DONE = int(ShadowWord.READY), int(ShadowWord.DONE)


@dataclass(frozen=True, kw_only=True)
class ShadowOutputs:
    """Receivers of a shadow's results."""

    say: Callable[[str], None] = print
    """Reports a message to the operator; must not block."""
    keep: Callable[[dict[str, Any]], None] = lambda facts: None
    """Stores evidence, the measured fields of `ShadowEvidence` and the facts of its bundle; called from a thread."""
    record: Callable[[int, PolicyContract], None] = lambda descriptor, contract: None
    """Gives the flight recorder the memory of a new shadow."""


class Shadow:
    """The shadow of one runtime. `check` is for the loop's thread, the rest for any."""

    def __init__(
        self,
        ring: FlightRing,
        contract: PolicyContract,
        *,
        root: Path,
        config: Path | None,
        outputs: ShadowOutputs,
        realtime: Realtime,
    ) -> None:
        """Initialize without a shadow.

        Args:
            ring: memory of the flight recorder, with its descriptor.
            contract: of the policy that drives.
            root: the robot's tree.
            config: folder of the owner's files; None for the default of that tree.
            outputs: where results go.
            realtime: settings of the loop, out of whose way a shadow goes.
        """
        self.realtime = realtime
        self.ring, self.contract, self.outputs = ring, contract, outputs
        self.root, self.config = root, config
        # Of the shadow that follows; None while there is none, so that a tick compares one reference.
        self._words: memoryview | None = None
        self._run: _Run | None = None
        self._leaving: list[_Run] = []
        self._lock = threading.Lock()
        self.dropped = 0
        """Times that a shadow fell behind or died."""
        self._behind_ns = 0
        self._said = False
        self.problem = ""
        """Why the last shadow ended; empty if none did, or if it was ended on request."""
        self._restarts = 0

    def start(self, bundle: Path) -> None:
        """Start a shadow in place of the one before; returns at once.

        Raises:
            ShadowError: there is no such file.
        """
        if not bundle.is_file():
            raise ShadowError(f"{bundle}: no such bundle to run as a shadow")
        with self._lock:
            self._end()
            self.problem, self._restarts, self._said = "", 0, False
            self._run = _Run(self, bundle.absolute())

    def off(self) -> bool:
        """End the shadow after its last report, without waiting for that; return whether there was one."""
        with self._lock:
            return self._end()

    def close(self) -> None:
        """End the shadow, and wait until the processes of all shadows have ended."""
        self.off()
        for run in self._leaving:
            run.wait()

    def check(self) -> None:
        """Drop a shadow that has fallen behind, until it is back; call after each tick."""
        words = self._words
        if words is None:
            return
        behind = self.ring.count - words[_DONE]
        if behind > DROP_PERIODS:
            self._drop(behind)
        elif self._behind_ns:
            self._behind_ns = 0

    def _drop(self, behind: int) -> None:
        now_ns = time.monotonic_ns()
        if not self._behind_ns:
            self._behind_ns = now_ns
            self.dropped += 1
            if not self._said:
                self._said = True
                self.outputs.say(
                    f"warning: shadow: dropped, {behind} control periods behind; status counts further times"
                )
        elif now_ns - self._behind_ns > HANG_NS:
            self._words = None
            run = self._run
            if run is not None:
                run.kill(behind)

    def status(self) -> dict[str, Any]:
        """Return the status for the control socket, as plain data; empty before the first shadow."""
        run = self._run
        if run is None and not (self.problem or self.dropped):
            return {}
        facts = {} if run is None else run.facts
        return {
            "state": self._state(run),
            "problem": self.problem,
            "dropped": self.dropped,
            **{name: facts[name] for name in ("version", "bundle_sha256") if name in facts},
            # Without the long lists, which stand in the evidence: an answer on the socket is bounded.
            **({} if run is None else {name: run.evidence[name] for name in _SHOWN if name in run.evidence}),
            "divergence": [] if run is None else run.evidence.get("divergence", [])[:MOST_JOINTS],
        }

    def _state(self, run: "_Run | None") -> str:
        if run is None:
            return "off"
        return "starts" if not run.ready else "dropped" if self._behind_ns else "runs"

    def _end(self) -> bool:
        run, self._run, self._words = self._run, None, None
        if run is None:
            return False
        # Not waited for: the caller may be the thread that serves the operator's requests.
        run.leave()
        self._leaving = [one for one in self._leaving if one.lives()] + [run]
        return True

    def follows(self, run: "_Run", words: memoryview) -> None:
        """A shadow has begun to follow the rows."""
        if self._run is run:
            self._behind_ns, self._words = 0, words

    def ended(self, run: "_Run", why: str) -> None:
        """A shadow's process has ended by itself or was dropped."""
        with self._lock:
            if self._run is not run:
                return
            self._words, self._run, self.problem = None, None, why
            # One that hung was counted when it was dropped.
            self.dropped += run.ready and not self._behind_ns
            self._behind_ns = 0
            # One that never followed the rows would fail again.
            again = run.ready and self._restarts < RESTARTS
            if again:
                self._restarts += 1
                self._run = _Run(self, run.bundle, after_s=RESTART_S)
        more = f"; it is started again ({self._restarts} of {RESTARTS})" if again else ""
        self.outputs.say(f"warning: shadow: {why}{more}")


class _Run:
    """One process of a shadow, and the thread that starts it and reads what it reports."""

    def __init__(self, owner: Shadow, bundle: Path, *, after_s: float = 0.0) -> None:
        self._owner, self.bundle, self._after_s = owner, bundle, after_s
        self._ended = threading.Event()
        self.number = secrets.token_hex(16)
        self.ready = False
        self.facts: dict[str, Any] = {}
        """Facts of the bundle, once it is loaded."""
        self.evidence: dict[str, Any] = {}
        """The newest report."""
        self._why = ""
        self._ending = False
        self._kept_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: threading.Thread | None = None
        self._connection, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._serve, name="physai-shadow", daemon=True)
        self._thread.start()

    def kill(self, behind: int) -> None:
        """End a process that hangs; from the loop's thread."""
        if self._process is not None:
            self._why = f"its process hung, {behind} control periods behind, and was ended"
            self._process.kill()

    def leave(self) -> None:
        """Ask the process to end; one that does not is ended by a thread of its own."""
        self._ending = True
        self._ended.set()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        self._reaper = threading.Thread(target=self._reap, name="physai-shadow-end", daemon=True)
        self._reaper.start()

    def _reap(self) -> None:
        self._thread.join(END_S)
        process = self._process
        if self._thread.is_alive() and process is not None:
            process.kill()

    def lives(self) -> bool:
        """Whether its thread still reads from the process."""
        return self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the process has ended; after `leave`."""
        for thread in (self._reaper, self._thread):
            if thread is not None:
                thread.join(END_S + 1.0)

    def _serve(self) -> None:
        # Before the process is started, which inherits it.
        become_helper(self._owner.realtime)
        try:
            if not self._ended.wait(self._after_s):
                self._begin()
                self._read()
        except (OSError, ValueError, PhysaiError) as error:
            self._why = self._why or str(error)
        self._finish()

    def _begin(self) -> None:
        owner = self._owner
        rows = owner.ring.share()
        settings = {
            "bundle": str(self.bundle),
            "root": str(owner.root),
            "config": None if owner.config is None else str(owner.config),
            "contract": canonical_json(owner.contract).decode(),
            "capacity": owner.ring.capacity,
            "parent": os.getpid(),
        }
        try:
            descriptors = (self._theirs.fileno(), rows)
            command = [sys.executable, "-m", shadow_process.__name__, *map(str, descriptors)]
            # A session of its own, so that Ctrl-C at the terminal reaches the runtime only. It gets these two
            # descriptors and no others.
            self._process = subprocess.Popen(
                command, pass_fds=descriptors, stdin=subprocess.PIPE, start_new_session=True
            )
        finally:
            os.close(rows)
            self._theirs.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(settings).encode())
            self._process.stdin.close()

    def _read(self) -> None:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._connection, shadow_process.MAX_MESSAGE_BYTES, 1)
            if not data:
                return
            try:
                self._take(json.loads(data), descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        owner = self._owner
        if "problem" in message:
            self._why = str(message["problem"])
        elif "ready" in message and descriptors:
            facts = message["ready"]
            contract = parse_contract(facts.pop("contract"), source="the shadow")
            memory = ShadowMemory(descriptors[0], contract, owner.ring.capacity, writes=False)
            self.facts, self.ready = facts, True
            owner.outputs.record(descriptors[0], contract)
            owner.follows(self, memory.words)
            owner.outputs.say(f"shadow: version {facts['version']} computes on this robot's samples")
        elif "evidence" in message:
            self.evidence = message["evidence"]
            if time.monotonic() - self._kept_s >= KEEP_S:
                self._keep()

    def _keep(self) -> None:
        self._kept_s = time.monotonic()
        if self.evidence:
            self._owner.outputs.keep({"run": self.number, **self.facts, **self.evidence})

    def _finish(self) -> None:
        self._connection.close()
        process = self._process
        code = None
        if process is not None:
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        try:
            self._keep()
        except PhysaiError as error:
            self._owner.outputs.say(f"warning: shadow: {error}")
        if not self._ending:
            self._owner.ended(self, self._why or f"its process ended with status {code}")
