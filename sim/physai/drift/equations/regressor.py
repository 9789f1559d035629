"""Inverse dynamics of a robot's motion, linear in the ten inertial numbers of each body.

The effort on degree of freedom d by body b is cdof_d · F_b, where the wrench F_b is linear in the body's mass, first
moments and second moments of its inertia about its own origin (Atkeson, An and Hollerbach, International Journal of
Robotics Research 5, 1986). One pass over a motion so gives the efforts of the twin, of any payload, and of all robots
that the twin's posterior allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.twin.parameters import inertia

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PUSH = 4
"""Numbers of what the ground does to a foot: force, and moment about the vertical."""
NUMBERS = 10
"""Of a body: mass, first moments (3), inertia about the body's origin (xx, yy, zz, xy, xz, yz)."""


@dataclass(frozen=True)
class MotionSamples:
    """T moments of a robot's motion in the coordinates of its model."""

    qpos: Array
    """Shape (T, nq)."""
    qvel: Array
    """Shape (T, nv)."""
    qacc: Array
    """Shape (T, nv)."""

    def moved(self, qpos: Array) -> "MotionSamples":
        """Return the motion at other positions."""
        return MotionSamples(qpos, self.qvel, self.qacc)


@dataclass(frozen=True)
class Dynamics:
    """Efforts of a motion, and geometry at its moments."""

    efforts: Array
    """Effort on each degree of freedom per inertial number of each moving body, shape (T, nv, B, 10)."""
    added: Array
    """The same of what is added to a body: no controller knows of its weight, and carries it."""
    contact: Array
    """Jacobian of each foot: its motion, and its turning about the vertical if the ground resists that, shape
    (T, K, 4, nv)."""
    height: Array
    """Height of each foot's lowest point above the ground z = 0 [m], shape (T, K)."""


class InverseDynamics:
    """Regressor of one model: joints, bodies and feet stay, inertial numbers are arguments."""

    def __init__(self, model: Any, feet: Indices) -> None:
        """Prepare.

        Args:
            model: compiled model; it is not changed.
            feet: geoms that may touch the ground, shape (K,).
        """
        self.model = model
        self.bodies = np.array([b for b in range(1, model.nbody) if model.body_dofnum[_root(model, b)]], np.int64)
        """Bodies that move, shape (B,)."""
        self.feet = feet
        self._data: Any = mujoco.MjData(model)
        # What a controller or springs carry of the weights: MuJoCo's accelerations include gravity, upwards.
        self._carried = np.array(model.body_gravcomp[self.bodies])[:, None] * np.array(model.opt.gravity)
        # A body is moved by its own degrees of freedom and those of all bodies that carry it.
        moved = np.zeros((model.nv, model.nbody), bool)
        for body in range(1, model.nbody):
            carrier = body
            while carrier:
                moved[model.dof_bodyid == carrier, body] = True
                carrier = int(model.body_parentid[carrier])
        self._moves = moved[:, self.bodies].astype(np.float64)

    def of(self, motion: MotionSamples) -> Dynamics:
        """Return the efforts per inertial number along a motion."""
        model, data, bodies = self.model, self._data, self.bodies
        count, nv = len(motion.qpos), int(model.nv)
        turn = np.zeros((count, len(bodies), 3, 3))
        place, centre = np.zeros((count, len(bodies), 3)), np.zeros((count, 3))
        speed, push = np.zeros((count, len(bodies), 6)), np.zeros((count, len(bodies), 6))
        axes = np.zeros((count, nv, 6))
        jacobian = np.zeros((count, len(self.feet), PUSH, nv))
        height = np.zeros((count, len(self.feet)))
        move, turned = np.zeros((3, nv)), np.zeros((3, nv))
        twisted = (model.geom_condim[self.feet] > 3).tolist()
        roots = model.body_rootid[bodies]
        for moment in range(count):
            data.qpos[:], data.qvel[:], data.qacc[:] = motion.qpos[moment], motion.qvel[moment], motion.qacc[moment]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            mujoco.mj_rnePostConstraint(model, data)
            turn[moment] = data.xmat[bodies].reshape(-1, 3, 3)
            place[moment] = data.xpos[bodies]
            centre[moment] = data.subtree_com[roots[0]]
            speed[moment], push[moment], axes[moment] = data.cvel[bodies], data.cacc[bodies], data.cdof
            for number, geom in enumerate(self.feet.tolist()):
                spot = np.array(data.geom_xpos[geom])
                spot[2] -= model.geom_size[geom, 0]
                mujoco.mj_jac(model, data, move, turned, spot, int(model.geom_bodyid[geom]))
                jacobian[moment, number, :3], height[moment, number] = move, spot[2]
                jacobian[moment, number, 3] = turned[2] if twisted[number] else 0.0
        push[..., 3:] += self._carried
        wrench = _wrenches(turn, place - centre[:, None], speed, push)
        weight = np.zeros_like(push)
        weight[..., 3:] = -self._carried
        efforts = np.einsum("tdk,tbkn,db->tdbn", axes, wrench, self._moves, optimize=True)
        if not self._carried.any():
            return Dynamics(efforts, efforts, jacobian, height)
        weights = _wrenches(turn, place - centre[:, None], np.zeros_like(speed), weight)
        added = np.einsum("tdk,tbkn,db->tdbn", axes, wrench + weights, self._moves, optimize=True)
        return Dynamics(efforts, added, jacobian, height)

    def row(self, body: str) -> int:
        """Return the place of a body, by its name, among the moving ones."""
        return int(np.flatnonzero(self.bodies == self.model.body(body).id)[0])

    def heights(self, qpos: Array) -> Array:
        """Return the height of each foot's lowest point in poses, shape (T, nq) to (T, K) [m]."""
        result = np.zeros((len(qpos), len(self.feet)))
        if not len(self.feet):
            return result
        radius = self.model.geom_size[self.feet, 0]
        for row, pose in zip(result, qpos, strict=True):
            self._data.qpos[:] = pose
            mujoco.mj_kinematics(self.model, self._data)
            row[:] = self._data.geom_xpos[self.feet, 2] - radius
        return result

    def balance(self, motion: MotionSamples, pushes: Sequence[Sequence[tuple[int, Array]]]) -> Array:
        """Return the efforts that a motion takes with given forces at the feet, shape (T, nv).

        Args:
            motion: T moments.
            pushes: number of each foot on the ground, its force [N] and vertical moment [N·m]; empty without any.
        """
        model, data = self.model, self._data
        result = np.zeros((len(motion.qpos), int(model.nv)))
        pushed, moment_z = np.zeros(int(model.nv)), np.zeros(3)
        carried, feet = bool(self._carried.any()), self.feet.tolist()
        radius, bodies = model.geom_size[self.feet, 0], model.geom_bodyid[self.feet].tolist()
        for moment, efforts in enumerate(result):
            data.qpos[:], data.qvel[:], data.qacc[:] = motion.qpos[moment], motion.qvel[moment], motion.qacc[moment]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            mujoco.mj_rne(model, data, 1, efforts)
            if carried:
                mujoco.mj_passive(model, data)
                efforts -= data.qfrc_gravcomp
            if pushes:
                pushed[:] = 0.0
                for foot, force in pushes[moment]:
                    spot = data.geom_xpos[feet[foot]].copy()
                    spot[2] -= radius[foot]
                    moment_z[2] = force[3]
                    mujoco.mj_applyFT(model, data, force[:3], moment_z, spot, bodies[foot], pushed)
                efforts -= pushed
        return result

    def numbers(self, model: Any) -> Array:
        """Return the inertial numbers of the moving bodies of a model of this robot, shape (B, 10)."""
        ten = np.stack([inertia.numbers(model, int(body)) for body in self.bodies])
        return inertial_numbers(ten)


def _root(model: Any, body: int) -> int:
    """Return the body with the joints that carry a body's rigid assembly."""
    return int(model.body_weldid[body])


def inertial_numbers(values: Array) -> Array:
    """Convert the parameters of `physai.twin.parameters.inertia`, shape (B, 10), to the ten linear numbers."""
    mass, com = values[:, 0], values[:, 1:4]
    upper = np.zeros((len(values), 3, 3))
    upper[:, [0, 1, 2], [0, 1, 2]] = values[:, inertia.SPREAD]
    upper[:, [0, 0, 1], [1, 2, 2]] = values[:, inertia.SHEAR]
    second = mass[:, None, None] * (upper @ upper.transpose(0, 2, 1) + com[:, :, None] * com[:, None, :])
    full = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
    entries = full[:, [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    return np.hstack([mass[:, None], mass[:, None] * com, entries])


def _cross(vectors: Array) -> Array:
    """Return the matrices of cross products, (…, 3) to (…, 3, 3)."""
    matrix = np.zeros((*vectors.shape, 3))
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    matrix[..., 0, 1], matrix[..., 0, 2], matrix[..., 1, 2] = -z, y, -x
    matrix[..., 1, 0], matrix[..., 2, 0], matrix[..., 2, 1] = z, -y, x
    return matrix


def _on_inertia(vectors: Array) -> Array:
    """Return the matrices that map the six entries of an inertia I to I·w, (…, 3) to (…, 3, 6)."""
    matrix = np.zeros((*vectors.shape, 6))
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    matrix[..., 0, 0], matrix[..., 0, 3], matrix[..., 0, 4] = x, y, z
    matrix[..., 1, 1], matrix[..., 1, 3], matrix[..., 1, 5] = y, x, z
    matrix[..., 2, 2], matrix[..., 2, 4], matrix[..., 2, 5] = z, x, y
    return matrix


def _wrenches(turn: Array, apart: Array, speed: Array, push: Array) -> Array:
    """Return the wrench per inertial number about the point of MuJoCo's spatial vectors, shape (T, B, 6, 10).

    Args:
        turn: orientation of each body, shape (T, B, 3, 3).
        apart: origin of each body relative to that point [m], shape (T, B, 3).
        speed: spatial velocities, rotation first, shape (T, B, 6).
        push: spatial accelerations including gravity, in the same order.
    """
    back = turn.swapaxes(-1, -2)

    def local(vectors: Array) -> Array:
        return np.einsum("tbij,tbj->tbi", back, vectors)

    spin, twist = local(speed[..., :3]), local(push[..., :3])
    # The classical acceleration of the body's origin, from the spatial one of the point.
    flow = speed[..., 3:] + np.cross(speed[..., :3], apart)
    shove = local(push[..., 3:] + np.cross(push[..., :3], apart) + np.cross(speed[..., :3], flow))
    wrench = np.zeros((*speed.shape[:2], 6, NUMBERS))
    turning = _cross(twist) + _cross(spin) @ _cross(spin)
    # Force: m·a + (α× + ω×ω×)·mc; moment about the origin: I·α + ω×I·ω + mc × a.
    wrench[..., 3:, 0], wrench[..., 3:, 1:4] = shove, turning
    wrench[..., :3, 1:4] = -_cross(shove)
    wrench[..., :3, 4:] = _on_inertia(twist) + _cross(spin) @ _on_inertia(spin)
    force = np.einsum("tbij,tbjn->tbin", turn, wrench[..., 3:, :])
    moment = np.einsum("tbij,tbjn->tbin", turn, wrench[..., :3, :]) + np.einsum("tbij,tbjn->tbin", _cross(apart), force)
    return np.concatenate([moment, force], axis=2)
