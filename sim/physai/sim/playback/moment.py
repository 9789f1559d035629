"""Output of a player: the moments of episodes, and how they ended."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from physai.sim.engines.protocol import Array
from physai.sim.envs.step_result import StepResult

Vector = npt.NDArray[np.float64]
Fields = Mapping[str, Array]
"""Vectors by name, shape (size,)."""

EpisodeEnd = Literal["time", "failure", "diverged", "stopped"]


def finite_or_none(value: float) -> float | None:
    """The value, or None for NaN and infinity, which JSON cannot represent."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class EpisodeOutcome:
    """Result of an episode."""

    episode: int
    """Number of the episode, from 0."""
    seed: int
    """Seed that replays it."""
    ended: EpisodeEnd
    """Time limit, termination of the task, diverged physics, or stopped by the user."""
    length_s: float
    total_reward: float
    judged: int
    """Number of success checks: one per command, or one per episode if the task draws only one."""
    succeeded: int
    """How many of them met the task's criterion."""
    metrics: dict[str, float]
    """Mean of each task metric over the success checks."""

    @property
    def success(self) -> bool | None:
        """Whether all success checks passed; None if there were none."""
        return self.succeeded == self.judged if self.judged else None

    def as_json(self) -> dict[str, Any]:
        # The seed is text because JSON readers round integers beyond 2^53.
        return {
            "episode": self.episode,
            "seed": str(self.seed),
            "ended": self.ended,
            "length_s": self.length_s,
            "return": finite_or_none(self.total_reward),
            "judged": self.judged,
            "succeeded": self.succeeded,
            "success": self.success,
            "metrics": {name: finite_or_none(value) for name, value in self.metrics.items()},
        }


@dataclass(frozen=True)
class EpisodeVerdict:
    """The success check of one command or episode."""

    succeeded: bool
    """Whether it met the task's criterion."""
    metrics: dict[str, float]
    """The task's metrics at that time."""


@dataclass(frozen=True)
class Moment:
    """One control period of an episode: the result of the last step and the next command. Arrays are copies."""

    episode: int
    seed: int
    start_s: float
    """Time played before this episode [s]."""
    time_s: float
    """Time in the episode [s]."""
    qpos: Vector
    """MuJoCo's generalised positions, shape (nq,)."""
    qvel: Vector
    """MuJoCo's generalised velocities, shape (nv,)."""
    sensors: Fields
    """The policy's sensor inputs, with noise and delay; empty at the end of an episode."""
    commands: Fields
    """The policy's command inputs; at the end of an episode, the last ones."""
    targets: Fields
    """The policy's joint commands [rad, m, N·m or N]; empty at the end of an episode."""
    reward: float | None
    """Reward of the last step; None at the start of an episode."""
    verdict: EpisodeVerdict | None
    """The success check, if there was one in this period."""
    outcome: EpisodeOutcome | None
    """The result of the episode, at its end."""


def first_row(fields: Fields) -> dict[str, Array]:
    """Copies of the first world's vectors."""
    return {name: np.array(values[0]) for name, values in fields.items()}


def step_verdict(now: StepResult) -> EpisodeVerdict | None:
    """The success check of the first world; None if the step had none."""
    if not now.judged[0]:
        return None
    return EpisodeVerdict(bool(now.succeeded[0]), {name: float(values[0]) for name, values in now.metrics.items()})
