"""The six simulated teachers of B-Pref (Lee, Smith, Dragan, Abbeel: B-Pref, NeurIPS 2021 Datasets and Benchmarks,
section 3.2 and algorithm 1).

A teacher sees the rewards r_t of the H steps of two segments and answers in this order:

    skip     if max_i Σ r^i < δ(ε_skip), it cannot tell;
    equal    if |Σ r^1 - Σ r^0| < δ(ε_equal), they are equal;
    choose   1 with probability σ(β (Σ γ^(H-t) r^1_t - Σ γ^(H-t) r^0_t)), where β = ∞ always takes the greater one;
    mistake  with probability ε_mistake the answer is turned around.

δ(ε) = ε (H/T) R_avg, R_avg the mean return of the present policy over episodes of T steps: ε times the mean sum of its
segments. Rewards of B-Pref's tasks are not negative; here they may be, so skip and δ count from the lowest sum of all
segments of the database.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.rlhf.answers.answers import Preference
from physai.rlhf.answers.segment import PreferenceError
from physai.sdk.base.errors import unknown_name

Rewards = npt.NDArray[np.float64]
MAX_BETA = 1e6
SIMULATED = "simulated-"
"""Begins the name of a rater that is a simulated teacher."""


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """Parameters of a simulated teacher; the defaults are the perfect one's."""

    beta: float = math.inf
    """Rationality β per unit of reward; ∞ for an answer without chance."""
    gamma: float = 1.0
    """Discount of steps that are further from the segment's end."""
    eps_mistake: float = 0.0
    eps_skip: float = 0.0
    eps_equal: float = 0.0

    def __post_init__(self) -> None:
        """Raises PreferenceError for parameters out of range."""
        if not (0.0 < self.beta <= MAX_BETA or self.beta == math.inf):
            raise PreferenceError(f"beta must lie in (0, {MAX_BETA:g}] or be inf, got {self.beta}")
        if not 0.0 < self.gamma <= 1.0:
            raise PreferenceError(f"gamma must lie in (0, 1], got {self.gamma}")
        for name in ("eps_mistake", "eps_skip", "eps_equal"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise PreferenceError(f"{name} must lie in [0, 1], got {getattr(self, name)}")

    def answer(self, first: Rewards, second: Rewards, scale: "Scale", rng: np.random.Generator) -> Preference:
        """Its answer about two segments.

        Args:
            first: rewards of the steps of the first segment, (T,).
            second: of the second.
            scale: of all segments.
            rng: source of its chance.
        """
        sums = np.array([first.sum(), second.sum()]) - scale.lowest
        if sums.max() < self.eps_skip * scale.mean:
            return "cannot_tell"
        if abs(sums[1] - sums[0]) < self.eps_equal * scale.mean:
            return "equal"
        weights = self.gamma ** np.arange(len(first) - 1, -1, -1)
        advantage = float(weights @ second - weights @ first)
        if math.isinf(self.beta):
            takes_second = advantage > 0.0 if advantage != 0.0 else bool(rng.random() < 0.5)
        else:
            takes_second = bool(rng.random() < 0.5 * (1.0 + math.tanh(0.5 * self.beta * advantage)))
        if rng.random() < self.eps_mistake:
            takes_second = not takes_second
        return "second" if takes_second else "first"


TEACHERS: dict[str, Teacher] = {
    "perfect": Teacher(),
    "noisy": Teacher(beta=1.0),
    "myopic": Teacher(gamma=0.9),
    "mistaken": Teacher(eps_mistake=0.1),
    "skipping": Teacher(eps_skip=0.1),
    "equal": Teacher(eps_equal=0.1),
}
"""The six teachers, with the parameters of B-Pref's experiments (its section 4)."""


def teacher(name: str, parameters: Mapping[str, float] | None = None) -> Teacher:
    """A teacher by name, with other parameters where given.

    Raises:
        UnknownNameError: there is no such teacher or parameter.
        PreferenceError: a parameter is out of range.
    """
    if name not in TEACHERS:
        raise unknown_name("teacher", name, TEACHERS)
    values = vars(TEACHERS[name]).copy()
    for key, value in (parameters or {}).items():
        if key not in values:
            raise unknown_name("parameter of a teacher", key, values)
        values[key] = value
    return Teacher(**values)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Reference of relative thresholds."""

    lowest: float
    """Lowest sum of rewards of all segments."""
    mean: float
    """Mean of the sums of the present policy's segments above it."""


def scale_of(all_sums: Sequence[float], present: Sequence[float]) -> Scale:
    """The scale of a database: sums of all segments, and of those of the present policy."""
    lowest = min(all_sums)
    return Scale(lowest=lowest, mean=sum(present) / len(present) - lowest)
