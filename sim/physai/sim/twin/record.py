"""Schema of a twin file: fitted parameters, measured noise and timing, replay errors and their origin."""

from dataclasses import field
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SkipValidation,
    TypeAdapter,
    model_validator,
)
from pydantic.dataclasses import dataclass

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Label, Name, NonNegative, Positive
from physai.sdk.evidence.origin import Origin, combine_origins

Array = npt.NDArray[np.float64]

MAX_PARAMETERS = 1024
MAX_LOGS = 4096

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]{0,63}\.[a-z_]{1,31}$")]
"""`<body or joint>.<what>`, for instance `link2.mass`, `joint1.friction`."""
PerJoint = Annotated[tuple[NonNegative, ...], Field(max_length=MAX_JOINTS)]


class TwinError(PhysaiError):
    """A twin file is missing, damaged, or of another version or robot."""


class FittedParameter(Frozen):
    """One parameter of the twin, in its unit."""

    name: ParameterName
    unit: Label
    prior: Finite
    """Value in the nominal robot."""
    prior_std: Positive
    """Plausible error of the nominal value, one standard deviation."""
    lower: Finite
    upper: Finite
    value: Finite
    std: NonNegative
    """Standard deviation after the fit, including the uncertainty from unidentified parameters."""
    identified: bool
    """Whether the logs constrain it; if not, `value` is `prior` and `std` is `prior_std`."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError(f"parameter {self.name}: lower {self.lower} is not below upper {self.upper}")
        if not self.lower <= self.value <= self.upper:
            raise ValueError(f"parameter {self.name}: value {self.value} is outside [{self.lower}, {self.upper}]")
        return self


class SensorNoise(Frozen):
    """Standard deviation of the sensor noise per joint; empty if not measured."""

    joint_pos_std: PerJoint = ()
    """[rad or m]"""
    joint_vel_std: PerJoint = ()
    """[rad/s or m/s]"""
    joint_effort_std: PerJoint = ()
    """[N·m or N]"""


class Timing(Frozen):
    """Measured times; None if not measured."""

    command_lag_mean_s: NonNegative | None = None
    """From a command to its effect in the measured effort, or in the motion if no effort is recorded [s]."""
    command_lag_p99_s: NonNegative | None = None
    period_median_s: NonNegative | None = None
    """From one sample to the next [s]."""
    period_p99_s: NonNegative | None = None
    period_max_s: NonNegative | None = None


class Interval(Frozen):
    """A measured value and its 95 % bootstrap interval."""

    value: Finite
    lo: Finite
    hi: Finite


class Residuals(Frozen):
    """Open-loop replay of the held-out recordings, per joint in the robot's order [rad or m]."""

    window_s: Positive
    joint_names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS + 2)]
    """Of a floating base, `base.position` [m] and `base.rotation` [rad] come before the joints."""
    twin: tuple[Interval, ...]
    """Root mean square error of the fitted twin."""
    nominal: tuple[Interval, ...]
    """Root mean square error of the nominal robot."""
    gain: tuple[Interval, ...]
    """Nominal minus twin, from the same resampled windows; `lo` above 0 means a significant improvement."""
    motion: tuple[NonNegative, ...]
    """Root mean square displacement of each joint from its position at the window's start."""
    command_lag: Interval | None = None
    """Lag of effort behind command in the held-out recordings alone [s], the interval from its mean to its 99th
    percentile and as far below; None if they do not identify one."""

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        counts = {len(self.joint_names), len(self.twin), len(self.nominal), len(self.gain), len(self.motion)}
        if len(counts) != 1:
            raise ValueError(f"residuals have different numbers of joints: {sorted(counts)}")
        return self


class LogRecord(Frozen):
    """One recording used for the fit or held out."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    sha256: Sha256
    origin: Origin = Origin()
    duration_s: Positive | None = None
    """None if unknown."""


class Logs(Frozen):
    """Recordings used for the fit, and recordings held out."""

    train: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()
    held_out: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()


class Credibility(Frozen):
    """Whether a policy's behaviour in this twin is evidence about the robot."""

    holds: bool
    reasons: tuple[str, ...]
    """Why not, or the supporting measurements."""


def _matrix(value: object) -> object:
    if isinstance(value, np.ndarray):
        return np.asarray(value, dtype=np.float64)
    # The array type has no schema, so its JSON form is validated here.
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
class TwinRecord:
    """The fields of a twin."""

    robot: Annotated[str, Field(min_length=1, max_length=1024)]
    """Name of a built-in robot, or path of its file relative to the twin file."""
    model_sha256: Sha256
    """`model_fingerprint` of the nominal robot, which detects a changed robot file."""
    joint_names: Annotated[tuple[Name, ...], Field(max_length=MAX_JOINTS)]
    """Empty for a free body."""
    parameters: Annotated[tuple[FittedParameter, ...], Field(max_length=MAX_PARAMETERS)] = ()
    covariance: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    """Posterior covariance in the order of `parameters`, shape (P, P); the prior's variance if not identified."""
    noise: SensorNoise = field(default_factory=SensorNoise)
    timing: Timing = field(default_factory=Timing)
    residuals: Residuals | None = None
    """None without held-out recordings."""
    logs: Logs = field(default_factory=Logs)
    notes: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=64)] = ()
    """Remarks on the fit, for instance that it was interrupted or what was left out."""
    physai_version: Annotated[str, Field(max_length=64)] = ""
    folder: Annotated[str, Field(exclude=True)] = ""
    """Folder that the file was read from; not part of the twin."""

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
        """Origin of the recordings; the least trustworthy one decides."""
        return combine_origins(log.origin for log in (*self.logs.train, *self.logs.held_out))

    @property
    def values(self) -> Array:
        """Fitted values in the order of `parameters`, shape (P,)."""
        return np.array([parameter.value for parameter in self.parameters], dtype=np.float64)
