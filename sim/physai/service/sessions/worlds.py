"""Worlds of a session: a task's, behind arrays by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.batch import SimulationError
from pydantic import ValidationError

from physai.sdk.base.errors import PhysaiError, UnknownNameError
from physai.sdk.contract.io import contract_error
from physai.service.problems import invalid
from physai.sim.engines.protocol import Array, Snapshot
from physai.sim.envs.environment import Environment
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

Arrays = dict[str, Array]
JOINT_SENSORS = frozenset({"joint_pos", "joint_vel", "joint_effort"})
"""Sensors with one value per joint of the contract's robot."""

ENGINE_ERRORS = (mujoco.FatalError, SimulationError)
"""What MuJoCo raises when a model exceeds its own memory in some state."""


@dataclass(frozen=True, kw_only=True)
class WorldsOptions:
    """Worlds that a session asks for."""

    task: str
    """Name of a built-in task."""
    preset: str | None = None
    robot: Path | None = None
    """Zip of a registered robot that replaces the task's own."""
    worlds: int = 1
    seed: int = 0
    randomise: bool = True
    """Draw model parameters, sensor noise, delay and pushes; else the nominal twin."""
    training: bool = False
    """Start from the task's training states, with first episodes staggered in time."""
    action_repeat: int = 1


class SessionWorlds(Protocol):
    """Worlds that a session steps; an entry point of `physai.session_interfaces` makes them from `WorldsOptions`."""

    num_worlds: int
    model: mujoco.MjModel
    """Nominal model, for viewers; worlds may differ from it in parameters."""
    step_dt: float
    """Simulated time of one step [s]."""
    first: Arrays
    """Observations of the episodes that began with the session."""

    def describe(self) -> dict[str, Any]:
        """The arrays of `step`: under `actions` and `observations` the shape of one world by name."""
        ...

    def reset(self, seed: int | None) -> Arrays:
        """Starts a new episode in every world; returns its first observations by name."""
        ...

    def step(self, actions: Mapping[str, Array]) -> dict[str, Any]:
        """Advances every world by one step.

        Args:
            actions: arrays by the names in `describe`, shape (num_worlds, …).

        Returns:
            `observations` by name; `reward`, `terminated`, `truncated`, `judged` and `succeeded`, shape (num_worlds,);
            and, where episodes ended, `final`: their last observations by name, shape (number ended, …).
        """
        ...

    def state(self) -> Arrays:
        """True state: `qpos`, `qvel` and `time` [s], first axis the world."""
        ...

    def snapshot(self) -> Snapshot:
        """Everything that `restore` needs to continue bit for bit."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of these worlds."""
        ...


def build_environment(options: WorldsOptions, **more: Any) -> Environment:
    """The environment of a session.

    Raises:
        ProblemError: the task is a path; only built-in tasks are served, because a task file is code. Or it does not
            accept the robot.
        PhysaiError: there is no such task.
    """
    task = load_served_task(options)
    return Environment(
        task,
        options.worlds,
        seed=options.seed,
        training=options.training,
        randomise=options.randomise,
        action_repeat=options.action_repeat,
        num_threads=threads_for(options.worlds),
        keep_final=True,
        **more,
    )


def load_served_task(options: WorldsOptions) -> Task:
    """Loads a built-in task; see `build_environment` for the errors."""
    if options.task.endswith(".py"):
        raise invalid(f"task {options.task!r} is a file; the service runs built-in tasks only")
    if options.robot is None:
        return load_task(options.task, preset=options.preset)
    try:
        return load_task(options.task, robot=str(options.robot), preset=options.preset)
    except UnknownNameError:
        raise
    except ValidationError as error:
        source = f"task {options.task} with the robot {options.robot.name}"
        raise invalid(str(contract_error(error, source=source))) from error
    except PhysaiError as error:
        # Clients know the robot by its hash, and nothing of the service's folders.
        raise invalid(str(error).replace(str(options.robot), options.robot.name)) from error


def threads_for(worlds: int) -> int:
    """Engine threads of a session: one for a small session, so that sessions run side by side; else all."""
    return 1 if worlds < 32 else 0


class TargetWorlds:
    """Worlds that take joint targets and return sensor fields, as a policy graph on the robot sees them."""

    def __init__(self, options: WorldsOptions) -> None:
        self._environment = build_environment(options)
        self._options = options
        self.num_worlds = options.worlds
        self.model = self._environment.engine.model
        self.step_dt = self._environment.step_dt
        contract = self._environment.task.contract
        self._actions = {term.target_name: len(term.joints) for term in contract.action.terms}
        self.first = _observations(self._environment.reset())
        self._shapes: dict[str, Any] = {name: {"shape": list(value.shape[1:])} for name, value in self.first.items()}
        for name in self._shapes.keys() & JOINT_SENSORS:
            self._shapes[name]["joints"] = [joint.name for joint in contract.robot.joints]

    def describe(self) -> dict[str, Any]:
        terms = self._environment.task.contract.action.terms
        return {
            "actions": {term.target_name: {"shape": [len(term.joints)], "joints": list(term.joints)} for term in terms},
            "observations": self._shapes,
        }

    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._environment.reseed(seed)
        return _observations(self._environment.reset())

    def step(self, actions: Mapping[str, Array]) -> dict[str, Any]:
        targets = {name: check_action(actions, name, (self.num_worlds, size)) for name, size in self._actions.items()}
        if len(actions) != len(self._actions):
            raise invalid(f"actions named {sorted(actions)}, the task takes {sorted(self._actions)}")
        result = self._environment.step(*[targets] * self._options.action_repeat)
        reply: dict[str, Any] = {
            "observations": _observations(result),
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "judged": result.judged,
            "succeeded": result.succeeded,
        }
        if result.final_sensors is not None:
            reply["final"] = {**result.final_sensors, **(result.final_commands or {})}
        return reply

    def state(self) -> Arrays:
        return {name: np.array(self._environment.engine.state(name)) for name in ("qpos", "qvel", "time")}

    def snapshot(self) -> Snapshot:
        return {**self._environment.snapshot(), "seed": np.array(self._environment.seed)}

    def restore(self, snapshot: Snapshot) -> None:
        self._environment.restore(snapshot)
        self._environment.seed = int(snapshot["seed"])


def _observations(result: StepResult) -> Arrays:
    return {**result.sensors, **result.commands}


def numbers(value: object) -> npt.NDArray[Any] | None:
    """The value if it is an array of real numbers, else None."""
    if not isinstance(value, np.ndarray):
        return None
    array = cast("npt.NDArray[Any]", value)
    return array if array.dtype.kind in "fiu" else None


def check_action(actions: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """One action array of the wanted shape.

    Raises:
        ProblemError: it is missing, has another shape or dtype, or is not finite.
    """
    given = actions.get(name)
    value = numbers(given)
    if value is None:
        what = "nothing" if given is None else type(given).__name__
        raise invalid(f"action {name!r} must be an array of numbers with shape {list(shape)}, got {what}")
    if value.shape != shape:
        raise invalid(f"action {name!r} has shape {list(value.shape)}, expected {list(shape)}: worlds, values")
    finite = np.isfinite(value)
    if not finite.all():
        row = np.argwhere(~finite)[0].tolist()
        raise invalid(f"action {name!r} is {value[tuple(row)]} at {row}; send finite numbers; no world was stepped")
    return value.astype(np.float64)
