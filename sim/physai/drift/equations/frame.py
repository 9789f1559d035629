"""Parts that the equations of all recordings of a robot share: its twin's dynamics, drives and posterior."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.drift.equations.changes import changes_of
from physai.drift.equations.motion import Kernel, acceleration_noise
from physai.drift.equations.posterior import Parts, Posterior
from physai.drift.equations.regressor import PUSH, Dynamics, InverseDynamics, MotionSamples
from physai.drift.equations.zeros import known_zeros
from physai.drift.errors import DriftError
from physai.sim import friction as friction_terms
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_columns, joint_ids
from physai.twin.calibration.replay.drive import choose_drive
from physai.twin.logs import RobotLog
from physai.twin.logs.comparison.still_zero import reach
from physai.twin.model.twin import Twin
from physai.twin.parameters.parameters import Drive, channel
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SOFT = 2.0
"""Factor on the speed at which soft friction of a joint alone is at its limit."""
REST_SPEED = 0.03
"""Speed below which a joint with friction may stick [rad/s or m/s]: its friction is unknown there."""
CARRIED_STD = 0.02
"""Error of the weights that a controller carries, relative to their moments."""
POSE_NOISE_M, POSE_NOISE_RAD = 5e-5, 5e-4
"""Least noise of a floating base's pose."""
EFFORT_FLOOR = 5e-4
"""Least noise of an effort, as a share of the joint's limit."""
ZERO_STEP = 1e-4
"""Step of derivatives by encoder zeros [rad or m]."""
FRICTION_LEAST, FRICTION_USUAL = 0.003, 0.02
"""Shares of a joint's effort limit: friction at 1 rad/s that counts as some, and the unit where there is none."""


class Frame:
    """All that the equations of a robot's recordings share."""

    def __init__(self, robot: Robot, twin: Twin, logs: Sequence[RobotLog]) -> None:
        self.robot, self.twin = robot, twin
        self.drive: Drive = choose_drive(robot, logs)
        model: Any = twin.model()
        if int(model.neq) or int(model.ntendon):
            raise DriftError(
                f"robot {robot.name} has {int(model.neq)} equality constraints and {int(model.ntendon)} tendons: their "
                "forces are not in the equations of motion; watch a model without them"
            )
        self.model = model
        self.nv, self.step_s = int(model.nv), float(model.opt.timestep)
        self.joints = robot.spec.joint_names
        qpos, dofs = joint_columns(model, robot.spec)
        self.qpos: Indices = np.arange(qpos.start, qpos.stop, dtype=np.int64)
        self.dofs: Indices = np.arange(dofs.start, dofs.stop, dtype=np.int64)
        self.inverse = InverseDynamics(
            model, feet_of(model) if robot.spec.base == "floating" else np.zeros(0, np.int64)
        )
        self.numbers = self.inverse.numbers(model)
        actuators = [joint_actuator(model, joint) for joint in joint_ids(model)]
        known = [a for a in actuators if a is not None]
        self.servo = np.array([a is not None and is_servo(model, a) for a in actuators], bool)
        driven = np.array([a is not None for a in actuators], bool)

        def of(values: Any, other: float = 0.0) -> Array:
            column = np.full(len(actuators), other)
            column[driven] = values
            return column

        self.gain = of(model.actuator_gainprm[known, 0])
        self.kp, self.kd = (
            np.where(self.servo, self.gain, 0.0),
            np.where(self.servo, of(-model.actuator_biasprm[known, 2]), 0.0),
        )
        limited = np.asarray(model.actuator_forcelimited)[known].astype(bool)
        self.lowest = of(np.where(limited, model.actuator_forcerange[known, 0], -np.inf))
        self.highest = of(np.where(limited, model.actuator_forcerange[known, 1], np.inf))
        self.coulomb = np.array(model.dof_frictionloss[self.dofs], np.float64)
        self.damping = np.array(np.asarray(model.dof_damping).reshape(self.nv, -1)[self.dofs, 0], np.float64)
        self.armature = np.array(model.dof_armature[self.dofs], np.float64)
        # MuJoCo's friction is soft: it brings a joint to rest within a time constant, and is less than its limit where
        # that takes less.
        softness = 2.0 / (model.dof_solimp[self.dofs, 1] * np.maximum(model.dof_solref[self.dofs, 0], 1e-3))
        self.rest_speed = np.maximum(REST_SPEED, SOFT * self.coulomb / (self.inertia[self.dofs] * softness))
        through = channel(self.joints, [p.name for p in twin.parameters], twin.values[None])
        self.delay_s, self.delay_periods = float(through.delay_s[0]), float(through.delay_periods[0])
        self.effort_bias = through.effort_bias[0]
        effort = self.drive == "effort" and bool(model.nu)
        commanded = all(log.command_kind == "joint_effort" for log in logs)
        self.motors = effort and commanded and bool(twin.actuators)
        self.changes = changes_of(robot, motors=self.motors, lag=self.motors or self.drive == "command")
        responses = {one.joint: one for one in twin.actuators}
        self.answering = np.array([name in responses for name in self.joints], bool)
        self.missing = np.array([responses[n].inertia if n in responses else 0.0 for n in self.joints])
        self.zero, self.zero_std, self.zero_fitted = known_zeros(twin)
        self.posterior = Posterior(twin, self.inverse, self.joints, self.dofs, gain=self.gain, highest=self.highest)

    @cached_property
    def inertia(self) -> Array:
        """Diagonal of the mass matrix in the home pose [kg·m² or kg], shape (nv,)."""
        data: Any = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, data)
        full = np.zeros((self.nv, self.nv))
        mujoco.mj_fullM(self.model, data, full)
        return np.diag(full).copy()

    def floor(self, half_s: float, period_s: float) -> Array:
        """Return the noise of each equation that sensors cause at least [N·m or N], shape (C,)."""
        noise = np.array(self.twin.noise.joint_pos_std or (0.0,) * len(self.joints))
        base = np.array([POSE_NOISE_M] * 3 + [POSE_NOISE_RAD] * 3)
        position = np.concatenate([base, noise])[-self.nv :] if self.nv > len(noise) else noise
        result = self.inertia * position * acceleration_noise(half_s, period_s)
        efforts = np.array([joint.effort_limit or 1.0 for joint in self.robot.spec.joints])
        result[self.dofs] = np.hypot(result[self.dofs], EFFORT_FLOOR * efforts)
        if not self.motors:
            return result
        measured = np.array(self.twin.noise.joint_effort_std or (0.0,) * len(self.joints))
        return np.concatenate([result, np.hypot(0.1 * measured, EFFORT_FLOOR * efforts)])

    def parts(self, motion: MotionSamples, kernel: Kernel, applied: Array) -> Parts:
        """Return friction and passive efforts, averaged over a kernel."""
        acceleration = motion.qacc[:, self.dofs]
        # An implicit integrator damps the speed at the end of a step, half a step after the middle of its acceleration.
        damped = motion.qvel[:, self.dofs] + 0.5 * self.step_s * acceleration
        around = motion.qvel[:, None, self.dofs] + kernel.offset_s[:, None] * acceleration[:, None]
        sign = np.sign(around)
        turning = kernel.mean(sign)
        friction = self.coulomb * turning
        rough = self.coulomb > 0.0
        if friction_terms.has_friction(self.model):
            friction = kernel.mean(sign * self._friction_limit(around, applied))
            rough = np.ones_like(rough)
        least = np.abs(around).min(axis=1)
        moving = ~rough | ((np.abs(turning) > 1.0 - 1e-9) & (least > self.rest_speed))
        both = np.zeros((2, *motion.qvel.shape))
        both[0][:, self.dofs] = self.armature * acceleration + self.damping * damped + self._springs(motion)
        both[1][:, self.dofs] = friction
        return Parts(both[0], both[1], turning, damped, acceleration, moving)

    def _springs(self, motion: MotionSamples) -> Array:
        joints = joint_ids(self.model)
        rest = np.array([self.model.qpos_spring[column] for column in self.qpos])
        return np.asarray(self.model.jnt_stiffness)[joints].reshape(len(joints), -1)[:, 0] * (
            motion.qpos[:, self.qpos] - rest
        )

    def _friction_limit(self, speed: Array, applied: Array) -> Array:
        terms = np.asarray(self.model.jnt_user)[joint_ids(self.model)][:, -len(friction_terms.TERMS) - 1 : -1]
        motor = np.broadcast_to(applied[:, None], speed.shape)
        return friction_terms.limit(terms, np.broadcast_to(self.coulomb, speed.shape), motor, -motor, speed)

    def by_zeros(
        self, motion: MotionSamples, dynamics: Dynamics, residual: Array, ground: npt.NDArray[np.bool_]
    ) -> Array:
        """Return the residual by each encoder's zero [per rad or m], shape (T, nv, J).

        The true position is the measured one minus the zero; forces at the feet are the least ones that balance.
        """
        result = np.zeros((len(motion.qpos), self.nv, len(self.qpos)))
        pushes: list[list[tuple[int, Array]]] = []
        if len(self.inverse.feet):
            held = dynamics.contact * ground[:, :, None, None]
            held = held.reshape(len(held), -1, self.nv)
            both = held @ held.swapaxes(1, 2) + 1e-9 * np.eye(held.shape[1])
            force = np.linalg.solve(both, held @ -residual[:, : self.nv, None]).reshape(len(held), -1, PUSH)
            pushes = [
                [(foot, one[foot]) for foot in np.flatnonzero(down).tolist()]
                for down, one in zip(ground, force, strict=True)
            ]
        base = self.inverse.balance(motion, pushes)
        for joint, column in enumerate(self.qpos.tolist()):
            moved = motion.qpos.copy()
            moved[:, column] += ZERO_STEP
            result[:, :, joint] = (self.inverse.balance(motion.moved(moved), pushes) - base) / ZERO_STEP
        return result

    def carried(self, dynamics: Dynamics) -> Array:
        """Return the residual by standard deviations of what a controller that carries the weights takes for them.

        Shape (T, nv, 3·B); without columns if none does.
        """
        if dynamics.added is dynamics.efforts:
            return np.zeros((*dynamics.efforts.shape[:2], 0))
        weights = (dynamics.added - dynamics.efforts)[..., 1:4]
        # First moments in units of the mass times its root mean square distance from the body's origin.
        size = np.sqrt(0.5 * self.numbers[:, 4:7].sum(axis=1) * self.numbers[:, 0])
        return (weights * (CARRIED_STD * size)[:, None]).reshape(*weights.shape[:2], -1)

    def columns(self, dynamics: Dynamics, parts: Parts, applied: Array, slope: Array, zeros: Array) -> Array:
        """Return the residual by a change of 1 of each change, shape (T, nv, D)."""
        result = np.zeros((*dynamics.efforts.shape[:2], len(self.changes)))
        for number, change in enumerate(self.changes):
            if change.kind == "mass":
                row = self.inverse.row(change.owner)
                share = change.size / self.numbers[row, 0]
                result[:, :, number] = share * dynamics.added[:, :, row] @ self.numbers[row]
            elif change.kind == "lag":
                result[:, self.dofs, number] = -change.size * slope
            elif change.kind != "drive gain":
                joint = self.joints.index(change.owner)
                dof = int(self.dofs[joint])
                if change.kind == "friction":
                    result[:, dof, number] = self.friction_of(joint, parts, dof)
                elif change.kind == "gain":
                    result[:, dof, number] = -applied[:, joint]
                else:
                    result[:, :, number] = -change.size * zeros[:, :, joint]
        return result

    def friction_of(self, joint: int, parts: Parts, dof: int) -> Array:
        """Return the friction that a change of 1 adds to a joint, shape (T,): that of the twin, or a usual amount."""
        if self.usual_friction(joint) > 0.0:
            return self.usual_friction(joint) * parts.turning[:, joint]
        return parts.friction[:, dof] + self.damping[joint] * parts.speed[:, joint]

    def tool_reach(self, joint: str) -> float:
        """Return how far the end of a joint's chain moves per change of the joint in the home pose [m/rad]."""
        return reach(self.robot, joint, np.array([one.default_pos for one in self.robot.spec.joints]))

    def usual_friction(self, joint: int) -> float:
        """Return the friction [N·m or N] by which changes of a joint with next to none are measured, else 0."""
        effort = self.robot.spec.joints[joint].effort_limit or 1.0
        own = self.coulomb[joint] + self.damping[joint]
        return (
            0.0 if own > FRICTION_LEAST * effort or friction_terms.has_friction(self.model) else FRICTION_USUAL * effort
        )


def feet_of(model: Any) -> Indices:
    """Return the colliding spheres at the ends of a robot's legs."""
    return np.array(
        [
            geom
            for geom in range(model.ngeom)
            if int(model.geom_type[geom]) == mujoco.mjtGeom.mjGEOM_SPHERE
            and (model.geom_contype[geom] or model.geom_conaffinity[geom])
            and int(model.body_weldid[model.geom_bodyid[geom]]) != 0
        ],
        np.int64,
    )
