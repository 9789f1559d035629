"""Identity of a twin's robot, and the model that a calibration fits."""

import hashlib
import os.path
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rfc8785

from physai.sim.robots import Robot, load_robot, robot_names
from physai.sim.robots.spec import has_floating_base
from physai.twin.parameters.parameters import fitted_bodies

Array = npt.NDArray[np.float64]

_FINGERPRINT_FIELDS = (
    *("body_parentid", "body_pos", "body_quat", "body_mass", "body_ipos", "body_inertia", "body_gravcomp"),
    *("jnt_type", "jnt_bodyid", "jnt_pos", "jnt_axis", "jnt_limited", "jnt_range", "jnt_stiffness", "qpos0"),
    *("dof_frictionloss", "dof_damping", "dof_armature", "dof_solref", "dof_solimp"),
    *("actuator_trntype", "actuator_trnid", "actuator_gaintype", "actuator_biastype", "actuator_gear"),
    *("actuator_gainprm", "actuator_biasprm", "actuator_ctrllimited", "actuator_ctrlrange"),
    *("actuator_forcelimited", "actuator_forcerange"),
)

_CONTACT_FIELDS = (
    *("geom_bodyid", "geom_type", "geom_size", "geom_pos", "geom_quat", "geom_contype", "geom_conaffinity"),
    *("geom_condim", "geom_priority", "geom_friction", "geom_solref", "geom_solimp", "geom_margin", "geom_gap"),
)


def model_fingerprint(robot: Robot) -> str:
    """Return the SHA-256 of the robot's dynamics: bodies, joints, actuators, gravity, integrator and time step.

    Visuals are left out, and so is collision geometry unless the base is floating, as what touches the world moves it.
    """
    model: Any = robot.model
    names = [str(model.body(b).name) for b in range(model.nbody)] + [
        str(model.joint(j).name) for j in range(model.njnt)
    ]
    record: dict[str, Any] = {name: _digits(getattr(model, name)) for name in _FINGERPRINT_FIELDS}
    if has_floating_base(model):
        colliding = [g for g in range(model.ngeom) if model.geom_contype[g] or model.geom_conaffinity[g]]
        record["geoms"] = [[name, _digits(getattr(model, name)[colliding])] for name in _CONTACT_FIELDS]
    record["names"] = names
    record["option"] = [*_digits(model.opt.gravity), *_digits(model.opt.timestep), str(int(model.opt.integrator))]
    return hashlib.sha256(rfc8785.dumps(record)).hexdigest()


def _digits(values: Any) -> list[str]:
    # Nine digits: compiling on another machine must give the same fingerprint. Adding 0.0 turns -0.0 into 0.0.
    return [f"{float(value) + 0.0:.8e}" for value in np.atleast_1d(np.asarray(values)).ravel()]


def calibration_model(robot: Robot) -> Any:
    """Return the robot's model, compiled so that every inertial parameter takes effect."""
    spec = robot.model_spec.copy()
    fitted = {str(robot.model.body(body).name) for body in fitted_bodies(robot.model)}
    # MuJoCo treats a body as simple, with a diagonal inertia, while its centre of mass is at the joint's origin; a fit
    # may move it away from there.
    for body in spec.bodies:
        if body.name in fitted:
            body.simple = 0
    return spec.compile()


def installed_version() -> str:
    """Return the version of the installed physai; empty if it is not installed as a distribution."""
    try:
        return version("physai-sdk")
    except PackageNotFoundError:
        return ""


def robot_reference(robot: Robot, folder: Path) -> str:
    """Return how a twin file in a folder refers to the robot: built-in name or relative path."""
    if robot.name in robot_names() and load_robot(robot.name).path == robot.path:
        return robot.name
    return Path(os.path.relpath(robot.path.resolve(), folder.resolve())).as_posix()


def covariance_root(covariance: Array) -> Array:
    """Return a matrix R with R·R' = covariance, shape (P, P); zero variance gives a row of zeros."""
    # Not Cholesky: rounding may have made the covariance slightly indefinite. Scaling to unit variance first keeps
    # parameters of very different units on an equal footing.
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return scale[:, None] * (vectors * np.sqrt(np.maximum(values, 0.0)))
