"""Procedures on the robot that this runs on: set up, install, activate, commit, roll back, examine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.update.robot_tree import Backend, RobotTree, TreeOption, agent_of, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.update.agent.agent import Installed, UpdateAgent
    from physai.deploy_jetson.update.agent.status import DoctorCheck, Status
    from physai.deploy_jetson.update.agent.watch import Watched
    from physai.deploy_jetson.update.slots.slot_records import VersionTrial
    from physai.sdk.evidence.requirements import Requirements
    from physai.sdk.signing.trust_file import SignedTrust

MAX_RECIPE_BYTES = 1 << 16


@dataclass(frozen=True)
class TrialEnd:
    """End of a trial by hand."""

    version: int
    slot: str | None
    """Slot that is active now; None if no policy is."""
    reason: str


@dataclass(frozen=True)
class RobotTime:
    """Times by which verdicts expire, as UTC text."""

    clock: str
    floor: str
    """A time that has certainly passed; the later of the two counts."""
    corrections: int
    """How often the floor was set back."""


def set_up_robot(
    *,
    robot: Annotated[str, Option(metavar="NAME")],
    joints: Annotated[str | Sequence[str] | None, Option(metavar="A,B,…")] = None,
    trust: Annotated[Path | str | SignedTrust | None, Option(metavar="FILE")] = None,
    requirements: Requirements | None = None,
    stand_in: bool = False,
    unit: str | None = None,
    health_window_s: Annotated[float | None, Option(old=("--window",))] = None,
    max_interventions: int | None = None,
    max_missed: float | None = None,
    tree: TreeOption = None,
) -> Path:
    """Create the slots, and set the robot's name, its trusted keys and its limits; slots and state stay.

    Args:
        robot: model, or MODEL/UNIT, as named in verdicts.
        joints: joints of this robot; policies for others are refused.
        trust: trust file, from `physai keys trust`.
        requirements: the robot's requirements on verdicts; None leaves them.
        stand_in: mark a simulation that takes the place of a robot.
        unit: systemd unit of the runtime, restarted after a switch.
        health_window_s: health window: seconds of ticks required of a version on trial.
        max_interventions: limit of ticks in which the guard intervenes.
        max_missed: limit of the share of ticks that miss their deadline.
        tree: the robot's tree.

    Returns:
        The tree's folder.

    Raises:
        SlotError: the tree cannot be created, or the owner's files belong to another account.
        TrustError: the trust file may not replace the current one.
        PhysaiError: a value is out of range.
    """
    from pydantic import ValidationError

    from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
    from physai.sdk.signing.trust_file import SignedTrust

    names = tuple(joints.split(",")) if isinstance(joints, str) else joints
    given = {"window_s": health_window_s, "max_interventions": max_interventions, "max_missed_share": max_missed}
    set_limits = {name: value for name, value in given.items() if value is not None}
    try:
        identity = RobotIdentity(
            robot=robot, joints=None if names is None else tuple(names), runtime_unit=unit, stand_in=stand_in
        )
        limits = HealthLimits.model_validate(set_limits) if set_limits else None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names_here = {"window_s": "health_window_s", "max_missed_share": "max_missed", "runtime_unit": "unit"}
        field = str(first["loc"][0])
        raise PhysaiError(f"`{names_here.get(field, field)}`: {first['msg']} (got {first['input']!r})") from None
    signed = SignedTrust.load(trust) if isinstance(trust, str | Path) else trust
    agent = agent_of(tree_of(tree))
    agent.setup(identity, signed, limits, requirements)
    return agent.root


def install(
    bundle: Annotated[str | Path | bytes | None, Option(word=True, exclusive="source", metavar="BUNDLE")] = None,
    *,
    recipe: Annotated[str | Path | Mapping[str, str] | None, Option(exclusive="source", metavar="FILE")] = None,
    unsafe_no_verdict: bool = False,
    again: bool = False,
    backend: Backend = "auto",
    activate: bool = False,
    tree: TreeOption = None,
    progress: Callable[[str, float], None] = lambda stage, share: None,
) -> Installed:
    """Put a bundle into the idle slot and test it there.

    Args:
        bundle: bundle file (on the command line also - for standard input), or its contents.
        recipe: instead of `bundle`, JSON object of SHA-256 by member, whose members were uploaded or are installed; on
            the command line also - for standard input.
        unsafe_no_verdict: without a valid verdict; shown by status.
        again: even if it is already installed.
        backend: engine that runs the policy.
        activate: also activate it.
        tree: the robot's tree.
        progress: receives stages and their progress in [0, 1].

    Raises:
        VerificationError: the robot refuses the bundle; nothing was changed.
        InstallError: the robot lacks joints, the self-test fails, or the disk is full; the idle slot is empty.
        SlotError: a trial is in progress, or the tree is damaged or locked.
        PhysaiError: neither or both of bundle and recipe are given, or the file cannot be read.
    """
    agent = _agent(tree, backend)
    data = _contents(agent, bundle, recipe)
    result = agent.install(data, unsafe_no_verdict=unsafe_no_verdict, again=again, progress=progress)
    if not activate or result.active:
        return result
    agent.activate()
    return replace(result, active=True, activated=True)


def _contents(
    agent: UpdateAgent, bundle: str | Path | bytes | None, recipe: str | Path | Mapping[str, str] | None
) -> bytes:
    from physai.deploy_jetson.update.agent.incoming import assemble, parse_recipe
    from physai.sdk.bundle.archive import read_file

    if (bundle is None) == (recipe is None):
        raise PhysaiError("name one source: a bundle file, or `recipe` FILE")
    if recipe is not None:
        named = recipe if isinstance(recipe, Mapping) else parse_recipe(_read(Path(recipe), MAX_RECIPE_BYTES))
        return assemble(agent.store, named)
    return bundle if isinstance(bundle, bytes) else read_file(Path(bundle or ""))


def activate(*, retry: bool = False, tree: TreeOption = None) -> VersionTrial:
    """Switch to the installed version, on trial; the bundle is verified again first.

    Args:
        retry: even if that bundle was rolled back before.
        tree: the robot's tree.

    Raises:
        SlotError: nothing is installed, it is damaged or was rolled back before, or another trial is in progress.
        VerificationError: a key was revoked or the verdict expired since the installation.
    """
    return _agent(tree).activate(retry=retry)


def commit(*, now: bool = False, tree: TreeOption = None) -> TrialEnd:
    """End the trial and keep the new version, if it is healthy; older versions are refused from then on.

    Args:
        now: before its health window has passed; the log records that.
        tree: the robot's tree.

    Raises:
        SlotError: no trial is in progress.
        PhysaiError: the version is not healthy yet, and `now` is False.
    """
    from physai.deploy_jetson.update.agent.watch import TrialWatcher
    from physai.deploy_jetson.update.slots.health import Health

    agent = _agent(tree)
    # A commit by hand has to know what the counters say, even if it overrules them.
    finding = TrialWatcher(agent).look()
    reason = "by hand"
    if finding is not None and finding.health is Health.HEALTHY:
        reason = finding.reason
    elif finding is not None and not now:
        raise PhysaiError(
            f"not committed, {finding.health.value}: {finding.reason}; wait, or commit regardless with `now`"
        )
    elif finding is not None:
        reason = f"by hand, although {finding.health.value}: {finding.reason}"
    trial = agent.commit(reason)
    return TrialEnd(trial.version, trial.slot, reason)


def rollback(*, reason: Annotated[str, Option(metavar="TEXT")] = "by hand", tree: TreeOption = None) -> TrialEnd:
    """End the trial and return to the previous version.

    Args:
        reason: what `status` will show.
        tree: the robot's tree.

    Raises:
        SlotError: no trial is in progress.
    """
    trial = _agent(tree).rollback(reason)
    return TrialEnd(trial.version, trial.previous, reason)


def watch_trials(
    *,
    once: bool = False,
    tree: TreeOption = None,
    started: Callable[[], None] = lambda: None,
    ended: Callable[[Watched], None] = lambda watched: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Watched:
    """Commit or roll back versions on trial by the runtime's counters.

    Args:
        once: end with the current trial, instead of never.
        tree: the robot's tree.
        started: called once the robot is in order and is watched.
        ended: receives the result of every trial.
        sleep: sleeps for a number of seconds.

    Returns:
        The result of the current trial.

    Raises:
        SlotError: the slots are damaged.
    """
    from physai.deploy_jetson.update.agent.watch import TrialWatcher

    agent = _agent(tree)
    agent.recover()
    started()
    watcher = TrialWatcher(agent, sleep=sleep)
    if not once:
        watcher.watch_forever(ended)
    watched = watcher.watch_trial()
    ended(watched)
    return watched


def robot_status(*, tree: TreeOption = None) -> Status:
    """Read the versions, the trial, and the reason of the last rollback.

    Args:
        tree: the robot's tree.

    Raises:
        SlotError: the tree is damaged.
    """
    from physai.deploy_jetson.update.agent.status import read_status

    return read_status(_agent(tree))


def examine_robot(*, tree: TreeOption = None) -> list[DoctorCheck]:
    """Diagnose what prevents the robot from running or installing a policy.

    Args:
        tree: the robot's tree.
    """
    from physai.deploy_jetson.update.agent.status import examine

    return examine(agent_of(tree_of(tree)))


def robot_time(
    *, statement: Annotated[Path | str | bytes | None, Option(metavar="FILE")] = None, tree: TreeOption = None
) -> RobotTime:
    """Read the trusted time, by which verdicts expire.

    Args:
        statement: accept a signed statement of `physai keys time`.
        tree: the robot's tree.

    Raises:
        TimeStatementError: the statement is not valid for this robot, or sets back another floor.
        SlotError: the tree is damaged or locked.
    """
    from physai.sdk.evidence.verdict import utc_text
    from physai.sdk.signing.time_statement import MAX_STATEMENT_BYTES

    agent = _agent(tree)
    if statement is not None:
        agent.set_time(statement if isinstance(statement, bytes) else _read(Path(statement), MAX_STATEMENT_BYTES))
    state = agent.store.state()
    return RobotTime(utc_text(agent.clock()), state.latest_time, state.corrections)


def collect_garbage(*, idle: bool = False, tree: TreeOption = None) -> int:
    """Remove uploads and unfinished installations.

    Args:
        idle: also remove the version that is installed but not active.
        tree: the robot's tree.

    Returns:
        Freed bytes.

    Raises:
        SlotError: the tree is damaged or locked.
    """
    return _agent(tree).gc(idle=idle)


def recover(*, tree: TreeOption = None) -> tuple[str, ...]:
    """Finish or undo what a power cut interrupted; run at start-up.

    Args:
        tree: the robot's tree.

    Returns:
        A line for each repair.

    Raises:
        SlotError: the tree is damaged or locked.
    """
    return tuple(_agent(tree).recover().actions)


def missing_members(
    digests: Annotated[Sequence[str], Option(metavar="SHA256")], *, tree: TreeOption = None
) -> list[str]:
    """Select the members that this robot lacks.

    Args:
        digests: SHA-256 of members.
        tree: the robot's tree.

    Raises:
        InstallError: a digest is not a SHA-256, or there are too many.
    """
    from physai.deploy_jetson.update.agent.incoming import missing

    return missing(_agent(tree).store, digests)


def _agent(tree: RobotTree | Path | str | None, backend: Backend = "auto") -> UpdateAgent:
    """The agent of a tree that exists."""
    found = tree_of(tree)
    found.existing()
    return agent_of(found, backend=backend)


def _read(path: Path, limit: int) -> bytes:
    from physai.sdk.base.files import read_plain

    try:
        data = read_plain(path, limit=limit)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be read: {error.strerror}") from None
    if not len(data) <= limit:
        raise PhysaiError(f"{path}: larger than the limit of {limit} bytes")
    return data
