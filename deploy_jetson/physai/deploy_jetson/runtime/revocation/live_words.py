"""The words of validators while a runtime runs: asked for, verified, kept, and their age counted, in threads."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.update.agent.config import open_config
from physai.deploy_jetson.update.revocation.kept_words import (
    COPIES,
    KeptRecord,
    KeptWord,
    KeptWords,
    RevocationError,
    accept,
    merge_records,
)
from physai.deploy_jetson.update.revocation.status_sources import is_url, read_source
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.layout import config_folder
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.deploy_jetson.update.slots.tree import time_floor
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.signing.status.status_document import StatusError, StatusPredicate
from physai.sdk.signing.trust_file import TRUST_FILE
from physai.sdk.signing.trust_store import TrustStore
from physai.sdk.signing.verify import parse_utc

# Least period at which the age of the word is written to the disk [s].
AGE_S = 60.0

# Longest period at which the disk is looked at, for words that another process keeps [s].
LOOK_S = 1.0

# Longest wait for a thread at the end [s].
CLOSE_S = 5.0

_MAX_SAID = 64


def time_on_s() -> float:
    """Time since the computer started, suspended or not [s]; no clock that is set changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class KnownWords:
    """All that the loop goes by; replaced as a whole."""

    words: tuple[StatusPredicate, ...] = ()
    stale: str = ""
    """Why the word is too old to run with; empty if it is not."""


class LiveWords:
    """The words of validators for one robot; `known` may be read from any thread."""

    def __init__(
        self,
        options: RunOptions,
        say: Callable[[str], None],
        also: Callable[[], None],
        *,
        clock: Callable[[], float] = time.time,
        on_s: Callable[[], float] = time_on_s,
    ) -> None:
        """Read the robot's settings, what it keeps, and the sources that need no network.

        Args:
            options: of the run.
            say: reports a message to the operator.
            also: called regularly, in a thread of its own.
            clock: CLOCK_REALTIME [s].
            on_s: CLOCK_BOOTTIME [s].

        Raises:
            RevocationError: both copies of the robot's record are damaged.
            PhysaiError: the robot is not set up, or its settings or trust file are malformed.
        """
        self._options, self._say, self._clock, self._on_s = options, say, clock, on_s
        store = SlotStore(PosixFileSystem(options.root))
        self._config = open_config(options.root, options.config, store.fs)
        self._robot = self._config.identity().robot
        self._trust_path = config_folder(options.root, options.config) / TRUST_FILE
        self.rules = self._config.requirements().status or StatusRules()
        self._floor_s = 0.0
        with suppress(SlotError):
            self._floor_s = time_floor(store.state()).timestamp()
        self._disk = KeptWords(options.root)
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._trust_read: tuple[object, TrustStore] | None = None
        self._seen: dict[str, tuple[bytes, tuple[int, ...]]] = {}
        self._said: set[str] = set()
        self.problem = ""
        """Why the newest word is not durable; empty if it is."""
        self._begun_s = self._on_s()
        self._record = self._kept = self._disk.load()
        self._parsed: tuple[tuple[str, ...], tuple[StatusPredicate, ...]] = ((), ())
        self._unsigned: tuple[object, str] = (None, "")
        self._stamps = self._stamp()
        self._written_s = self._begun_s
        self.known = KnownWords()
        """What the loop goes by."""
        for source in self.rules.sources:
            if not is_url(source):
                self.ask(source)
        self._renew()
        asks = [lambda source=source: self.ask(source) for source in self.rules.sources]
        # Seldom asking a source is no reason to obey late what another process was given.
        steps = [(min(self.rules.poll_s, LOOK_S), step) for step in (self.look, also)]
        self._threads = [
            threading.Thread(target=self._repeat, args=args, name="physai-status", daemon=True)
            for args in (*steps, *((self.rules.poll_s, ask) for ask in asks))
        ]

    def begin(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads, and keep the age of the word; a source that hangs is not waited for."""
        self._ended.set()
        if self._threads[0].is_alive():
            self._threads[0].join(CLOSE_S)
        if self.rules.max_age_s is not None or self._record is not self._kept:
            self._save()

    def status(self) -> dict[str, Any]:
        """Return the words and their ages, as plain data."""
        return {
            "not_durable": self.problem,
            "words": {
                kept.robot: {"serial": kept.serial, "age_s": round(self._age_s(kept, word), 1)}
                for kept, word in self._words()
            },
        }

    def tighten(self, max_age_s: float | None) -> None:
        """Bound the age of the word by that of a contract, too [s]; None changes nothing."""
        self.rules = self.rules.stricter(max_age_s)
        self._renew()

    def _repeat(self, period_s: float, step: Callable[[], None]) -> None:
        while not self._ended.wait(period_s):
            # The next word may be a revocation, so a thread outlives whatever happens in a step.
            with suppress(Exception):
                step()

    def look(self) -> None:
        """Take over what another process has kept, count the age, and write what could not be written before."""
        stamps = self._stamp()
        if stamps != self._stamps:
            self._stamps = stamps
            with self._lock:
                try:
                    disk = self._disk.load()
                except RevocationError:
                    disk = KeptRecord()
                self._take(merge_records(disk, self._record, self._trust(), self._robot))
                # What is missing on the disk is written with the next poll.
                same = [one.serial for one in self._record.words] == [one.serial for one in disk.words]
                self._kept = self._record if same else disk
        elif self._record is not self._kept or (
            self.rules.max_age_s is not None and self._on_s() - self._written_s >= AGE_S
        ):
            self._save()
        self._renew()

    def ask(self, source: str) -> None:
        """Take what a source says, or report once why not; for the thread of that source."""
        try:
            for place, data in read_source(source, self._robot):
                # Verified once: the same bytes come again with every poll, and the trust file seldom changes.
                seen = data, _stamp_of(self._trust_path)
                # A fault that passes, such as too many open files, is no answer.
                if self._seen.get(place) != seen and self._offer(place, data):
                    self._seen[place] = seen
        except StatusError as error:
            self._tell(str(error))

    def _offer(self, place: str, data: bytes) -> bool:
        """Take a document in; return whether it need not be looked at again."""
        with self._lock:
            try:
                record = accept(self._record, data, self._trust(), self._robot)
            except (PhysaiError, OSError) as error:
                self._tell(f"{place}: refused: {error}")
                return isinstance(error, StatusError)
            if record is None:
                return True
            self._take(record)
            self._say(f"{place}: the word of a validator, serial {', '.join(str(one.serial) for one in record.words)}")
        # Obeyed at once, durable as soon as the disk allows.
        self._renew()
        self._save()
        return True

    def _take(self, record: KeptRecord) -> None:
        """Go by a record from now on; words that were there before keep their age."""
        known = {(one.robot, one.serial): self._on_age_s(one) for one in self._record.words}
        self._record = record.model_copy(
            update={
                "words": tuple(
                    one.model_copy(update={"age_s": max(one.age_s, known.get((one.robot, one.serial), 0.0))})
                    for one in record.words
                )
            }
        )
        self._begun_s = self._on_s()

    def _save(self) -> None:
        # Under a lock of its own: a disk that hangs must not keep the next word waiting.
        with self._writing:
            try:
                with self._lock:
                    self._take(self._record)
                    record, trust = self._record, self._trust()
                saved = self._disk.save(record, trust, self._robot)
            except (PhysaiError, OSError) as error:
                self.problem = f"the newest word of a validator is not durable, a restart may forget it: {error}"
                self._tell(f"warning: {self.problem}")
                return
            with self._lock:
                if self._record is record:
                    self._record = saved
                else:
                    # A word that came meanwhile is written with the next look.
                    self._take(merge_records(saved, self._record, trust, self._robot))
                self._kept = saved
                self._stamps, self.problem, self._written_s = self._stamp(), "", self._on_s()

    def _renew(self) -> None:
        """Replace what the loop goes by, if it changed."""
        with self._lock:
            fresh = KnownWords(tuple(word for _, word in self._words()), self._stale())
            if fresh != self.known:
                if fresh.stale and fresh.stale != self.known.stale and self.rules.on_stale == "warn":
                    self._say(f"warning: {fresh.stale}")
                self.known = fresh

    def _stale(self) -> str:
        limit_s, words = self.rules.max_age_s, self._words()
        if limit_s is None:
            return ""
        if not words:
            return "there is no word of a validator yet on the verdicts of this robot"
        for kept, word in words:
            if not self._age_s(kept, word) <= limit_s:
                return f"the word of a validator for {kept.robot} is older than {limit_s:g} s"
        try:
            trust = self._trust()
        except (PhysaiError, OSError) as error:
            return f"the signers of the word cannot be checked: {error}"
        found = trust, *(kept.document for kept, _ in words)
        if self._unsigned[0] != found:
            lost = (kept.robot for kept, _ in words if not kept.is_signed(trust))
            name = next(lost, "")
            self._unsigned = found, f"this robot no longer trusts the signers of the word for {name}" if name else ""
        return self._unsigned[1]

    def _words(self) -> tuple[tuple[KeptWord, StatusPredicate], ...]:
        """The words that are kept, each with what it says; parsed again only if one changed."""
        record, parsed = self._record, self._parsed
        documents = tuple(one.document for one in record.words)
        if parsed[0] != documents:
            self._parsed = parsed = documents, record.parsed()
        return tuple(zip(record.words, parsed[1], strict=True))

    def _on_age_s(self, kept: KeptWord) -> float:
        """Age of a word by the time that this robot was on, which no clock that is set changes [s]."""
        return kept.age_s + self._on_s() - self._begun_s

    def _age_s(self, kept: KeptWord, word: StatusPredicate) -> float:
        now_s = max(self._clock(), self._floor_s)
        return max(self._on_age_s(kept), now_s - parse_utc(word.issued).timestamp())

    def _trust(self) -> TrustStore:
        """The trust store; read again only if the file changed, because parsing it holds the interpreter lock."""
        stamp = _stamp_of(self._trust_path)
        if self._trust_read is None or self._trust_read[0] != stamp:
            self._trust_read = stamp, self._config.trust()
        return self._trust_read[1]

    def _stamp(self) -> object:
        return [_stamp_of(self._options.root / name) for name in COPIES]

    def _tell(self, text: str) -> None:
        """Report a message once."""
        if text not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(text)
            self._say(text)


def _stamp_of(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
