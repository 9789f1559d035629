"""Memory that MuJoCo Warp needs for a task's contacts: measured once per machine, or set by hand."""

import importlib.metadata
import json
import logging
import math
from contextlib import suppress
from pathlib import Path

import mujoco
import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import read_plain, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.user_cache import user_cache
from physai.sim.engines.protocol import CapacityError, DeviceEngine
from physai.sim.engines.warp_device import MARGIN, WarpDeviceEngine
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.tasks.task import Task

PROBE_WORLDS = 64
"""Worlds of a probe; fewer worlds in use share the memory for this many."""

PROBE_STEPS = 60
"""Control periods of a probe, half from the starts of training, half from those of evaluation."""

HOLD_STEPS = 10
"""Control periods that a probe holds each random command."""

LEAST_CONTACTS, LEAST_CONSTRAINTS = 8, 32
"""Memory per world of a task whose probe touched nothing, so that the first touch ends no run."""

MAX_CAPACITY = 1_000_000
"""Most contacts, or constraints, of a world."""

_ATTEMPTS = 6
_MAX_BYTES = 4096
_LOG = logging.getLogger(__name__)


class Capacities(BaseModel):
    """Memory of each world."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    max_contacts: int = Field(ge=1, le=MAX_CAPACITY)
    """Contacts; the worlds share the memory, so one may have more if others have fewer."""
    max_constraints: int = Field(ge=1, le=MAX_CAPACITY)
    """Constraints of any one world."""
    by_hand: bool = False
    """Whether a person chose them; a measurement does not replace them."""


def build_engine(
    task: Task,
    num_worlds: int,
    *,
    device: str = "cpu",
    capacities: Capacities | None = None,
    deterministic: bool = False,
) -> WarpDeviceEngine:
    """An engine with all that a task's `DeviceEnvironment` reads and varies.

    Args:
        task: what the worlds will play.
        num_worlds: number of simulations.
        device: `cpu`, `cuda` or `cuda:N`.
        capacities: memory of each world; None for what is stored, or else measured and then stored.
        deterministic: compute in an order that is the same in every run; such kernels are compiled apart.

    Raises:
        MissingExtraError: warp or mujoco_warp is not installed.
        DeviceError: there is no such device.
        ModelError: mujoco_warp cannot simulate the task.
        TaskError: the task's functions cannot run on a device.
    """
    capacities = capacities or capacities_of(task, device=device)
    contacts = capacities.max_contacts
    if not capacities.by_hand:
        contacts = math.ceil(contacts * max(1.0, PROBE_WORLDS / num_worlds))
    return _engine(task, num_worlds, device, contacts, capacities.max_constraints, deterministic=deterministic)


def capacities_of(task: Task, *, device: str = "cpu") -> Capacities:
    """The stored capacities of a task; measures and stores them if there are none. Raises what `build_engine` does."""
    found = stored(task)
    if found is None:
        found = measure(task, device=device)
        keep(task, found)
    return found


def require_capacity(engine: DeviceEngine) -> None:
    """Checks that no step of an engine of `build_engine` needed more memory than there is; waits for the device.

    Raises:
        ModelError: one did; the message has what to store for all later runs.
    """
    try:
        engine.require_capacity()
    except CapacityError as error:
        raise ModelError(
            f"{error}, for all later runs by: physai tasks warmup TASK --max-contacts {error.max_contacts} "
            f"--max-constraints {error.max_constraints}"
        ) from error


def measure(task: Task, *, device: str = "cpu") -> Capacities:
    """Plays random commands in a few worlds, and returns `MARGIN` times the memory that one of them needed.

    Raises:
        ModelError: however much memory the worlds get, they need more.
    """
    contacts = constraints = None
    for _ in range(_ATTEMPTS):
        engine = _engine(task, PROBE_WORLDS, device, contacts, constraints)
        most_of_one = _play(task, engine)
        if not bool(engine.overflowed().any()):
            together, constraints = engine.most()
            contacts = max(most_of_one, together / PROBE_WORLDS)
            return Capacities(
                max_contacts=max(LEAST_CONTACTS, math.ceil(MARGIN * contacts)),
                max_constraints=max(LEAST_CONSTRAINTS, math.ceil(MARGIN * constraints)),
            )
        contacts, constraints = engine.enough()
    raise ModelError(
        f"{task.name}: random commands needed more than {contacts} contacts or {constraints} constraints per world in "
        f"the last of {_ATTEMPTS} attempts; check its starting states, or give more: physai tasks warmup TASK "
        "--max-contacts N --max-constraints N"
    )


def _engine(
    task: Task,
    num_worlds: int,
    device: str,
    max_contacts: int | None,
    max_constraints: int | None,
    *,
    deterministic: bool = False,
) -> WarpDeviceEngine:
    return WarpDeviceEngine(
        task.model,
        num_worlds,
        device=device,
        stage=task.stage,
        parameters=ParameterDraws.fields(task),
        derived=task.derived,
        max_contacts=max_contacts,
        max_constraints=max_constraints,
        deterministic=deterministic,
    )


def _play(task: Task, engine: WarpDeviceEngine) -> int:
    """Plays random commands; returns the most contacts of a world at the end of a control period."""
    random, most = torch.Generator().manual_seed(0), 0
    # The first world stands still, the last one goes anywhere: a good policy touches things more often than a wild one.
    reach = torch.linspace(0.0, 1.0, engine.num_worlds)[:, None]
    for training in (True, False):
        environment = DeviceEnvironment(task, engine, training=training)
        environment.reset()
        targets: dict[str, torch.Tensor] = {}
        for step in range(PROBE_STEPS // 2):
            if step % HOLD_STEPS == 0:
                for term in task.contract.action.terms:
                    low, high, rest = (torch.tensor(values) for values in (term.lower, term.upper, term.offset))
                    anywhere = low + (high - low) * torch.rand(engine.num_worlds, len(low), generator=random)
                    targets[term.target_name] = torch.lerp(rest, anywhere, reach).to(environment.device)
            environment.step(targets)
            most = max(most, int(engine.contacts().max()))
    return most


def keep(task: Task, capacities: Capacities) -> None:
    """Stores capacities for later runs of this user; warns where the file cannot be written."""
    try:
        store(task, capacities)
    except OSError as error:
        _LOG.warning("the capacities of %s cannot be stored for later runs: %s", task.name, error)


def store(task: Task, capacities: Capacities) -> Path:
    """Keeps capacities for later runs of this user; returns the file.

    Raises:
        OSError: the file cannot be written.
    """
    path = _path(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, capacities.model_dump_json().encode())
    return path


def stored(task: Task) -> Capacities | None:
    """The stored capacities of a task; None if there are none, or they are damaged."""
    with suppress(OSError, ValidationError):
        data = read_plain(_path(task), limit=_MAX_BYTES)
        return Capacities.model_validate_json(data) if len(data) <= _MAX_BYTES else None
    return None


def _path(task: Task) -> Path:
    """The file of a task, named by what the numbers depend on; code of its resets is not part of that."""
    model = np.empty(mujoco.mj_sizeModel(task.model), np.uint8)
    mujoco.mj_saveModel(task.model, None, model)
    parts = {
        "model": sha256_hex(model.tobytes()),
        "task": [task.name, task.contract.fingerprint, repr(task.randomisation)],
        "mujoco_warp": importlib.metadata.version("mujoco-warp"),
        "probe": [PROBE_WORLDS, PROBE_STEPS, HOLD_STEPS, MARGIN, LEAST_CONTACTS, LEAST_CONSTRAINTS],
    }
    return user_cache("capacities") / f"{sha256_hex(json.dumps(parts).encode())}.json"
