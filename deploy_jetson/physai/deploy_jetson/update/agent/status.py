"""Status of a robot's slots, and the checks of `physai robot doctor`."""

import os
import shutil
from dataclasses import dataclass
from datetime import timedelta

from physai.deploy_jetson.inference.backend import has_tensorrt
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.agent.ownership import account, login_keys, weakness
from physai.deploy_jetson.update.agent.watch import TrialWatcher
from physai.deploy_jetson.update.slots.filesystem import exists, temporary
from physai.deploy_jetson.update.slots.health import HealthFinding, health_path
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE, CURRENT, MAX_RECORD_BYTES, STATE_FILES, config_folder
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import (
    SLOTS,
    Marker,
    SlotEvent,
    SlotName,
    State,
    VersionTrial,
    decode,
)
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.contract.gaps import lacks_text
from physai.sdk.signing.attestation import ROLES
from physai.sdk.signing.verify import parse_utc

MIN_FREE_BYTES = 64 << 20
CLOCK_TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True)
class SlotStatus:
    """Contents of a slot."""

    slot: SlotName
    active: bool
    marker: Marker | None
    """None if the slot is empty."""
    problems: tuple[str, ...]
    """Damage of a slot that is not empty."""


@dataclass(frozen=True)
class Status:
    """Status of a robot."""

    robot: str
    slots: tuple[SlotStatus, ...]
    active: Marker | None
    floor: int
    trial: VersionTrial | None
    health: HealthFinding | None
    """Health of the version on trial, if there is one."""
    last_rollback: SlotEvent | None
    events: tuple[SlotEvent, ...]
    """Oldest first."""
    warnings: tuple[str, ...]
    """Problems to highlight: no verdict, damage, no policy, a clock that is behind."""


def read_status(agent: UpdateAgent) -> Status:
    """Reads the status without locking or changing anything.

    Raises:
        SlotError: the tree is missing or its state damaged.
    """
    store = agent.store
    state = store.state()
    identity = agent.config.identity()
    current = store.active()
    slots = tuple(_slot(store, slot, active=slot == current) for slot in SLOTS)
    marker = next((slot.marker for slot in slots if slot.active), None)
    health = None
    if state.trial is not None and state.trial.slot == current and marker is not None:
        health = TrialWatcher(agent).look()
    return Status(
        robot=identity.robot,
        slots=slots,
        active=marker,
        floor=state.floor,
        trial=state.trial,
        health=health,
        last_rollback=state.last_rollback,
        events=state.events,
        warnings=tuple(_warnings(agent, state, slots)),
    )


def _slot(store: SlotStore, slot: SlotName, *, active: bool) -> SlotStatus:
    empty = not exists(store.fs, store.path(slot)) or not store.fs.entries(store.path(slot))
    return SlotStatus(slot, active, store.marker(slot), () if empty else tuple(store.problems(slot)))


def _warnings(agent: UpdateAgent, state: State, slots: tuple[SlotStatus, ...]) -> list[str]:
    warnings: list[str] = []
    active = next((slot for slot in slots if slot.active), None)
    if active is None:
        warnings.append("no policy is active")
    else:
        warnings += [f"the active slot: {problem}" for problem in active.problems]
        if active.marker is not None and active.marker.unsafe_no_verdict:
            warnings.append(f"version {active.marker.version} runs WITHOUT A VALID VERDICT (--unsafe-no-verdict)")
        reason = "" if active.problems else _refusal(agent)
        if reason:
            warnings.append(f"the active policy can no longer start: {reason}")
    behind = parse_utc(state.latest_time) - agent.clock()
    if behind > CLOCK_TOLERANCE:
        warnings.append(f"the clock is {behind} behind the time floor {state.latest_time}: set it")
    return warnings


def _refusal(agent: UpdateAgent) -> str:
    """Why the runtime would refuse the active policy, for example a revoked key; empty if it would start."""
    try:
        open_active(agent.root, config=agent.config_root, fs=agent.fs)
    except PhysaiError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class DoctorCheck:
    """Result of one check of `physai robot doctor`."""

    name: str
    ok: bool
    found: str
    """The finding, with a remedy if it is a problem."""
    is_warning: bool = False
    """Whether the setup is good enough for tests only, not for a real robot."""


def examine(agent: UpdateAgent) -> list[DoctorCheck]:
    """Checks for anything that would keep the robot from running its policy or taking a new one; changes nothing."""
    if not agent.root.is_dir():
        return [_tree(agent)]
    return [
        _tree(agent),
        _state(agent),
        _link(agent),
        *_contents(agent),
        _trust(agent),
        _settings(agent),
        _owner(agent),
        _space(agent),
        _admission(agent),
        _limits(agent),
        _clock(agent),
        _counters(agent),
        _backend(agent),
        _leftovers(agent),
    ]


def _tree(agent: UpdateAgent) -> DoctorCheck:
    if not agent.root.is_dir():
        return DoctorCheck("tree", False, f"{agent.root} does not exist; create it: `physai robot setup --robot NAME`")
    if not os.access(agent.root, os.W_OK):
        return DoctorCheck("tree", False, f"{agent.root} cannot be written by this user, or is mounted read-only")
    try:
        return DoctorCheck("tree", True, f"{agent.root}, robot {agent.config.identity().robot}")
    except PhysaiError as error:
        return DoctorCheck("tree", False, str(error))


def _state(agent: UpdateAgent) -> DoctorCheck:
    problems: list[str] = []
    for name in STATE_FILES:
        try:
            decode(State, agent.store.fs.read(name, limit=MAX_RECORD_BYTES), source=name)
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
        except SlotError as error:
            problems.append(str(error))
    if len(problems) == len(STATE_FILES):
        return DoctorCheck("state", False, f"{'; '.join(problems)}; repair it with `physai robot setup`")
    if problems:
        return DoctorCheck("state", False, f"{problems[0]}; the other copy is intact, and the next change writes both")
    return DoctorCheck("state", True, f"both copies intact, floor {agent.store.state().floor}")


def _link(agent: UpdateAgent) -> DoctorCheck:
    slot = agent.store.active()
    if slot is not None:
        return DoctorCheck("active slot", True, slot)
    if exists(agent.store.fs, CURRENT):
        return DoctorCheck("active slot", False, f"{CURRENT} points to no slot; repair it with `physai robot recover`")
    return DoctorCheck("active slot", False, "none; `physai robot install BUNDLE`, then `physai robot activate`")


def _contents(agent: UpdateAgent) -> list[DoctorCheck]:
    store = agent.store
    checks: list[DoctorCheck] = []
    for slot in SLOTS:
        status = _slot(store, slot, active=False)
        if status.problems:
            checks.append(DoctorCheck(f"slot {slot}", False, f"{'; '.join(status.problems)}; install the bundle again"))
        else:
            version = "empty" if status.marker is None else f"version {status.marker.version}, all bytes verified"
            checks.append(DoctorCheck(f"slot {slot}", True, version))
    return checks


def _trust(agent: UpdateAgent) -> DoctorCheck:
    try:
        trust = agent.config.trust()
    except PhysaiError as error:
        return DoctorCheck("trust", False, str(error))
    counts: list[str] = []
    for role in ROLES:
        usable, needed = len(trust.usable(role)), trust.threshold(role)
        counts.append(f"{usable} {role} keys, {needed} must sign")
        if usable < needed:
            remedy = "no bundle can be accepted; add keys with `physai keys trust`"
            return DoctorCheck("trust", False, f"{counts[-1]}: {remedy}")
    return DoctorCheck("trust", True, "; ".join(counts))


def _owner(agent: UpdateAgent) -> DoctorCheck:
    """Checks that an account that may flash the robot cannot change its trust file."""
    folder = config_folder(agent.root, agent.config_root)
    try:
        weak = weakness(agent.root, folder)
        owner, runner = account(folder.stat().st_uid), account(agent.root.stat().st_uid)
    except OSError as error:
        return DoctorCheck("owner", False, f"{folder}: {error.strerror}; create it with `physai robot setup`")
    if weak:
        remedy = "so an account that may flash the robot can change its trust file; fine for tests, use install.sh on "
        return DoctorCheck("owner", True, f"{weak}, {remedy}a robot", is_warning=True)
    summary = f"{folder} belongs to {owner}; {runner} runs the robot and cannot change it"
    keys = login_keys(agent.root)
    if keys is None:
        return DoctorCheck("owner", True, f"{summary}; the authorized keys of {runner} cannot be read")
    if keys.free:
        text = f"{summary}; {keys.free} of {keys.total} keys in {keys.path} are not limited to `physai robot receive`"
        return DoctorCheck("owner", True, f"{text}: add them with install.sh --login", is_warning=True)
    return DoctorCheck("owner", True, f"{summary}; {keys.total} keys are restricted to flashing")


def _admission(agent: UpdateAgent) -> DoctorCheck:
    if agent.store.active() is None:
        return DoctorCheck("signatures", True, "no active policy to check")
    reason = _refusal(agent)
    remedy = "; flash a newly signed bundle"
    return DoctorCheck("signatures", not reason, f"{reason}{remedy}" if reason else "the active policy's are valid")


def _limits(agent: UpdateAgent) -> DoctorCheck:
    try:
        contract = open_active(agent.root, config=agent.config_root, fs=agent.fs).bundle.contract
    except PhysaiError:
        return DoctorCheck("limits", True, "no active policy to check")
    # Always ok: missing protections are reported, but do not keep a policy from running.
    return DoctorCheck("limits", True, lacks_text(contract) or "the contract defines every protection")


def _settings(agent: UpdateAgent) -> DoctorCheck:
    """Shows the requirements on verdicts and this computer's name."""
    try:
        requirements, identity = agent.config.requirements(), agent.config.identity()
    except PhysaiError as error:
        return DoctorCheck("settings", False, str(error))
    evidence = f"evidence of: {', '.join(requirements.accept)}; latency of: {agent.machine}"
    text = f"{len(requirements.gates)} gates, {evidence}"
    return DoctorCheck("settings", True, f"{text}; a stand-in, not a robot" if identity.stand_in else text)


def _space(agent: UpdateAgent) -> DoctorCheck:
    try:
        free = shutil.disk_usage(agent.root).free
    except OSError as error:
        return DoctorCheck("space", False, str(error.strerror))
    ok = free >= MIN_FREE_BYTES
    return DoctorCheck("space", ok, f"{free >> 20} MiB free" + ("" if ok else "; make room: `physai robot gc --idle`"))


def _clock(agent: UpdateAgent) -> DoctorCheck:
    store = agent.store
    try:
        known = {"the time floor": parse_utc(store.state().latest_time)}
        for slot in SLOTS:
            if store.marker(slot) is not None:
                created = read_bundle(store.read(slot, BUNDLE_FILE)).manifest.created
                known[f"the bundle in slot {slot}"] = parse_utc(created)
    except (OSError, PhysaiError) as error:
        return DoctorCheck("clock", False, str(error))
    newest = max(known, key=lambda name: known[name])
    behind = known[newest] - agent.clock()
    ok = behind <= CLOCK_TOLERANCE
    return DoctorCheck("clock", ok, "plausible" if ok else f"{behind} behind {newest}; set it")


def _counters(agent: UpdateAgent) -> DoctorCheck:
    path = health_path(agent.root)
    ok = os.access(path.parent, os.W_OK)
    return DoctorCheck(
        "counters", ok, str(path) if ok else f"{path.parent} is not writable; the runtime's systemd unit creates it"
    )


def _backend(agent: UpdateAgent) -> DoctorCheck:
    present = has_tensorrt()
    slot = agent.store.active()
    marker = None if slot is None else agent.store.marker(slot)
    if marker is not None and marker.runtime.backend == "tensorrt" and not present:
        return DoctorCheck(
            "backend", False, "the active engine needs TensorRT, which is missing; install the bundle again"
        )
    return DoctorCheck("backend", True, "TensorRT" if present else "onnxruntime (no TensorRT here)")


def _leftovers(agent: UpdateAgent) -> DoctorCheck:
    names = [temporary(name) for name in (*STATE_FILES, CURRENT) if exists(agent.store.fs, temporary(name))]
    text = f"{', '.join(names)} left by an interrupted write; remove it with `physai robot recover`"
    return DoctorCheck("leftovers", not names, text if names else "none")
