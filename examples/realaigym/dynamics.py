"""Equations of motion of a small MuJoCo model as CasADi expressions, which an optimiser can differentiate.

Lagrange's equations for a tree of hinges and slides without contacts: M(q) a + d/dt(M) v - ½ ∂(vᵀ M v)/∂q + ∂V/∂q =
effort - damping v. Dry friction is left out: it is not smooth, and MuJoCo's own is a constraint.
"""

import logging
from typing import Any

import mujoco
import numpy as np

from realaigym.errors import DesignError

try:
    import casadi
except ModuleNotFoundError as error:
    raise DesignError(
        "a designed swing-up needs casadi, which is not installed: pip install 'physai-sdk[design]'"
    ) from error

logger = logging.getLogger(__name__)

MAX_JOINTS = 8
"""Greatest number of joints; expressions grow fast with it."""


def acceleration(model: Any) -> Any:
    """Joint accelerations as a casadi.Function of (qpos, qvel, effort), each of shape (nv,), to (nv,).

    Args:
        model: compiled MjModel whose joints are hinges and slides.

    Raises:
        DesignError: another kind of joint, or more than MAX_JOINTS.
    """
    _check(model)
    if np.any(model.dof_frictionloss):
        logger.warning("the dry friction of the model is left out of the equations that a trajectory is optimised with")
    nv = int(model.nv)
    q, v, effort = (casadi.SX.sym(name, nv) for name in ("q", "v", "effort"))
    mass, potential = _mass_and_potential(model, q)
    momentum = mass @ v
    coriolis = casadi.jacobian(momentum, q) @ v - 0.5 * casadi.gradient(v.T @ momentum, q)
    gravity = casadi.gradient(potential, q)
    passive = -casadi.SX(casadi.DM(model.dof_damping)) * v
    springs = -casadi.DM(model.jnt_stiffness) * (q - casadi.DM(model.qpos_spring))
    forces = effort + passive + springs - coriolis - gravity
    return casadi.Function("acceleration", [q, v, effort], [casadi.solve(mass, forces)])


def runge_kutta(model: Any) -> Any:
    """One classical Runge-Kutta step as a casadi.Function of (state, effort, step [s]) to the next state.

    The state is (qpos, qvel), shape (2 nv,); the effort [N·m or N], shape (nv,), is held during the step.
    """
    nv = int(model.nv)
    accelerate = acceleration(model)
    x, effort, step = casadi.SX.sym("x", 2 * nv), casadi.SX.sym("effort", nv), casadi.SX.sym("step")

    def rate(state: Any) -> Any:
        return casadi.vertcat(state[nv:], accelerate(state[:nv], state[nv:], effort))

    k1 = rate(x)
    k2 = rate(x + 0.5 * step * k1)
    k3 = rate(x + 0.5 * step * k2)
    k4 = rate(x + step * k3)
    return casadi.Function("step", [x, effort, step], [x + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)])


def _check(model: Any) -> None:
    smooth = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
    others = [model.joint(index).name for index in range(model.njnt) if int(model.jnt_type[index]) not in smooth]
    if others:
        raise DesignError(
            f"joint {others[0]} is neither a hinge nor a slide; trajectories are optimised for these only"
        )
    if not 1 <= int(model.nv) <= MAX_JOINTS:
        raise DesignError(f"the model has {int(model.nv)} joints; trajectories are optimised for 1 to {MAX_JOINTS}")


def _mass_and_potential(model: Any, q: Any) -> tuple[Any, Any]:
    """Mass matrix (nv, nv) and potential energy [J] of all bodies."""
    gravity = casadi.DM(model.opt.gravity)
    mass = casadi.diag(casadi.SX(casadi.DM(model.dof_armature)))
    potential = casadi.SX(0)
    frames: list[tuple[Any, Any]] = [(casadi.SX.zeros(3), casadi.SX.eye(3))]
    spins: list[Any] = [casadi.SX.zeros(3, int(model.nv))]
    for body in range(1, int(model.nbody)):
        parent = int(model.body_parentid[body])
        position, rotation = frames[parent]
        position = position + rotation @ casadi.DM(model.body_pos[body])
        rotation = rotation @ _matrix(model.body_quat[body])
        spin = spins[parent] + 0.0
        for joint in np.flatnonzero(model.jnt_bodyid == body):
            position, rotation = _moved(model, int(joint), q, position, rotation, spin)
        frames.append((position, rotation))
        spins.append(spin)
        centre = position + rotation @ casadi.DM(model.body_ipos[body])
        inertial = rotation @ _matrix(model.body_iquat[body])
        linear = casadi.jacobian(centre, q)
        angular = inertial.T @ spin
        weight = float(model.body_mass[body])
        mass += weight * linear.T @ linear + angular.T @ casadi.diag(casadi.DM(model.body_inertia[body])) @ angular
        potential -= weight * casadi.dot(gravity, centre)
    return mass, potential


def _moved(model: Any, joint: int, q: Any, position: Any, rotation: Any, spin: Any) -> tuple[Any, Any]:
    """A body's frame after one of its joints; enters the joint's axis in `spin`, the angular velocity's Jacobian."""
    column = int(model.jnt_dofadr[joint])
    axis = casadi.DM(model.jnt_axis[joint])
    value = q[column] - float(model.qpos0[model.jnt_qposadr[joint]])
    if int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_SLIDE):
        return position + rotation @ axis * value, rotation
    spin[:, column] = rotation @ axis
    anchor = casadi.DM(model.jnt_pos[joint])
    turned = rotation @ _turn(axis, value)
    return position + rotation @ anchor - turned @ anchor, turned


def _turn(axis: Any, angle: Any) -> Any:
    """Rotation about a unit axis (Rodrigues)."""
    cross = casadi.skew(axis)
    return casadi.SX.eye(3) + casadi.sin(angle) * cross + (1.0 - casadi.cos(angle)) * (cross @ cross)


def _matrix(quaternion: Any) -> Any:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return casadi.DM(matrix.reshape(3, 3))
