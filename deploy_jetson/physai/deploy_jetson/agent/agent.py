"""What a robot does with bundles: install, activate, commit, roll back. Every method is one transaction under the lock.

Nothing here touches the active slot. Whatever fails, the policy that was active stays active.
"""

from __future__ import annotations

import errno
import getpass
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from physai.deploy_jetson.agent.config import RobotConfig, as_owner_of, make_owned, open_config
from physai.deploy_jetson.agent.incoming import clear_incoming
from physai.deploy_jetson.agent.selftest_apart import self_test_apart
from physai.deploy_jetson.agent.tested import ENGINE_FILE, Progress, Tested, no_progress
from physai.deploy_jetson.inference.latency import TICKS
from physai.deploy_jetson.slots.errors import InstallError, SlotError
from physai.deploy_jetson.slots.filesystem import FileSystem, PosixFileSystem
from physai.deploy_jetson.slots.health import boot_id
from physai.deploy_jetson.slots.layout import BUNDLE_FILE, DEFAULT_ROOT, config_folder
from physai.deploy_jetson.slots.lock import locked
from physai.deploy_jetson.slots.records import (
    SLOTS,
    EventKind,
    HealthLimits,
    Marker,
    RobotIdentity,
    SlotEvent,
    SlotFile,
    SlotName,
    Trial,
)
from physai.deploy_jetson.slots.store import Recovery, SlotStore
from physai.deploy_jetson.slots.tree import known_time, printable_reason
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.gaps import lacks_text
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.origin import machine_text
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.time_statement import TimeStatementError, read_time
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.verify import Verified, parse_utc, verify

if TYPE_CHECKING:
    from physai.deploy_jetson.inference.backend import BackendChoice

_RESTART_TIMEOUT_S = 60.0


def utc_now() -> datetime:
    """The clock of the machine."""
    return datetime.now(UTC)


def restart_unit(unit: str) -> str:
    """Restarts a systemd unit if it runs; returns what went wrong, empty if nothing did.

    Does not wait for the unit to be ready: the health window does, and knows what to do if it never is.
    """
    command = ["systemctl", "--no-block", "try-restart", "--", unit]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_RESTART_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{unit} was not restarted: {error}"
    return "" if result.returncode == 0 else f"{unit} was not restarted: {result.stderr.strip()[:200]}"


@dataclass(frozen=True)
class Installed:
    """Where a bundle lies now."""

    slot: SlotName
    marker: Marker
    was_there: bool
    """Whether it had been installed before, and nothing was done."""
    active: bool
    """Whether it is what runs now."""


@dataclass(frozen=True, kw_only=True)
class UpdateAgent:
    """One robot's slots and the rules for changing them."""

    root: Path = DEFAULT_ROOT
    config_root: Path | None = None
    """Folder of the owner's files; None for the usual one of that root."""
    fs: FileSystem | None = None
    """Files below the root; None for the real ones."""
    clock: Callable[[], datetime] = utc_now
    boot: Callable[[], str] = boot_id
    restart: Callable[[str], str] = restart_unit
    backend: BackendChoice = "auto"
    ticks: int = TICKS
    """Ticks of the latency self-test."""
    tick_clock_ns: Callable[[], int] = time.perf_counter_ns
    """What measures them [ns]."""
    machine: str = field(default_factory=machine_text)
    """This robot's computer, with which a verdict's latency must have been measured."""
    apart: bool = True
    """Whether the self-test runs in a process of its own, which may hang or crash."""
    wait_s: float = 0.0
    """How long to wait for another process that changes the slots [s]."""
    warn: Callable[[str], None] = field(default=lambda message: None)
    """Gets what went wrong beside the matter."""

    @property
    def store(self) -> SlotStore:
        """The slots."""
        return SlotStore(self.fs or PosixFileSystem(self.root))

    @property
    def config(self) -> RobotConfig:
        """Who this robot is, and whom it believes."""
        return open_config(self.root, self.config_root, self.store.fs)

    def setup(
        self,
        identity: RobotIdentity,
        trust: SignedTrust | None = None,
        limits: HealthLimits | None = None,
        requirements: Requirements | None = None,
    ) -> None:
        """Makes an empty tree for this robot, or changes what is said of it; slots, state and the rest stay.

        Raises:
            SlotError: the tree cannot be made, or what is said of it is another account's to say.
            TrustError: the trust file may not take the place of the one that is there.
        """
        folder = config_folder(self.root, self.config_root)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SlotError(f"{self.root}: cannot be made: {error.strerror}") from None
        make_owned(folder)
        with as_owner_of(self.root), locked(self.root, "physai robot setup", wait_s=self.wait_s), self._writing():
            store = self.store
            if store.is_new():
                store.create()
            mended = store.mend()
            if mended:
                self.warn(mended)
        with as_owner_of(folder), locked(folder, "physai robot setup", wait_s=self.wait_s), self._writing():
            self.config.save(identity, trust, limits, requirements)

    def install(
        self, data: bytes, *, unsafe_no_verdict: bool = False, again: bool = False, progress: Progress = no_progress
    ) -> Installed:
        """Puts a bundle into the idle slot: verify, write, build the engine, golden states, latency, marker last.

        Args:
            data: the bundle's file.
            unsafe_no_verdict: whether to let it in without a valid verdict; remembered, and shown by `status`.
            again: whether to install it again where it is installed already but not active.
            progress: gets stages and shares.

        Raises:
            VerificationError: a rule of `physai.sdk.signing.verify.verify` is broken; nothing was touched.
            InstallError: the robot lacks joints, the self-test fails, or the disk is full; the idle slot is empty.
            SlotError: a trial is on, or the tree is damaged or locked.
        """
        with self._transaction("install") as store:
            state = store.state()
            progress("verify", 0.0)
            verified = self._verify(store, data, floor=state.floor, unsafe=unsafe_no_verdict)
            self._learn_time(store, verified)
            self._require_joints(verified.bundle.contract, self.config.identity())
            if lacking := lacks_text(verified.bundle.contract):
                self.warn(lacking)
            progress("verify", 1.0)
            found = self._find(store, verified)
            if found is not None and (found.active or not again):
                return found
            slot = store.idle()
            try:
                marker = self._fill(store, slot, data, verified, progress)
            except (PhysaiError, OSError) as error:
                self._abandon(store, slot, verified, error)
                raise InstallError(
                    f"version {verified.bundle.manifest.version} not installed: {_say(error)}"
                ) from error
            if verified.verdict is None:
                self._note(store, "unsafe", verified, f"installed by {_user()}: {verified.verdict_problem}")
            return Installed(slot, marker, was_there=False, active=False)

    def activate(self, *, retry: bool = False) -> Trial:
        """Switches to what lies in the idle slot, on trial; the signatures and the verdict are checked again.

        Args:
            retry: whether a bundle that was rolled back before may have another try.

        Raises:
            SlotError: nothing is installed, it is damaged, was rolled back before, or another trial is on.
            VerificationError: a key was revoked or the verdict expired since the installation.
        """
        with self._transaction("activate") as store:
            slot = store.idle()
            marker = store.marker(slot)
            if marker is None:
                raise SlotError(f"nothing to activate: slot {slot} is empty; `physai robot install BUNDLE` first")
            data = store.read(slot, BUNDLE_FILE)
            self._verify(store, data, floor=store.state().floor, unsafe=marker.unsafe_no_verdict)
            try:
                trial = store.activate(slot, now=self._now(store), boot_id=self.boot(), retry=retry)
            except OSError:
                with suppress(OSError, SlotError):
                    self._recover(store)
                raise
        self._restart()
        return trial

    def set_time(self, statement: bytes) -> str:
        """Moves the time floor to what a signed statement says, and returns it; an older statement changes nothing.

        Raises:
            TimeStatementError: this robot does not believe it, or it sets back another floor than the robot has.
            SlotError: the tree is damaged or locked.
        """
        with self._transaction("time") as store:
            state = store.state()
            said = read_time(statement, self.config.trust(), robot=self.config.identity().robot)
            if said.replaces is not None and said.replaces != state.latest_time:
                raise TimeStatementError(
                    f"the statement sets the time back from {said.replaces}, this robot's floor is "
                    f"{state.latest_time}: sign one for that"
                )
            if said.replaces is not None or said.time > state.latest_time:
                store.save(state, self.clock(), passed=parse_utc(said.time))
            return store.state().latest_time

    def commit(self, reason: str) -> Trial:
        """Ends the trial in favour of the new version; older ones are refused from now on.

        Raises:
            SlotError: nothing is on trial.
        """
        with self._transaction("commit") as store:
            return store.commit(now=self._now(store), reason=reason)

    def rollback(self, reason: str) -> Trial:
        """Goes back to what was active before the trial.

        Raises:
            SlotError: nothing is on trial.
        """
        with self._transaction("rollback") as store:
            state = store.state()
            if state.trial is None:
                raise SlotError(
                    "nothing is on trial, so there is nothing to go back to; to run older bytes again, pack them with "
                    f"a version above {state.floor}"
                )
            trial = store.rollback(now=self._now(store), reason=reason)
        self._restart()
        return trial

    def gc(self, *, idle: bool = False) -> int:
        """Removes uploads and what interrupted installations left, and returns the bytes that become free.

        Args:
            idle: whether to remove the version that is installed but not active, too.

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
        """Finishes or undoes what a power cut or a kill has cut short; for the start of the machine.

        Raises:
            SlotError: the tree is damaged or locked.
        """
        with locked(self.root, "physai robot recover", wait_s=self.wait_s), self._writing():
            return self._recover(self.store)

    @contextmanager
    def _transaction(self, verb: str) -> Generator[SlotStore]:
        """The slots, locked and recovered."""
        with locked(self.root, f"physai robot {verb}", wait_s=self.wait_s), self._writing():
            store = self.store
            for action in self._recover(store).actions:
                self.warn(action)
            yield store

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise SlotError(f"{self.root}: {_say(error)}; the active policy is unchanged") from error

    def _recover(self, store: SlotStore) -> Recovery:
        before = store.active()
        try:
            limits = self.config.limits()
        except SlotError as error:
            self.warn(f"{error}; taking the defaults")
            limits = HealthLimits()
        found = store.recover(now=self.clock(), boot_id=self.boot(), max_boots=limits.max_boots)
        if store.active() != before:
            self._restart()
        return found

    def _verify(self, store: SlotStore, data: bytes, *, floor: int, unsafe: bool) -> Verified:
        config = self.config
        return verify(
            data,
            config.trust(),
            robot=config.identity().robot,
            now=self._now(store),
            floor=floor,
            requirements=config.requirements(),
            machine=self.machine,
            require_verdict=not unsafe,
        )

    def _learn_time(self, store: SlotStore, verified: Verified) -> None:
        """A verdict that is believed was made in the past."""
        state = store.state()
        if verified.verdict is not None and verified.verdict.verdict.created > state.latest_time:
            store.save(state, self._now(store), passed=parse_utc(verified.verdict.verdict.created))

    def _now(self, store: SlotStore) -> datetime:
        return known_time(store.state(), self.clock())

    @staticmethod
    def _require_joints(contract: PolicyContract, identity: RobotIdentity) -> None:
        if identity.joints is None:
            return
        missing = [joint.name for joint in contract.robot.joints if joint.name not in identity.joints]
        if missing:
            raise InstallError(
                f"this robot has no {', '.join(missing)}; the policy's contract needs "
                f"{', '.join(joint.name for joint in contract.robot.joints)}, the robot has "
                f"{', '.join(identity.joints)}"
            )

    def _find(self, store: SlotStore, verified: Verified) -> Installed | None:
        """The slot that holds these very bytes, whole and admitted in the same way."""
        for slot in SLOTS:
            marker = store.marker(slot)
            if marker is None or marker.bundle_sha256 != verified.bundle.sha256 or store.problems(slot):
                continue
            if marker.unsafe_no_verdict == (verified.verdict is None):
                return Installed(slot, marker, was_there=True, active=slot == store.active())
        return None

    def _fill(self, store: SlotStore, slot: SlotName, data: bytes, verified: Verified, progress: Progress) -> Marker:
        progress("write", 0.0)
        store.clear(slot)
        files = {BUNDLE_FILE: store.put(slot, BUNDLE_FILE, data)}
        progress("write", 1.0)
        tested = self._test(verified, progress)
        if tested.plan is not None:
            files[ENGINE_FILE] = store.put(slot, ENGINE_FILE, tested.plan)
        progress("seal", 0.0)
        marker = self._marker(store, verified, tested, files)
        store.seal(slot, marker)
        progress("seal", 1.0)
        return marker

    def _test(self, verified: Verified, progress: Progress) -> Tested:
        members, policy, clock_ns = verified.bundle.members, verified.policy, self.tick_clock_ns
        if not self.apart:
            from physai.deploy_jetson.agent.selftest import run_self_test

            return run_self_test(
                members, policy, backend=self.backend, ticks=self.ticks, clock_ns=clock_ns, progress=progress
            )
        return self_test_apart(
            members,
            policy,
            deadline_s=verified.bundle.contract.timing.deadline_s,
            backend=self.backend,
            ticks=self.ticks,
            clock_ns=clock_ns,
            progress=progress,
        )

    def _marker(self, store: SlotStore, verified: Verified, tested: Tested, files: dict[str, SlotFile]) -> Marker:
        manifest = verified.bundle.manifest
        return Marker(
            bundle_sha256=verified.bundle.sha256,
            bundle_id=verified.bundle.id,
            version=manifest.version,
            task=manifest.task,
            robot=manifest.robot,
            contract_fingerprint=manifest.contract_fingerprint,
            control_dt=verified.bundle.contract.timing.control_dt,
            signers=tuple(f"{role} {key}" for role, keys in verified.signers.items() for key in keys),
            verdict_expires=None if verified.verdict is None else utc_text(verified.verdict.expires),
            unsafe_no_verdict=verified.verdict is None,
            installed=utc_text(self._now(store)),
            runtime=tested.runtime,
            self_test=tested.self_test,
            files=files,
        )

    def _abandon(self, store: SlotStore, slot: SlotName, verified: Verified, error: Exception) -> None:
        """Leaves an empty slot and a note behind; where even that fails, the missing marker says it."""
        with suppress(OSError, SlotError):
            store.clear(slot)
        with suppress(OSError, SlotError):
            self._note(store, "install-failed", verified, _say(error))

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
            problem = "" if unit is None else self.restart(unit)
        except SlotError as error:
            problem = str(error)
        if problem:
            self.warn(problem)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "an unknown user"


def _say(error: Exception) -> str:
    """What went wrong, and the way out where there is one."""
    if not isinstance(error, OSError):
        return str(error)
    remedy = {
        errno.ENOSPC: "; make room: `physai robot gc`",
        errno.EDQUOT: "; make room: `physai robot gc`",
        errno.EROFS: "; the file system is mounted read-only (mount -o remount,rw)",
        errno.EACCES: "; run as the user that owns the tree",
    }
    return f"{error.strerror or error}{remedy.get(error.errno or 0, '')}"
