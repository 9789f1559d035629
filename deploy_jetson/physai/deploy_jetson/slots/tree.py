"""The files of two slots, and of the state beside them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256

from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.filesystem import FileSystem, empty_folder, exists, remove_tree, replace_files
from physai.deploy_jetson.slots.layout import (
    CURRENT,
    INCOMING,
    MARKER_FILE,
    MAX_RECORD_BYTES,
    SLOTS_FOLDER,
    STATE_FILES,
)
from physai.deploy_jetson.slots.records import (
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
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.time_statement import CLOCK_STEP

MAX_SLOT_FILE_BYTES = 4 << 30
"""Greatest size of a file in a slot; an engine of a large policy takes some hundred MB."""

_MAX_REASON = 500


class SlotTree:
    """The slots and the state of one robot, as they lie on the disk."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs

    @staticmethod
    def path(slot: SlotName, name: str = "") -> str:
        """Where a slot, or a file in it, lies."""
        return f"{SLOTS_FOLDER}/{slot}/{name}" if name else f"{SLOTS_FOLDER}/{slot}"

    def create(self, *, floor: int = 0) -> None:
        """Makes an empty tree where there is none; completes one whose making was cut short."""
        for folder in (SLOTS_FOLDER, *map(self.path, SLOTS), INCOMING):
            if self.fs.kind(folder) is None:
                self.fs.make_folder(folder)
        self.fs.sync_folder(SLOTS_FOLDER)
        self._write(State(floor=floor))

    def is_new(self) -> bool:
        """Whether nothing was ever activated here, and no state is there to lose."""
        return not any(exists(self.fs, name) for name in (*STATE_FILES, CURRENT))

    def mend(self) -> str:
        """Replaces a state of which no copy is whole, and says what was assumed; does nothing where one is.

        The floor becomes the version that is active: nothing older can come back that way.
        """
        try:
            self.state()
            return ""
        except SlotError:
            active = self.active()
            marker = None if active is None else self.marker(active)
            floor = 0 if marker is None else marker.version
            self._write(State(floor=floor, committed=active))
            return f"no copy of the state was whole; taken as committed: slot {active}, floor {floor}"

    def state(self) -> State:
        """The newer of the two copies that is whole.

        Raises:
            SlotError: neither is.
        """
        found: list[State] = []
        problems: list[str] = []
        read: list[bytes] = []
        for name in STATE_FILES:
            try:
                data = self.fs.read(name, limit=MAX_RECORD_BYTES)
                if data not in read:
                    found.append(decode(State, data, source=name))
                read.append(data)
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
            except SlotError as error:
                problems.append(str(error))
        if not found:
            reason = "; ".join(problems)
            raise SlotError(f"no usable slot state ({reason}); make or mend the tree with `physai robot setup`")
        return max(found, key=lambda state: state.generation)

    def active(self) -> SlotName | None:
        """The slot `current` points to; None where it points to none."""
        return self.pointed(CURRENT)

    def idle(self) -> SlotName:
        """The slot that may be written.

        Raises:
            SlotError: a trial is on, so both are needed.
        """
        trial = self.state().trial
        if trial is not None:
            raise SlotError(
                f"version {trial.version} is on trial in slot {trial.slot}, and the other slot holds what the robot "
                "would go back to; wait for the end of the trial, or end it with `physai robot commit` or "
                "`physai robot rollback`"
            )
        return "b" if self.active() == "a" else "a"

    def marker(self, slot: SlotName) -> Marker | None:
        """What a slot holds; None where it holds nothing usable."""
        try:
            data = self.fs.read(self.path(slot, MARKER_FILE), limit=MAX_RECORD_BYTES)
            return decode(Marker, data, source=self.path(slot, MARKER_FILE))
        except (OSError, SlotError):
            return None

    def problems(self, slot: SlotName) -> list[str]:
        """What is wrong with a slot, every byte read; empty where it is as its marker says."""
        marker = self.marker(slot)
        if marker is None:
            return [f"slot {slot} is empty, or was not installed to the end"]
        return [problem for name, file in marker.files.items() if (problem := self._damage(slot, name, file))]

    def read(self, slot: SlotName, name: str) -> bytes:
        """A file of a slot, found to be as its marker says.

        Raises:
            SlotError: it is damaged or not there.
        """
        marker = self.marker(slot)
        if marker is None or name not in marker.files:
            raise SlotError(f"slot {slot} holds no {name}")
        file = marker.files[name]
        try:
            data = self.fs.read(self.path(slot, name), limit=file.size)
        except OSError as error:
            raise SlotError(f"{self.path(slot, name)}: cannot be read: {error.strerror}") from None
        if len(data) != file.size or sha256(data).hexdigest() != file.sha256:
            raise SlotError(f"{self.path(slot, name)}: damaged: not the bytes that were installed")
        return data

    def clear(self, slot: SlotName) -> int:
        """Empties a slot, its marker first, and returns the bytes that become free.

        Raises:
            SlotError: the slot is active or needed to go back.
        """
        trial = self.state().trial
        if slot == self.active() or (trial is not None and slot in (trial.slot, trial.previous)):
            raise SlotError(f"slot {slot} is in use")
        return self.empty(slot)

    def put(self, slot: SlotName, name: str, data: bytes) -> SlotFile:
        """Writes a file into a slot that was cleared; it is whole on the disk when this returns."""
        self.fs.create(self.path(slot, name), data)
        self.fs.sync(self.path(slot, name))
        return SlotFile(sha256=sha256(data).hexdigest(), size=len(data))

    def seal(self, slot: SlotName, marker: Marker) -> None:
        """Makes a slot valid: reads back what lies there, and writes the marker last.

        Raises:
            SlotError: the disk does not hold what was written.
        """
        for name, file in marker.files.items():
            problem = self._damage(slot, name, file)
            if problem:
                raise SlotError(f"{problem}; is the disk failing?")
        replace_files(self.fs, {self.path(slot, MARKER_FILE): encode(marker)})

    def note(self, event: SlotEvent, *, now: datetime) -> None:
        """Remembers an event."""
        self.save(self.state(), now, event)

    def empty(self, slot: SlotName) -> int:
        """Empties a slot, its marker first, and returns the bytes that become free; makes it where it is no folder."""
        if self.fs.kind(self.path(slot)) != "folder":
            remove_tree(self.fs, self.path(slot))
            self.fs.make_folder(self.path(slot))
            self.fs.sync_folder(SLOTS_FOLDER)
            return 0
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
        """The slot a link points to; None where it points to none."""
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
        """Writes the state with changes, and returns it.

        Args:
            state: what to change.
            now: the clock, which moves the time floor by CLOCK_STEP at most.
            event: what happened.
            passed: the time floor in its place, from a statement that is believed.
            changes: fields of the state.

        Raises:
            OSError: it cannot be written; what is on the disk is the old or the new state.
        """
        floor = time_floor(state)
        latest = utc_text(max(floor, min(now, floor + CLOCK_STEP)) if passed is None else passed)
        at = utc_text(max(floor, now))
        events = state.events if event is None else (*state.events, _at(event, at))[-MAX_EVENTS:]
        # A write that failed at its end may have left its generation behind.
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
    """The reason as a record may hold it: a record that cannot be read back would be worse than a lost word."""
    return "".join(char if char.isprintable() else " " for char in reason)[:_MAX_REASON]


def known_time(state: State, now: datetime) -> datetime:
    """The later of the clock and the time floor: clocks of robots restart in the past."""
    return max(now, time_floor(state))


def time_floor(state: State) -> datetime:
    """A moment that has passed for certain."""
    return datetime.strptime(state.latest_time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
