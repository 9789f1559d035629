"""Consequences of a lost verdict on the disk: a note that keeps the robot from driving by itself, and the way back."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.host import error_text
from physai.deploy_jetson.update.revocation.revoked_drive import lift_revocation, note_revocation, noted_revocation

# Longest time that the change to the version before may take [s].
BACK_S = 300.0

# Shortest and longest pause between two attempts [s]: it doubles, as each one starts a process.
PAUSE_S, MAX_PAUSE_S = 10.0, 600.0


@dataclass(frozen=True, eq=False)
class LostVerdict:
    """A policy that lost its verdict while it was loaded."""

    why: str
    bundle_sha256: str
    back: bool
    """Whether the version before is to be activated."""


class Aftermath:
    """Writes the note and goes back, outside the loop's thread; goes back until it succeeds."""

    def __init__(self, options: RunOptions, say: Callable[[str], None]) -> None:
        """Read the note of an earlier run.

        Args:
            options: of the run.
            say: reports a message to the operator.
        """
        self._options, self._say = options, say
        self.lost: LostVerdict | None = None
        """The newest loss; set by the loop."""
        self.problem = ""
        """Why the note is not written or the version before not active, and the way out; empty if nothing is amiss."""
        self._seen: LostVerdict | None = None
        self._noted, self._goes_back = bool(noted_revocation(options.root)), False
        self._next_s, self._pause_s = 0.0, PAUSE_S

    def look(self, *, barred: str, runs: bool) -> None:
        """Do what is due; call it regularly.

        Args:
            barred: why no request may start the loaded policy; empty if one may.
            runs: whether the loaded policy drives, which only an operator can have asked for since the note.
        """
        lost, seen = self.lost, self._seen
        if not self.note():
            return
        # Not with a new note, which may be of something later than what is known of the loop.
        if self._noted and self._seen is seen and runs and not barred:
            self._lift()
        if lost is None or not self._goes_back:
            return
        if barred != lost.why:
            # Another policy is loaded, or the verdict stands again.
            self._goes_back, self.problem = False, ""
        elif time.monotonic() >= self._next_s:
            self._try(lost)

    def note(self) -> bool:
        """Write the note of the newest loss, if that was not done yet; return whether it is written."""
        lost = self.lost
        if lost is None or lost is self._seen:
            return True
        try:
            note_revocation(self._options.root, lost.why)
        except OSError as error:
            self._tell(f"warning: the note of the revocation is not written, tried again: {error_text(error)}")
            return False
        self._seen, self._noted, self._goes_back = lost, True, lost.back
        self._next_s, self._pause_s, self.problem = 0.0, PAUSE_S, ""
        return True

    def _lift(self) -> None:
        try:
            lift_revocation(self._options.root)
            self._noted, self.problem = False, ""
        except OSError as error:
            self._tell(f"warning: the note of the revocation is not removed, tried again: {error_text(error)}")

    def _try(self, lost: LostVerdict) -> None:
        done, text = self.go_back(lost.bundle_sha256, lost.why)
        if done:
            self._goes_back, self.problem = False, ""
            self._say(text if self._options.hot_swap else f"{text}, in the next run: end this one")
            return
        self._tell(f"{text}; it is tried again, or activate another version: `physai robot install`, `activate`")
        self._next_s, self._pause_s = time.monotonic() + self._pause_s, min(2.0 * self._pause_s, MAX_PAUSE_S)

    def go_back(self, bundle_sha256: str, why: str) -> tuple[bool, str]:
        """Activate the version before a bundle in another process, because verifying it holds the interpreter lock.

        Args:
            bundle_sha256: bundle that lost its verdict.
            why: the reason, for the log.

        Returns:
            Whether another version than that is active, and a message.
        """
        module = "physai.deploy_jetson.update.going_back"
        words = (str(self._options.root), str(self._options.config or ""), bundle_sha256, why)
        try:
            result = subprocess.run(
                [sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=BACK_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return False, f"warning: the robot stays in HOLD, it cannot go back: {error}"
        return result.returncode == 0, (result.stdout or result.stderr).strip()[-500:]

    def _tell(self, text: str) -> None:
        if text != self.problem:
            self.problem = text
            self._say(text)
