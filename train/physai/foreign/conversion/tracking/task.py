"""Task: follow a motion from its first frame to its last, at any heading. Policies from elsewhere are judged in it."""

import math
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace

from physai.foreign.conversion.tracking.motion import ReferenceMotion, load_motion
from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import CommandSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.tasks import rotations
from physai.sim.tasks.common import once
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import ResetFunction, RewardTerm, Success, Task, Uniforms, WorldView
from physai.sim.tasks.walking.velocity import COMMAND, velocity

LOST_RAD, LOST_M = 0.8, 0.25
"""Differences of tilt and height from the motion beyond which it is lost, as in BeyondMimic (arXiv 2508.08241)."""
TOLERANCE_RAD = 0.3
"""Root mean square of the joints' differences within which the motion is followed."""
HOLD_S = 1.0
SPREAD_RAD = 0.02
"""Greatest difference of each joint from the first frame at the start."""
_UP = Constant([0.0, 0.0, 1.0])
STANDS_S = 4.0
"""Length of the motion that a robot without a file has: its home pose."""


def track(robot: Robot | None = None, preset: str | None = None) -> Task:
    """Follow a motion from its first frame to its last.

    Args:
        robot: with legs, a floating base, position servos and an IMU; a Go2 if there is none.
        preset: NPZ file of the motion, as an import writes it (`RUN/task/motion.npz`); None for the home pose.

    Raises:
        TaskError: the robot cannot walk, or the file is no motion of it.
    """
    robot = robot or load_robot("go2")
    base = velocity(robot)
    motion = _standing(base) if preset is None else load_motion(preset)
    frames = _Frames(robot, motion)

    hold_s = min(HOLD_S, 0.5 * motion.length_s)
    # With a period for rounding: what counts is the end of the motion, and each episode begins in it.
    late_s = motion.length_s - hold_s - 2.0 * motion.control_dt

    def follows(view: WorldView) -> Array:
        return (view.episode_time > late_s) & (frames.apart(view) < TOLERANCE_RAD) & ~lost(view)

    def lost(view: WorldView) -> Array:
        return (frames.tilt(view) > LOST_RAD) | (frames.drop(view) > LOST_M)

    return replace(
        base,
        name="track",
        summary="follow a motion from its first frame to its last",
        contract=_contract(base.contract),
        episode_length_s=motion.length_s,
        reset=frames.reset(),
        reset_draws=1 + len(motion.joints),
        training_reset=None,
        training_age=None,
        least_command=1.0,
        rewards={"pose": RewardTerm(term=lambda view: view.xp.exp(-frames.apart(view) / TOLERANCE_RAD), weight=1.0)},
        terminations={"lost": lost},
        success=Success(
            condition=follows,
            hold_s=hold_s,
            text=f"the motion to its end, its joints within {TOLERANCE_RAD:g} rad in the last second",
        ),
        mean_success=None,
        critic=_joint_pos,
        critic_size=len(robot.spec.joints),
        command=None,
        command_draws=0,
        command_interval_s=None,
        push=None,
        metrics={"joint_error_rad": frames.apart},
        training={},
    )


def _joint_pos(view: WorldView) -> Array:
    return view.joint_pos


def _contract(contract: PolicyContract) -> PolicyContract:
    """The contract of a walking policy without its command."""
    terms = tuple(term for term in contract.observation.terms if term.source != COMMAND)
    observation = contract.observation.model_copy(update={"terms": terms})
    return contract.model_copy(update={"task": "track", "observation": observation, "command": CommandSpec()})


def _standing(task: Task) -> ReferenceMotion:
    frames = round(STANDS_S / task.contract.timing.control_dt)
    qpos = np.repeat(home_qpos(task.model)[None], frames, axis=0)
    return ReferenceMotion(
        joints=task.robot.spec.joint_names,
        control_dt=task.contract.timing.control_dt,
        joint_pos=qpos[:, 7:],
        joint_vel=0.0 * qpos[:, 7:],
        base_pos=qpos[:, :3],
        base_quat=qpos[:, 3:7],
    )


class _Frames:
    """The motion as a task's functions read it, by the time of the episode."""

    def __init__(self, robot: Robot, motion: ReferenceMotion) -> None:
        names = list(robot.spec.joint_names)
        missing = [name for name in motion.joints if name not in names]
        if missing:
            raise TaskError(f"the motion moves {missing[0]}, which {robot.name} does not have")
        self._robot, self._motion = robot, motion
        model: Any = robot.model
        self._columns = Constant([names.index(name) for name in motion.joints])
        self._places = [int(model.joint(name).qposadr[0]) for name in motion.joints]
        self._joints, self._height = Constant(motion.joint_pos), Constant(motion.base_pos[:, 2])
        up = [_up(quat) for quat in motion.base_quat]
        self._up = Constant(np.array(up))

    def _frame(self, view: WorldView) -> Array:
        """Number of the frame that the motion has reached."""
        xp: Any = view.xp
        number = xp.floor(view.episode_time / self._motion.control_dt + 0.5)
        return xp.astype(xp.clip(number, 0, self._motion.frames - 1), xp.int64)

    def apart(self, view: WorldView) -> Array:
        """Root mean square of the joints' differences from the motion [rad]."""

        def computed(view: WorldView) -> Array:
            joints = view.xp.take(view.joint_pos, self._columns.like(view.episode_time), axis=1)
            gap = joints - self._joints.like(joints)[self._frame(view)]
            return view.xp.sqrt(view.xp.vecdot(gap, gap) / gap.shape[1])

        return once(view, "motion_apart", computed)

    def tilt(self, view: WorldView) -> Array:
        """Angle between the directions of gravity in the base and in the motion's [rad]."""
        zero = 0.0 * view.qpos[:, :3]
        up = zero + _UP.like(zero)
        mine = rotations.rotate_inverse(view.qpos[:, 3:7], up, view.xp)
        cosine = view.xp.vecdot(mine, self._up.like(mine)[self._frame(view)])
        return view.xp.acos(view.xp.clip(cosine, -1.0, 1.0))

    def drop(self, view: WorldView) -> Array:
        """Difference of the base's height from the motion's [m]."""
        height = view.qpos[:, 2]
        return view.xp.abs(height - self._height.like(height)[self._frame(view)])

    def reset(self) -> ResetFunction:
        """First frame on the floor at any heading, with joints within `SPREAD_RAD`; needs 1 + joints draws."""
        motion = self._motion
        model: Any = self._robot.model
        qpos = np.array(home_qpos(model))
        qpos[:7] = [0.0, 0.0, motion.base_pos[0, 2], *motion.base_quat[0]]
        qpos[self._places] = motion.joint_pos[0]
        qpos[2] -= lowest_touching(model, qpos)
        spread = np.zeros(len(qpos))
        spread[self._places] = SPREAD_RAD
        start, factors, moved = Constant(qpos), Constant(spread), Constant(_columns_of(self._places, len(qpos)))
        still = Constant(np.zeros(int(model.nv)))
        turn = Constant(motion.base_quat[0])

        def reset(draw: Uniforms) -> tuple[Array, Array]:
            xp = array_namespace(draw)
            half = math.pi * (draw[:, :1] - 0.5)
            zero = 0.0 * half
            heading = xp.concatenate([xp.cos(half), zero, zero, xp.sin(half)], axis=1)
            quat = rotations.multiply(heading, 0.0 * heading + turn.like(heading), xp)
            noise = (2.0 * draw[:, 1:] - 1.0) @ moved.like(draw)
            joints = start.like(draw) + factors.like(draw) * noise
            placed = xp.concatenate([joints[:, :3], quat, joints[:, 7:]], axis=1)
            return placed, 0.0 * zero + still.like(draw)

        return reset


def _columns_of(places: list[int], width: int) -> Any:
    """Matrix that puts a value of each joint into its place."""
    matrix = np.zeros((len(places), width))
    matrix[np.arange(len(places)), places] = 1.0
    return matrix


def _up(quat: Any) -> Any:
    """Direction upwards in the frame of a base with this orientation."""
    back, up = np.zeros(4), np.zeros(3)
    mujoco.mju_negQuat(back, np.asarray(quat, np.float64))
    mujoco.mju_rotVecQuat(up, np.array([0.0, 0.0, 1.0]), back)
    return up
