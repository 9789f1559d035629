"""The physics step of an imported robot."""

import math

import mujoco
import numpy as np

from physai.sim.robots.spec import home_qpos, posed

MOTOR_STEP_S = 0.002
"""Greatest physics step of a robot with motors [s]: nothing but its own weight slows it down."""


def stable_timestep(model: mujoco.MjModel) -> float:
    """Largest usual physics step that resolves an oscillation of the stiffest servo 20 times; not contacts [s].

    Without a servo the model's own, and at most `MOTOR_STEP_S`.

    A semi-implicit step dt of an oscillator of angular frequency w is stable up to w·dt = 2; 2·pi/20 leaves room for
    poses with less inertia.
    """
    full, data = np.zeros((model.nv, model.nv)), posed(model, home_qpos(model), mujoco.mj_forward)
    mujoco.mj_fullM(model, data, full)
    fastest = 0.0
    for actuator in range(model.nu):
        dof = int(model.jnt_dofadr[int(model.actuator_trnid[actuator, 0])])
        stiffness = max(0.0, -float(model.actuator_biasprm[actuator, 1]))
        fastest = max(fastest, math.sqrt(stiffness / max(full[dof, dof], 1e-12)))
    if not fastest:
        return min(MOTOR_STEP_S, float(model.opt.timestep))
    wanted = 2.0 * math.pi / 20.0 / fastest
    steps = (0.008, 0.004, 0.002, 0.001, 0.0005, 0.00025)
    return next((step for step in steps if step <= wanted), steps[-1])
