"""Calibrated twin: parameters fitted to a robot's logs with their uncertainty and replay errors."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import mujoco
import numpy as np
import numpy.typing as npt
import rfc8785
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from physai.sdk.base.errors import ModelError, UnknownNameError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.process.software import Software
from physai.sdk.evidence.origin import Origin, combine_origins
from physai.sdk.evidence.signature_record import EvidenceSignature
from physai.sdk.evidence.verdict import EvidenceKind
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.evidence import sign_evidence
from physai.sim.robots import Robot, load_robot, robot_names
from physai.sim.robots.spec import joint_actuator
from physai.twin.model.closed_loop_evidence import MAX_RECORDS, ClosedLoop, contradictions
from physai.twin.model.credibility import judge
from physai.twin.model.twin_file import Credibility, TwinError, TwinRecord
from physai.twin.parameters.models import (
    calibration_model,
    covariance_root,
    installed_version,
    model_fingerprint,
    robot_reference,
)
from physai.twin.parameters.parameters import DELAY, model_fields

Array = npt.NDArray[np.float64]

FORMAT_VERSION = 4
MAX_FILE_BYTES = 16 * 2**20
REDRAWS = 50
"""Attempts to redraw a sample outside the bounds before it is clipped."""


@dataclass(
    frozen=True,
    kw_only=True,
    eq=False,
    config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True),
)
class Twin(TwinRecord):
    """A robot model with parameters fitted to recordings; immutable, identified by its hash."""

    # Left out when empty, so that files without records keep their hash.
    closed_loop: Annotated[
        tuple[ClosedLoop, ...], Field(max_length=MAX_RECORDS, exclude_if=lambda records: not records)
    ] = ()
    """Policies whose recorded runs were compared with runs in this twin."""
    software: Annotated[Software | None, Field(exclude_if=lambda software: software is None)] = None
    """What it was calibrated with; None for twins of older versions, and those that were not calibrated."""
    seed: Annotated[int | None, Field(ge=0, lt=2**53, exclude_if=lambda seed: seed is None)] = None
    """Seed of the calibration."""
    signature: Annotated[EvidenceSignature | None, Field(exclude_if=lambda signature: signature is None)] = None
    """Of the validator who fitted it, over `signed_hash`; not part of `hash`."""

    @property
    def origin(self) -> Origin:
        """Origin of all recordings; the least trustworthy one decides."""
        logs = (*self.logs.train, *self.logs.held_out, *(log for record in self.closed_loop for log in record.logs))
        return combine_origins(log.origin for log in logs)

    @property
    def evidence_kinds(self) -> tuple[EvidenceKind, ...]:
        """Kinds of evidence that the twin was tested with; only closed-loop tests that it passed count."""
        kinds: list[EvidenceKind] = []
        if self.residuals is not None:
            # A delay is fitted where commands drive the replay; measured efforts already lag behind them.
            by_command = any(parameter.name == DELAY for parameter in self.parameters)
            kinds.append("command replay" if by_command else "effort replay")
        if self.command_residuals is not None:
            kinds.append("command replay")
        own = (record for record in self.closed_loop if record.twin_sha256 == self.open_loop_hash)
        if any(record.verdict == "reproduced" for record in own):
            kinds.append("closed loop")
        return tuple(kinds)

    @property
    def open_loop_hash(self) -> str:
        """`hash` of the twin without its closed-loop records, which these state."""
        return replace(self, closed_loop=()).hash

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of all fields but the signature, 64 hexadecimal digits."""
        return hashlib.sha256(rfc8785.dumps(_plain(replace(self, signature=None)))).hexdigest()

    @property
    def signed_hash(self) -> str:
        """`hash` without the path of the robot's file, which changes as the twin moves; `model_sha256` names it."""
        own = self.open_loop_hash
        records = tuple(
            record.model_copy(update={"twin_sha256": "0" * 64}) if record.twin_sha256 == own else record
            for record in self.closed_loop
        )
        return replace(self, robot="-", closed_loop=records).hash

    def nominal(self) -> Robot:
        """Return the robot before the fit.

        Raises:
            TwinError: the robot file is missing, or its dynamics have changed since the fit.
        """
        reference: str | Path = self.robot
        if self.robot not in robot_names():
            reference = Path(self.folder) / self.robot
        try:
            robot = load_robot(reference)
        except (ModelError, UnknownNameError) as error:
            raise TwinError(f"the robot of this twin cannot be loaded: {error}") from error
        self.require_robot(robot)
        return robot

    def require_robot(self, robot: Robot) -> None:
        """Check that a robot is the one the twin was fitted to, wherever its file lies.

        Raises:
            TwinError: its dynamics differ.
        """
        fingerprint = model_fingerprint(robot)
        if fingerprint != self.model_sha256:
            raise TwinError(
                f"robot {robot.name} has changed since this twin was fitted, or is another one: its model has the "
                f"fingerprint {fingerprint[:12]}…, the twin expects {self.model_sha256[:12]}…; calibrate again or "
                "restore the old file"
            )

    def model(self) -> mujoco.MjModel:
        """Return the nominal robot's compiled model with the fitted values applied.

        Raises:
            TwinError: see `nominal`.
        """
        model = calibration_model(self.nominal())
        self.apply(model, self.values)
        return model

    def draw(self, n: int, seed: int) -> Array:
        """Draw from the posterior within the bounds, shape (n, P); equal seeds give equal draws."""
        if not 0 <= n <= 10**7:
            raise TwinError(f"the number of draws must be in 0 … 10 000 000, got {n}")
        rng, centre = np.random.default_rng(seed), self.values
        if not len(centre) or n == 0:
            return np.tile(centre, (n, 1))
        lower = np.array([p.lower for p in self.parameters])
        upper = np.array([p.upper for p in self.parameters])
        root = covariance_root(self.covariance)
        drawn = centre + rng.standard_normal((n, len(centre))) @ root.T
        for _ in range(REDRAWS):
            outside = np.flatnonzero(((drawn < lower) | (drawn > upper)).any(axis=1))
            if not len(outside):
                break
            drawn[outside] = centre + rng.standard_normal((len(outside), len(centre))) @ root.T
        # A fitted value at its bound may leave samples outside even after all redraws.
        return np.clip(drawn, lower, upper)

    @property
    def unconstrained(self) -> tuple[str, ...]:
        """Names of the parameters that the recordings do not constrain."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.identified)

    def at_nominal(self, values: Array) -> Array:
        """Return robots as consistent with the recordings, with what these do not constrain at its nominal value.

        Parameters that the recordings determine together with the unconstrained ones move along, as the mean of the
        posterior given the others: v_c - C_cu·C_uu⁻¹·(v_u - prior_u).

        Args:
            values: parameters, shape (n, P).
        """
        free = np.array([not parameter.identified for parameter in self.parameters], dtype=bool)
        prior = np.array([parameter.prior for parameter in self.parameters])
        result = np.array(values, dtype=np.float64)
        if not free.any():
            return result
        apart = result[:, free] - prior[free]
        pull = self.covariance[np.ix_(~free, free)] @ np.linalg.pinv(self.covariance[np.ix_(free, free)])
        result[:, ~free] -= apart @ pull.T
        result[:, free] = prior[free]
        lower = np.array([parameter.lower for parameter in self.parameters])
        upper = np.array([parameter.upper for parameter in self.parameters])
        return np.clip(result, lower, upper)

    def constrained_covariance(self) -> Array:
        """Return the posterior covariance given that what the recordings do not constrain is nominal, shape (P, P)."""
        free = np.array([not parameter.identified for parameter in self.parameters], dtype=bool)
        result = np.zeros_like(self.covariance)
        both, cross = self.covariance[np.ix_(~free, ~free)], self.covariance[np.ix_(~free, free)]
        unknown = self.covariance[np.ix_(free, free)]
        result[np.ix_(~free, ~free)] = both - cross @ np.linalg.pinv(unknown) @ cross.T
        return result

    def apply(self, model: mujoco.MjModel, values: Array) -> None:
        """Write parameter values, shape (P,), into a model of this robot and recompute its constants.

        Raises:
            TwinError: the model is of another robot.
        """
        if values.shape != (len(self.parameters),):
            raise TwinError(f"values have shape {values.shape}, expected ({len(self.parameters)},)")
        try:
            fields = model_fields(model, [p.name for p in self.parameters], values[None])
        except UnknownNameError as error:
            raise TwinError(f"the model is not of the twin's robot {self.robot}: {error}") from error
        for name, rows in fields.items():
            getattr(model, name)[...] = rows[0]
        if fields:
            # Inverse weights and other constants are derived from masses and inertias.
            mujoco.mj_setConst(model, mujoco.MjData(model))

    def apply_commanded(self, model: mujoco.MjModel, values: Array) -> None:
        """As `apply`, for a model whose actuators get commands instead of measured efforts.

        The fitted gain of a motor relates measured effort to torque, and a motor makes `ActuatorResponse.gain` of its
        command, at most `effort_max`.

        Raises:
            TwinError: the model is of another robot.
        """
        self.apply(model, values)
        for response in self.actuators:
            joint = int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, response.joint))
            actuator = joint_actuator(model, joint) if joint >= 0 else None
            if actuator is None:
                raise TwinError(
                    f"the model is not of the twin's robot {self.robot}: joint {response.joint} has no motor"
                )
            if response.effort_max is not None:
                limit = response.effort_max * float(model.actuator_gainprm[actuator, 0])
                _limit_force(model, actuator, limit)
            model.actuator_gainprm[actuator, 0] *= response.gain
        self.add_motor_inertia(model)

    def add_motor_inertia(self, model: mujoco.MjModel) -> None:
        """Give joints the inertia that their motors seem to have when commands drive them; see `ActuatorResponse`."""
        for response in self.actuators:
            model.dof_armature[int(model.jnt_dofadr[model.joint(response.joint).id])] += response.inertia

    def randomisation(self, n: int, seed: int, *, robot: Robot | None = None) -> dict[str, Array]:
        """Return the draws of `draw` as model fields by name (`body_mass`, `dof_damping`, …), shape (n, …) each.

        `robot` is the twin's robot if it is loaded already; the file that the twin names need not exist then.

        Assign them to `Environment.engine.parameter(name)[:]`, then call `engine.parameters_changed(mask)`. Parameters
        outside the model (delay, sensor bias) are left out; see `LogChannel`.
        """
        if robot is not None:
            self.require_robot(robot)
        model = calibration_model(robot or self.nominal())
        return model_fields(model, [p.name for p in self.parameters], self.draw(n, seed))

    def credible(self) -> Credibility:
        """Judge whether the twin replays held-out recordings, and better than the nominal robot; see `judge`.

        A twin in which a policy fares otherwise than on the robot is not credible, however well it replays.
        """
        judged = judge(self)
        doubts = contradictions(self.closed_loop, self.open_loop_hash)
        fitted = {log.sha256 for log in self.logs.train}
        shared = {log.sha256 for record in self.closed_loop for log in record.logs} & fitted
        if shared:
            doubts.append(f"{len(shared)} of the recordings of its closed-loop records were used in the fit")
        if doubts:
            return Credibility(holds=False, reasons=(*doubts, *(() if judged.holds else judged.reasons)))
        found = tuple(record.describe() for record in self.closed_loop) if judged.holds else ()
        return Credibility(holds=judged.holds, reasons=(*judged.reasons, *found))


def _limit_force(model: Any, actuator: int, limit: float) -> None:
    """Lower the range of an actuator's force to a limit; a motor without a range keeps none, see `calibrate`."""
    # Not the flag: it is one for all worlds.
    if model.actuator_forcelimited[actuator]:
        model.actuator_forcerange[actuator] = np.clip(model.actuator_forcerange[actuator], -limit, limit)


_ADAPTER: TypeAdapter[Twin] = TypeAdapter(Twin)


def _plain(twin: Twin) -> dict[str, Any]:
    record: dict[str, Any] = _ADAPTER.dump_python(twin, mode="json")
    return {"format_version": FORMAT_VERSION, **record}


def save_twin(twin: Twin, path: str | Path) -> None:
    """Write twin.json: canonical JSON (RFC 8785) with the hash of all other fields in `hash`.

    Raises:
        TwinError: the file cannot be written.
    """
    with oserror_as(TwinError, f"cannot write {path}"):
        write_atomic(Path(path), rfc8785.dumps({**_plain(twin), "hash": twin.hash}) + b"\n")


def signed_twin(twin: Twin, key: SigningKey) -> Twin:
    """Return a twin with a validator's signature; sign only what you derived from recordings yourself."""
    return replace(twin, signature=sign_evidence(key, "twin", twin.signed_hash))


def load_twin(path: str | Path) -> Twin:
    """Read twin.json and check its hash.

    Raises:
        TwinError: the file is missing, too large, not a twin, of another format version, or was modified.
    """
    file = Path(os.path.expanduser(path))  # unlike Path.expanduser, keeps an unknown ~user as it is
    record = _read_object(file)
    version, digest = record.pop("format_version", None), record.pop("hash", None)
    if version != FORMAT_VERSION:
        raise TwinError(f"{file}: format version {version!r}, expected {FORMAT_VERSION}; calibrate again")
    try:
        twin = _ADAPTER.validate_json(json.dumps(record), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TwinError(f"{file}: {where + ': ' if where else ''}{first['msg']}") from error
    if twin.hash != digest:
        raise TwinError(
            f"{file}: content has the hash {twin.hash[:12]}…, but the file states {str(digest)[:12]}…: it was modified "
            "after the calibration; calibrate again"
        )
    return replace(twin, folder=str(file.resolve().parent))


def robot_file(path: Path) -> Path | None:
    """Return the robot's file that a twin file names; None if it is no twin, or is one of a built-in robot."""
    try:
        robot = load_twin(path).robot
    except TwinError:
        return None
    return None if robot in robot_names() else path.resolve().parent / robot


def moved_twin(twin: Twin, folder: Path) -> Twin:
    """Return the twin as it is to be saved in a folder: its robot's path is relative to that.

    Raises:
        TwinError: see `Twin.nominal`.
    """
    home = folder.resolve()
    if str(home) == twin.folder:
        return twin
    # The record of a test states the hash, which covers the path.
    before, moved = twin.open_loop_hash, replace(twin, robot=robot_reference(twin.nominal(), home), folder=str(home))
    return replace(
        moved,
        closed_loop=tuple(
            record.model_copy(update={"twin_sha256": moved.open_loop_hash}) if record.twin_sha256 == before else record
            for record in twin.closed_loop
        ),
    )


def _read_object(file: Path) -> dict[str, Any]:
    try:
        data = read_plain(file, limit=MAX_FILE_BYTES)
        if not len(data) <= MAX_FILE_BYTES:
            raise TwinError(f"{file}: {file.stat().st_size} bytes, at most {MAX_FILE_BYTES} are allowed")
        record = json.loads(data, parse_constant=_refuse_constant)
    except OSError as error:
        raise TwinError(f"cannot read twin {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TwinError(f"{file}: not a twin file: {error}") from error
    if not isinstance(record, dict):
        raise TwinError(f"{file}: not a twin file: expected a JSON object")
    return cast("dict[str, Any]", record)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def nominal_twin(robot: Robot) -> Twin:
    """Return the robot as its model file describes it, without recordings; never credible."""
    folder = robot.path.resolve().parent
    return Twin(
        robot=robot_reference(robot, folder),
        model_sha256=model_fingerprint(robot),
        joint_names=robot.spec.joint_names,
        physai_version=installed_version(),
        folder=str(folder),
    )
