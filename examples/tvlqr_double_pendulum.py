"""Optimise a swing-up of the double pendulum for a leaderboard's score, follow it by a TVLQR, and judge it there.

python examples/tvlqr_double_pendulum.py FOLDER [pendubot|acrobot] [GUESSES]
"""

import sys
from pathlib import Path

from realaigym.double_pendulum import board_swing_up
from realaigym.swing_up import SwingUp, optimised_swing_up
from realaigym.tracking import Tracker, Trajectory, track

from physai.sim import load_task
from physai.train import wrap

if __name__ == "__main__":
    if sys.argv[2:3] not in ([], ["pendubot"], ["acrobot"]) or not all(word.isdecimal() for word in sys.argv[3:]):
        sys.exit(__doc__)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tvlqr")
    board = sys.argv[2] if len(sys.argv) > 2 else "pendubot"
    guesses = int(sys.argv[3]) if len(sys.argv) > 3 else 6
    task = load_task(f"{board}-swingup", preset="realaigym-v2")
    # What it costs and where it is up: docs/how-to/classical-control.md has such a problem in full.
    problem: SwingUp = board_swing_up(task)
    found: Trajectory = optimised_swing_up(problem, guesses=guesses, iterations=250, progress=print)
    up_s = found.steps_to_up * problem.step_s
    print(f"up after {up_s:.2f} s, score {1.0 - found.cost:.4f} without disturbance")
    tracker: Tracker = track(task, found)
    report = wrap(tracker, task, folder, memory=1, name=f"{board} TVLQR")
    print(f"{report.operators} operators, {report.policy_bytes} bytes in {folder}")
    print(f"next: python examples/leaderboard_trial.py {folder}")
