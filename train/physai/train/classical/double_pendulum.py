"""The double pendulum's swing-up that the RealAIGym leaderboard scores highest."""

import math
from typing import Any

import casadi

from physai.sim.leaderboards.trial import LINK_LENGTHS
from physai.sim.tasks.realaigym import STEP_S
from physai.sim.tasks.task import Task
from physai.train.classical.swing_up import SwingUp, Totals

NORMS = (20.0, 60.0, 20.0, 0.1, 400.0)
"""Of time, energy, effort², the effort's change between rows, and velocity²: see sim/leaderboards/realaigym.py."""
ROWS = 5000
UP_M = 0.4501
"""Height of the tip above the shoulder [m]: the leaderboard's 0.45 m and a rounding."""


def lost(totals: Totals) -> Any:
    """What the leaderboard takes from the score of 1, as a CasADi expression."""
    # The mean change is 0, as effort starts and ends at 0, so its standard deviation is its root mean square.
    roughness = casadi.sqrt(totals.rate * STEP_S / (ROWS - 1) + 1e-8)
    parts = (totals.time, totals.energy, totals.effort, roughness, totals.velocity)
    return sum(casadi.tanh(math.pi * part / norm) for part, norm in zip(parts, NORMS, strict=True)) / 5.0


def is_up(angles: Any) -> Any:
    """How far the tip is above UP_M [dm]."""
    upper, lower = LINK_LENGTHS
    return 10.0 * (-upper * casadi.cos(angles[0]) - lower * casadi.cos(angles[0] + angles[1]) - UP_M)


def board_swing_up(task: Task) -> SwingUp:
    """The problem of `pendubot-swingup` or `acrobot-swingup` with preset `realaigym-v2`."""
    term, control_dt = task.contract.action.terms[0], task.contract.timing.control_dt
    return SwingUp(
        model=task.model,
        driven=task.contract.robot.joint_index(term.joints)[0],
        top=(math.pi, 0.0),
        step_s=control_dt,
        effort_limit=term.upper[0],
        rate_limit=term.scale[0] / control_dt,
        is_up=is_up,
        cost=lost,
    )
