"""Friction of joints beyond Coulomb and viscous friction: Stribeck, load-dependent, directional and quadratic terms.

A model holds them as user data of its joints, which survive `copy`, saving and loading; engines evaluate them before
each physics step. The models are M1 to M6 of Duclusaud et al., "Extended Friction Models for the Physics Simulation of
Servo Actuators", ICRA 2025. The friction torque of a joint with the speed v is at most

    F = Fc + e·Fs + |cm·τm - ce·τe| + e·|sm·τm - se·τe| + e·q,    e = exp(-(|v|/vs)^α)

where Fc is the Coulomb friction (MuJoCo's frictionloss), τm the torque of the motor and τe all other torques on the
joint. If τm and τe oppose each other, q = qe·τe² where the motor wins, and q = qm·τm² where the load does; else q = 0.
Viscous friction is MuJoCo's damping. MuJoCo's solver applies the torque up to F that is needed to stop the joint, so
friction only ever takes energy.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import array_api_compat
import mujoco
import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""

TERMS = (
    "stribeck_friction",
    "stribeck_speed",
    "stribeck_exponent",
    "load_friction_motor",
    "load_friction_external",
    "load_stribeck_motor",
    "load_stribeck_external",
    "quadratic_motor",
    "quadratic_external",
)
"""Fs [N·m], vs [rad/s], α, cm, ce, sm, se, qm and qe [1/(N·m)]; the columns of a joint's friction."""
BOTH = {
    "load_friction": ("load_friction_motor", "load_friction_external"),
    "load_stribeck": ("load_stribeck_motor", "load_stribeck_external"),
}
"""Terms that stand for two equal ones."""
MODELS: Mapping[str, tuple[str, ...]] = {
    "coulomb": (),
    "stribeck": TERMS[:3],
    "load": ("load_friction",),
    "stribeck-load": (*TERMS[:3], "load_friction", "load_stribeck"),
    "directional": TERMS[:7],
    "full": TERMS,
}
"""Terms of the friction models M1 to M6, from the fewest terms to the most."""

FIELD = "jnt_user"
"""Field of the compiled model with the friction, in its last columns: `TERMS` and `_MARK`."""
_MARK = 3305.0
"""Last column of a joint with room for friction: tells it from other user data."""
_COLUMNS = len(TERMS) + 1
STRIBECK_SPEED = {mujoco.mjtJoint.mjJNT_HINGE: 0.5, mujoco.mjtJoint.mjJNT_SLIDE: 0.05}
"""Stribeck speed of a joint unless it is set [rad/s, m/s]."""
STRIBECK_EXPONENT = 1.0
_SPEED_MIN = 1e-6
"""Minimum Stribeck speed [rad/s or m/s], as of joints without room for friction."""


def reserve(spec: mujoco.MjSpec) -> None:
    """Give every hinge and slide joint of a model user data for friction terms, after the user data it has.

    They have no effect until they are set.
    """
    joints = [joint for joint in spec.joints if joint.type in STRIBECK_SPEED]
    # A missing name reads as an empty list; a compiler pads the rows of other joints with zeros.
    own = max((len(joint.userdata) for joint in joints), default=0)
    spec.nuser_jnt = -1
    for joint in joints:
        before = list(joint.userdata)
        if len(before) < _COLUMNS or before[-1] != _MARK:
            terms = [0.0, STRIBECK_SPEED[joint.type], STRIBECK_EXPONENT, *[0.0] * (len(TERMS) - 3)]
            joint.userdata = [*before, *[0.0] * (own - len(before)), *terms, _MARK]


def friction_joints(model: Any) -> npt.NDArray[np.int64]:
    """Return the joints of a compiled model that have room for friction terms, ascending."""
    if int(model.nuser_jnt) < _COLUMNS:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.asarray(model.jnt_user)[:, -1] == _MARK)


def has_friction(model: Any) -> bool:
    """Whether any joint of a compiled model has more than Coulomb and viscous friction."""
    joints = friction_joints(model)
    columns = [TERMS.index(term) - _COLUMNS for term in TERMS if term not in ("stribeck_speed", "stribeck_exponent")]
    return bool(len(joints)) and bool((np.asarray(model.jnt_user)[joints][:, columns] != 0.0).any())


def column(term: str) -> list[int]:
    """Return the columns of `jnt_user`, counted from its end, that hold a term of `TERMS` or `BOTH`."""
    return [TERMS.index(name) - _COLUMNS for name in BOTH.get(term, (term,))]


def limit(terms: Array, coulomb: Array, motor: Array, external: Array, speed: Array) -> Array:
    """Return the maximum friction F of joints; see the module's equation.

    Args:
        terms: in the order of `TERMS`, shape (…, 9).
        coulomb: Coulomb friction [N·m or N], shape (…,).
        motor: torque of the motor [N·m or N].
        external: all other torques on the joint, without friction [N·m or N].
        speed: [rad/s or m/s].
    """
    xp = array_api_compat.array_namespace(speed)
    fs, vs, exponent, cm, ce, sm, se, qm, qe = (terms[..., k] for k in range(len(TERMS)))
    at_rest = xp.exp(-((xp.abs(speed) / xp.clip(vs, min=_SPEED_MIN)) ** exponent))
    quadratic = xp.where(xp.abs(motor) > xp.abs(external), qe * external**2, qm * motor**2)
    opposed = motor * external < 0.0
    load = xp.abs(cm * motor - ce * external)
    load_at_rest = xp.abs(sm * motor - se * external) + xp.where(opposed, quadratic, xp.zeros_like(quadratic))
    total = coulomb + load + at_rest * (fs + load_at_rest)
    # The state of a diverged world is not finite, but a solver needs a number.
    return xp.where(xp.isfinite(total), total, coulomb)


class JointFriction:
    """Friction of all worlds of an engine: `apply` it before each physics step, `measure` the loads after it."""

    def __init__(self, model: Any, *, terms: Array, coulomb: Array, applied: Array, state: Mapping[str, Array]) -> None:
        """Reads and writes the engine's arrays, numpy or torch.

        Args:
            model: compiled model.
            terms: `jnt_user` of each world, shape (n, njnt, …).
            coulomb: Coulomb friction of each world, shape (n, nv).
            applied: `dof_frictionloss` of each world, which `apply` writes, shape (n, nv).
            state: `qvel` and the fields of `FORCES`, shape (n, nv) each.
        """
        xp = array_api_compat.array_namespace(coulomb)
        device: Any = coulomb.device
        joints = friction_joints(model)
        dofs = np.asarray(model.jnt_dofadr)[joints].astype(np.int64)
        self._joints, self._dofs = (xp.asarray(index, device=device) for index in (joints, dofs))
        servo = np.array([_has_servo(model, int(joint)) for joint in joints], np.float64)
        self._servo = xp.asarray(servo, dtype=coulomb.dtype, device=device)
        self._terms, self._applied, self._state = terms, applied, state
        self.coulomb = coulomb
        """Coulomb friction of each world, live."""
        self.load: Array = xp.zeros((coulomb.shape[0], 2, len(joints)), dtype=coulomb.dtype, device=device)
        """Torque of the motor and all other torques on the joint in the last step; 0 after a reset, shape (n, 2, J)."""

    FORCES = ("qfrc_actuator", "qfrc_smooth", "qfrc_damper", "qfrc_constraint")

    def apply(self) -> None:
        """Set each world's `dof_frictionloss` for the next step."""
        # The loads of the step before: those of the next one follow from its accelerations, and so from the friction.
        terms = self._terms[:, self._joints, -_COLUMNS:-1]
        coulomb, speed = self.coulomb[:, self._dofs], self._state["qvel"][:, self._dofs]
        self._applied[...] = self.coulomb
        self._applied[:, self._dofs] = limit(terms, coulomb, self.load[:, 0], self.load[:, 1], speed)

    def measure(self) -> None:
        """Take the loads of the last step."""
        actuator, smooth, damper, constraint = (self._state[name][:, self._dofs] for name in self.FORCES)
        xp = array_api_compat.array_namespace(constraint)
        bound = self._applied[:, self._dofs]
        # Constraint forces are friction, contacts and limits together: what friction cannot be is load. Without
        # contacts this is exact; with them, the load is too small by at most the friction.
        contact = constraint - xp.clip(constraint, min=-bound, max=bound)
        # The damping of a servo is mostly the voltage induced in its motor, which reduces the motor's torque.
        self.load[:, 0] = actuator + self._servo * damper
        self.load[:, 1] = smooth - actuator - damper + contact


def _has_servo(model: Any, joint: int) -> bool:
    drives = (np.asarray(model.actuator_trntype) == mujoco.mjtTrn.mjTRN_JOINT) & (
        np.asarray(model.actuator_trnid).reshape(int(model.nu), -1)[:, 0] == joint
    )
    return bool((np.asarray(model.actuator_biastype)[drives] == mujoco.mjtBias.mjBIAS_AFFINE).any())
