"""What a task is: a contract, a physics model, and pure functions that reset, judge and reward.

Functions of a task get a `WorldView` (live state of all worlds, SI units) and return one value per world.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot

Uniforms = npt.NDArray[Any]
"""Uniform numbers in [0, 1), shape (n, size): the only randomness a task's function sees."""


@dataclass
class WorldView:
    """The true state of all worlds after a step, first axis the world; read-only by convention."""

    xp: Any
    """Array namespace of the arrays."""
    control_dt: float
    """Control period [s]."""
    joint_pos: Array
    """Joint positions [rad or m], shape (num_worlds, joints), robot's joint order."""
    joint_vel: Array
    """Joint velocities [rad/s or m/s], shape (num_worlds, joints)."""
    target: Array
    """Joint commands of this step [rad, m, N·m or N], shape (num_worlds, actuators)."""
    previous_target: Array
    """Joint commands of the step before, same shape."""
    commands: Mapping[str, Array]
    """Command fields by name, shape (num_worlds, size)."""
    episode_time: Array
    """Time since reset [s], shape (num_worlds,)."""
    qpos: Array
    """MuJoCo's generalised positions, shape (num_worlds, nq)."""
    qvel: Array
    """MuJoCo's generalised velocities, shape (num_worlds, nv)."""
    derived: Mapping[str, Array]
    """Derived MuJoCo fields the task asked for, such as `site_xpos`, shape (num_worlds, …)."""
    shared: dict[str, Array] = field(default_factory=dict[str, Array])
    """What several terms need of one state, kept by the term that computed it first; emptied when the state changes."""

    def rows(self, worlds: Array) -> "WorldView":
        """A copy of the masked worlds only, bool, shape (num_worlds,)."""
        names = ("joint_pos", "joint_vel", "target", "previous_target", "episode_time", "qpos", "qvel")
        arrays: dict[str, Array] = {name: getattr(self, name)[worlds] for name in names}
        commands = {name: value[worlds] for name, value in self.commands.items()}
        derived = {name: value[worlds] for name, value in self.derived.items()}
        return replace(self, **arrays, commands=commands, derived=derived, shared={})


Term = Callable[[WorldView], Array]
"""A pure function of the state, shape (num_worlds,)."""


@dataclass(frozen=True, kw_only=True)
class RewardTerm:
    """weight · term · control_dt is added to the reward each step."""

    term: Term
    weight: float
    """Reward per second and unit of the term."""
    initial_weight: float | None = None
    """Weight when training starts, of the same sign; it moves to `weight` by equal factors. None for `weight`."""

    def weight_at(self, progress: float) -> float:
        """Weight at a share of the curriculum, from 0 (`initial_weight`) to 1 (`weight`)."""
        if self.initial_weight is None or progress >= 1.0:
            return self.weight
        return self.initial_weight * (self.weight / self.initial_weight) ** progress


@dataclass(frozen=True, kw_only=True)
class Success:
    """A task is solved if the condition has held without a break for `hold_s` when the command or episode ends."""

    condition: Term
    """True where the goal is met right now, bool, shape (num_worlds,)."""
    hold_s: float = 0.0
    """Time the condition must have held [s]; 0 asks for the last instant only."""
    text: str
    """The criterion in words, for people."""


@dataclass(frozen=True, kw_only=True)
class Randomise:
    """One property of the model, drawn uniformly per world at each reset."""

    field: str
    """MuJoCo model field, for instance `body_mass`."""
    rows: tuple[int, ...] | None = None
    """Rows of the field it changes; None for all."""
    columns: tuple[int, ...] | None = None
    """Columns of a two-dimensional field; None for all."""
    operation: Literal["scale", "add", "set"]
    lower: float
    upper: float
    shared: bool = False
    """One draw for all selected elements instead of one each."""
    together: tuple[str, ...] = ()
    """Further fields scaled by the same draw (`body_inertia` with `body_mass`)."""


@dataclass(frozen=True, kw_only=True)
class SensorModel:
    """How a sensor field differs from the truth."""

    noise_std: float = 0.0
    """Standard deviation of white noise per sample, in the field's unit."""
    bias: float = 0.0
    """Greatest constant offset, drawn per element and episode, in the field's unit."""

    def __post_init__(self) -> None:
        """Raises TaskError for values no sensor can have."""
        for name in ("noise_std", "bias"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise TaskError(f"sensor model: {name} is {getattr(self, name)}, it must be finite and not below 0")


@dataclass(frozen=True, kw_only=True)
class Delay:
    """A lag drawn uniformly per episode [s]."""

    lower_s: float = 0.0
    upper_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises TaskError for a range that is none."""
        if not (0.0 <= self.lower_s <= self.upper_s and math.isfinite(self.upper_s)):
            raise TaskError(f"delay: range is [{self.lower_s}, {self.upper_s}] s, it must ascend from 0 or more")


@dataclass(frozen=True, kw_only=True)
class Push:
    """A sudden change of generalised velocity, as from a knock."""

    interval_s: float
    """Time between pushes [s]."""
    velocity: tuple[float, ...]
    """Greatest change of each generalised velocity [rad/s or m/s], length nv."""


ResetFunction = Callable[[Uniforms], tuple[Array, Array]]
"""Uniform numbers (n, reset_draws) to qpos (n, nq) and qvel (n, nv)."""

CommandFunction = Callable[[Uniforms], dict[str, Array]]
"""Uniform numbers (n, command_draws) to command fields (n, size)."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything the environment needs; the policy needs the contract only."""

    name: str
    summary: str
    """One line for `physai tasks`."""
    robot: Robot
    model: Any
    """Compiled MjModel with this task's time step and integrator."""
    contract: PolicyContract
    episode_length_s: float
    """Length of an episode that nothing ends early [s]."""
    reset: ResetFunction
    reset_draws: int
    training_reset: ResetFunction | None = None
    """Reset while training, where it differs (random states that speed up exploration); None for `reset`."""
    training_age: Callable[[Uniforms], Array] | None = None
    """Time into an episode at which training enters it [s], shape (num_worlds,), from the same draws; None for 0.

    A state near the goal is soon left or kept: entering late brings it back more often. It is not judged.
    """
    rewards: Mapping[str, RewardTerm]
    terminations: Mapping[str, Term] = field(default_factory=dict[str, Term])
    success: Success
    critic: Callable[[WorldView], Array]
    """What the critic sees: the noise-free state, scaled to order one, shape (num_worlds, critic_size)."""
    critic_size: int
    command: CommandFunction | None = None
    command_draws: int = 0
    command_interval_s: float | None = None
    """Time after which a new command is drawn [s]; None for one command an episode."""
    stage: Stage = Stage.NONE
    derived: tuple[str, ...] = ()
    """Derived MuJoCo fields the terms read."""
    sensors: Mapping[str, SensorModel] = field(default_factory=dict[str, SensorModel])
    sensor_delay: Delay = field(default_factory=Delay)
    """Age of a sensor sample when the policy sees it, in whole control periods."""
    action_delay: Delay = field(default_factory=Delay)
    """Time from a command to its effect, in whole physics steps."""
    randomisation: tuple[Randomise, ...] = ()
    push: Push | None = None
    metrics: Mapping[str, Term] = field(default_factory=dict[str, Term])
    """Physical quantities reported at the end of each command or episode."""

    def __post_init__(self) -> None:
        """Raises TaskError for a model that does not step as the contract says: a second would be no second."""
        step, agreed = float(self.model.opt.timestep), self.contract.timing.physics_dt
        if not abs(step - agreed) <= 1e-9:
            raise TaskError(
                f"task {self.name}: its model steps by {step:g} s, its contract by {agreed:g} s; set the model's "
                "option timestep to the contract's physics_dt"
            )
