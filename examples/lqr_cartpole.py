"""Design a controller instead of training one: swing a pole up by energy, catch it with an LQR, judge it by the gates.

python examples/lqr_cartpole.py FOLDER
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from realaigym.tracking import linearised, lqr

from physai.sim import load_task
from physai.train import wrap

task = load_task("cartpole-swingup")
model: Any = task.model

# The gain about the upright pole, from MuJoCo's own linearisation over one control period.
a, b = linearised(task, np.zeros(4))
gain = torch.tensor(lqr(a, b, np.diag([10.0, 20.0, 1.0, 1.0]), np.array([[0.1]])), dtype=torch.float32)

# The pole's energy about its joint: hanging -m g l, upright +m g l.
pole = model.body("pole").id
lever = float(model.body_ipos[pole][2])
weight = float(model.body_mass[pole]) * 9.81 * abs(lever)
inertia = float(model.body_inertia[pole][1] + model.body_mass[pole] * lever**2)
cart_mass = float(model.body_subtreemass[pole]) + float(model.body_mass[model.body("cart").id])


def controller(fields: dict[str, torch.Tensor]) -> torch.Tensor:
    """Force on the cart [N]: pumps energy into the pole, and balances it when it is near upright."""
    position, speed = fields["joint_pos"][:, :1], fields["joint_vel"][:, :1]
    # From -π to π, and 0 upright.
    angle = torch.remainder(fields["joint_pos"][:, 1:] + math.pi, 2.0 * math.pi) - math.pi
    rate = fields["joint_vel"][:, 1:]
    missing = weight - (0.5 * inertia * rate**2 + weight * torch.cos(angle))
    acceleration = -12.0 * missing * rate * torch.cos(angle) / weight - 6.0 * position - 3.0 * speed
    balance = -torch.cat([position, angle, speed, rate], dim=1) @ gain.T
    near = (torch.abs(angle) < 0.4) & (torch.abs(rate) < 4.0)
    return torch.where(near, balance, cart_mass * acceleration)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "lqr-cartpole")
    report = wrap(controller, task, folder, name="energy swing-up and LQR")
    print(f"{report.operators} operators, {report.policy_bytes} bytes in {folder}")
    print(f"next: physai eval {folder}")
