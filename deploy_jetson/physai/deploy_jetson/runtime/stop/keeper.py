"""Thread that makes stops durable, lifts their records after a reset, and watches for stops of other runtimes."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.stop.stop_records import FOLDER_VARIABLE, StopRecordError, StopRecords
from physai.sdk.transport.protocol import SharesStops

# Period at which requests are recorded [s]; a stop acts before that, only its answer waits.
STEP_S = 0.02
# Period at which records of other runtimes are read [s].
LOOK_S = 0.25
# Pause after the disk refused a record [s].
RETRY_S = 1.0

NOT_DURABLE = "NOT DURABLE: a restart may forget this stop"


class StopKeeper:
    """Keeps the records of one robot in step with the requests to its runtime."""

    def __init__(
        self,
        commands: CommandQueue,
        records: StopRecords,
        *,
        shares: SharesStops | None,
        why: Callable[[], str],
        drives: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the records of earlier runtimes: a stop that was not reset binds this one.

        Args:
            commands: the operator's requests.
            records: of the robot.
            shares: informs runtimes elsewhere; None if the transport cannot.
            why: describes the newest stop.
            drives: returns whether this runtime drives. A stop at another one of this computer stops it then; a stop
                on another computer binds it once it does not drive.
        """
        self._commands, self._records, self._shares, self._why, self._drives = commands, records, shares, why, drives
        self.unprepared = ""
        """Why no stop can be recorded, so that nothing may be driven; empty if it can."""
        self.elsewhere = ""
        """A stop of another runtime that binds this one and is not reset yet; empty if there is none."""
        self._refusal = ""
        self.problem = ""
        """Why the newest stop is not durable; empty if it is."""
        self.inherited = ""
        """The stop that was found at the start; empty if there was none."""
        # Number of the stop that is recorded, and of the one that the disk has refused.
        self._recorded = self._refused = 0
        self._refused_s = self._looked_s = 0.0
        self._lifts = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="physai-stop", daemon=True)
        found = records.found()
        self.prepare()
        if found is not None:
            self.inherited = str(found)
            if found.writable:
                self._recorded = commands.latch()
            else:
                self.look()

    def prepare(self) -> None:
        """Allocate the records; call it again while `unprepared`."""
        try:
            self._records.prepare()
            self.unprepared = ""
        except StopRecordError as error:
            self.unprepared = str(error)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, after the newest request was recorded."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self.step(time.monotonic())

    def _run(self) -> None:
        while not self._ended.wait(STEP_S):
            # The next request may be a stop, so this thread outlives whatever happens in a step.
            with suppress(Exception):
                self.step(time.monotonic())

    def step(self, now_s: float) -> None:
        """Record or lift what has changed; look after other runtimes now and then."""
        commands = self._commands
        stop, acknowledged = commands.stop, commands.acknowledged
        if stop != acknowledged:
            if stop != self._recorded and not (stop == self._refused and now_s - self._refused_s < RETRY_S):
                self._record(stop, now_s)
        elif self._recorded or self._refused or self._lifts:
            self._clear()
        if self._shares is not None:
            self._shares.share_stop(stopped=commands.stopped)
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            if self.unprepared:
                self.prepare()
            self.look()

    def look(self) -> str:
        """Read the records and the claims of other runtimes; return `elsewhere`."""
        shares = self._shares
        orphan = "" if shares is None or self._drives() else shares.orphaned_stop()
        if orphan and not self._commands.stopped:
            # Its runtime has gone without a reset, so this one remembers it.
            self.inherited = f"the stop of the runtime {orphan}, which has gone"
            self._commands.latch()
        remote = "" if shares is None else shares.stop_elsewhere()
        found = None if self._recorded else self._records.found()
        text = "" if found is None else str(found)
        if found is not None and found.readable and self._drives() and not (self._commands.stopped or self.problem):
            # Another runtime of the robot was stopped, which drives nothing; the operator means the robot.
            self.inherited = text
            self._commands.latch()
        self._refusal = ""
        if found is not None and not found.readable:
            self._refusal = (
                f"{text}; let this account read that folder and file, remove what is in place of the file, or name "
                f"another folder: {FOLDER_VARIABLE}"
            )
        elif found is not None and not found.writable:
            self._refusal = f"{text} belongs to another account; reset it with a runtime of that account"
        elif remote and not self._commands.stopped:
            text = text or f"the stop at the runtime {remote}"
            self._refusal = f"{text} is reset there"
        self.elsewhere = text
        return text

    def irresettable(self) -> str:
        """Why a reset here cannot lift the stop; empty if it can."""
        return self._refusal

    def lift(self) -> None:
        """Lift the records of a stop that another runtime has left, after its reset."""
        self._lifts = True

    def settled(self, number: int) -> str | None:
        """Return whether the stop of that number is durable: an empty string, or why not; None while it is written."""
        if self._recorded >= number or self._commands.acknowledged >= number:
            return ""
        return f"{NOT_DURABLE}: {self.problem}" if self._refused >= number else None

    def _record(self, number: int, now_s: float) -> None:
        try:
            self._records.record(self._why() or "requested")
        except StopRecordError as error:
            self.problem, self._refused, self._refused_s = str(error), number, now_s
        else:
            self.problem, self._recorded = "", number

    def _clear(self) -> None:
        try:
            self._records.clear()
        except StopRecordError as error:
            # After a restart the stop is in force again, which is the safe side.
            self.problem = f"the reset could not be recorded, a restart brings the stop back: {error}"
        else:
            self.problem, self.inherited = "", ""
        self._recorded = self._refused = 0
        self._lifts = False
        self.look()
