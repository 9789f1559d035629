"""Whether a robot with a floating base stays up while its joints are held."""

import mujoco

from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.robots.checks.findings import Finding

STANDING = 0.7
"""Share of its stature at home that a robot that stands keeps."""


def stature(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Height of the robot's centre of mass above its lowest point that collides [m].

    The base's origin may lie on the floor, as that of a mobile robot, so its height says nothing.
    """
    free = int((model.jnt_type == mujoco.mjtJoint.mjJNT_FREE).argmax())
    return float(data.subtree_com[model.jnt_bodyid[free], 2]) - lowest_touching(model, data.qpos)


def sinking(before: float, after: float) -> Finding:
    """Finding about a robot whose stature [m] falls."""
    return Finding(
        severe=True,
        about="base",
        text=f"sinks while its joints are held: its centre of mass, {before:.2g} m above its lowest point at home, "
        f"ends {after:.2g} m above it",
        next_step="stiffer servos (--servo KP,KD), larger effort limits, or another home",
    )
