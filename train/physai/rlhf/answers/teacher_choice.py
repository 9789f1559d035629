"""Choice of a simulated teacher, on the command line and in public functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.rlhf.answers.teachers import Teacher

TeacherName: TypeAlias = Literal["perfect", "noisy", "myopic", "mistaken", "skipping", "equal"]
MethodName: TypeAlias = Literal["best", "disagreement", "random", "uniform"]
Taste: TypeAlias = Annotated[str | Mapping[str, float] | None, Option(metavar="NAME=WEIGHT,…")]
"""Type of the option `--taste`."""

MAX_PAIRS = 100_000
MIN_LABELS = 12
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class TeacherParameters:
    """Parameters of a simulated teacher that differ from those of its name; see `physai.rlhf.answers.teachers`.

    Attributes:
        beta: how surely it takes the better motion, per unit of reward; inf for always.
        gamma: below 1 the end of a motion counts more than its beginning.
        eps_mistake: probability that it says the opposite.
        eps_skip: it cannot tell if both motions are worth less than this share of the mean.
        eps_equal: both are equal to it if they differ by less than this share of the mean.
    """

    beta: Annotated[float | None, Option(metavar="X")] = None
    gamma: Annotated[float | None, Option(metavar="X")] = None
    eps_mistake: Annotated[float | None, Option(metavar="X")] = None
    eps_skip: Annotated[float | None, Option(metavar="X")] = None
    eps_equal: Annotated[float | None, Option(metavar="X")] = None


def chosen_teacher(name: str, parameters: TeacherParameters | None) -> Teacher:
    """A teacher by name, with other parameters where given.

    Raises:
        PhysaiError: there is no such teacher, or a parameter is out of range.
    """
    from physai.rlhf.answers.teachers import teacher

    given = {} if parameters is None else vars(parameters)
    return teacher(name, {key: value for key, value in given.items() if value is not None})


def require_seed(seed: int) -> None:
    """Refuse a seed that the draws of preferences do not take.

    Raises:
        PhysaiError: the seed is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise PhysaiError(f"`seed` must lie in 0 … {MAX_SEED}, got {seed}")
