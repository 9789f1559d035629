"""Receives newly activated policies from the policy watcher, prepares them, and hands them to the loop."""

import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.hot_swap.candidate import REVOKED, Candidate, receive
from physai.deploy_jetson.runtime.hot_swap.health_report import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.policy_watcher import start_scout
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract

# Longest wait at shutdown for a policy that is being loaded [s].
CLOSE_S = 5.0


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy that can take over between two ticks."""

    candidate: Candidate
    policy: BoundPolicy
    health: RuntimeHealth
    """Its health counters, all zero."""


class PolicySwapper:
    """Thread that prepares a change of policy, so that the loop only swaps references."""

    def __init__(
        self,
        connection: socket.socket,
        contract: PolicyContract,
        open_health: Callable[[Candidate], RuntimeHealth],
        say: Callable[[str], None],
        *,
        unsafe_no_verdict: bool = False,
        to_run_unsafe: str = "--unsafe-no-verdict",
        hold: Callable[[], object] = lambda: None,
    ) -> None:
        """Initialize without starting the thread.

        Args:
            connection: the runtime's end of the watcher's socket.
            contract: of the running policy; a policy with a different one needs a restart of the runtime.
            open_health: opens the health counters of a policy.
            say: reports a message to the operator.
            unsafe_no_verdict: whether a policy that was installed without a valid verdict may take over.
            to_run_unsafe: name of the option that allows it.
            hold: called if what was activated is revoked: the robot went back from the running one, and not to it.
        """
        self.ready: LoadedPolicy | None = None
        """The next policy, for the loop to take."""
        self.other: Candidate | None = None
        """A newly activated policy with a different contract."""
        self._connection, self._contract = connection, contract
        self._open_health, self._say, self._hold = open_health, say, hold
        self._unsafe_no_verdict, self._to_run_unsafe = unsafe_no_verdict, to_run_unsafe
        self._old: LoadedPolicy | None = None
        self._taken = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="physai-swap", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def change(self, old: LoadedPolicy) -> LoadedPolicy:
        """Return the prepared policy in exchange for `old`, which the swapper's thread closes."""
        new = self.ready
        if new is None:
            return old
        # Closed by the swapper's thread: the loop must not wait for a file.
        self.ready, self._old = None, old
        self._taken.set()
        return new

    def close(self) -> None:
        """End the watcher and the thread."""
        self._closed = True
        with suppress(OSError):
            # Closing alone does not wake the thread that reads from it.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._taken.set()
        if self._thread.is_alive():
            # Bounded, because the first call of a policy may hang; the thread is a daemon.
            self._thread.join(CLOSE_S)
        self._connection.close()

    def _serve(self) -> None:
        while True:
            try:
                received = receive(self._connection)
            except (OSError, ValueError):
                return
            if received is None:
                return
            if isinstance(received, str) and received.startswith(REVOKED):
                self._say(f"warning: HOLD: what was activated may not run: {received}")
                self._hold()
            elif isinstance(received, str):
                self._say(f"the newly activated policy may not run, the policy before goes on: {received}")
            elif received.unsafe_no_verdict and not self._unsafe_no_verdict:
                self._say(
                    f"version {received.version} was installed without a valid verdict, the policy before goes on; "
                    f"start with {self._to_run_unsafe} to let it run"
                )
            # Other fields or another rate: the loop's buffers do not fit, so a new process has to load it.
            elif received.fingerprint != self._contract.fingerprint:
                self.other = received
            else:
                self._offer(received)

    def _offer(self, candidate: Candidate) -> None:
        try:
            loaded = LoadedPolicy(candidate, candidate.load(self._contract), self._open_health(candidate))
        except PhysaiError as error:
            self._say(f"version {candidate.version} does not start, the policy before goes on: {error}")
            return
        # Before `ready` is set, after which the loop may take it at any time.
        self._taken.clear()
        self.ready = loaded
        if not self._closed:
            # One policy at a time: the next one is read only once this one has been taken.
            self._taken.wait()
        if self._old is not None:
            self._old.health.close()
            self._old = None


def open_swapper(
    options: RunOptions,
    contract: PolicyContract,
    running_sha256: str,
    open_health: Callable[[Candidate], RuntimeHealth],
    say: Callable[[str], None],
    commands: CommandQueue,
) -> tuple[subprocess.Popen[bytes], PolicySwapper]:
    """Start the policy watcher of a run and the swapper that receives its policies; see `PolicySwapper`."""
    scout, connection = start_scout(options.root, options.config, running_sha256)
    swapper = PolicySwapper(
        connection,
        contract,
        open_health,
        say,
        unsafe_no_verdict=options.unsafe_no_verdict,
        to_run_unsafe=options.names.unsafe_no_verdict,
        hold=lambda: commands.put(Command.HOLD),
    )
    return scout, swapper
