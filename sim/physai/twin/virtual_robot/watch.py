"""Status lines of a virtual robot: whether it receives commands, and what is wrong."""

import threading
from collections.abc import Callable

from physai.twin.virtual_robot.paced_twin import RuntimeTally

POLL_S = 1.0
MAX_REPORTED = 32
"""Greatest number of distinct problems reported."""


class TallyWatch:
    """Polls a robot's tally once per second in its own thread and reports what changed."""

    def __init__(
        self,
        tally: RuntimeTally,
        problems: Callable[[], tuple[str, ...]],
        report: Callable[[str], None],
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Starts the thread.

        Args:
            tally: counters updated by the robot's thread.
            problems: problems of its link.
            report: prints a line.
            paused: whether the simulation is paused.
        """
        self._paused = paused
        self._tally, self._problems, self._report = tally, problems, report
        self._commands, self._periods, self._falls = 0, 0, 0
        self._state = ""
        self._reported: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="physai-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            self.look()

    def look(self) -> None:
        """Reports what changed since the last call."""
        tally = self._tally
        commands, periods = tally.commands - self._commands, tally.periods - self._periods
        self._commands, self._periods = tally.commands, tally.periods
        if self._paused():
            state, text = "paused", "paused: no samples are sent"
        elif commands:
            state, text = "commanded", f"receiving commands, {commands} in the last {periods} control periods"
        elif tally.commands:
            state, text = "silent", "commands stopped; holding positions, braking efforts"
        else:
            state, text = "waiting", "waiting for commands"
        # Report transitions only: the text changes with every count, the state does not.
        if state != self._state:
            self._state = state
            self._report(text)
        if tally.falls > self._falls:
            self._report(f"fell {tally.falls - self._falls} times, returned to its starting pose")
            self._falls = tally.falls
        # Collecting the link's problems takes the robot's own time, so do it only while no commands arrive.
        if not commands:
            self._report_problems()

    def _report_problems(self) -> None:
        for problem in self._problems():
            if problem not in self._reported and len(self._reported) < MAX_REPORTED:
                self._reported.add(problem)
                self._report(problem)

    def close(self) -> None:
        """Stops the thread."""
        self._stop.set()
        self._thread.join()
