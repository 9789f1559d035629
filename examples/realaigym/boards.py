"""The RealAIGym score of a double pendulum swing-up, as computed by its simulation leaderboard v2.

    score = success · (1 − ⅕ Σ tanh(π cᵢ / nᵢ))

Definition: https://github.com/dfki-ric-underactuated-lab/double_pendulum, commit 1e8544e,
`src/python/double_pendulum/analysis/leaderboard.py` with the weights and norms of
`leaderboard/pendubot/simulation_v2/create_leaderboard.py`. Independent implementation of that definition.

The leaderboard simulates 10 s from rest with a Runge-Kutta 4 step of 2 ms and scores 5000 rows, t = 0 … 9.998 s: row i
holds the state before step i and the effort applied during it. Torque smoothness is not normalised by time, so scores
are comparable only for rows that are 2 ms apart, whatever the control rate of the policy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from realaigym.errors import TrajectoryError

EPISODE_LENGTH_S = 10.0
"""Length of the leaderboard's simulation [s]."""

HEIGHT_FRACTION = 0.9
"""Threshold for the tip being up, as a fraction of the total length: 0.45 m for design C.1 (0.2 m + 0.3 m)."""

NORMS = (20.0, 60.0, 20.0, 0.1, 400.0)
"""Those of create_leaderboard.py, in the order and the units of the fields of Criteria."""

SHORTEST_FRACTION = 0.99
"""A recording shorter than this fraction of the episode counts as failed."""

TrajectoryRows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Criteria:
    """The leaderboard's criteria of one run; lower is better."""

    swingup_time: float
    """Time from the start until the tip stays up [s]; inf if the recording ends early."""
    energy: float
    """Σ |τ Δq| over steps and joints [J]: mechanical work of the motors without regeneration."""
    torque_cost: float
    """Σ τ² Δt over steps and joints [N²·m²·s]."""
    torque_smoothness: float
    """Standard deviation of the change of τ between rows, summed over joints [N·m]."""
    velocity_cost: float
    """Σ v² Δt over steps and joints [rad²/s]."""

    @property
    def losses(self) -> tuple[float, float, float, float, float]:
        """The loss of score due to each criterion, in the order of the fields, each in [0, ⅕]."""
        return (
            _loss(self.swingup_time, NORMS[0]),
            _loss(self.energy, NORMS[1]),
            _loss(self.torque_cost, NORMS[2]),
            _loss(self.torque_smoothness, NORMS[3]),
            _loss(self.velocity_cost, NORMS[4]),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """The leaderboard's result of one run."""

    criteria: Criteria
    success: bool
    """Whether the tip was up at the end, ignoring the last row."""
    value: float
    """The score, in [0, 1]; 0 without success."""


def score(
    time: ArrayLike,
    joint_pos: ArrayLike,
    joint_vel: ArrayLike,
    joint_effort: ArrayLike,
    *,
    link_lengths: tuple[float, float],
    episode_length_s: float = EPISODE_LENGTH_S,
) -> Score:
    """Scores one run.

    Args:
        time: row times [s], strictly increasing, shape (T,).
        joint_pos: joint positions [rad], 0 is hanging, joint 2 relative to link 1, not wrapped, shape (T, 2).
        joint_vel: joint velocities [rad/s], shape (T, 2).
        joint_effort: effort applied from each row to the next [N·m], after clipping, shape (T, 2).
        link_lengths: joint 1 to joint 2 and joint 2 to tip [m].
        episode_length_s: planned length of the run [s]; a shorter recording fails.

    Raises:
        TrajectoryError: shapes differ, fewer than two rows, a value is not finite or time does not increase.
    """
    time, joint_pos, joint_vel, joint_effort = _checked(time, joint_pos, joint_vel, joint_effort)
    _check_positive("link_lengths", link_lengths)
    _check_positive("episode_length_s", (episode_length_s,))

    elapsed = time - time[0]
    step = np.diff(time)
    effort, vel = joint_effort[:-1], joint_vel[:-1]
    up = _is_up(joint_pos, link_lengths)
    # Like the leaderboard, ignore the first and the last row: a run that is up in the last row only has failed.
    since = 1 + max(np.flatnonzero(~up[1:-1]) + 1, default=0)
    complete = elapsed[-1] >= SHORTEST_FRACTION * episode_length_s

    criteria = Criteria(
        swingup_time=float(elapsed[since]) if complete else math.inf,
        energy=float(np.sum(np.abs(effort * np.diff(joint_pos, axis=0)))),
        # Left Riemann sums: the effort of a row is held until the next.
        torque_cost=float(step @ np.sum(effort**2, axis=1)),
        torque_smoothness=float(np.sum(np.std(np.diff(joint_effort, axis=0), axis=0))),
        velocity_cost=float(step @ np.sum(vel**2, axis=1)),
    )
    success = criteria.swingup_time < elapsed[-1]
    return Score(criteria, bool(success), 1.0 - math.fsum(criteria.losses) if success else 0.0)


def _loss(criterion: float, norm: float) -> float:
    return math.tanh(math.pi * criterion / norm) / 5.0


def _is_up(joint_pos: TrajectoryRows, link_lengths: tuple[float, float]) -> NDArray[np.bool_]:
    length_1, length_2 = link_lengths
    height = -length_1 * np.cos(joint_pos[:, 0]) - length_2 * np.cos(joint_pos[:, 0] + joint_pos[:, 1])
    return height > HEIGHT_FRACTION * (length_1 + length_2)


def _checked(
    time: ArrayLike, *columns: ArrayLike
) -> tuple[TrajectoryRows, TrajectoryRows, TrajectoryRows, TrajectoryRows]:
    rows = np.asarray(time, dtype=np.float64)
    if rows.ndim != 1 or not rows.size >= 2:
        raise TrajectoryError(f"time has shape {rows.shape}; a recording needs shape (T,) with at least 2 rows")
    arrays = [rows]
    for name, column in zip(("joint_pos", "joint_vel", "joint_effort"), columns, strict=True):
        array = np.asarray(column, dtype=np.float64)
        if array.shape != (rows.size, 2):
            raise TrajectoryError(f"{name} has shape {array.shape}; {rows.size} times need shape ({rows.size}, 2)")
        arrays.append(array)
    for name, array in zip(("time", "joint_pos", "joint_vel", "joint_effort"), arrays, strict=True):
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise TrajectoryError(f"{name} is {array[row]} in row {row}; cut the recording before it or repair it")
    if not (np.diff(rows) > 0.0).all():
        row = int(np.flatnonzero(~(np.diff(rows) > 0.0))[0])
        raise TrajectoryError(f"time goes from {rows[row]} to {rows[row + 1]} s at row {row}; sort or repair it")
    return arrays[0], arrays[1], arrays[2], arrays[3]


def _check_positive(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        if not (math.isfinite(value) and value > 0.0):
            raise TrajectoryError(f"{name} is {values}; every value must be finite and above 0")
