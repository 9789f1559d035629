"""The definition of a task: a contract, a physics model, and pure functions for resets, rewards and success.

A task's functions take a `WorldView` (live state of all worlds, SI units) and return one value per world.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from array_api_compat import array_namespace

from physai.sdk.base.errors import TaskError, unknown_name
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import AnyEngine, Array, Stage
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_columns

Uniforms: TypeAlias = Array
"""Uniform numbers in [0, 1), float64, shape (n, size): the only source of randomness for a task's functions."""


@dataclass
class WorldView:
    """The true state of all worlds after a step; the first axis is the world. Read-only by convention."""

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
    window_qpos: Array
    """`qpos` at the beginning of the window over which success is judged, shape (num_worlds, nq)."""
    shared: dict[str, Array] = field(default_factory=dict[str, Array])
    """Cache of values that several terms need, cleared when the state changes; see `physai.sim.tasks.common.once`."""

    @classmethod
    def of(
        cls, engine: AnyEngine, task: "Task", *, control_dt: float, target: Array, previous_target: Array
    ) -> "WorldView":
        """The live state of an engine; all commands are zero."""
        qpos, qvel = engine.state("qpos"), engine.state("qvel")
        xp, place, count = array_namespace(qpos), getattr(qpos, "device", None), len(target)
        fields = task.contract.command.fields
        position, velocity = joint_columns(engine.model, task.contract.robot)
        return cls(
            xp=xp,
            control_dt=control_dt,
            joint_pos=qpos[:, position],
            joint_vel=qvel[:, velocity],
            target=target,
            previous_target=previous_target,
            commands={f.name: xp.zeros((count, f.size), dtype=xp.float32, device=place) for f in fields},
            episode_time=xp.zeros(count, dtype=xp.float64, device=place),
            qpos=qpos,
            qvel=qvel,
            derived={name: engine.derived(name) for name in task.derived},
            window_qpos=xp.asarray(qpos, copy=True),
        )

    def rows(self, worlds: Array) -> "WorldView":
        """A copy of the masked worlds only, bool, shape (num_worlds,)."""
        names = ("joint_pos", "joint_vel", "target", "previous_target", "episode_time", "qpos", "qvel", "window_qpos")
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
    """Weight at the start of training, of the same sign, interpolated geometrically to `weight`; None for `weight`."""

    def weight_at(self, progress: float) -> float:
        """Weight at a progress of the curriculum from 0 (`initial_weight`) to 1 (`weight`)."""
        if self.initial_weight is None or progress >= 1.0:
            return self.weight
        return self.initial_weight * (self.weight / self.initial_weight) ** progress


@dataclass(frozen=True, kw_only=True)
class Success:
    """A task is solved if the condition held continuously for the last `hold_s` of a command or episode."""

    condition: Term
    """True where the goal is currently met, bool, shape (num_worlds,)."""
    hold_s: float = 0.0
    """Time for which the condition must hold [s]; 0 checks the last instant only."""
    window_s: float = 0.0
    """Time before the end of the command or episode at which `WorldView.window_qpos` is taken [s], for conditions on
    means; 0 for never."""
    text: str
    """The criterion in words."""


Operation = Literal["scale", "add", "set"]


@dataclass(frozen=True, kw_only=True)
class Randomise:
    """One property of the model, drawn uniformly per world at each reset."""

    field: str
    """MuJoCo model field, for instance `body_mass`."""
    rows: tuple[int, ...] | None = None
    """Rows of the field it changes; None for all."""
    columns: tuple[int, ...] | None = None
    """Columns of a two-dimensional field; None for all."""
    operation: Operation
    """Multiplies the field by the draw, adds the draw to it, or replaces it."""
    lower: float
    upper: float
    shared: bool = False
    """One draw for all selected elements instead of one each."""
    together: tuple[str, ...] = ()
    """Further fields scaled by the same draw (`body_inertia` with `body_mass`)."""

    def __post_init__(self) -> None:
        """Raises TaskError for an operation that does not exist."""
        if self.operation not in (known := get_args(Operation)):
            raise TaskError(f"randomisation of {self.field}: {unknown_name('operation', self.operation, known)}")


MAX_DIFFERENCE_SPAN = 64
"""Maximum number of readings over which a speed is a difference."""


@dataclass(frozen=True, kw_only=True)
class SensorModel:
    """Measurement errors of a sensor field; a tuple holds a value per element of the field.

    See `physai.sim.envs.readings` for the equations.
    """

    noise_std: float | tuple[float, ...] = 0.0
    """Standard deviation of white noise per sample, in the field's unit."""
    bias: float | tuple[float, ...] = 0.0
    """Greatest deviation of a constant offset from `bias_mean`, drawn per element and episode, in the field's unit."""
    bias_mean: float | tuple[float, ...] = 0.0
    """Mean of the constant offset, in the field's unit."""
    resolution: float = 0.0
    """Step of the reading, in the field's unit; 0 for none."""
    time_constant_s: float = 0.0
    """Of a first-order low-pass filter on the reading [s]; 0 for none."""
    difference_span: int = 0
    """For `joint_vel`: its reading is the backward difference of `joint_pos` over this number of readings, with the
    position's noise and steps in it; 0 if the speed is measured."""

    def __post_init__(self) -> None:
        """Raises TaskError for invalid values."""
        for name in ("noise_std", "bias", "resolution", "time_constant_s"):
            values = np.asarray(getattr(self, name), np.float64)
            if not (np.isfinite(values).all() and (values >= 0.0).all()):
                raise TaskError(f"sensor model: {name} is {getattr(self, name)}, it must be finite and not below 0")
        if not np.isfinite(np.asarray(self.bias_mean, np.float64)).all():
            raise TaskError(f"sensor model: bias_mean is {self.bias_mean}, it must be finite")
        if not 0 <= self.difference_span <= MAX_DIFFERENCE_SPAN:
            raise TaskError(
                f"sensor model: difference_span is {self.difference_span}, it must be 0 to {MAX_DIFFERENCE_SPAN}"
            )


@dataclass(frozen=True, kw_only=True)
class Delay:
    """A lag drawn uniformly per episode: a constant time, and a number of the policy's control periods.

    A sensor that is polled once per loop is older in a slower loop: `lower_periods`·dt + `lower_s` to
    `upper_periods`·dt + `upper_s` at the control period dt.
    """

    lower_s: float = 0.0
    upper_s: float = 0.0
    lower_periods: float = 0.0
    upper_periods: float = 0.0

    def __post_init__(self) -> None:
        """Raises TaskError for an invalid range."""
        ranges = ((self.lower_s, self.upper_s, "s"), (self.lower_periods, self.upper_periods, "periods"))
        for lower, upper, unit in ranges:
            if not (0.0 <= lower <= upper and math.isfinite(upper)):
                raise TaskError(f"delay: range is [{lower}, {upper}] {unit}, it must ascend from 0 or more")

    def at(self, control_dt: float) -> "Delay":
        """Return the same delay in seconds alone, at a control period [s]."""
        lower_s = self.lower_periods * control_dt + self.lower_s
        return Delay(lower_s=lower_s, upper_s=self.upper_periods * control_dt + self.upper_s)

    @property
    def upper_text(self) -> str:
        """The longest lag in words, such as `1.02 periods + 2 ms`."""
        periods = [f"{self.upper_periods:.3g} periods"] if self.upper_periods else []
        return " + ".join([*periods, f"{1e3 * self.upper_s:.3g} ms"] if self.upper_s or not periods else periods)

    def scaled(self, factor: float) -> "Delay":
        """Return the delay times a factor, its seconds and its periods alike."""
        return Delay(
            lower_s=factor * self.lower_s,
            upper_s=factor * self.upper_s,
            lower_periods=factor * self.lower_periods,
            upper_periods=factor * self.upper_periods,
        )


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
    """Everything that the environment needs; a policy needs the contract only."""

    name: str
    summary: str
    """One line for `physai tasks`."""
    robot: Robot
    model: Any
    """Compiled MjModel with this task's time step and integrator."""
    contract: PolicyContract
    episode_length_s: float
    """Length of an episode without early termination [s]."""
    reset: ResetFunction
    reset_draws: int
    training_reset: ResetFunction | None = None
    """Reset during training, for instance to random states that speed up exploration; None for `reset`."""
    training_age: Callable[[Uniforms], Array] | None = None
    """Initial episode time during training [s], shape (num_worlds,), from the same draws; None for 0.

    It shortens episodes that start near the goal, so that they are sampled more often. Success is not evaluated there.
    """
    harder: bool = False
    """Whether the last of the reset's draws says how hard an episode is; while training it is multiplied by the
    progress of the curriculum, from 0 to 1."""
    least_command: float = 1.0
    """Share of commands and pushes with which the curriculum begins while training; it ends with all of them."""
    rewards: Mapping[str, RewardTerm]
    terminations: Mapping[str, Term] = field(default_factory=dict[str, Term])
    success: Success
    mean_success: Success | None = None
    """Criterion for policies from elsewhere, if it is another one: on means over whole cycles of a gait that sways."""
    critic: Callable[[WorldView], Array]
    """Observation of the critic: the noise-free state, scaled to order one, shape (num_worlds, critic_size)."""
    critic_size: int
    seen: tuple[str, ...] = ()
    """Names of the last critic inputs, if they have any; see `physai.rlhf.answers.motion_features`."""
    command: CommandFunction | None = None
    command_draws: int = 0
    command_interval_s: float | None = None
    """Period of drawing a new command [s]; None for one command per episode."""
    stage: Stage = Stage.NONE
    derived: tuple[str, ...] = ()
    """Derived MuJoCo fields the terms read."""
    sensors: Mapping[str, SensorModel] = field(default_factory=dict[str, SensorModel])
    sensor_delay: Delay = field(default_factory=Delay)
    """Age of a sensor sample when the policy sees it, rounded to whole control periods."""
    action_delay: Delay = field(default_factory=Delay)
    """Time from a command to its effect, rounded to whole physics steps."""
    randomisation: tuple[Randomise, ...] = ()
    push: Push | None = None
    metrics: Mapping[str, Term] = field(default_factory=dict[str, Term])
    """Physical quantities reported at the end of each command or episode."""
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of `physai train` for this task by name, such as `discount_s`; `--set help` lists all of them."""

    def without_noise(self) -> "Task":
        """Return the task with sensors without noise and biases."""
        none: dict[str, Any] = {"noise_std": 0.0, "bias": 0.0, "bias_mean": 0.0}
        return replace(self, sensors={name: replace(model, **none) for name, model in self.sensors.items()})

    def growth(self, progress: Any) -> Any:
        """Factor of commands and pushes at a progress of the curriculum from 0 to 1, a number or an array."""
        return self.least_command + (1.0 - self.least_command) * progress

    def __post_init__(self) -> None:
        """Raises TaskError if the time steps of model and contract differ."""
        step, agreed = float(self.model.opt.timestep), self.contract.timing.physics_dt
        if not abs(step - agreed) <= 1e-9:
            raise TaskError(
                f"task {self.name}: the model's time step is {step:g} s, the contract's {agreed:g} s; set the model's "
                "option timestep to the contract's physics_dt"
            )
