"""Takes newly activated policies from the policy watcher, prepares them, and hands them to the loop them."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from physai.deploy_jetson.runtime.health import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate, receive
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract

CLOSE_S = 5.0
"""Longest wait for a policy that is being loaded when the runtime ends [s]."""


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy that can take over between two ticks."""

    candidate: Candidate
    policy: BoundPolicy
    health: RuntimeHealth
    """Its counters, all zero."""


class PolicySwapper:
    """A thread that does all of a change of policy but the change."""

    def __init__(
        self,
        connection: socket.socket,
        contract: PolicyContract,
        open_health: Callable[[Candidate], RuntimeHealth],
        say: Callable[[str], None],
        *,
        unsafe_no_verdict: bool = False,
        to_run_unsafe: str = "--unsafe-no-verdict",
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares to listen.

        Args:
            connection: the runtime's end of the scout's socket.
            contract: what the runtime was started with; a policy of another one needs another start.
            open_health: makes the counters of a policy.
            say: gets what an operator should know.
            unsafe_no_verdict: whether a policy that was installed without a valid verdict may take over.
            to_run_unsafe: how the operator allows it when starting the runtime.
            prepare: called first in the thread.
        """
        self.ready: LoadedPolicy | None = None
        """The next policy, for the loop to take."""
        self.other: Candidate | None = None
        """A newly activated policy of another contract."""
        self._connection, self._contract = connection, contract
        self._open_health, self._say, self._prepare = open_health, say, prepare
        self._unsafe_no_verdict, self._to_run_unsafe = unsafe_no_verdict, to_run_unsafe
        self._old: LoadedPolicy | None = None
        self._taken = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="physai-swap", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def change(self, old: LoadedPolicy) -> LoadedPolicy:
        """The policy that is ready, in exchange for the one that ran, which ends in the swapper's own thread."""
        new = self.ready
        if new is None:
            return old
        self.ready, self._old = None, old
        self._taken.set()
        return new

    def close(self) -> None:
        """Ends the scout and the thread."""
        self._closed = True
        with suppress(OSError):
            # Closing alone would not wake the thread that reads from it.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._taken.set()
        if self._thread.is_alive():
            # A policy whose first call does not return keeps the thread, and nothing else.
            self._thread.join(CLOSE_S)
        self._connection.close()

    def _serve(self) -> None:
        self._prepare()
        while True:
            try:
                found = receive(self._connection)
            except (OSError, ValueError):
                return
            if found is None:
                return
            if isinstance(found, str):
                self._say(f"what was activated may not run, the policy before goes on: {found}")
            elif found.unsafe_no_verdict and not self._unsafe_no_verdict:
                self._say(
                    f"version {found.version} was installed without a valid verdict, the policy before goes on; start "
                    f"with {self._to_run_unsafe} to let it run"
                )
            elif found.fingerprint != self._contract.fingerprint:
                self.other = found
            else:
                self._offer(found)

    def _offer(self, candidate: Candidate) -> None:
        try:
            loaded = LoadedPolicy(candidate, candidate.load(self._contract), self._open_health(candidate))
        except PhysaiError as error:
            self._say(f"version {candidate.version} does not start, the policy before goes on: {error}")
            return
        self._taken.clear()
        self.ready = loaded
        if not self._closed:
            self._taken.wait()
        if self._old is not None:
            self._old.health.close()
            self._old = None
