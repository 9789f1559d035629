"""The double pendulum of the RealAIGym simulation boards (v2).

Design C.1, model 1.0 without friction, damping and rotor inertia, Runge-Kutta 4 at 2 ms
(github.com/dfki-ric-underactuated-lab/double_pendulum, leaderboard/*/simulation_v2).
"""

from typing import Any

import mujoco

from physai.sim.robots import load_robot

PRESET = "realaigym-v2"
STEP_S = 0.002


def board_model() -> Any:
    """The leaderboard's model, compiled."""
    model = load_robot("double_pendulum").model_spec.copy().compile()
    model.dof_damping[:] = 0.0
    model.dof_frictionloss[:] = 0.0
    model.dof_armature[:] = 0.0
    model.opt.timestep = STEP_S
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model
