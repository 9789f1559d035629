"""Poles of a robot with a fixed base: how they hang and how they stand."""

import math
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import TaskError
from physai.sim.robots import Robot, home_qpos

Array = NDArray[np.float64]

LEAST_ENERGY = 1e-4
"""Share of the robot's whole m·g·1 m by which gravity must matter to a hinge for it to be a pole."""
_STARTS = 8


@dataclass(frozen=True, kw_only=True)
class Poles:
    """The hinges of a robot that gravity turns, and the poses with the least and greatest potential energy."""

    joints: tuple[int, ...]
    """Positions of the poles' hinges among the robot's joints."""
    slides: tuple[int, ...]
    """Positions of its slide joints, such as a cart's."""
    hanging: Array
    """Joint positions at rest below [rad or m], shape (joints,)."""
    upright: Array
    """Joint positions standing, same shape."""
    period_s: float
    """Period of the fastest small oscillation about hanging [s]."""
    top_speed: Array
    """Speed of each joint if all energy of the fall from upright moved it alone [rad/s or m/s], same shape."""
    inertia: Array
    """Inertia that each joint feels while hanging [kg·m² or kg], same shape."""
    energy: float
    """Potential energy from hanging to upright [J]."""
    highest: float
    """Potential energy upright [J], 0 at the height of the world's origin."""


def find_poles(robot: Robot) -> Poles:
    """Finds what swings.

    The potential energy E is A + B cos q + C sin q in each single hinge angle q, so turning one hinge after the other
    to its own extreme ends where all are at theirs.

    Raises:
        TaskError: the base floats, a joint is a ball, gravity turns no hinge, or there is nothing above hanging.
    """
    model = robot.model
    if robot.spec.base != "fixed":
        raise TaskError(f"the base of {robot.name} floats; swingup needs a robot with a fixed base")
    energy = _Energy(model)
    kinds = [int(kind) for kind in model.jnt_type]
    if len(kinds) != len(robot.spec.joints) or mujoco.mjtJoint.mjJNT_BALL in kinds:
        raise TaskError(f"{robot.name} has ball joints; swingup needs hinges and slides")
    hinges = [i for i, kind in enumerate(kinds) if kind == mujoco.mjtJoint.mjJNT_HINGE]
    slides = [i for i, kind in enumerate(kinds) if kind == mujoco.mjtJoint.mjJNT_SLIDE]
    poles = [hinge for hinge in hinges if energy.matters(hinge)]
    if not poles:
        raise TaskError(f"{robot.name} has no hinge that gravity turns; swingup needs a pole to swing")
    heavy = [model.joint(slide).name for slide in slides if energy.matters(slide)]
    if heavy:
        raise TaskError(f"slide joint {heavy[0]!r} of {robot.name} lifts it; swingup needs slides that are level")
    hanging, upright = energy.extreme(poles, -1.0), energy.extreme(poles, 1.0)
    gain = energy(upright) - energy(hanging)
    inertia, frequency = _oscillation(model, hanging, poles)
    return Poles(
        joints=tuple(poles),
        slides=tuple(slides),
        hanging=hanging,
        upright=upright,
        period_s=2.0 * math.pi / frequency,
        top_speed=np.sqrt(2.0 * gain / inertia),
        inertia=inertia,
        energy=gain,
        highest=energy(upright),
    )


class _Energy:
    """Potential energy of a model as a function of its joint positions [J]."""

    def __init__(self, model: Any) -> None:
        self._model, self._data = model, mujoco.MjData(model)
        self._home = home_qpos(model)
        weight = float(np.linalg.norm(model.opt.gravity)) * float(model.body_subtreemass[0])
        self._least = LEAST_ENERGY * weight

    def __call__(self, qpos: Array) -> float:
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_energyPos(self._model, self._data)
        return float(self._data.energy[0])

    def matters(self, joint: int) -> bool:
        """Whether moving this joint by a quarter turn or a metre lifts or lowers anything."""
        # Not from home, where a pole that stands exactly on its balance would be missed by a gradient.
        return any(abs(self._moved(joint, by) - self(self._home)) > self._least for by in (1.0, 0.5 * math.pi))

    def extreme(self, poles: list[int], sign: float) -> Array:
        """The pose of greatest energy for sign 1, of least for sign -1; other joints stay at home."""
        random = np.random.default_rng(0)
        found: list[Array] = []
        for _ in range(_STARTS):
            qpos = self._home.copy()
            for pole in poles:
                low, high = self._range(pole)
                qpos[pole] = random.uniform(low, high)
            for _ in range(100):
                before = qpos.copy()
                for pole in poles:
                    self._turn(qpos, pole, sign)
                if np.allclose(before, qpos, atol=1e-10):
                    break
            found.append(qpos)
        best = max(found, key=lambda one: sign * self(one))
        return np.where(np.abs(best) < 1e-9, 0.0, best)

    def _moved(self, joint: int, by: float) -> float:
        qpos = self._home.copy()
        qpos[joint] += by
        return self(qpos)

    def _range(self, joint: int) -> tuple[float, float]:
        if not self._model.jnt_limited[joint]:
            return -math.pi, math.pi
        low, high = (float(value) for value in self._model.jnt_range[joint])
        return low, high

    def _turn(self, qpos: Array, pole: int, sign: float) -> None:
        """Turns one hinge to its extreme within its range."""
        values: list[float] = []
        for angle in (0.0, 0.5 * math.pi, math.pi):
            qpos[pole] = angle
            values.append(self(qpos))
        middle = 0.5 * (values[0] + values[2])
        peak = math.atan2(sign * (values[1] - middle), sign * (values[0] - middle))
        low, high = self._range(pole)
        inside = [turned for turned in (peak, peak + 2.0 * math.pi, peak - 2.0 * math.pi) if low <= turned <= high]
        if not inside:
            inside = [low, high]
        qpos[pole] = max(inside, key=lambda angle: (math.cos(angle - peak), -abs(angle)))


def _oscillation(model: Any, hanging: Array, poles: list[int]) -> tuple[Array, float]:
    """Inertia that each joint feels while hanging, and the angular frequency of the fastest oscillation [rad/s]."""
    data = mujoco.MjData(model)
    full, stiffness = np.zeros((model.nv, model.nv)), np.zeros((model.nv, model.nv))

    def gravity(qpos: Array) -> Array:
        data.qpos[:], data.qvel[:] = qpos, 0.0
        mujoco.mj_forward(model, data)
        return np.array(data.qfrc_bias)

    step = 1e-5
    for column in range(model.nv):
        moved = hanging.copy()
        moved[column] += step
        plus = gravity(moved)
        moved[column] -= 2.0 * step
        stiffness[:, column] = (plus - gravity(moved)) / (2.0 * step)
    gravity(hanging)
    mujoco.mj_fullM(model, data, full)
    modes = np.linalg.eigvals(np.linalg.solve(full, stiffness))[: model.nv].real
    fastest = float(modes.max())
    if not fastest > 1e-6:
        raise TaskError("the robot's poles do not swing: their joint ranges end before they hang")
    return np.diag(full).copy(), math.sqrt(fastest)
