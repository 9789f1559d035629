"""Settings of a training run: one frozen dataclass, saved with the run.

A task, a file of `--config` and `--set` name the same settings.
"""

import ast
import dataclasses
import inspect
import itertools
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import ConfigDict, with_config

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.base.terminal import table

MAX_NUMBER = 10**9
"""Upper bound of every number except the seed."""

MAX_SEED = 2**63 - 1

MAX_FILE_BYTES = 1 << 16
"""Greatest size of a file of `--config`."""
MAX_WIDTHS = 64
"""Greatest number of hidden layers."""
MAX_WIDTH = 8192
"""Greatest width of a layer."""
MAX_WEIGHTS = 2**27
"""Greatest number of weights between hidden layers, 0.5 GB."""
MAX_WORLDS = 2**20
MAX_SAMPLES = 2**28
"""Greatest number of steps between updates; each takes about 100 bytes."""
MAX_STALENESS = 1000
MAX_REPEAT = 10_000
"""Greatest number of control periods that an action is held for."""

_POSITIVE = (
    "learning_rate",
    "min_learning_rate",
    "max_learning_rate",
    "desired_kl",
    "discount_s",
    "clip",
    "initial_std",
    "max_grad_norm",
    "importance_cap",
)
_NOT_NEGATIVE = (
    "entropy_weight",
    "value_weight",
    "checkpoint_every_s",
    "num_threads",
    "curriculum_iterations",
)


class ConfigError(PhysaiError):
    """A training setting is out of range or of the wrong type."""


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of PPO and of the run. Times in s; counts in environment steps unless stated otherwise."""

    num_envs: int = 1024
    """Worlds simulated together."""
    horizon: int = 24
    """Steps per world between updates."""
    epochs: int = 5
    """Passes over the collected steps per update."""
    minibatches: int = 4
    """Minibatches per pass."""
    shards: int = 1
    """Equal shares of the worlds whose steps are shuffled apart, as ranks do (`--gpus`); for comparison with them."""
    learning_rate: float = 1e-3
    """Initial step size of Adam."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """`adaptive` adjusts the learning rate to the measured KL divergence, `fixed` keeps it."""
    desired_kl: float = 0.01
    """Target KL divergence per update of the adaptive schedule."""
    min_learning_rate: float = 1e-5
    max_learning_rate: float = 1e-2
    discount_s: float = 1.0
    """Time constant of the discount: gamma = exp(-action_repeat · control_dt / discount_s)."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    reward: Literal["task", "success"] = "task"
    """What is learned from: the task's reward terms, or 1 for each success that is judged and 0 for all else."""
    advantage: Literal["gae", "grpo", "rloo"] = "gae"
    """How much better an action was than usual: by a critic, or relative to other worlds with the same episode. These
    take a horizon of one episode; see `physai.train.collectors.groups`."""
    group: int = 16
    """Worlds with the same episode, for `grpo` and `rloo`."""
    clip: float = 0.2
    """ε of PPO's clipped objective."""
    entropy_weight: float = 0.005
    value_weight: float = 1.0
    max_grad_norm: float = 1.0
    """Bound on the norm of the actor's gradient, and of the critic's."""
    initial_std: float = 1.0
    """Initial standard deviation of the exploration noise, in network output units."""
    actor: Literal["mlp", "gru"] = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""
    gru_size: int = 64
    """Size of the hidden state of a GRU actor."""
    activation: Literal["elu", "tanh", "relu"] = "elu"
    action_repeat: int = 1
    """Control periods a training action is held for; the exported policy acts in every one."""
    overlap: bool = False
    """Collect with the last policy while the next one is learned, each on half of the processors."""
    staleness: int = 0
    """Updates by which generators' weights may be older than those that learn from what they played; 0: the trainer and
    its generators take turns."""
    segments: int = 1
    """Equal parts of the horizon that generators deliver one by one, each a trajectory of its own; for `staleness`."""
    stragglers: Literal["wait", "drop"] = "wait"
    """Whether the trainer waits for what a slow generator plays, with `staleness`, or drops it when it is too old."""
    importance_cap: float = 2.0
    """Greatest weight of a sample played with older weights: the ratio of its probabilities now and then."""
    curriculum_iterations: int = 0
    """Iterations over which rewards' weights and starts go from easy to final; 0 disables the curriculum."""
    curriculum_success: float = 0.0
    """Success rate with exploration below which the curriculum pauses."""
    iterations: int = 1000
    """Updates after which the run ends."""
    stop_at_success: float | None = None
    """Success rate, confirmed by an evaluation without exploration, at which the run ends."""
    eval_min_success: float = 0.5
    """Fraction of stop_at_success that the success rate with exploration must reach before an evaluation is run.
    Exploration lowers the success rate; a value near 1 gives a policy that is more robust to changes of the robot."""
    checkpoint_every_s: float = 30.0
    seed: int = 0
    engine: Literal["mujoco", "warp"] = "mujoco"
    """`mujoco` steps the worlds on the CPU; `warp` steps them where the policy learns, on a GPU if there is one."""
    deterministic: bool = False
    """Make runs on one GPU equal to the last bit, which is slower; on the CPU they are."""
    num_threads: int = 0
    """Threads of engine and learner; 0 for one per processor."""

    def __post_init__(self) -> None:
        """Raises ConfigError for values out of range."""
        for name in (
            "num_envs",
            "horizon",
            "epochs",
            "minibatches",
            "shards",
            "action_repeat",
            "iterations",
            "gru_size",
            "segments",
        ):
            if not 1 <= getattr(self, name) <= MAX_NUMBER:
                got = reprlib.repr(getattr(self, name))
                raise ConfigError(f"`{name}` must be at least 1 and at most {MAX_NUMBER:g}, got {got}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if not 0.0 < value <= MAX_NUMBER:
                raise ConfigError(f"{name} must be a positive number up to {MAX_NUMBER:g}, got {reprlib.repr(value)}")
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if not 0.0 <= value <= MAX_NUMBER:
                raise ConfigError(f"{name} must lie in [0, {MAX_NUMBER:g}], got {reprlib.repr(value)}")
        for name in ("gae_lambda", "stop_at_success", "eval_min_success", "curriculum_success"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} must lie in [0, 1], got {value}")
        if self.min_learning_rate > self.max_learning_rate:
            raise ConfigError(
                f"min_learning_rate {self.min_learning_rate} exceeds max_learning_rate {self.max_learning_rate}"
            )
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"`seed` must lie in [0, {MAX_SEED}], got {reprlib.repr(self.seed)}")
        if self.engine == "warp" and self._rewarded_otherwise:
            raise ConfigError(
                f"reward={self.reward} and advantage={self.advantage} take engine mujoco; engine warp learns from the "
                "task's reward with a critic"
            )
        if self.engine == "warp" and self.overlap:
            raise ConfigError("overlap is for the CPU: with engine warp, collecting and learning share one device")
        self._check_staleness()
        self._check_sizes()
        self._check_groups()

    @property
    def _rewarded_otherwise(self) -> bool:
        return (self.reward, self.advantage) != ("task", "gae")

    @property
    def on_processors(self) -> bool:
        """Whether worlds must be stepped on the CPU, by engine `mujoco`."""
        return self.overlap or self._rewarded_otherwise

    def _check_groups(self) -> None:
        if not 2 <= self.group <= MAX_WORLDS:
            raise ConfigError(f"group must lie in [2, {MAX_WORLDS}], got {reprlib.repr(self.group)}")
        if self.advantage == "gae":
            return
        if self.num_envs % self.group:
            raise ConfigError(
                f"`num_envs` {self.num_envs} are no groups of {self.group}; set `num_envs` "
                f"{self.group * max(1, round(self.num_envs / self.group))}"
            )
        for name, other in (("overlap", self.overlap), ("staleness", self.staleness > 0)):
            if other:
                raise ConfigError(f"advantage={self.advantage} plays whole episodes between updates; leave out {name}")

    def _check_staleness(self) -> None:
        if not 0 <= self.staleness <= MAX_STALENESS:
            raise ConfigError(f"staleness must lie in [0, {MAX_STALENESS}] updates, got {reprlib.repr(self.staleness)}")
        if self.segments > 1 and self.staleness == 0:
            raise ConfigError(
                f"segments {self.segments} are for training with staleness; add `staleness` 1 or more, or segments=1"
            )
        if self.horizon % self.segments:
            raise ConfigError(f"horizon {self.horizon} cannot be divided into {self.segments} equal segments")

    def _check_sizes(self) -> None:
        for name, limit in (("num_envs", MAX_WORLDS), ("action_repeat", MAX_REPEAT), ("gru_size", MAX_WIDTH)):
            if not getattr(self, name) <= limit:
                raise ConfigError(f"`{name}` must be at most {limit}, got {getattr(self, name)}")
        if not self.num_envs * self.horizon <= MAX_SAMPLES:
            raise ConfigError(
                f"`num_envs` · horizon must be at most {MAX_SAMPLES}, got {self.num_envs} · {self.horizon} = "
                f"{self.num_envs * self.horizon} samples per update"
            )
        if self.num_envs * self.horizon < 2:
            raise ConfigError("`num_envs` · horizon must give at least 2 samples per update, got 1")
        if self.num_envs % self.shards:
            raise ConfigError(f"`num_envs` {self.num_envs} cannot be divided into {self.shards} equal shards")
        # A recurrent actor learns from whole sequences, so its minibatches are drawn from worlds.
        units = self.num_envs // self.shards * (1 if self.actor == "gru" else self.horizon)
        if self.minibatches > units:
            raise ConfigError(f"minibatches {self.minibatches} exceed the {units} units they are drawn from")
        if not 1 <= len(self.hidden) <= MAX_WIDTHS or not all(1 <= width <= MAX_WIDTH for width in self.hidden):
            got = reprlib.repr(self.hidden)
            raise ConfigError(f"hidden must be one or more widths from 1 to {MAX_WIDTH}, got {got}")
        weights = sum(left * right for left, right in itertools.pairwise(self.hidden))
        if not weights <= MAX_WEIGHTS:
            raise ConfigError(f"hidden {reprlib.repr(self.hidden)} has {weights} weights, at most {MAX_WEIGHTS}")

    def segmented(self) -> "TrainConfig":
        """The configuration whose rollouts are this one's segments side by side, each as wide as all worlds."""
        return (
            self
            if self.segments == 1
            else dataclasses.replace(
                self, horizon=self.horizon // self.segments, num_envs=self.num_envs * self.segments, segments=1
            )
        )

    def curriculum(self, share: float, success: float) -> float:
        """Progress of the curriculum in [0, 1] after an iteration that started at `share`."""
        if self.curriculum_iterations == 0:
            return 1.0
        return min(1.0, share + (success >= self.curriculum_success) / self.curriculum_iterations)

    def gamma(self, control_dt: float) -> float:
        """Discount factor per step of `action_repeat` control periods of `control_dt` [s]."""
        return math.exp(-control_dt * self.action_repeat / self.discount_s)


RENAMED = {"control_repeat": "action_repeat", "promising_success": "eval_min_success"}
"""Names of settings in run folders of physai 0.1, to their present names."""


def with_options(config: TrainConfig, options: Mapping[str, str]) -> TrainConfig:
    """The configuration with `--set key=value` options applied, each parsed by its field's type.

    Raises:
        UnknownNameError: no such field.
        ConfigError: the text is not a value of the field's type.
    """
    fields = _known(options)
    return dataclasses.replace(
        config, **{key: _parse(key, options[name], kind) for name, (key, kind) in fields.items()}
    )


def with_settings(config: TrainConfig, settings: Mapping[str, Any], *, source: str) -> TrainConfig:
    """The configuration with values of a task or a file applied.

    Args:
        config: what holds for all other settings.
        settings: values by name; a text is parsed as by `--set`, because YAML reads 3e-4 as one.
        source: where they come from, for messages.

    Raises:
        UnknownNameError: no such field.
        ConfigError: a value is of another type, or out of range.
    """
    try:
        fields = _known(settings)
        return dataclasses.replace(config, **{key: _typed(key, settings[n], kind) for n, (key, kind) in fields.items()})
    except PhysaiError as error:
        raise type(error)(f"{source}: {error}") from None


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, not checked yet.

    Raises:
        ConfigError: it cannot be read, is not YAML, or is no mapping of names to values.
    """
    content = read_yaml(path, what="a file of --config", max_bytes=MAX_FILE_BYTES, error=ConfigError)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected lines such as `discount_s: 2.0`, got {reprlib.repr(content)}")
    return {str(key): value for key, value in cast("dict[Any, Any]", content).items()}


def _known(names: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Present name and type of each setting, by the name that was given."""
    fields = {f.name: f.type for f in dataclasses.fields(TrainConfig)}
    known: dict[str, tuple[str, Any]] = {}
    for name in names:
        key = RENAMED.get(name, name)
        if key not in fields:
            raise unknown_name("training option", key[:80], fields)
        known[name] = key, fields[key]
    return known


def _typed(key: str, value: Any, kind: Any) -> Any:
    """A value as its field has it, without conversions that lose something."""
    if isinstance(value, str):
        return _parse(key, value, kind)
    optional = type(None) in get_args(kind)
    if get_origin(kind) is tuple and _are_widths(value):
        return tuple(value)
    if (type(value) is kind and kind in (bool, int)) or (value is None and optional):
        return value
    # An integer beyond the range of a double has no float.
    if (kind is float or optional) and (type(value) is float or (type(value) is int and abs(value) <= MAX_SEED)):
        return float(value)
    raise ConfigError(f"{key}: expected {_type_text(kind)}, got {reprlib.repr(value)}")


def _are_widths(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(one) is int for one in cast("list[Any]", value)[:MAX_WIDTHS])


def _parse(key: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if get_origin(kind) is Literal:
            return {choice: choice for choice in get_args(kind)}[text]
        if get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split(","))
        if kind is int:
            return int(text)
        if type(None) in get_args(kind) and text.lower() == "none":
            return None
        return float(text)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"option {key}={repr(text)[1:-1]:.80}: expected {_type_text(kind)}") from error


def _type_text(kind: Any) -> str:
    """A field's type as shown to the user."""
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "int,int,…"
    return "float or none" if get_args(kind) else kind.__name__


def setting_texts(config: TrainConfig) -> dict[str, str]:
    """All settings by name, in the syntax of `--set`."""
    return {field.name: _default(getattr(config, field.name)) for field in dataclasses.fields(config)}


def describe_settings(config: TrainConfig | None = None) -> str:
    """Every setting with its value here, its default, its type and its meaning; None for the defaults."""
    meaning = _meanings()
    rows = [
        (f.name, _default(getattr(config or TrainConfig(), f.name)), _default(f.default), _type_text(f.type))
        for f in dataclasses.fields(TrainConfig)
    ]
    header = ("setting", "here", "default", "type", "meaning")
    return table(header, [(*row, meaning.get(row[0], "")) for row in rows])


@cache
def _meanings() -> dict[str, str]:
    """First sentence of the docstring of each field."""
    # Python keeps no docstrings of fields; they are in the source only.
    body = cast("ast.ClassDef", ast.parse(inspect.getsource(TrainConfig)).body[0]).body
    found: dict[str, str] = {}
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            text = " ".join(str(ast.literal_eval(after.value)).split())
            found[field.target.id] = text.partition(". ")[0].removesuffix(".")
    return found


def _default(value: Any) -> str:
    """A default in the syntax of `--set`."""
    return _text(value).lower()


def _text(value: Any) -> str:
    return ",".join(map(str, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else str(value)
