"""What may happen to the slots: activate, commit, roll back, and recover from being cut short.

What holds at every instant, power cuts included:

- `current` is replaced in one step and points to a slot whose marker `installed` was written last, after everything
  the marker names was on the disk. Neither the active slot nor the one to go back to is ever written to.
- A trial is recorded before the switch and ended after it, so recovery knows which of the two happened.
- Going back needs no space: `previous` is renamed to `current`.
- The floor rises in the same write that ends the trial (commit), never falls, and lies in two copies.

Methods that change anything are for the holder of the lock (`physai.deploy_jetson.slots.lock`), after `recover`.
"""

from dataclasses import dataclass
from datetime import datetime

from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.filesystem import empty_folder, exists, remove_tree, replace_links, temporary
from physai.deploy_jetson.slots.layout import CURRENT, INCOMING, PREVIOUS, STATE_FILES
from physai.deploy_jetson.slots.records import MAX_REJECTED, SlotEvent, SlotName, State, Trial
from physai.deploy_jetson.slots.tree import SlotTree, printable_reason
from physai.sdk.evidence.verdict import utc_text


@dataclass(frozen=True)
class Recovery:
    """What recovery found to do; empty where nothing had been cut short."""

    actions: tuple[str, ...]
    """In sentences."""


class SlotStore(SlotTree):
    """The slots of one robot, and the ways they change."""

    def activate(self, slot: SlotName, *, now: datetime, boot_id: str, retry: bool = False) -> Trial:
        """Switches to a slot, on trial until it is committed or rolled back.

        Args:
            slot: what becomes active.
            now: with a time zone.
            boot_id: of the kernel that runs.
            retry: whether a bundle that was rolled back before may have another try.

        Raises:
            SlotError: the slot is damaged or empty, another trial is on, or its bundle was rolled back before.
        """
        state = self.state()
        active = self.active()
        if state.trial is not None or slot == active:
            raise SlotError(f"slot {slot} is active already" if slot == active else "another version is on trial")
        problems = self.problems(slot)
        marker = self.marker(slot)
        if problems or marker is None:
            raise SlotError("; ".join(problems))
        if marker.version < state.floor:
            raise SlotError(f"version {marker.version} is below {state.floor}, the smallest this robot still takes")
        if marker.bundle_sha256 in state.rejected and not retry:
            raise SlotError(
                f"version {marker.version} was rolled back on this robot: {self._why(state, marker.bundle_sha256)}; "
                "to try it once more: --retry"
            )
        trial = Trial(
            slot=slot,
            previous=active,
            bundle_sha256=marker.bundle_sha256,
            version=marker.version,
            started=utc_text(now),
            boot_id=boot_id,
        )
        self.save(state, now, _event("activated", trial), trial=trial)
        links = {CURRENT: self.path(slot)}
        # `previous` first: whoever sees the new `current` after a power cut may need it.
        replace_links(self.fs, links if active is None else {PREVIOUS: self.path(active), **links})
        return trial

    def commit(self, *, now: datetime, reason: str) -> Trial:
        """Ends the trial in favour of the new version, and raises the floor to it in the same write.

        Raises:
            SlotError: nothing is on trial.
        """
        state = self.state()
        trial = self._trial(state)
        self.save(
            state,
            now,
            _event("committed", trial, reason),
            trial=None,
            committed=trial.slot,
            floor=max(state.floor, trial.version),
            rejected=tuple(r for r in state.rejected if r != trial.bundle_sha256),
        )
        remove_tree(self.fs, PREVIOUS)
        return trial

    def rollback(self, *, now: datetime, reason: str) -> Trial:
        """Goes back to what was active before the trial. Works on a full disk, at the expense of the failed version.

        Raises:
            SlotError: nothing is on trial.
            OSError: the disk cannot be written at all.
        """
        state = self.state()
        trial = self._trial(state)
        trial = Trial.model_validate({**dict(trial), "rollback_reason": printable_reason(reason)})
        try:
            state = self.save(state, now, trial=trial)
        except OSError:
            # Without the note a power cut from here on loses the reason, not the way back.
            self._discard_temporaries()
        self._finish_rollback(state, trial, now)
        return trial

    def recover(self, *, now: datetime, boot_id: str, max_boots: int = 8) -> Recovery:
        """Finishes or undoes what a power cut or a kill has cut short; does nothing where nothing was.

        Args:
            now: with a time zone.
            boot_id: of the kernel that runs.
            max_boots: most kernels a trial may see.

        Raises:
            SlotError: the state cannot be read.
        """
        actions = [*self._discard_temporaries(), *self._restore_link(now)]
        state = self.state()
        trial = state.trial
        if trial is None:
            return Recovery(tuple(actions))
        if trial.rollback_reason is not None:
            self._finish_rollback(state, trial, now)
            actions.append(f"finished going back from version {trial.version}: {trial.rollback_reason}")
        elif self.active() != trial.slot:
            self.save(state, now, _event("interrupted", trial, "cut short before the switch"), trial=None)
            actions.append(f"version {trial.version} was not activated: cut short before the switch")
        else:
            actions += self._resume_trial(state, trial, now, boot_id, max_boots)
        return Recovery(tuple(actions))

    def _resume_trial(self, state: State, trial: Trial, now: datetime, boot_id: str, max_boots: int) -> list[str]:
        problems = self.problems(trial.slot)
        boots = trial.boots + (boot_id != trial.boot_id)
        if boots > max_boots:
            problems.append(f"the machine started {boots} times within the trial")
        if problems:
            self.rollback(now=now, reason="; ".join(problems))
            return [f"went back from version {trial.version}: {'; '.join(problems)}"]
        if boots != trial.boots:
            again = Trial.model_validate({**dict(trial), "boots": boots, "boot_id": boot_id})
            self.save(state, now, trial=again)
            return [f"the trial of version {trial.version} goes on after a restart of the machine"]
        return []

    def _finish_rollback(self, state: State, trial: Trial, now: datetime) -> None:
        self._switch_back(trial)
        event = _event("rolled-back", trial, trial.rollback_reason or "")
        rejected = [r for r in state.rejected if r != trial.bundle_sha256]
        rejected = (*rejected, trial.bundle_sha256)[-MAX_REJECTED:]
        try:
            self.save(state, now, event, trial=None, rejected=rejected)
        except OSError:
            self._discard_temporaries()
            self.empty(trial.slot)
            empty_folder(self.fs, INCOMING)
            self.save(state, now, event, trial=None, rejected=rejected)

    def _switch_back(self, trial: Trial) -> None:
        if self.active() == trial.previous:
            return
        if trial.previous is None:
            remove_tree(self.fs, CURRENT)
        elif self.pointed(PREVIOUS) == trial.previous:
            self.fs.rename(PREVIOUS, CURRENT)
        else:
            replace_links(self.fs, {CURRENT: self.path(trial.previous)})
        self.fs.sync_folder("")

    def _restore_link(self, now: datetime) -> list[str]:
        """Where `current` points to no slot although one was active: points it there again."""
        if self.active() is not None:
            return []
        state = self.state()
        slot = state.committed if state.trial is None else state.trial.previous
        if slot is None or self.marker(slot) is None:
            return []
        remove_tree(self.fs, CURRENT)
        replace_links(self.fs, {CURRENT: self.path(slot)})
        message = f"{CURRENT} pointed to no slot; set to slot {slot}"
        self.note(SlotEvent(time=utc_text(now), kind="repaired", reason=message), now=now)
        return [message]

    def _discard_temporaries(self) -> list[str]:
        leftovers = [temporary(name) for name in (*STATE_FILES, CURRENT, PREVIOUS)]
        found = [name for name in leftovers if exists(self.fs, name)]
        for name in found:
            remove_tree(self.fs, name)
        return [f"removed {name}, left by an interrupted write" for name in found]

    @staticmethod
    def _trial(state: State) -> Trial:
        if state.trial is None:
            raise SlotError("no version is on trial")
        return state.trial

    @staticmethod
    def _why(state: State, bundle_sha256: str) -> str:
        found = [e.reason for e in state.events if e.kind == "rolled-back" and e.bundle_sha256 == bundle_sha256]
        return found[-1] if found else "long ago"


def _event(kind: str, trial: Trial, reason: str = "") -> SlotEvent:
    return SlotEvent.model_validate(
        {
            "time": trial.started,
            "kind": kind,
            "bundle_sha256": trial.bundle_sha256,
            "version": trial.version,
            "reason": printable_reason(reason),
        }
    )
