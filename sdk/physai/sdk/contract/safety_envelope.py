"""Limits of a contract that the guard enforces, and plausibility limits of the sensors.

Fields added in format 2 are optional and omitted from the document if unset, so that contracts that do not use them
keep their fingerprint.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Name, NonNegative, Positive, require_unique


class OmitsUnset(Frozen):
    """A record that omits newer fields from the document if they are None."""

    _SINCE_2: ClassVar[tuple[str, ...]] = ()
    """Fields added in format 2."""

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        record: dict[str, Any] = handler(self)
        return {name: value for name, value in record.items() if value is not None or name not in self._SINCE_2}

    @property
    def given_since_2(self) -> tuple[str, ...]:
        """Names of the format 2 fields that were set, including those set to None."""
        return tuple(name for name in self._SINCE_2 if name in self.model_fields_set)


class JointEnvelope(OmitsUnset):
    """Limits of one joint that the guard enforces; never wider than the robot's own."""

    joint: Name
    position_lower: Finite | None = None
    position_upper: Finite | None = None
    velocity_limit: Positive | None = None
    """Greatest speed [rad/s or m/s]."""
    effort_limit: NonNegative
    """Greatest effort [N·m or N]."""
    acceleration_limit: Positive | None = None
    """Greatest acceleration of the commanded position [rad/s² or m/s²]; since format 2."""
    following_error_limit: Positive | None = None
    """Greatest distance between the position commanded last and the measured one [rad or m]; since format 2."""
    velocity_mismatch_limit: Positive | None = None
    """Greatest difference, forgotten within some 0.25 s, between the change of the measured position and the integral
    of the measured velocity, and greatest step of the position from one sample to the next that the velocity does not
    explain [rad or m]; since format 2."""

    _SINCE_2 = ("acceleration_limit", "following_error_limit", "velocity_mismatch_limit")

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> Self:
        lower, upper = self.position_lower, self.position_upper
        if (lower is None) != (upper is None):
            raise ValueError(f"joint {self.joint}: give both position limits or none, got {lower} and {upper}")
        if lower is not None and upper is not None and not lower < upper:
            raise ValueError(f"joint {self.joint}: position_lower {lower} is not below position_upper {upper}")
        return self


class SensorRange(Frozen):
    """Plausible values of a sensor; a sample outside them is invalid."""

    name: Name
    """The sensor."""
    lower: Annotated[tuple[Finite | None, ...], Field(min_length=1, max_length=4096)]
    """Smallest plausible value, one per element [the sensor's unit]; None where there is no bound."""
    upper: Annotated[tuple[Finite | None, ...], Field(min_length=1, max_length=4096)]
    """Greatest plausible value, one per element [the sensor's unit]; None where there is no bound."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if len(self.lower) != len(self.upper):
            raise ValueError(
                f"sensor range {self.name}: lower has {len(self.lower)} values, upper has {len(self.upper)}"
            )
        for index, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            if low is not None and high is not None and not low <= high:
                raise ValueError(f"sensor range {self.name}: lower[{index}] {low} is above upper[{index}] {high}")
        return self


class StartRange(Frozen):
    """Range of one joint in which the policy may take over."""

    joint: Name
    lower: Finite
    """Least measured position [rad or m]."""
    upper: Finite
    """Greatest measured position [rad or m]."""
    speed: Annotated[Positive | None, Field(exclude_if=lambda speed: speed is None)] = None
    """Greatest measured speed [rad/s or m/s], when one policy takes over from another; None for any."""

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError(f"start of joint {self.joint}: lower {self.lower} is not below upper {self.upper}")
        return self


class StartEnvelope(Frozen):
    """States in which the policy may take over, and how fast it does; since format 3."""

    joints: Annotated[tuple[StartRange, ...], Field(max_length=MAX_JOINTS)] = ()
    """Joints that are not named may be anywhere in their range."""
    tilt: Annotated[float | None, Field(gt=0.0, le=3.2)] = None
    """Greatest angle between the base's vertical and gravity's [rad], from imu_quat; None for any."""
    ramp_s: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Time in which the commands turn from those of the robot at rest into the policy's [s]."""

    @model_validator(mode="after")
    def _joints_are_unique(self) -> Self:
        require_unique("start of joint", (one.joint for one in self.joints))
        return self


class SafetyEnvelope(OmitsUnset):
    """Limits the guard enforces after everything else, one entry per joint in the robot's order."""

    joints: Annotated[tuple[JointEnvelope, ...], Field(min_length=1, max_length=MAX_JOINTS)]
    max_reused_commands: Annotated[int, Field(ge=0, le=1000)] = 2
    """Control periods the last command may be repeated for before the robot holds."""
    parity_tolerance: Positive = 1e-3
    """Greatest difference between a quantised and the float command [rad, m, N·m or N]."""
    frozen_samples: Annotated[int, Field(ge=2, le=10_000)] | None = None
    """Samples in a row with new stamps and bit-equal positions and velocities, while the robot is commanded to move,
    after which the sensors count as frozen; since format 2."""
    sensor_ranges: Annotated[tuple[SensorRange, ...], Field(min_length=1, max_length=64)] | None = None
    """Plausible values by sensor; a sample outside them is invalid; since format 2."""
    start: Annotated[StartEnvelope | None, Field(exclude_if=lambda start: start is None)] = None
    """States in which the policy may take over; None for every state at rest within the limits; since format 3."""
    status_max_age_s: Annotated[float | None, Field(ge=1.0, le=1e9, exclude_if=lambda age: age is None)] = None
    """Greatest age of a validator's word on the verdict with which the policy may run [s], if that of the robot's
    settings is not smaller; None for theirs; since format 3."""

    _SINCE_2 = ("frozen_samples", "sensor_ranges")

    @model_validator(mode="after")
    def _ranges_are_unique(self) -> Self:
        require_unique("sensor range", (r.name for r in self.sensor_ranges or ()))
        return self

    def fields_since_2(self) -> Iterator[str]:
        """Yield the path below `safety` of every format 2 field that was set."""
        for envelope in self.joints:
            yield from (f"joints[{envelope.joint}].{name}" for name in envelope.given_since_2)
        yield from self.given_since_2
