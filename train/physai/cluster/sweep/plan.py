"""A sweep file: which settings vary and how, for how long each trial trains, and which of them stop early."""

import json
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.robot import Frozen
from physai.train.settings.config import MAX_NUMBER, MAX_SEED

MAX_FILE_BYTES = 1 << 16
MAX_TRIALS = 10_000
"""Maximum number of trials, all seeds counted."""
MAX_CHOICES = 100

_TEXT = r"^[A-Za-z0-9_.,+-]{1,80}$"
_OURS = {"seed": "`seeds`", "iterations": "`budget`"}
"""Settings that other entries of the file give."""


class SweepError(PhysaiError):
    """A sweep file or folder is not valid, or a sweep cannot be run."""


SWEEP_FILE = DocumentKind(
    name="sweep file", format_version=1, max_bytes=MAX_FILE_BYTES, max_depth=100, error=SweepError
)


def _as_number(value: Any) -> Any:
    # YAML reads 3e-4, without a dot, as text.
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {value}")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"expected a number, got {reprlib.repr(value)}") from None
    return value


def _as_text(value: Any) -> Any:
    """A value in the syntax of `--set`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(one) for one in cast("list[Any]", value))
    return str(value) if isinstance(value, int | float) else value


Number: TypeAlias = Annotated[float, BeforeValidator(_as_number), Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Text: TypeAlias = Annotated[str, BeforeValidator(_as_text), Field(pattern=_TEXT)]
Seed: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SEED)]
Point: TypeAlias = dict[str, str]
"""Values of the varied settings, in the syntax of `--set`."""


class Distribution(Frozen):
    """Distribution of the values of one setting: one of four kinds."""

    choice: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_CHOICES)] | None = None
    """These values, equally likely."""
    uniform: tuple[Number, Number] | None = None
    """Uniform from the first to the second number."""
    loguniform: tuple[Number, Number] | None = None
    """As `uniform`, of the logarithm."""
    ints: tuple[int, int] | None = None
    """Whole numbers, equally likely, both ends included."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of choice, uniform, loguniform and ints, got {', '.join(given) or 'none'}")
        bounds = self.uniform or self.loguniform or self.ints
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"{given[0]}: bounds must ascend, got {bounds[0]} and {bounds[1]}")
        if self.loguniform is not None and not self.loguniform[0] > 0.0:
            raise ValueError(f"loguniform: bounds must be positive, got {self.loguniform[0]}")
        if self.ints is not None and not max(map(abs, self.ints)) <= MAX_NUMBER:
            raise ValueError(f"ints: bounds must be at most {MAX_NUMBER:g}, got {self.ints[0]} and {self.ints[1]}")
        return self

    def draw(self, random: np.random.Generator) -> str:
        """A value in the syntax of `--set`."""
        if self.choice is not None:
            return self.choice[int(random.integers(len(self.choice)))]
        if self.ints is not None:
            return str(random.integers(self.ints[0], self.ints[1] + 1))
        if self.loguniform is not None:
            low, high = map(math.log, self.loguniform)
            return _written(math.exp(random.uniform(low, high)), *self.loguniform)
        assert self.uniform is not None
        return _written(random.uniform(*self.uniform), *self.uniform)

    def holds(self, text: str) -> bool:
        """Whether `draw` may return this text."""
        if self.choice is not None:
            return text in self.choice
        bounds = self.uniform or self.loguniform or self.ints
        assert bounds is not None
        try:
            value = float(text) if self.ints is None else int(text)
        except ValueError:
            return False
        return bounds[0] <= value <= bounds[1]


def _written(value: float, low: float, high: float) -> str:
    """A number in six digits, in more where these would leave the bounds."""
    text = f"{value:.6g}"
    return text if low <= float(text) <= high else repr(min(max(float(value), low), high))


class Budget(Frozen):
    """Longest training of a trial."""

    iterations: Annotated[int, Field(ge=1, le=MAX_NUMBER)] | None = None
    """Updates."""
    seconds: Annotated[Number, Field(gt=0.0)] | None = None
    """Training time [s]."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.iterations is None) == (self.seconds is None):
            raise ValueError(f"expected either iterations or seconds, got {self.iterations} and {self.seconds}")
        return self

    @property
    def clock(self) -> Literal["iteration", "seconds"]:
        """Column of `progress.csv` that it limits."""
        return "seconds" if self.iterations is None else "iteration"

    @property
    def end(self) -> float:
        """The limit, in the unit of the clock."""
        return float(self.iterations if self.iterations is not None else cast("float", self.seconds))


class Asha(Frozen):
    """Early stopping by asynchronous successive halving (ASHA, Li et al. 2018, arXiv:1810.05934)."""

    grace_period: Annotated[Number, Field(ge=1e-3)]
    """How long each trial trains at least, in the unit of the budget."""
    reduction: Annotated[Number, Field(ge=1.1, le=100.0)] = 3.0
    """Of the trials that reached a rung, the best 1/reduction go on; each rung is so many times as long as the last."""

    def rungs(self, end: float) -> tuple[float, ...]:
        """Times before `end` at which trials are compared."""
        count = math.ceil(math.log(end / self.grace_period) / math.log(self.reduction))
        times = (self.grace_period * self.reduction**number for number in range(count + 1))
        return tuple(time for time in times if time < end)


class Sweep(Frozen):
    """A sweep file."""

    sections: ClassVar[dict[str, type[BaseModel]]] = {"budget": Budget, "asha": Asha}

    parameters: Annotated[dict[str, Distribution], Field(min_length=1, max_length=32)]
    """Settings of `physai train --set` that vary."""
    trials: Annotated[int, Field(ge=1, le=MAX_TRIALS)]
    """Points to draw; each is trained with every seed."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=100)] = (0,)
    budget: Budget
    metric: Literal["success", "reward_per_s"] = "success"
    """Column of `progress.csv` to maximise."""
    asha: Asha | None = None
    """Stop trials that fall behind; None trains all of them to the end."""
    concurrent: Annotated[int, Field(ge=1, le=1024)] = 1
    """Trials at the same time."""
    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processors, and threads, of each trial."""
    gpus: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0
    """GPUs of each trial; 0.5 for two trials on one."""
    draw_seed: Seed = 0
    """Seed of the points."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: one is named twice in {', '.join(map(str, self.seeds))}")
        if not self.trials * len(self.seeds) <= MAX_TRIALS:
            raise ValueError(f"{self.trials} trials with {len(self.seeds)} seeds each: at most {MAX_TRIALS} in all")
        if self.asha is not None and not self.asha.grace_period < self.budget.end:
            raise ValueError(
                f"asha.grace_period {self.asha.grace_period:g} must be less than the budget of {self.budget.end:g}"
            )
        for name, owner in _OURS.items():
            if name in self.parameters:
                raise ValueError(f"parameters.{name}: given by {owner}; leave it out here")
        return self

    def points(self) -> list[Point]:
        """The points, the same in every call."""
        random = np.random.default_rng(self.draw_seed)
        return [{name: kind.draw(random) for name, kind in self.parameters.items()} for _ in range(self.trials)]


def setting_text(name: str, value: Any) -> str:
    """A setting's value in the syntax of `--set`.

    Raises:
        SweepError: it is none that can be written so.
    """
    text = _as_text(value)
    if not isinstance(text, str) or not re.fullmatch(_TEXT, text):
        raise SweepError(f"{name}: expected a number, word or list of numbers, got {reprlib.repr(value)}")
    return text


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file. Whether a training run has its parameters is checked with the task.

    Raises:
        SweepError: it cannot be read, is too large, is not YAML without aliases, or is not a sweep.
        UnknownNameError: an entry has another name.
    """
    document = read_yaml(path, what="a sweep file", max_bytes=MAX_FILE_BYTES, error=SweepError)
    if not isinstance(document, dict):
        raise SweepError(f"{path}: expected entries such as `trials: 10`, got {reprlib.repr(document)}")
    content = cast("dict[Any, Any]", document)
    _check_names(path, "entry", content, Sweep.model_fields)
    for name, section in Sweep.sections.items():
        if isinstance(content.get(name), dict):
            _check_names(path, f"entry of {name}", content[name], section.model_fields)
    if isinstance(content.get("parameters"), dict):
        parameters: dict[Any, Any] = content["parameters"]
        for name, kind in parameters.items():
            if isinstance(kind, dict):
                _check_names(path, f"kind of {name!s:.80}", cast("dict[Any, Any]", kind), Distribution.model_fields)
    try:
        # As JSON, because YAML has lists where the strict models have tuples.
        return Sweep.model_validate_json(json.dumps(content, default=str))
    except TypeError as error:
        # YAML has dates and bytes, too.
        raise SweepError(f"{path}: a name is no text: {error}") from None
    except ValidationError as error:
        raise SWEEP_FILE.invalid(error, source=str(path)) from None


def _check_names(path: Path, what: str, given: Mapping[Any, Any], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            raise SweepError(f"{path}: {unknown_name(what, str(name), names)}")
