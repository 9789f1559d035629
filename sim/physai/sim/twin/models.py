"""Models of a twin: the nominal robot, the fitted robot and draws from the posterior."""

import hashlib
import os.path
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import rfc8785

from physai.sdk.base.errors import ModelError, UnknownNameError
from physai.sim.robots import Robot, load_robot, robot_names
from physai.sim.twin.parameters import fitted_bodies, model_fields
from physai.sim.twin.record import TwinError, TwinRecord

Array = npt.NDArray[np.float64]

REDRAWS = 50
"""Attempts to redraw a sample outside the bounds before it is clipped."""

_FINGERPRINT_FIELDS = (
    *("body_parentid", "body_pos", "body_quat", "body_mass", "body_ipos", "body_inertia", "body_gravcomp"),
    *("jnt_type", "jnt_bodyid", "jnt_pos", "jnt_axis", "jnt_limited", "jnt_range", "jnt_stiffness", "qpos0"),
    *("dof_frictionloss", "dof_damping", "dof_armature", "dof_solref", "dof_solimp"),
    *("actuator_trntype", "actuator_trnid", "actuator_gaintype", "actuator_biastype", "actuator_gear"),
    *("actuator_gainprm", "actuator_biasprm", "actuator_ctrllimited", "actuator_ctrlrange"),
    *("actuator_forcelimited", "actuator_forcerange"),
)


def model_fingerprint(robot: Robot) -> str:
    """Return the SHA-256 of the robot's dynamics: bodies, joints, actuators, gravity, integrator and time step.

    Visuals and collision geometry are left out.
    """
    model: Any = robot.model
    names = [str(model.body(b).name) for b in range(model.nbody)] + [
        str(model.joint(j).name) for j in range(model.njnt)
    ]
    record: dict[str, Any] = {name: _digits(getattr(model, name)) for name in _FINGERPRINT_FIELDS}
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


def nominal_robot(twin: TwinRecord) -> Robot:
    """Implement `Twin.nominal`."""
    reference: str | Path = twin.robot
    if twin.robot not in robot_names():
        reference = Path(twin.folder) / twin.robot
    try:
        robot = load_robot(reference)
    except (ModelError, UnknownNameError) as error:
        raise TwinError(f"the robot of this twin cannot be loaded: {error}") from error
    fingerprint = model_fingerprint(robot)
    if fingerprint != twin.model_sha256:
        raise TwinError(
            f"robot {twin.robot} has changed since this twin was fitted: its model has the fingerprint "
            f"{fingerprint[:12]}…, the twin expects {twin.model_sha256[:12]}…; calibrate again or restore the old file"
        )
    return robot


def fitted_model(twin: TwinRecord) -> Any:
    """Implement `Twin.model`."""
    model = calibration_model(nominal_robot(twin))
    apply(twin, model, twin.values)
    return model


def apply(twin: TwinRecord, model: Any, values: Array) -> None:
    """Implement `Twin.apply`."""
    if values.shape != (len(twin.parameters),):
        raise TwinError(f"values have shape {values.shape}, expected ({len(twin.parameters)},)")
    try:
        fields = model_fields(model, [p.name for p in twin.parameters], values[None])
    except UnknownNameError as error:
        raise TwinError(f"the model is not of the twin's robot {twin.robot}: {error}") from error
    for name, rows in fields.items():
        getattr(model, name)[...] = rows[0]
    if fields:
        mujoco.mj_setConst(model, mujoco.MjData(model))


def draw(twin: TwinRecord, n: int, seed: int) -> Array:
    """Implement `Twin.draw`."""
    if not 0 <= n <= 10**7:
        raise TwinError(f"the number of draws must be in 0 … 10 000 000, got {n}")
    rng, centre = np.random.default_rng(seed), twin.values
    if not len(centre) or n == 0:
        return np.tile(centre, (n, 1))
    lower = np.array([p.lower for p in twin.parameters])
    upper = np.array([p.upper for p in twin.parameters])
    root = covariance_root(twin.covariance)
    drawn = centre + rng.standard_normal((n, len(centre))) @ root.T
    for _ in range(REDRAWS):
        outside = np.flatnonzero(((drawn < lower) | (drawn > upper)).any(axis=1))
        if not len(outside):
            break
        drawn[outside] = centre + rng.standard_normal((len(outside), len(centre))) @ root.T
    return np.clip(drawn, lower, upper)


def covariance_root(covariance: Array) -> Array:
    """Return a matrix R with R·R' = covariance, shape (P, P); zero variance gives a row of zeros."""
    # Not Cholesky: rounding may have made the covariance slightly indefinite. Scaling to unit variance first keeps
    # parameters of very different units on an equal footing.
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return scale[:, None] * (vectors * np.sqrt(np.maximum(values, 0.0)))


def randomisation(twin: TwinRecord, n: int, seed: int) -> dict[str, Array]:
    """Implement `Twin.randomisation`."""
    model = calibration_model(nominal_robot(twin))
    return model_fields(model, [p.name for p in twin.parameters], draw(twin, n, seed))
