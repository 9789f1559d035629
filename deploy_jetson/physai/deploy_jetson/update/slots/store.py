"""Transitions of the slots: activate, commit, roll back, and recover from interruptions.

Invariants at every instant, including power cuts:

- `current` is replaced atomically and points to a slot whose marker `installed` was written last, after all files it
  names were durable. Neither the active slot nor the one to roll back to is ever written.
- A trial is recorded before the switch and ended after it, so recovery can tell whether the switch happened.
- A rollback needs no disk space: `previous` is renamed to `current`.
- The floor rises in the same write that ends the trial (commit), never falls, and is stored in two copies.

Methods that change anything require the lock (`physai.deploy_jetson.update.slots.lock`) and a previous `recover`.
"""

from dataclasses import dataclass
from datetime import datetime

from physai.deploy_jetson.update.slots.filesystem import empty_folder, exists, remove_tree, replace_links, temporary
from physai.deploy_jetson.update.slots.layout import CURRENT, INCOMING, PREVIOUS, STATE_FILES
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import MAX_REJECTED, SlotEvent, SlotName, State, VersionTrial
from physai.deploy_jetson.update.slots.tree import SlotTree, printable_reason
from physai.sdk.evidence.verdict import utc_text


@dataclass(frozen=True)
class Recovery:
    """Result of a recovery."""

    actions: tuple[str, ...]
    """What was done, one sentence each; empty if nothing was interrupted."""


class SlotStore(SlotTree):
    """The slots of one robot and their transitions."""

    def activate(
        self, slot: SlotName, *, now: datetime, boot_id: str, retry: bool = False, back: bool = False
    ) -> VersionTrial:
        """Switches to a slot, on trial until it is committed or rolled back.

        Args:
            slot: the slot to activate.
            now: current time, timezone-aware.
            boot_id: id of the current boot.
            retry: allow a bundle that was rolled back before.
            back: allow a version below the floor, because the verdict on the active one was revoked.

        Raises:
            SlotError: the slot is damaged or empty, another trial is in progress, or its bundle was rolled back before.
        """
        state = self.state()
        active = self.active()
        if state.trial is not None or slot == active:
            raise SlotError(f"slot {slot} is already active" if slot == active else "another version is on trial")
        problems = self.problems(slot)
        marker = self.marker(slot)
        if problems or marker is None:
            raise SlotError("; ".join(problems))
        if marker.version < state.floor and not back:
            raise SlotError(f"version {marker.version} is below {state.floor}, the lowest this robot accepts")
        if marker.bundle_sha256 in state.rejected and not retry:
            raise SlotError(
                f"version {marker.version} was rolled back on this robot: {self._why(state, marker.bundle_sha256)}; "
                "to try it again: --retry"
            )
        trial = VersionTrial(
            slot=slot,
            previous=active,
            bundle_sha256=marker.bundle_sha256,
            version=marker.version,
            started=utc_text(now),
            boot_id=boot_id,
        )
        self.save(state, now, _event("activated", trial), trial=trial)
        links = {CURRENT: self.path(slot)}
        # `previous` first: after a power cut with the new `current`, a rollback needs it.
        replace_links(self.fs, links if active is None else {PREVIOUS: self.path(active), **links})
        return trial

    def commit(self, *, now: datetime, reason: str) -> VersionTrial:
        """Commits the version on trial and raises the floor to it, in one write.

        Raises:
            SlotError: no trial is in progress.
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

    def rollback(self, *, now: datetime, reason: str) -> VersionTrial:
        """Returns to the slot that was active before the trial; frees space if the disk is full.

        Raises:
            SlotError: no trial is in progress.
            OSError: the disk cannot be written at all.
        """
        state = self.state()
        trial = self._trial(state)
        trial = VersionTrial.model_validate({**dict(trial), "rollback_reason": printable_reason(reason)})
        try:
            state = self.save(state, now, trial=trial)
        except OSError:
            # Without this record, a power cut loses the reason of the rollback, not the rollback.
            self._discard_temporaries()
        self._finish_rollback(state, trial, now)
        return trial

    def recover(self, *, now: datetime, boot_id: str, max_boots: int = 8) -> Recovery:
        """Completes or undoes operations interrupted by a power cut or a kill.

        Args:
            now: current time, timezone-aware.
            boot_id: id of the current boot.
            max_boots: maximum number of boots during a trial.

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
            actions.append(f"completed the rollback of version {trial.version}: {trial.rollback_reason}")
        elif self.active() != trial.slot:
            self.save(state, now, _event("interrupted", trial, "interrupted before the switch"), trial=None)
            actions.append(f"version {trial.version} was not activated: interrupted before the switch")
        else:
            actions += self._resume_trial(state, trial, now, boot_id, max_boots)
        return Recovery(tuple(actions))

    def _resume_trial(
        self, state: State, trial: VersionTrial, now: datetime, boot_id: str, max_boots: int
    ) -> list[str]:
        problems = self.problems(trial.slot)
        boots = trial.boots + (boot_id != trial.boot_id)
        if boots > max_boots:
            problems.append(f"the machine booted {boots} times during the trial")
        if problems:
            self.rollback(now=now, reason="; ".join(problems))
            return [f"rolled back version {trial.version}: {'; '.join(problems)}"]
        if boots != trial.boots:
            again = VersionTrial.model_validate({**dict(trial), "boots": boots, "boot_id": boot_id})
            self.save(state, now, trial=again)
            return [f"the trial of version {trial.version} continues after a reboot"]
        return []

    def _finish_rollback(self, state: State, trial: VersionTrial, now: datetime) -> None:
        self._switch_back(trial)
        event = _event("rolled-back", trial, trial.rollback_reason or "")
        rejected = [r for r in state.rejected if r != trial.bundle_sha256]
        rejected = (*rejected, trial.bundle_sha256)[-MAX_REJECTED:]
        try:
            self.save(state, now, event, trial=None, rejected=rejected)
        except OSError:
            # The disk is full: the failed version and the uploads make room for the record.
            self._discard_temporaries()
            self.empty(trial.slot)
            empty_folder(self.fs, INCOMING)
            self.save(state, now, event, trial=None, rejected=rejected)

    def _switch_back(self, trial: VersionTrial) -> None:
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
        """Restores `current` if it points to no slot although one was active."""
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
        names = [temporary(name) for name in (*STATE_FILES, CURRENT, PREVIOUS)]
        leftovers = [name for name in names if exists(self.fs, name)]
        for name in leftovers:
            remove_tree(self.fs, name)
        return [f"removed {name}, left by an interrupted write" for name in leftovers]

    @staticmethod
    def _trial(state: State) -> VersionTrial:
        if state.trial is None:
            raise SlotError("no version is on trial")
        return state.trial

    @staticmethod
    def _why(state: State, bundle_sha256: str) -> str:
        reasons = [e.reason for e in state.events if e.kind == "rolled-back" and e.bundle_sha256 == bundle_sha256]
        return reasons[-1] if reasons else "the reason is no longer on record"


def _event(kind: str, trial: VersionTrial, reason: str = "") -> SlotEvent:
    return SlotEvent.model_validate(
        {
            "time": trial.started,
            "kind": kind,
            "bundle_sha256": trial.bundle_sha256,
            "version": trial.version,
            "reason": printable_reason(reason),
        }
    )
