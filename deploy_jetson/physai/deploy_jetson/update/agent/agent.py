"""The update agent of a robot: installs, activates, commits and rolls back bundles.

Every method is one transaction under the lock and never writes to the active slot: after any failure the active policy
stays active.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from physai.deploy_jetson.inference.latency import TICKS
from physai.deploy_jetson.update.agent.admission import admit, find_slot, make_marker, require_joints, require_trial
from physai.deploy_jetson.update.agent.config import RobotConfig, as_owner_of, make_owned, open_config
from physai.deploy_jetson.update.agent.host import error_text, restart_unit, user_name, utc_now
from physai.deploy_jetson.update.agent.incoming import clear_incoming
from physai.deploy_jetson.update.agent.selftest_apart import self_test_apart
from physai.deploy_jetson.update.agent.tested import ENGINE_FILE, Progress, Tested, no_progress
from physai.deploy_jetson.update.robot_key import make_robot_key
from physai.deploy_jetson.update.slots.filesystem import FileSystem, PosixFileSystem
from physai.deploy_jetson.update.slots.health import boot_id
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE, DEFAULT_ROOT, config_folder
from physai.deploy_jetson.update.slots.lock import locked
from physai.deploy_jetson.update.slots.resume import leave_note
from physai.deploy_jetson.update.slots.slot_errors import InstallError, SlotError
from physai.deploy_jetson.update.slots.slot_records import (
    EventKind,
    HealthLimits,
    Marker,
    RobotIdentity,
    SlotEvent,
    SlotName,
    VersionTrial,
)
from physai.deploy_jetson.update.slots.store import Recovery, SlotStore
from physai.deploy_jetson.update.slots.tree import known_time, printable_reason
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as
from physai.sdk.contract.gaps import lacks_text
from physai.sdk.evidence.origin import machine_text
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.time_statement import TimeStatementError, read_time
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.verify import Verified, parse_utc, verify

if TYPE_CHECKING:
    from physai.deploy_jetson.inference.backend import BackendChoice


@dataclass(frozen=True)
class Installed:
    """Result of an installation."""

    slot: SlotName
    marker: Marker
    was_there: bool
    """Whether the bundle was already installed and nothing was done."""
    active: bool
    """Whether the bundle is in the active slot."""
    activated: bool = False
    """Whether this installation activated it."""


@dataclass(frozen=True, kw_only=True)
class UpdateAgent:
    """Manages the slots of one robot."""

    root: Path = DEFAULT_ROOT
    config_root: Path | None = None
    """Folder of the owner's files; None selects the default for that root."""
    fs: FileSystem | None = None
    """File system of the tree; None uses the real one."""
    clock: Callable[[], datetime] = utc_now
    boot: Callable[[], str] = boot_id
    restart: Callable[[str], str] = restart_unit
    backend: BackendChoice = "auto"
    ticks: int = TICKS
    """Ticks of the latency self-test."""
    tick_clock_ns: Callable[[], int] = time.perf_counter_ns
    """Clock of the latency self-test [ns]."""
    machine: str = field(default_factory=machine_text)
    """This robot's computer; a verdict's latency must have been measured on the same one."""
    apart: bool = True
    """Whether to run the self-test in a child process, so that a policy that hangs or crashes is contained."""
    wait_s: float = 0.0
    """How long to wait for the lock [s]."""
    warn: Callable[[str], None] = field(default=lambda message: None)
    """Receives warnings that do not fail the transaction."""

    @property
    def store(self) -> SlotStore:
        return SlotStore(self.fs or PosixFileSystem(self.root))

    @property
    def config(self) -> RobotConfig:
        return open_config(self.root, self.config_root, self.store.fs)

    def setup(
        self,
        identity: RobotIdentity,
        trust: SignedTrust | None = None,
        limits: HealthLimits | None = None,
        requirements: Requirements | None = None,
    ) -> None:
        """Creates the robot's tree if needed and updates the owner's files; keeps slots and state.

        Raises:
            SlotError: the tree cannot be created, or the owner's files belong to another account.
            TrustError: the trust file may not replace the current one.
        """
        folder = config_folder(self.root, self.config_root)
        with oserror_as(SlotError, f"{self.root}: cannot be created"):
            self.root.mkdir(parents=True, exist_ok=True)
        # First, so that nothing is left half if that account cannot run physai.
        with as_owner_of(self.root):
            pass
        make_owned(folder)
        with as_owner_of(self.root), self._locked(self.root, "setup"):
            store = self.store
            if store.is_new():
                store.create()
            if repaired := store.mend():
                self.warn(repaired)
            make_robot_key(self.root, identity.robot)
        with as_owner_of(folder), self._locked(folder, "setup"):
            self.config.save(identity, trust, limits, requirements)

    def install(
        self, data: bytes, *, unsafe_no_verdict: bool = False, again: bool = False, progress: Progress = no_progress
    ) -> Installed:
        """Installs a bundle in the idle slot: verify, write, self-test, write the marker.

        Args:
            data: contents of the bundle file.
            unsafe_no_verdict: accept the bundle without a valid verdict; recorded, and shown by `status`.
            again: reinstall a bundle that is already installed but not active.
            progress: receives stages and their progress.

        Raises:
            VerificationError: a rule of `physai.sdk.signing.verify.verify` is violated; nothing was changed.
            InstallError: the robot lacks joints, the self-test fails, or the disk is full; the idle slot is empty.
            SlotError: a trial is in progress, or the tree is damaged or locked.
        """
        with self._transaction("install") as store:
            state = store.state()
            progress("verify", 0.0)
            verified = self._verify(store, data, floor=state.floor, unsafe=unsafe_no_verdict)
            self._learn_time(store, verified)
            require_joints(verified.bundle.contract, self.config.identity())
            if lacking := lacks_text(verified.bundle.contract):
                self.warn(lacking)
            progress("verify", 1.0)
            existing = find_slot(store, verified)
            if existing is not None and (existing[0] == store.active() or not again):
                return Installed(*existing, was_there=True, active=existing[0] == store.active())
            slot = store.idle()
            try:
                marker = self._fill(store, slot, data, verified, progress)
            except (PhysaiError, OSError) as error:
                self._abandon(store, slot, verified, error)
                raise InstallError(
                    f"version {verified.bundle.manifest.version} not installed: {error_text(error)}"
                ) from error
            if verified.verdict is None:
                self._note(store, "unsafe", verified, f"installed by {user_name()}: {verified.verdict_problem}")
            return Installed(slot, marker, was_there=False, active=False)

    def activate(self, *, retry: bool = False, back: bool = False) -> VersionTrial:
        """Switches to the idle slot and starts its trial; verifies the bundle again first.

        Args:
            retry: allow a bundle that was rolled back before.
            back: allow a version below the floor, because the verdict on the active one was revoked.

        Raises:
            SlotError: nothing is installed, it is damaged or was rolled back before, or another trial is in progress.
            VerificationError: a key was revoked or the verdict expired since the installation.
            RevocationError: a validator revoked the verdict.
            ShadowEvidenceError: the robot's settings demand more shadow evidence.
        """
        with self._transaction("activate") as store:
            slot = store.idle()
            marker = store.marker(slot)
            if marker is None:
                raise SlotError(f"nothing to activate: slot {slot} is empty; `physai robot install BUNDLE` first")
            data = store.read(slot, BUNDLE_FILE)
            floor = store.state().floor
            self._verify(store, data, floor=0 if back else floor, unsafe=marker.unsafe_no_verdict)
            require_trial(self.root, self.config, marker, back_below=floor if back else None)
            try:
                trial = store.activate(slot, now=self._now(store), boot_id=self.boot(), retry=retry, back=back)
            except OSError:
                with suppress(OSError, SlotError):
                    self._recover(store)
                raise
        self._restart()
        return trial

    def set_time(self, statement: bytes) -> str:
        """Sets the time floor from a signed statement and returns the floor; an older statement changes nothing.

        Raises:
            TimeStatementError: the statement is not valid for this robot, or sets back another floor.
            SlotError: the tree is damaged or locked.
        """
        with self._transaction("time") as store:
            state = store.state()
            stated = read_time(statement, self.config.trust(), robot=self.config.identity().robot)
            if stated.corrections != state.corrections:
                raise TimeStatementError(
                    f"the statement is for a robot whose time was set back {stated.corrections} times, this one's was "
                    f"{state.corrections} times: sign one with `physai keys time --corrections {state.corrections}`"
                )
            if stated.replaces is not None and stated.replaces != state.latest_time:
                raise TimeStatementError(
                    f"the statement sets the time back from {stated.replaces}, this robot's floor is "
                    f"{state.latest_time}: sign one for that"
                )
            back = stated.replaces is not None
            if back or stated.time > state.latest_time:
                corrections = state.corrections + back
                store.save(state, self.clock(), passed=parse_utc(stated.time), corrections=corrections)
            return store.state().latest_time

    def commit(self, reason: str) -> VersionTrial:
        """Commits the version on trial; older versions are refused from then on.

        Raises:
            SlotError: no trial is in progress.
        """
        with self._transaction("commit") as store:
            return store.commit(now=self._now(store), reason=reason)

    def rollback(self, reason: str) -> VersionTrial:
        """Returns to the policy that was active before the trial.

        Raises:
            SlotError: no trial is in progress.
        """
        with self._transaction("rollback") as store:
            state = store.state()
            if state.trial is None:
                raise SlotError(
                    "no version is on trial, so there is nothing to roll back; to run an older policy again, pack it "
                    f"with a version above {state.floor}"
                )
            trial = store.rollback(now=self._now(store), reason=reason)
        self._restart()
        return trial

    def gc(self, *, idle: bool = False) -> int:
        """Removes uploads and incomplete installations; returns the number of bytes freed.

        Args:
            idle: also remove the version that is installed but not active.

        Raises:
            SlotError: the tree is damaged or locked.
        """
        with self._transaction("gc") as store:
            freed = clear_incoming(store)
            if store.state().trial is None:
                slot = store.idle()
                if idle or store.problems(slot):
                    freed += store.clear(slot)
            return freed

    def recover(self) -> Recovery:
        """Completes or undoes interrupted operations; runs at boot.

        Raises:
            SlotError: the tree is damaged or locked.
        """
        with self._locked(self.root, "recover"):
            return self._recover(self.store)

    @contextmanager
    def _transaction(self, verb: str) -> Generator[SlotStore]:
        """Locks and recovers the slots."""
        with self._locked(self.root, verb):
            store = self.store
            for action in self._recover(store).actions:
                self.warn(action)
            yield store

    @contextmanager
    def _locked(self, folder: Path, verb: str) -> Generator[None]:
        """Holds the lock of a folder and turns OSError into SlotError."""
        with locked(folder, f"physai robot {verb}", wait_s=self.wait_s):
            try:
                yield
            except OSError as error:
                raise SlotError(f"{self.root}: {error_text(error)}; the active policy is unchanged") from error

    def _recover(self, store: SlotStore) -> Recovery:
        before = store.active()
        try:
            limits = self.config.limits()
        except SlotError as error:
            self.warn(f"{error}; using the defaults")
            limits = HealthLimits()
        recovery = store.recover(now=self.clock(), boot_id=self.boot(), max_boots=limits.max_boots)
        if store.active() != before:
            self._restart()
        return recovery

    def _verify(self, store: SlotStore, data: bytes, *, floor: int, unsafe: bool) -> Verified:
        config, requirements = self.config, self.config.requirements()
        verified = verify(
            data,
            config.trust(),
            robot=config.identity().robot,
            now=self._now(store),
            floor=floor,
            requirements=requirements,
            machine=self.machine,
            require_verdict=not unsafe,
        )
        return admit(verified, self.root, store.fs, requirements.status)

    def _learn_time(self, store: SlotStore, verified: Verified) -> None:
        # The creation time of a verified verdict has passed, whatever the robot's clock shows.
        state = store.state()
        if verified.verdict is not None and verified.verdict.verdict.created > state.latest_time:
            store.save(state, self._now(store), passed=parse_utc(verified.verdict.verdict.created))

    def _now(self, store: SlotStore) -> datetime:
        return known_time(store.state(), self.clock())

    def _fill(self, store: SlotStore, slot: SlotName, data: bytes, verified: Verified, progress: Progress) -> Marker:
        progress("write", 0.0)
        store.clear(slot)
        files = {BUNDLE_FILE: store.put(slot, BUNDLE_FILE, data)}
        progress("write", 1.0)
        tested = self._test(verified, progress)
        if tested.plan is not None:
            files[ENGINE_FILE] = store.put(slot, ENGINE_FILE, tested.plan)
        progress("seal", 0.0)
        marker = make_marker(verified, tested, files, installed=self._now(store))
        store.seal(slot, marker)
        progress("seal", 1.0)
        return marker

    def _test(self, verified: Verified, progress: Progress) -> Tested:
        if self.apart:
            deadline_s = verified.bundle.contract.timing.deadline_s
            self_test: Callable[..., Tested] = partial(self_test_apart, deadline_s=deadline_s)
        else:
            from physai.deploy_jetson.update.agent.selftest import run_self_test as self_test
        return self_test(
            verified.bundle.members,
            verified.policy,
            backend=self.backend,
            ticks=self.ticks,
            clock_ns=self.tick_clock_ns,
            progress=progress,
        )

    def _abandon(self, store: SlotStore, slot: SlotName, verified: Verified, error: Exception) -> None:
        """Empties the slot and records the failure."""
        # Best effort on a failing disk: a slot without a marker is empty in any case.
        with suppress(OSError, SlotError):
            store.clear(slot)
        with suppress(OSError, SlotError):
            self._note(store, "install-failed", verified, error_text(error))

    def _note(self, store: SlotStore, kind: EventKind, verified: Verified, reason: str) -> None:
        now = self._now(store)
        bundle = verified.bundle
        event = SlotEvent(
            time=utc_text(now),
            kind=kind,
            bundle_sha256=bundle.sha256,
            version=bundle.manifest.version,
            reason=printable_reason(reason),
        )
        store.note(event, now=now)

    def _restart(self) -> None:
        try:
            unit = self.config.identity().runtime_unit
            if unit is not None:
                # Without the note the restarted service waits for `activate`.
                with suppress(OSError):
                    leave_note(self.root)
            problem = "" if unit is None else self.restart(unit)
        except SlotError as error:
            problem = str(error)
        if problem:
            self.warn(problem)
