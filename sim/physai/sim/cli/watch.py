"""What somebody who stands beside a virtual robot would see: whether it is commanded, and what is wrong."""

import sys
import threading
from collections.abc import Callable

from physai.sdk.base.terminal import printable, styled
from physai.sim.virtual_robot.paced_twin import RuntimeTally

LOOK_S = 1.0
MAX_TOLD = 32
"""Different problems that are told."""


def say(text: str) -> None:
    """A line on standard error."""
    print(styled("physai:", "dim", sys.stderr), printable(text), file=sys.stderr, flush=True)


class TallyWatch:
    """Looks at a robot's tally once a second, in a thread of its own, and tells what has changed."""

    def __init__(
        self,
        tally: RuntimeTally,
        problems: Callable[[], tuple[str, ...]],
        tell: Callable[[str], None],
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Starts to look.

        Args:
            tally: what the robot's thread counts.
            problems: what its link has to complain about; asked only while no commands come, because that takes the
                robot's own time.
            tell: shows a line.
            paused: whether somebody has stopped the robot's clock.
        """
        self._paused = paused
        self._tally, self._problems, self._tell = tally, problems, tell
        self._commands, self._periods, self._falls = 0, 0, 0
        self._state = ""
        self._told: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="physai-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Tells what has changed since the last look."""
        tally = self._tally
        commands, periods = tally.commands - self._commands, tally.periods - self._periods
        self._commands, self._periods = tally.commands, tally.periods
        if self._paused():
            state, text = "paused", "paused: no samples are sent"
        elif commands:
            state, text = "commanded", f"commands come, {commands} in the last {periods} control periods"
        elif tally.commands:
            state, text = "silent", "no commands any more; positions are held, efforts brake"
        else:
            state, text = "waiting", "waiting for commands"
        if state != self._state:
            self._state = state
            self._tell(text)
        if tally.falls > self._falls:
            self._tell(f"fell {tally.falls - self._falls} times, put back into its starting pose")
            self._falls = tally.falls
        if not commands:
            self._tell_problems()

    def _tell_problems(self) -> None:
        for problem in self._problems():
            if problem not in self._told and len(self._told) < MAX_TOLD:
                self._told.add(problem)
                self._tell(problem)

    def close(self) -> None:
        """Ends the looking."""
        self._over.set()
        self._thread.join()
