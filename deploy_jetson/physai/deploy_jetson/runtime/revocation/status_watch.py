"""Has a policy that lost its verdict stopped, while it runs.

Threads of their own read, verify and write. The control loop only compares two references per tick; if one changed, it
reads prepared data and puts a request into its own queue. So a source that hangs delays no tick and no other source.
"""

import time
from collections.abc import Callable
from typing import Any

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.revocation.aftermath import Aftermath, LostVerdict
from physai.deploy_jetson.runtime.revocation.joint_bounds import JointBounds, contradiction_of
from physai.deploy_jetson.runtime.revocation.live_words import KnownWords, LiveWords, time_on_s
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.active import ActivePolicy, open_active
from physai.deploy_jetson.update.revocation.kept_words import RevocationError, narrowing_of, revocation_of
from physai.deploy_jetson.update.revocation.revoked_drive import note_revocation
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.sdk.base.files import oserror_as
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState

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
        self._after = Aftermath(options, say)
        # Ticks of which a thread knows, and those of which the joints were compared.
        self._ticks = self._judged = 0
        self._loop: Loop | None = None
        self._tick: Tick | None = None
        self._contract: PolicyContract | None = None
        self._loaded: LoadedPolicy | None = None
        self._applied: KnownWords | None = None
        self._bounds: JointBounds | None = None
        # Bundle and conditions that are watched, and those that the robot left, with what was found.
        self._conditions: object = None
        self._left: tuple[object, str] = (self, "")
        self._live = LiveWords(options, say, self._follow, clock=clock, on_s=on_s)

    def begin(self) -> None:
        """Start the threads."""
        self._live.begin()

    def close(self) -> None:
        """End the threads, and keep the age of the word; a source that hangs is not waited for."""
        self._live.close()
        # A run that a revocation ends may end before the thread had its turn.
        self._after.note()

    def status(self) -> dict[str, Any]:
        """Return the words, their ages, and why no request may start the policy, as plain data."""
        return {"barred": self._commands.barred, "problem": self._after.problem, **self._live.status()}

    def open_active(self) -> ActivePolicy:
        """Open the active policy, of which the words hold; see `open_active`.

        If its verdict is revoked and the owner wants that, the robot goes back to the version before first.

        Raises:
            RevocationError: the verdict is revoked.
            PhysaiError: see `open_active`.
        """
        root, config = self._options.root, self._options.config
        try:
            active = open_active(root, config=config)
        except RevocationError as error:
            store = SlotStore(PosixFileSystem(root))
            slot = store.active()
            marker = None if slot is None else store.marker(slot)
            with oserror_as(RevocationError, f"{error}; {root}: this is not noted"):
                note_revocation(root, str(error))
            if self._live.rules.on_revoked != "back" or marker is None:
                raise
            done, text = self._after.go_back(marker.bundle_sha256, str(error))
            if not done:
                raise RevocationError(f"{error}; {text}") from None
            self._say(f"warning: {error}; {text}")
            if not self._live.rules.drive_after_revoked:
                # Supersedes the request that the start of the run is: it was made for the other version.
                self._commands.put(Command.HOLD)
            active = open_active(root, config=config)
        self._live.tighten(active.bundle.contract.safety.status_max_age_s)
        return active

    def attach(self, loop: Loop, tick: Tick, contract: PolicyContract) -> None:
        """Name the loop whose policy the words are about."""
        self._loop, self._tick, self._contract = loop, tick, contract
        loop.judge, loop.revoked = self.check, lambda loaded: bool(self._problem(loaded))

    def _problem(self, loaded: LoadedPolicy) -> str:
        """Return why the verdict on a policy does not hold for this robot any more; empty if it does."""
        one, words = loaded.candidate, self._live.known.words
        if why := revocation_of(words, one.bundle_sha256, one.bundle_id):
            return f"the verdict on version {one.version} is revoked {why}"
        narrowed = narrowing_of(words, one.bundle_sha256, one.bundle_id)
        unknown = contradiction_of(self._contract, [entry.conditions for entry in narrowed]) if self._contract else ""
        return f"the verdict on version {one.version} is narrowed to {unknown}" if unknown else ""

    def check(self) -> None:
        """Apply the words to the policy that is loaded, and compare the joints with its conditions; from the loop."""
        loop, tick = self._loop, self._tick
        if loop is None or tick is None:
            return
        if self._live.known is not self._applied or loop.loaded is not self._loaded:
            self._apply(loop, tick)
        if self._bounds is None or tick.state != _RUN or loop.counts.ticks == self._judged:
            return
        # Only measurements of a tick: the policy does not drive in between, nor while the runtime is inactive.
        self._judged = loop.counts.ticks
        joint_pos, joint_vel = tick.senses.joint_pos, tick.senses.joint_vel
        if self._bounds.left(joint_pos, joint_vel):
            found, self._bounds = self._bounds.describe(joint_pos, joint_vel), None
            version = loop.loaded.candidate.version
            self._left = self._conditions, f"{found}, to which the verdict on version {version} was narrowed"
            self._end(self._left[1])

    def _apply(self, loop: Loop, tick: Tick) -> None:
        self._applied, self._loaded, self._bounds = known, loaded, _ = self._live.known, loop.loaded, None
        one = loaded.candidate
        narrowed = narrowing_of(known.words, one.bundle_sha256, one.bundle_id)
        conditions = [entry.conditions for entry in narrowed]
        self._conditions = one.bundle_sha256, conditions
        if problem := self._problem(loaded):
            self._end(problem)
            return
        if known.stale and self._live.rules.on_stale != "warn":
            self._end(known.stale, self._live.rules.on_stale)
        elif self._left[0] == self._conditions:
            # Only other conditions, another policy or a new run change what was found.
            self._end(self._left[1])
            return
        else:
            self._commands.barred = ""
        tick.senses.narrow([command for one in conditions for command in one.commands.items()])
        if self._contract is not None and any(one.joints for one in conditions):
            self._bounds = JointBounds(self._contract, conditions)
        for entry in narrowed:
            text = entry.conditions.model_dump_json(exclude_defaults=True)
            self._say(f"the verdict on version {one.version} is narrowed since {entry.since}: {entry.reason}: {text}")

    def _end(self, why: str, on_stale: str = "") -> None:
        """Bring the policy to rest, and let no request start it again."""
        if self._commands.barred == why:
            return
        action = on_stale or self._live.rules.on_revoked
        self._commands.barred = why
        self._say(f"warning: {why}")
        self._commands.put(Command.SHUTDOWN if action == "finish" else Command.HOLD)
        if not on_stale and self._loaded is not None:
            self._after.lost = LostVerdict(why, self._loaded.candidate.bundle_sha256, action == "back")

    def _follow(self) -> None:
        loop, tick = self._loop, self._tick
        if loop is None or tick is None:
            return
        # A loop that does not tick keeps the state of its last tick.
        before, self._ticks = self._ticks, loop.counts.ticks
        self._after.look(barred=self._commands.barred, runs=self._ticks > before and tick.state == _RUN)
