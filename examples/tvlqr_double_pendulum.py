"""Optimise a swing-up of the double pendulum for a leaderboard's score, follow it by a TVLQR, and judge it there.

python examples/tvlqr_double_pendulum.py FOLDER [pendubot|acrobot]
"""

import math
import sys
from pathlib import Path
from typing import Any

import casadi
import numpy as np

from physai.sim import load_task
from physai.train import SwingUp, Totals, Tracker, Trajectory, linearised, lqr, optimised_swing_up, tvlqr, wrap

# The leaderboard's norms of time, energy, effort², the effort's change between its 5000 rows, and velocity².
NORMS, ROWS, ROW_S = (20.0, 60.0, 20.0, 0.1, 400.0), 5000, 0.002


def lost(totals: Totals) -> Any:
    """What the leaderboard takes from the score of 1."""
    roughness = casadi.sqrt(totals.rate * ROW_S / (ROWS - 1) + 1e-8)
    parts = (totals.time, totals.energy, totals.effort, roughness, totals.velocity)
    return sum(casadi.tanh(math.pi * part / norm) for part, norm in zip(parts, NORMS, strict=True)) / 5.0


def is_up(angles: Any) -> Any:
    """How far the tip is above 0.45 m [dm]."""
    return 10.0 * (-0.2 * casadi.cos(angles[0]) - 0.3 * casadi.cos(angles[0] + angles[1]) - 0.4501)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tvlqr")
    board = sys.argv[2] if len(sys.argv) > 2 else "pendubot"
    task = load_task(f"{board}-swingup", preset="realaigym-v2")
    motor = 0 if board == "pendubot" else 1
    term = task.contract.action.terms[0]
    control_dt = task.contract.timing.control_dt
    problem = SwingUp(
        model=task.model,
        driven=motor,
        top=(math.pi, 0.0),
        step_s=control_dt,
        effort_limit=term.upper[0],
        rate_limit=term.scale[0] / control_dt,
        is_up=is_up,
        cost=lost,
    )
    found: Trajectory = optimised_swing_up(problem, progress=print)
    print(f"up after {found.steps_to_up * control_dt:.2f} s, score {1.0 - found.cost:.4f} without disturbance")

    both = np.zeros((len(found.efforts), task.model.nu))
    both[:, motor] = found.efforts[:, 0]
    along = [linearised(task, state, effort) for state, effort in zip(found.states, both, strict=False)]
    a, b = (np.stack(part) for part in zip(*along, strict=True))
    b = b[:, :, motor : motor + 1]
    top_a, top_b = linearised(task, found.states[-1])
    q, r = np.diag([20.0, 20.0, 0.1, 0.1]), np.array([[1.0]])
    hold = lqr(top_a, top_b[:, motor : motor + 1], q, r)
    gains = tvlqr(a, b, q, r, 100.0 * q)
    report = wrap(Tracker(found.states, found.efforts, gains, hold), task, folder, memory=1, name=f"{board} TVLQR")
    print(f"{report.operators} operators, {report.policy_bytes} bytes in {folder}")
    print(f"next: physai eval {folder} --preset realaigym-v2")
