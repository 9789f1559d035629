"""Has a policy that lost its verdict stopped, while it runs.

Threads of their own read, verify and write. The control loop only compares two references per tick; if one changed, it
reads prepared data and puts a request into its own queue. So a source that hangs delays no tick and no other source.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.revocation.joint_bounds import JointBounds, contradiction_of
from physai.deploy_jetson.runtime.revocation.live_words import KnownWords, LiveWords, time_on_s
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.revocation.kept_words import narrowing_of, revocation_of
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState

# Longest time that the change to the version before may take [s].
BACK_S = 300.0

_RUN = int(GuardState.RUN)


class StatusWatch:
    """Obeys the words of validators in one runtime."""

    def __init__(
        self,
        options: RunOptions,
        commands: CommandQueue,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
        on_s: Callable[[], float] = time_on_s,
    ) -> None:
        """Read the words that the robot keeps, and the sources that need no network; see `LiveWords`.

        Args:
            options: of the run.
            commands: receives the requests that end a policy.
            say: reports a message to the operator.
            clock: CLOCK_REALTIME [s].
            on_s: CLOCK_BOOTTIME [s].
        """
        self._options, self._commands, self._say = options, commands, say
        self._goes_back = threading.Event()
        self._loop: Loop | None = None
        self._tick: Tick | None = None
        self._contract: PolicyContract | None = None
        self._loaded: LoadedPolicy | None = None
        self._applied: KnownWords | None = None
        self._bounds: JointBounds | None = None
        # Bundle and conditions that are watched, and those that the robot left, with what was found.
        self._conditions: object = None
        self._left: tuple[object, str] = (self, "")
        self._live = LiveWords(options, say, self._go_back, clock=clock, on_s=on_s)

    def begin(self) -> None:
        """Start the threads."""
        self._live.begin()

    def close(self) -> None:
        """End the threads, and keep the age of the word; a source that hangs is not waited for."""
        self._live.close()

    def status(self) -> dict[str, Any]:
        """Return the words, their ages, and why no request may start the policy, as plain data."""
        return {"barred": self._commands.barred, **self._live.status()}

    def attach(self, loop: Loop, tick: Tick, contract: PolicyContract) -> None:
        """Name the loop whose policy the words are about."""
        self._loop, self._tick, self._contract = loop, tick, contract

    def after(self, progress: Callable[[int], None]) -> Callable[[int], None]:
        """Return what the loop calls after each tick: `progress`, then `check`."""

        def call(now_ns: int) -> None:
            progress(now_ns)
            self.check()

        return call

    def check(self) -> None:
        """Apply the words to the policy that is loaded, and compare the joints with its conditions; from the loop."""
        loop, tick = self._loop, self._tick
        if loop is None or tick is None:
            return
        if self._live.known is not self._applied or loop.loaded is not self._loaded:
            self._apply(loop, tick)
        if self._bounds is None or tick.state != _RUN:
            return
        joint_pos, joint_vel = tick.senses.joint_pos, tick.senses.joint_vel
        if self._bounds.left(joint_pos, joint_vel):
            found, self._bounds = self._bounds.describe(joint_pos, joint_vel), None
            version = loop.loaded.candidate.version
            self._left = self._conditions, f"{found}, to which the verdict on version {version} was narrowed"
            self._end(self._left[1])

    def _apply(self, loop: Loop, tick: Tick) -> None:
        self._applied, self._loaded, self._bounds = known, loaded, _ = self._live.known, loop.loaded, None
        candidate = loaded.candidate
        version, sha256s = candidate.version, (candidate.bundle_sha256, candidate.bundle_id)
        revoked, narrowed = revocation_of(known.words, *sha256s), narrowing_of(known.words, *sha256s)
        conditions = [one.conditions for one in narrowed]
        self._conditions = sha256s, conditions
        unknown = "" if self._contract is None else contradiction_of(self._contract, conditions)
        if revoked:
            self._end(f"the verdict on version {version} is revoked {revoked}")
        elif unknown:
            self._end(f"the verdict on version {version} is narrowed to {unknown}")
        elif known.stale and self._live.rules.on_stale != "warn":
            self._end(known.stale, self._live.rules.on_stale)
        elif self._left[0] == self._conditions:
            # Only other conditions, another policy or a new run change what was found.
            self._end(self._left[1])
            return
        else:
            self._commands.barred = ""
        if unknown:
            return
        tick.senses.narrow([command for one in conditions for command in one.commands.items()])
        if self._contract is not None and any(one.joints for one in conditions):
            self._bounds = JointBounds(self._contract, conditions)
        for one in narrowed:
            text = one.conditions.model_dump_json(exclude_defaults=True)
            self._say(f"the verdict on version {version} is narrowed since {one.since}: {one.reason}: {text}")

    def _end(self, why: str, action: str | None = None) -> None:
        """Bring the policy to rest, and let no request start it again."""
        if self._commands.barred == why:
            return
        action = action or self._live.rules.on_revoked
        self._commands.barred = why
        self._say(f"warning: {why}")
        self._commands.put(Command.SHUTDOWN if action == "finish" else Command.HOLD)
        if action == "back":
            self._goes_back.set()

    def _go_back(self) -> None:
        """Have the version before activated, in another process: verifying it holds the interpreter lock for long."""
        loop = self._loop
        if loop is None or not self._goes_back.is_set():
            return
        self._goes_back.clear()
        module = "physai.deploy_jetson.update.going_back"
        words = (str(self._options.root), str(self._options.config or ""), loop.loaded.candidate.bundle_sha256)
        command = [sys.executable, "-m", module, *words, self._commands.barred]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=BACK_S, check=False)
            text = (result.stdout or result.stderr).strip()[-500:]
        except (OSError, subprocess.SubprocessError) as error:
            text = str(error)
        self._say(text)
