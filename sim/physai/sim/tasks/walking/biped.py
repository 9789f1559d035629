"""Rewards of a robot on two feet in addition to those of any legged robot: to step, and to keep its posture.

Common practice (Isaac Lab's `feet_air_time_positive_biped`, MuJoCo Playground `locomotion/g1/joystick.py`,
unitree_rl_gym `legged_gym/envs/g1/g1_config.py`), as pure functions of the state: no clock sets the rhythm of steps.
"""

import math
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, home_qpos
from physai.sim.robots.checks.feet import Foot
from physai.sim.robots.spec import posed
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import ResetFunction, RewardTerm, Term, Uniforms, WorldView
from physai.sim.tasks.walking.legged import Legged, commanded

GREATEST_COMMAND = (0.6, 0.3, 0.6)
"""Forward [m/s], left [m/s], yaw to the left [rad/s]; commands lie between minus and plus these values."""
SPREAD = 0.3
"""How far from home it begins, as a share of how far a robot on four feet does."""
LEAST_COMMAND = 0.25
"""Share of these with which training begins."""
LEAST_MOTION = 0.1
"""Norm of the smallest command at which the robot steps instead of standing on both feet [m/s and rad/s]."""
MID_STEP, MID_STEP_AGE_S = 0.75, 9.0
"""Share of training episodes that begin in the middle of a step, and how much of them is left out [s]."""
LATERAL = 0.7
"""Share of a leg joint's axis that points to the side, from which it bends the leg forwards and backwards."""
FREEDOM = 0.05
"""Weight of the posture of joints that bend the legs, in weights of the hips' roll and yaw and the feet's roll."""

TRAINING: dict[str, Any] = {
    "num_envs": 512,
    "hidden": (128, 64),
    "initial_std": 0.4,
    "entropy_weight": 0.0,
    "epochs": 3,
    # An action that is held moves the whole body and not only the foot.
    "action_repeat": 2,
    "curriculum_iterations": 200,
    "curriculum_success": 0.0,
}
"""Settings of `physai train`. Commands and pushes grow by the iteration: exploration makes the base waver by more than
the tolerances, so that no success with exploration tells when to go on."""


def mid_step_age(draw: Uniforms) -> Array:
    """Time at which the episodes of `mid_step` begin [s]: those in the middle of a step are short, and so more."""
    return array_namespace(draw).where(draw[:, -3] < MID_STEP, MID_STEP_AGE_S, 0.0 * draw[:, -3])


def mid_step(robot: Robot, feet: tuple[Foot, ...], begin: ResetFunction) -> ResetFunction:
    """Starts a share of episodes, `MID_STEP`, in the middle of a step: one leg bent, the base moving to the other one.

    The speed to the side lies between 1/2 and 1 of that with which an inverted pendulum comes to rest above its foot,
    y sqrt(g / z) at a distance y to the side of it and a height z above (Kajita et al. 2001). Needs three more uniform
    numbers than `begin`, the last three.
    """
    data = posed(robot.model, home_qpos(robot.model))
    mujoco.mj_comPos(robot.model, data)
    height, centre = float(data.subtree_com[0, 2]), float(data.subtree_com[0, 1])
    aside = [float((data.xpos[foot.body] + data.xmat[foot.body].reshape(3, 3) @ foot.point)[1]) for foot in feet]
    legs: list[NDArray[np.float64]] = []
    lateral = {joint for joint in range(robot.model.njnt) if np.abs(data.xaxis[joint, 1]) > LATERAL}
    for foot in feet:
        bent = np.zeros(robot.model.nq)
        columns = robot.model.jnt_qposadr[[joint for joint in foot.joints if joint in lateral]]
        bent[columns] = data.qpos[columns]
        legs.append(bent)
    bends, sides = Constant(np.array(legs)), Constant(np.array(aside) - centre)
    pace, vertical = math.sqrt(9.81 / height), height

    def reset(draw: Uniforms) -> tuple[Array, Array]:
        xp = array_namespace(draw)
        qpos, qvel = begin(draw)
        chosen, side, share = (draw[:, column, None] for column in (-3, -2, -1))
        stepping = xp.astype(chosen < MID_STEP, qpos.dtype)
        stand = xp.astype(side < 0.5, qpos.dtype)
        # The leg that stands is the first one or the second one; the other one is bent up to twice as much.
        swing = stand * bends.like(draw)[1:2] + (1.0 - stand) * bends.like(draw)[0:1]
        qpos = qpos + stepping * (0.5 + share) * swing
        away = stand * sides.like(draw)[0:1, None] + (1.0 - stand) * sides.like(draw)[1:2, None]
        speed = stepping * (0.5 + 0.5 * share) * pace * away
        # To the side of the base, whose heading is in its quaternion; it topples about its foot.
        w, z = qpos[:, 3:4], qpos[:, 6:7]
        left_x, left_y = -2.0 * w * z, 1.0 - 2.0 * z * z
        zero = 0.0 * speed
        moved = xp.concat([left_x * speed, left_y * speed, zero, -speed / vertical, zero, zero], axis=1)
        return qpos, xp.concat([qvel[:, :6] + moved, qvel[:, 6:]], axis=1)

    return reset


def supports(body: Legged, command: str) -> Term:
    """1 where both feet stand while the robot is to stand; while it is to move, 0.5 to 1 where one of them stands.

    The higher the other one is, the more, up to the height at mid-swing. Who follows a command on one foot has to put
    the other one down before long.
    """

    def term(view: WorldView) -> Array:
        xp, wanted = view.xp, view.commands[command]
        moving = xp.vecdot(wanted, wanted) > LEAST_MOTION**2
        feet = body.foot_contacts(view).sum(axis=1)
        lifted = xp.clip(xp.max(body.foot_heights(view), axis=1) / body.stature.clearance, 0.0, 1.0)
        stepping = xp.where(feet == 1.0, 0.5 + 0.5 * lifted, 0.0 * lifted)
        return xp.where(moving, stepping, xp.astype(feet == 2.0, view.qpos.dtype))

    return term


def effort_share(body: Legged) -> Term:
    """Σ (τ / τ_max)² over the servos [1], which means the same for a robot of 10 kg and of 100 kg."""

    def term(view: WorldView) -> Array:
        share = body.efforts(view) / body.effort_limit.like(view.joint_pos)
        return view.xp.vecdot(share, share)

    return term


def posture(robot: Robot, body: Legged, feet: tuple[Foot, ...]) -> Term:
    """Σ w (q - q_home)² over the commanded joints [rad²]: w is `FREEDOM` for joints that bend the legs, else 1."""
    weights = Constant([FREEDOM if free else 1.0 for free in bending(robot, feet)])

    def term(view: WorldView) -> Array:
        off = body.driven(view.joint_pos - body.home.like(view.joint_pos))
        return (weights.like(off) * off * off).sum(axis=1)

    return term


def bending(robot: Robot, feet: tuple[Foot, ...]) -> list[bool]:
    """For each commanded joint whether it turns about an axis to the side at home."""
    data = posed(robot.model, home_qpos(robot.model))
    joints = [robot.model.joint(joint.name).id for joint in commanded(robot, feet)]
    return [bool(np.abs(data.xaxis[joint, 1]) > LATERAL) for joint in joints]


def rewards(robot: Robot, body: Legged, feet: tuple[Foot, ...], command: str) -> dict[str, RewardTerm]:
    """Terms that join or replace those of any legged robot."""
    return {
        "alive": RewardTerm(term=lambda view: 0.0 * view.qpos[:, 2] + 1.0, weight=1.0),
        "support": RewardTerm(term=supports(body, command), weight=3.0),
        "effort": RewardTerm(term=effort_share(body), weight=-0.05),
        "pose": RewardTerm(term=posture(robot, body, feet), weight=-1.0),
    }
