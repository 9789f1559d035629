"""The calibrated twin: a robot's parameters as its logs tell them, how sure they are, and how well it replays."""

import hashlib
import json
import os
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import numpy as np
import numpy.typing as npt
import rfc8785
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SkipValidation,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from physai.sdk.errors import PhysaiError
from physai.sdk.files import read_plain, write_atomic
from physai.sdk.origin import Origin, combine_origins
from physai.sdk.robot import MAX_JOINTS, Finite, Frozen, Label, Name, NonNegative, Positive

if TYPE_CHECKING:
    import mujoco

    from physai.sim.robots import Robot

Array = npt.NDArray[np.float64]

FORMAT_VERSION = 2
MAX_FILE_BYTES = 16 * 2**20
MAX_PARAMETERS = 1024
MAX_LOGS = 4096

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]{0,63}\.[a-z_]{1,31}$")]
"""`<body or joint>.<what>`, for instance `link2.mass`, `joint1.friction`."""
PerJoint = Annotated[tuple[NonNegative, ...], Field(max_length=MAX_JOINTS)]


class TwinError(PhysaiError):
    """A twin file is missing, damaged, of another version or of another robot."""


class FittedParameter(Frozen):
    """One parameter of the twin, in its unit."""

    name: ParameterName
    unit: Label
    prior: Finite
    """Value in the nominal robot."""
    prior_std: Positive
    """How far the true value may plausibly lie from the nominal one, one standard deviation."""
    lower: Finite
    upper: Finite
    value: Finite
    std: NonNegative
    """Standard deviation after the fit, what the unidentified parameters leave open included."""
    identified: bool
    """Whether the logs constrain it. If not, `value` is `prior` and `std` is `prior_std`."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError(f"parameter {self.name}: lower {self.lower} is not below upper {self.upper}")
        if not self.lower <= self.value <= self.upper:
            raise ValueError(f"parameter {self.name}: value {self.value} lies outside [{self.lower}, {self.upper}]")
        return self


class SensorNoise(Frozen):
    """Standard deviation of what the sensors add, one per joint; empty where no log tells."""

    joint_pos_std: PerJoint = ()
    """[rad or m]"""
    joint_vel_std: PerJoint = ()
    """[rad/s or m/s]"""
    joint_effort_std: PerJoint = ()
    """[N·m or N]"""


class Timing(Frozen):
    """Measured times; None where no log tells."""

    command_lag_mean_s: NonNegative | None = None
    """From a command to its effect in the measured effort or, without one, in the motion [s]."""
    command_lag_p99_s: NonNegative | None = None
    period_median_s: NonNegative | None = None
    """From one sample to the next [s]."""
    period_p99_s: NonNegative | None = None
    period_max_s: NonNegative | None = None


class Interval(Frozen):
    """A measured number and its 95 % bootstrap interval."""

    value: Finite
    lo: Finite
    hi: Finite


class Residuals(Frozen):
    """Open-loop replay of the held-out recordings, per joint in the robot's order [rad or m]."""

    window_s: Positive
    joint_names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)]
    twin: tuple[Interval, ...]
    """Root mean square error of the fitted twin."""
    nominal: tuple[Interval, ...]
    """The same of the nominal robot."""
    gain: tuple[Interval, ...]
    """Nominal minus twin, from the same resampled windows: `lo` above 0 means that the fit helps."""
    motion: tuple[NonNegative, ...]
    """Root mean square of how far each joint moved away from its position at the window's start."""

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        counts = {len(self.joint_names), len(self.twin), len(self.nominal), len(self.gain), len(self.motion)}
        if len(counts) != 1:
            raise ValueError(f"residuals of different numbers of joints: {sorted(counts)}")
        return self


class LogRecord(Frozen):
    """One recording that the twin was fitted to or judged on."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    sha256: Sha256
    origin: Origin = Origin()


class Logs(Frozen):
    """Which recordings the fit saw, and which it did not."""

    train: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()
    held_out: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()


class Credibility(Frozen):
    """Whether a policy's behaviour in this twin says anything about the robot."""

    holds: bool
    reasons: tuple[str, ...]
    """Why not; what was found, if it holds."""


def _matrix(value: object) -> object:
    if isinstance(value, np.ndarray):
        return np.asarray(value, dtype=np.float64)
    rows = TypeAdapter(list[list[Finite]]).validate_python(value)
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0)


def _rows(value: Array) -> list[list[float]]:
    return value.tolist()


Matrix = Annotated[SkipValidation[Array], BeforeValidator(_matrix), PlainSerializer(_rows)]


@dataclass(
    frozen=True,
    kw_only=True,
    eq=False,
    config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True),
)
class Twin:
    """A robot model with parameters fitted to recordings; immutable, identified by its hash."""

    robot: Annotated[str, Field(min_length=1, max_length=1024)]
    """Name of a built-in robot, or its file as seen from the folder of the twin file."""
    model_sha256: Sha256
    """`model_fingerprint` of the nominal robot: a changed robot file is noticed."""
    joint_names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)]
    parameters: Annotated[tuple[FittedParameter, ...], Field(max_length=MAX_PARAMETERS)] = ()
    covariance: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    """Of all parameters in their order, shape (P, P); the prior's variance where the logs say nothing."""
    noise: SensorNoise = field(default_factory=SensorNoise)
    timing: Timing = field(default_factory=Timing)
    residuals: Residuals | None = None
    """None if no recording was kept out of the fit."""
    logs: Logs = field(default_factory=Logs)
    notes: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=64)] = ()
    """What a reader must know of the fit: that it was interrupted, what was left out."""
    physai_version: Annotated[str, Field(max_length=64)] = ""
    folder: Annotated[str, Field(exclude=True)] = ""
    """Folder of the file it was read from; not part of the twin."""

    @model_validator(mode="after")
    def _covariance_fits_the_parameters(self) -> Self:
        count = len(self.parameters)
        if self.covariance.shape != (count, count):
            raise ValueError(f"covariance has shape {self.covariance.shape}, expected ({count}, {count})")
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) != count:
            raise ValueError("a parameter occurs twice")
        return self

    @property
    def origin(self) -> Origin:
        """Where the recordings come from that it was fitted to and judged by: the least trustworthy of them decides."""
        return combine_origins(log.origin for log in (*self.logs.train, *self.logs.held_out))

    @property
    def values(self) -> Array:
        """Fitted values in the order of `parameters`, shape (P,)."""
        return np.array([parameter.value for parameter in self.parameters], dtype=np.float64)

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of all fields, 64 hexadecimal digits."""
        return hashlib.sha256(rfc8785.dumps(_plain(self))).hexdigest()

    def nominal(self) -> "Robot":
        """The robot before the fit.

        Raises:
            TwinError: its file is missing or describes other physics than at the time of the fit.
        """
        from physai.sim.calibrate.fitted import nominal_robot

        return nominal_robot(self)

    def model(self) -> "mujoco.MjModel":
        """The nominal robot's compiled model with the fitted values applied.

        Raises:
            TwinError: see `nominal`.
        """
        from physai.sim.calibrate.fitted import fitted_model

        return fitted_model(self)

    def draw(self, n: int, seed: int) -> Array:
        """Draws from the posterior, inside the bounds; shape (n, P). Equal seeds give equal draws."""
        from physai.sim.calibrate.fitted import draw

        return draw(self, n, seed)

    def apply(self, model: "mujoco.MjModel", values: Array) -> None:
        """Writes parameter values, shape (P,), into a model of this robot and recomputes its constants.

        Raises:
            TwinError: the model is of another robot.
        """
        from physai.sim.calibrate.fitted import apply

        apply(self, model, values)

    def randomisation(self, n: int, seed: int) -> dict[str, Array]:
        """The draws of `draw` as model fields by name (`body_mass`, `dof_damping`, …), shape (n, …) each.

        For `Environment.engine.parameter(name)[:]`, then `engine.parameters_changed(mask)`. Parameters that are no
        part of a model (delay, sensor bias) are left out; see `calibrate.parameters.Channel`.
        """
        from physai.sim.calibrate.fitted import randomisation

        return randomisation(self, n, seed)

    def credible(self) -> Credibility:
        """Whether the twin replays recordings it was not fitted to, and better than the nominal robot does."""
        from physai.sim.calibrate.credibility import judge

        return judge(self)


_ADAPTER: TypeAdapter[Twin] = TypeAdapter(Twin)


def _plain(twin: Twin) -> dict[str, Any]:
    record: dict[str, Any] = _ADAPTER.dump_python(twin, mode="json")
    return {"format_version": FORMAT_VERSION, **record}


def save_twin(twin: Twin, path: str | Path) -> None:
    """Writes twin.json: canonical JSON (RFC 8785) with the hash of all the rest in the field `hash`.

    Raises:
        TwinError: the file cannot be written.
    """
    try:
        write_atomic(Path(path), rfc8785.dumps({**_plain(twin), "hash": twin.hash}) + b"\n")
    except OSError as error:
        raise TwinError(f"cannot write {path}: {error.strerror}") from error


def load_twin(path: str | Path) -> Twin:
    """Reads twin.json and checks its hash.

    Raises:
        TwinError: the file is missing, too large, not a twin, of another format version or changed since written.
    """
    file = Path(os.path.expanduser(path))  # as it is, for a user who is not known
    record = _read_object(file)
    version, digest = record.pop("format_version", None), record.pop("hash", None)
    if version != FORMAT_VERSION:
        raise TwinError(f"{file}: format version {version!r}, this physai reads {FORMAT_VERSION}; calibrate again")
    try:
        twin = _ADAPTER.validate_json(json.dumps(record), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TwinError(f"{file}: {where + ': ' if where else ''}{first['msg']}") from error
    if twin.hash != digest:
        raise TwinError(
            f"{file}: its content has the hash {twin.hash[:12]}…, but it says {str(digest)[:12]}…: it was changed "
            "after the calibration; calibrate again"
        )
    return replace(twin, folder=str(file.resolve().parent))


def _read_object(file: Path) -> dict[str, Any]:
    try:
        data = read_plain(file, limit=MAX_FILE_BYTES)
        if not len(data) <= MAX_FILE_BYTES:
            raise TwinError(f"{file}: {file.stat().st_size} bytes; a twin file has at most {MAX_FILE_BYTES}")
        record = json.loads(data, parse_constant=_refuse_constant)
    except OSError as error:
        raise TwinError(f"cannot read twin {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TwinError(f"{file}: not a twin file: {error}") from error
    if not isinstance(record, dict):
        raise TwinError(f"{file}: not a twin file: it holds no JSON object")
    return cast("dict[str, Any]", record)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def nominal_twin(robot: "Robot") -> Twin:
    """The robot as its model file has it, without any recording: never credible."""
    from physai.sim.calibrate.fitted import unfitted

    return unfitted(robot)
