"""Schema of a twin file: fitted parameters, measured noise and timing, replay errors and their origin."""

from dataclasses import field
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, SkipValidation, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Label, Name, NonNegative, Positive
from physai.sdk.evidence.origin import Origin, combine_origins
from physai.twin.model.interval import Interval, require_difference, require_rmse

Array = npt.NDArray[np.float64]

MAX_PARAMETERS = 1024
MAX_LOGS = 4096
MAX_ALTERNATIVES = 128
MAX_WINDOWS, MAX_NUMBERS = 64, 50_000
"""Maximum number of windows of a replay sample, and of numbers in each of its fields: a verdict replays them all."""
MAX_LAG_S = 10.0
"""Maximum lag of a command [s]; delays are simulated with buffers as long as they are."""
COVARIANCE_ROUNDING = 1e-6
"""Share of two standard deviations' product by which rounding may spoil the symmetry and the bounds of a covariance."""

BASE_ERRORS = ("base.position", "base.rotation")
"""Errors of a floating base, which come before those of the joints: distance [m] and angle [rad]."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]{0,63}\.[a-z_]{1,31}$")]
"""`<body or joint>.<what>`, for instance `link2.mass`, `joint1.friction`."""
Row = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=MAX_NUMBERS)]
Rows = Annotated[tuple[Row, ...], Field(max_length=MAX_WINDOWS)]
PerJoint = Annotated[tuple[NonNegative, ...], Field(max_length=MAX_JOINTS)]
Lag = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=MAX_LAG_S)]


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


class JointReading(Frozen):
    """Model of the readings of a joint's sensors, as its recordings show it."""

    joint_pos_resolution: NonNegative = 0.0
    """Step of the position's readings [rad or m]; 0 if they show none."""
    joint_vel_resolution: NonNegative = 0.0
    """[rad/s or m/s]"""
    joint_vel: Literal["measured", "backward", "central"] = "measured"
    """Whether the speed is a difference of the position over `joint_vel_span` samples of the robot's loop."""
    joint_vel_span: Annotated[int, Field(ge=0, le=64)] = 0
    joint_vel_time_constant_s: NonNegative = 0.0
    """Of a first-order low-pass filter on the difference [s]; 0 for none."""


class ActuatorResponse(Frozen):
    """Measured effort of one joint as a response to its command u and acceleration a.

    y = z - m·a, with τ·z' = g·u(t - d) - z, and |y| at most `effort_max`.
    """

    joint: Name
    gain: Positive
    """g: measured effort per commanded effort."""
    gain_std: NonNegative
    dead_time_s: Lag
    """d, at the sampling period `period_s` [s]; see `Timing.command_lag_periods`."""
    time_constant_s: Lag
    """τ [s]"""
    inertia: NonNegative = 0.0
    """m: effort that is missing per acceleration [kg·m² or kg]. Driven by commands, the motor acts like one with this
    much more inertia."""
    effort_max: Positive | None = None
    """Effort at which the motor saturates [N·m or N]; None if no recording shows one."""
    period_s: Positive
    """Sampling period of the recordings that show the response [s]."""


class Timing(Frozen):
    """Measured times; None if not measured."""

    command_lag_mean_s: Lag | None = None
    """From a command to its effect in the measured effort, or in the motion if no effort is recorded [s]."""
    command_lag_p99_s: Lag | None = None
    command_lag_period_s: Positive | None = None
    """Sampling period of the recordings that show the lag [s]."""
    command_lag_periods: Interval | None = None
    """Change of the lag with the loop's period [s/s]: how many periods of it wait for the loop. From recordings at
    different rates; with one rate, between none and the whole periods that fit into the dead time."""
    period_median_s: NonNegative | None = None
    """From one sample to the next [s]."""
    period_p99_s: NonNegative | None = None
    period_max_s: NonNegative | None = None

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        mean, p99 = self.command_lag_mean_s, self.command_lag_p99_s
        if mean is not None and p99 is not None and not mean <= p99:
            raise ValueError(f"the command lag's 99th percentile {p99} s is below its mean {mean} s")
        return self


class Alternative(Frozen):
    """The twin with one thing changed, such as all masses 10 % higher."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[ -~]*$")]
    """What is changed; may contain the name of a joint, which has up to 64 characters."""
    ratio: Interval
    """Its held-out replay error relative to the twin's: geometric mean over the joints, from the same resampled
    windows. `hi` below 1 means that it replays the recordings significantly better than the twin."""


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
    at_zero: Annotated[tuple[NonNegative, ...], Field(exclude_if=lambda it: not it)] = ()
    """Root mean square error of the fitted twin with the recordings' own zeros, without offsets; empty in old files."""
    gain_at_zero: Annotated[tuple[Interval, ...], Field(exclude_if=lambda it: not it)] = ()
    """`gain` with the recordings' own zeros."""
    motion: tuple[NonNegative, ...]
    """Root mean square displacement of each joint from its position at the window's start."""
    floor: Annotated[tuple[NonNegative, ...], Field(max_length=MAX_JOINTS + 2, exclude_if=lambda floor: not floor)] = ()
    """Replay error that noise and resolution of the position sensors explain, in the unit of the joint [rad or m]."""
    command_lag: Interval | None = None
    """Lag of effort behind command in the held-out recordings alone [s], the interval from its mean to its 99th
    percentile and as far below; None if they do not identify one."""
    alternatives: Annotated[tuple[Alternative, ...], Field(max_length=MAX_ALTERNATIVES)] = ()
    """The twin with one thing changed, replayed on the same windows."""

    @model_validator(mode="after")
    def _has_one_of_each(self) -> Self:
        counts = {len(self.joint_names), len(self.twin), len(self.nominal), len(self.gain), len(self.motion)}
        counts |= {len(values) for values in (self.floor, self.at_zero, self.gain_at_zero) if values}
        if len(counts) != 1:
            raise ValueError(f"residuals have different numbers of joints: {sorted(counts)}")
        # Bounds go by name.
        if len(set(self.joint_names)) != len(self.joint_names):
            raise ValueError("a joint occurs twice in the residuals")
        require_rmse("a root mean square error", (*self.twin, *self.nominal))
        require_rmse("a changed twin's ratio", [alternative.ratio for alternative in self.alternatives])
        lag = self.command_lag
        if lag is not None and not lag.lo <= lag.value <= lag.hi:
            raise ValueError(f"a command lag of {lag.value:g} s is outside its interval, {lag.lo:g} to {lag.hi:g} s")
        names = [alternative.name for alternative in self.alternatives]
        if len(set(names)) != len(names):
            raise ValueError("a changed twin occurs twice in the residuals")
        return self

    @model_validator(mode="after")
    def _has_the_gains_of_its_errors(self) -> Self:
        for name, twin, nominal, gain in zip(self.joint_names, self.twin, self.nominal, self.gain, strict=True):
            require_difference(name, gain, nominal, twin)
        return self


class ReplaySample(Frozen):
    """A few of the held-out windows, W of S steps with M compared samples of J joints, to replay without recordings.

    Positions of a robot with a floating base begin with its pose, 7 numbers: position in the world [m] and quaternion
    wxyz. Its speeds begin with 6: velocity in the world [m/s] and angular velocity in the base's frame [rad/s].
    """

    start: Rows
    """True position [rad or m], then speed [rad/s or m/s] of each joint at the start, shape (W, 2·J), or
    (W, 13 + 2·J)."""
    controls: Rows
    """Input of each actuator in each physics step, shape (W, S·nu)."""
    sample_s: Rows
    """Times of the compared samples after the start [s], shape (W, M)."""
    target: Rows
    """True positions at these times [rad or m], shape (W, M·J), or (W, M·(7 + J))."""
    servo_gain: Annotated[tuple[Positive, ...], Field(max_length=MAX_WINDOWS)]
    """Factor on the gain of position servos in each window, shape (W,)."""
    rmse: Annotated[tuple[NonNegative, ...], Field(max_length=MAX_JOINTS + 2)]
    """Root mean square error of the twin on these windows [rad or m], in the order of `Residuals.joint_names`."""

    @model_validator(mode="after")
    def _has_one_row_per_window(self) -> Self:
        counts = {len(rows) for rows in (self.start, self.controls, self.sample_s, self.target, self.servo_gain)}
        if len(counts) != 1 or counts == {0}:
            raise ValueError(f"the replay sample has different numbers of windows: {sorted(counts)}")
        for name, rows in (("start", self.start), ("controls", self.controls), ("target", self.target)):
            if len({len(row) for row in rows}) != 1:
                raise ValueError(f"the replay sample's windows differ in the length of {name}")
            if not len(rows) * len(rows[0]) <= MAX_NUMBERS:
                raise ValueError(
                    f"the replay sample has {len(rows) * len(rows[0])} numbers in {name}, at most {MAX_NUMBERS} are "
                    "allowed"
                )
        if any(len(row) != len(self.sample_s[0]) or any(time < 0.0 for time in row) for row in self.sample_s):
            raise ValueError("the replay sample's times differ in number, or are below 0")
        return self


class LogRecord(Frozen):
    """One recording used for the fit or held out."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    sha256: Sha256
    origin: Origin = Origin()
    duration_s: Positive | None = None
    """None if unknown."""
    joint_pos_offset: Annotated[
        tuple[Finite, ...], Field(max_length=MAX_JOINTS, exclude_if=lambda offset: not offset)
    ] = ()
    """Measured minus true position of each joint [rad or m], estimated with this twin; empty if not estimated.

    The encoder's zero is set anew for each recording, so it belongs to the recording, not to the robot.
    """
    joint_pos_offset_std: Annotated[PerJoint, Field(exclude_if=lambda std: not std)] = ()
    """Standard deviation of each offset given the twin's parameters; the prior's where gravity does not show it."""

    @model_validator(mode="after")
    def _has_one_std_per_offset(self) -> Self:
        if len(self.joint_pos_offset) != len(self.joint_pos_offset_std):
            raise ValueError(
                f"recording {self.name}: {len(self.joint_pos_offset)} offsets have {len(self.joint_pos_offset_std)} "
                "standard deviations"
            )
        return self


class Logs(Frozen):
    """Recordings used for the fit, and recordings held out."""

    train: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()
    held_out: Annotated[tuple[LogRecord, ...], Field(max_length=MAX_LOGS)] = ()

    @model_validator(mode="after")
    def _counts_each_once(self) -> Self:
        if len({log.sha256 for log in self.held_out}) != len(self.held_out):
            raise ValueError("a recording occurs twice among those held out")
        return self


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


def _require_covariance(matrix: Array) -> None:
    """Require finite values, symmetry, variances of at least 0 and correlations of at most 1."""
    if not bool(np.isfinite(matrix).all()):
        raise ValueError("covariance has values that are not finite")
    variance = np.diag(matrix)
    if not bool((variance >= 0.0).all()):
        raise ValueError(f"covariance has a variance below 0: {variance.min()}")
    # Rounding of the smallest numbers is not relative to them: squares below 1e-162 are 0.
    most = np.sqrt(variance)[:, None] * np.sqrt(variance) + 1e-150
    if not bool((np.abs(matrix) <= (1.0 + COVARIANCE_ROUNDING) * most).all()):
        raise ValueError("covariance has a correlation above 1")
    if not bool((np.abs(matrix - matrix.T) <= COVARIANCE_ROUNDING * most).all()):
        raise ValueError("covariance is not symmetric")


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
    sensors: Annotated[
        tuple[JointReading, ...], Field(max_length=MAX_JOINTS, exclude_if=lambda sensors: not sensors)
    ] = ()
    """Per joint in the robot's order; empty if not identified."""
    timing: Timing = field(default_factory=Timing)
    actuators: Annotated[tuple[ActuatorResponse, ...], Field(max_length=MAX_JOINTS)] = ()
    """How motors follow their commands, of the joints whose recordings show it; none for position servos."""
    residuals: Residuals | None = None
    """Replay of the held-out recordings from efforts, or commands if efforts are not measured. None without any."""
    command_residuals: Residuals | None = None
    """Replay from commands through `actuators`; None if `residuals` are from commands, or no response is known."""
    sample: ReplaySample | None = None
    """Held-out windows that a validation replays again; None without held-out recordings."""
    logs: Logs = field(default_factory=Logs)
    notes: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=64)] = ()
    """Remarks on the fit, for instance that it was interrupted or what was left out."""
    physai_version: Annotated[str, Field(max_length=64)] = ""
    folder: Annotated[str, Field(exclude=True)] = ""
    """Folder that the file was read from; not part of the twin."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        count = len(self.parameters)
        if self.covariance.shape != (count, count):
            raise ValueError(f"covariance has shape {self.covariance.shape}, expected ({count}, {count})")
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) != count:
            raise ValueError("a parameter occurs twice")
        _require_covariance(self.covariance)
        self._require_joints()
        return self

    def _require_joints(self) -> None:
        """Require that everything that is stated per joint is stated of the twin's joints, in their order."""
        logs = (*self.logs.train, *self.logs.held_out)
        for what, values in (
            ("sensors", self.sensors),
            *((name, getattr(self.noise, name)) for name in type(self.noise).model_fields),
            *((f"joint_pos_offset of recording {log.name}", log.joint_pos_offset) for log in logs),
        ):
            if len(values) not in (0, len(self.joint_names)):
                raise ValueError(f"{what}: {len(values)} values for {len(self.joint_names)} joints")
        for residuals in (self.residuals, self.command_residuals):
            named = self.joint_names if residuals is None else residuals.joint_names
            if named not in (self.joint_names, (*BASE_ERRORS, *self.joint_names)):
                raise ValueError(f"residuals are of {', '.join(named)}, the joints are {', '.join(self.joint_names)}")
        # Their gains would multiply.
        driven = [response.joint for response in self.actuators]
        if len(set(driven)) != len(driven):
            raise ValueError(f"a joint has two actuators: {', '.join(driven)}")

    @property
    def origin(self) -> Origin:
        """Origin of the recordings; the least trustworthy one decides."""
        return combine_origins(log.origin for log in (*self.logs.train, *self.logs.held_out))

    @property
    def values(self) -> Array:
        """Fitted values in the order of `parameters`, shape (P,)."""
        return np.array([parameter.value for parameter in self.parameters], dtype=np.float64)
