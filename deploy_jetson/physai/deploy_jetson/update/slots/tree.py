"""Files of the two slots and of the state."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256

from physai.deploy_jetson.update.slots.filesystem import FileSystem, empty_folder, exists, remove_tree, replace_files
from physai.deploy_jetson.update.slots.layout import (
    CURRENT,
    INCOMING,
    MARKER_FILE,
    MAX_RECORD_BYTES,
    SLOTS_FOLDER,
    STATE_FILES,
)
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import (
    MAX_EVENTS,
    SLOTS,
    Marker,
    SlotEvent,
    SlotFile,
    SlotName,
    State,
    decode,
    encode,
)
from physai.sdk.base.files import oserror_as
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.time_statement import CLOCK_STEP

MAX_SLOT_FILE_BYTES = 4 << 30
"""Maximum size of a file in a slot; the engine of a large policy takes a few hundred MB."""

_MAX_REASON = 500


class SlotTree:
    """Slots and state of one robot on disk."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs

    @staticmethod
    def path(slot: SlotName, name: str = "") -> str:
        """Path of a slot or of a file in it."""
        return f"{SLOTS_FOLDER}/{slot}/{name}" if name else f"{SLOTS_FOLDER}/{slot}"

    def create(self, *, floor: int = 0) -> None:
        """Creates an empty tree; completes one whose creation was interrupted."""
        for folder in (SLOTS_FOLDER, *map(self.path, SLOTS), INCOMING):
            if self.fs.kind(folder) is None:
                self.fs.make_folder(folder)
        self.fs.sync_folder(SLOTS_FOLDER)
        self._write(State(floor=floor))

    def is_new(self) -> bool:
        """Whether the tree has neither a state nor an active slot."""
        return not any(exists(self.fs, name) for name in (*STATE_FILES, CURRENT))

    def mend(self) -> str:
        """Replaces the state if both copies are damaged; returns a message, empty if nothing was repaired."""
        try:
            self.state()
            return ""
        except SlotError:
            active = self.active()
            marker = None if active is None else self.marker(active)
            # Rollback protection: the active version becomes the floor, so no older one can be installed.
            floor = 0 if marker is None else marker.version
            self._write(State(floor=floor, committed=active))
            return f"both copies of the state were damaged; assuming committed slot {active}, floor {floor}"

    def state(self) -> State:
        """The newer of the two copies that is intact.

        Raises:
            SlotError: both copies are damaged or missing.
        """
        states: list[State] = []
        problems: list[str] = []
        read: list[bytes] = []
        for name in STATE_FILES:
            try:
                data = self.fs.read(name, limit=MAX_RECORD_BYTES)
                # Usually both copies are equal; decode only once.
                if data not in read:
                    states.append(decode(State, data, source=name))
                read.append(data)
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
            except SlotError as error:
                problems.append(str(error))
        if not states:
            reason = "; ".join(problems)
            raise SlotError(f"no usable slot state ({reason}); create or repair the tree with `physai robot setup`")
        return max(states, key=lambda state: state.generation)

    def active(self) -> SlotName | None:
        """The slot that `current` points to; None if there is none."""
        return self.pointed(CURRENT)

    def idle(self) -> SlotName:
        """The slot that may be written.

        Raises:
            SlotError: a trial is in progress, so both slots are in use.
        """
        trial = self.state().trial
        if trial is not None:
            raise SlotError(
                f"version {trial.version} is on trial in slot {trial.slot}, and the other slot is needed for a "
                "rollback; wait for the end of the trial, or end it with `physai robot commit` or "
                "`physai robot rollback`"
            )
        return "b" if self.active() == "a" else "a"

    def marker(self, slot: SlotName) -> Marker | None:
        """The marker of a slot; None if the slot is empty or the marker damaged."""
        try:
            data = self.fs.read(self.path(slot, MARKER_FILE), limit=MAX_RECORD_BYTES)
            return decode(Marker, data, source=self.path(slot, MARKER_FILE))
        except (OSError, SlotError):
            return None

    def problems(self, slot: SlotName) -> list[str]:
        """Differences between a slot and its marker; reads every byte."""
        marker = self.marker(slot)
        if marker is None:
            return [f"slot {slot} is empty or not completely installed"]
        return [problem for name, file in marker.files.items() if (problem := self._damage(slot, name, file))]

    def read(self, slot: SlotName, name: str) -> bytes:
        """Reads a file of a slot and verifies it against the marker.

        Raises:
            SlotError: the file is damaged or missing.
        """
        marker = self.marker(slot)
        if marker is None or name not in marker.files:
            raise SlotError(f"slot {slot} has no {name}")
        file = marker.files[name]
        with oserror_as(SlotError, f"{self.path(slot, name)}: cannot be read"):
            data = self.fs.read(self.path(slot, name), limit=file.size)
        if len(data) != file.size or sha256(data).hexdigest() != file.sha256:
            raise SlotError(f"{self.path(slot, name)}: damaged: not the bytes that were installed")
        return data

    def clear(self, slot: SlotName) -> int:
        """Empties a slot; returns the number of bytes freed.

        Raises:
            SlotError: the slot is active or needed for a rollback.
        """
        trial = self.state().trial
        if slot == self.active() or (trial is not None and slot in (trial.slot, trial.previous)):
            raise SlotError(f"slot {slot} is in use")
        return self.empty(slot)

    def put(self, slot: SlotName, name: str, data: bytes) -> SlotFile:
        """Writes a file into a cleared slot durably."""
        self.fs.create(self.path(slot, name), data)
        self.fs.sync(self.path(slot, name))
        return SlotFile(sha256=sha256(data).hexdigest(), size=len(data))

    def seal(self, slot: SlotName, marker: Marker) -> None:
        """Makes a slot valid by writing its marker.

        Raises:
            SlotError: a file on disk differs from what was written.
        """
        # Read everything back first: the marker vouches for what is on the disk.
        for name, file in marker.files.items():
            problem = self._damage(slot, name, file)
            if problem:
                raise SlotError(f"{problem}; is the disk failing?")
        replace_files(self.fs, {self.path(slot, MARKER_FILE): encode(marker)})

    def note(self, event: SlotEvent, *, now: datetime) -> None:
        """Records an event."""
        self.save(self.state(), now, event)

    def empty(self, slot: SlotName) -> int:
        """Empties a slot, or creates it if it is not a folder; returns the number of bytes freed."""
        if self.fs.kind(self.path(slot)) != "folder":
            remove_tree(self.fs, self.path(slot))
            self.fs.make_folder(self.path(slot))
            self.fs.sync_folder(SLOTS_FOLDER)
            return 0
        # The marker goes first, durably: a power cut must not leave a marker without its files.
        freed = remove_tree(self.fs, self.path(slot, MARKER_FILE))
        if freed:
            self.fs.sync_folder(self.path(slot))
        return freed + empty_folder(self.fs, self.path(slot))

    def _damage(self, slot: SlotName, name: str, file: SlotFile) -> str:
        path = self.path(slot, name)
        try:
            if self.fs.size(path) != file.size:
                return f"{path} has {self.fs.size(path)} bytes, not {file.size}"
            data = self.fs.read(path, limit=MAX_SLOT_FILE_BYTES)
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        return "" if sha256(data).hexdigest() == file.sha256 else f"{path} is damaged"

    def pointed(self, link: str) -> SlotName | None:
        """The slot that a link points to; None if it points to none."""
        if self.fs.kind(link) != "link":
            return None
        target = self.fs.target(link)
        slots: Mapping[str, SlotName] = {self.path("a"): "a", self.path("b"): "b"}
        return slots.get(target)

    def save(
        self,
        state: State,
        now: datetime,
        event: SlotEvent | None = None,
        *,
        passed: datetime | None = None,
        **changes: object,
    ) -> State:
        """Writes a changed state and returns it.

        Args:
            state: the state to change.
            now: the clock, which advances the time floor by at most CLOCK_STEP.
            event: an event to record.
            passed: a new time floor from a verified statement; overrides the clock.
            changes: new values of the state's fields.

        Raises:
            OSError: writing failed; the old or the new state is on disk.
        """
        floor = time_floor(state)
        latest = utc_text(max(floor, min(now, floor + CLOCK_STEP)) if passed is None else passed)
        at = utc_text(max(floor, now))
        events = state.events if event is None else (*state.events, _at(event, at))[-MAX_EVENTS:]
        # A failed write may have replaced one copy already: exceed its generation, too.
        generation = max(state.generation, self.state().generation) + 1
        fresh = {"events": events, "latest_time": latest, "generation": generation}
        return self._write(State.model_validate({**dict(state), **changes, **fresh}))

    def _write(self, state: State) -> State:
        data = encode(state)
        replace_files(self.fs, dict.fromkeys(STATE_FILES, data))
        return state


def _at(event: SlotEvent, time: str) -> SlotEvent:
    return SlotEvent.model_validate({**dict(event), "time": time})


def printable_reason(reason: str) -> str:
    """Makes a reason valid for a record: printable and of limited length."""
    return "".join(char if char.isprintable() else " " for char in reason)[:_MAX_REASON]


def known_time(state: State, now: datetime) -> datetime:
    """The later of the clock and the time floor."""
    # Many robots have no battery-backed clock and boot in the past.
    return max(now, time_floor(state))


def time_floor(state: State) -> datetime:
    """The state's time floor."""
    return datetime.strptime(state.latest_time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
