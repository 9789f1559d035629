"""Recordings of a motor whose response we choose."""

import numpy as np

from physai.twin.logs import RobotLog
from physai.twin.logs.signals.response import responding


def recorded_motor(
    *,
    gain: float,
    dead_s: float,
    constant_s: float,
    limit: float = np.inf,
    inertia: float = 0.0,
    size: float = 0.5,
    period_s: float = 0.002,
    seconds: float = 6.0,
    seed: int = 0,
) -> RobotLog:
    """One joint that swings at 1 Hz while its motor gets random steps of up to `size` [N·m]; noise of 0.01 N·m.

    The motor lacks `inertia` times the acceleration.
    """
    rng = np.random.default_rng(seed)
    time = period_s * np.arange(round(seconds / period_s), dtype=np.float64)
    edges = np.cumsum(rng.uniform(0.02, 0.1, size=int(seconds / 0.02)))
    levels = rng.uniform(-size, size, size=len(edges) + 1)
    command = levels[np.searchsorted(edges, time)]
    turn = 2.0 * np.pi
    followed = gain * responding(time, command, dead_s, constant_s).sampled(time)
    effort = np.clip(followed + inertia * turn**2 * np.sin(turn * time), -limit, limit)
    return RobotLog(
        name="motor",
        joint_names=("hinge",),
        time=time,
        joint_pos=np.sin(turn * time)[:, None],
        joint_vel=(turn * np.cos(turn * time))[:, None],
        joint_effort=(effort + 0.01 * rng.standard_normal(len(time)))[:, None],
        command=command[:, None],
        command_kind="joint_effort",
        source="motor.csv",
        sha256=f"{seed:064x}",
    )
