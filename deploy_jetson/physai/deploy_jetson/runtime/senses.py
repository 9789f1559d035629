"""From the transport's newest sample to what policy and guard read: finite, in range, and how old."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.bound_policy import Rows
from physai.deploy_jetson.runtime.reasons import Trouble
from physai.sdk.contract import CommandField, PolicyContract
from physai.sdk.errors import ContractMismatchError
from physai.sdk.policy_file import Bounds, Ranges
from physai.sdk.wire import Array, Sample

TOLERATED_SAMPLES = 2
"""Samples on end outside the ranges of training that are put down to noise, as the guard does with its limits."""

RANGE_MARGIN = 0.25
"""What a sensor may show beyond its range in training, as a share of that range: some 30,000 samples are a sample of
what training saw, and a robot's noise is not quite its twin's."""

_GREATEST = float(np.finfo(np.float32).max)
_GREATEST_SQUARE = _GREATEST**2
_HALF_TURN_SQUARE = math.pi**2

_FIELD_NOT_FINITE, _OUT_OF_RANGE, _COMMAND_CUT = (
    int(flag) for flag in (Trouble.FIELD_NOT_FINITE, Trouble.OUT_OF_RANGE, Trouble.COMMAND_CUT)
)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A command field and the range it was trained for."""

    row: Floats
    lower: Floats
    upper: Floats


class Senses:
    """One robot's newest measurements; reads the sample in place, allocates nothing that stays."""

    def __init__(self, contract: PolicyContract, sample: Sample, inputs: Rows, ranges: Ranges) -> None:
        """Ties a transport's sample to a policy's inputs.

        Raises:
            ContractMismatchError: the robot measures no joint positions, or the sample is of another contract.
        """
        self._contract = contract
        self._sample = sample
        self._continuous = np.array([joint.kind == "continuous" for joint in contract.robot.joints])
        joints = len(contract.robot.joints)
        if "joint_pos" not in sample.fields:
            raise ContractMismatchError("the robot measures no joint_pos, so nothing can guard it")
        self.joint_pos: Array = sample.fields["joint_pos"].reshape(1, joints)
        """Measured positions, shape (1, joints)."""
        measured = "joint_vel" in sample.fields
        self.joint_vel: Array = sample.fields["joint_vel"].reshape(1, joints) if measured else np.zeros((1, joints))
        """Measured velocities, or what the last two positions say, shape (1, joints)."""
        self._measured = measured
        self._raw = [sample.fields[name] for name in ("joint_pos", "joint_vel") if name in sample.fields]
        self._turns = bool(self._continuous.any())
        self._before, self._moved = np.full((2, 1, joints), math.nan)
        self._before_ns = 0
        self.bind(inputs, ranges)

    def bind(self, inputs: Rows, ranges: Ranges) -> None:
        """Writes to another policy's inputs from now on.

        Raises:
            ContractMismatchError: a field is missing, or a range is of another size.
        """
        fields, named = self._sample.fields, inputs.named
        missing = [name for name in named if name not in fields]
        if missing:
            raise ContractMismatchError(f"the robot's transport has no {', '.join(missing)}, the policy reads it")
        self._pairs = [(row[0], fields[name]) for name, row in named.items()]
        self._inputs, self._block = inputs, inputs.block
        self._cuts = [
            _Cut(named[field.name][0], np.array(field.lower, np.float32), np.array(field.upper, np.float32))
            for field in self._contract.command.fields
            if field.name in named
        ]
        self._strange = 0
        self._lower, self._upper = _limits(inputs, self._contract.command.fields, ranges)
        # Looking for a zero byte is quicker than `np.all` for so few numbers.
        self._verdicts = bytearray(2 * self._block.size)
        self._above, self._below = np.frombuffer(self._verdicts, bool).reshape(2, -1)
        self._bounded = bool(np.isfinite((self._lower, self._upper)).any())

    def read(self) -> int:
        """Copies the sample to the policy's inputs; bits of `Trouble`, 0 where it may be computed."""
        for row, values in self._pairs:
            row[:] = values
        if not self._measured:
            self._estimate()
        for values in self._raw:
            # What no float32 holds is no measurement; the guard, which computes in float64, must not take it for one.
            if not values.dot(values) <= _GREATEST_SQUARE:
                values[~(np.abs(values) <= _GREATEST)] = math.nan
        if not self._inputs.finite():
            return _FIELD_NOT_FINITE
        if not self._bounded or self._inside():
            self._strange = 0
            return 0
        return self._outside()

    def complaint(self) -> str:
        """The first number of the last sample that the policy may not be asked about, in words; empty for none."""
        start = 0
        for name, row in self._inputs.named.items():
            for index, value in enumerate(row[0].tolist()):
                low, high = float(self._lower[start + index]), float(self._upper[start + index])
                if not math.isfinite(value):
                    return f"{name}[{index}] is {value}"
                if not low <= value <= high:
                    return f"{name}[{index}] = {value:.4g} is outside [{low:.4g}, {high:.4g}], where it was in training"
            start += row.shape[1]
        return ""

    def _inside(self) -> bool:
        np.greater_equal(self._block, self._lower, out=self._above)
        np.less_equal(self._block, self._upper, out=self._below)
        return 0 not in self._verdicts

    def _outside(self) -> int:
        """Cuts commands; what is outside then are measurements that were not seen in training."""
        trouble = 0
        for cut in self._cuts:
            if ((cut.row < cut.lower) | (cut.row > cut.upper)).any():
                np.maximum(cut.row, cut.lower, out=cut.row)
                np.minimum(cut.row, cut.upper, out=cut.row)
                trouble = _COMMAND_CUT
        self._strange = 0 if self._inside() else self._strange + 1
        return trouble | _OUT_OF_RANGE if self._strange > TOLERATED_SAMPLES else trouble

    def age_ns(self, wall_ns: int, now_ns: int) -> int:
        """Age of the sample: by the sensor's own stamp on CLOCK_REALTIME, at least the time since it arrived [ns].

        Negative where the stamp lies in the future.
        """
        sample = self._sample
        by_stamp = wall_ns - sample.stamp_ns
        if by_stamp < 0:
            return by_stamp
        here = now_ns - sample.received_ns
        return here if here > by_stamp else by_stamp

    def _estimate(self) -> None:
        """Velocity by the difference of positions over the difference of stamps; angles the short way round."""
        now_ns = self._sample.stamp_ns
        if now_ns == self._before_ns:
            return
        elapsed_s = (now_ns - self._before_ns) * 1e-9
        moved = np.subtract(self.joint_pos, self._before, out=self._moved)
        # The first sample has no velocity; one that goes back in time has none either, and the guard sees its age.
        if not (self._before_ns > 0 and elapsed_s > 0.0):
            self.joint_vel[:] = np.where(np.isfinite(self.joint_pos), 0.0, math.nan)
        else:
            if self._turns and not np.vdot(moved, moved) <= _HALF_TURN_SQUARE:
                short = np.remainder(moved + math.pi, 2.0 * math.pi) - math.pi
                np.copyto(moved, short, where=self._continuous)
            np.divide(moved, elapsed_s, out=self.joint_vel)
        self._before[:] = self.joint_pos
        self._before_ns = now_ns


def _limits(inputs: Rows, commands: Sequence[CommandField], ranges: Ranges) -> tuple[Floats, Floats]:
    """Bounds of the whole block of inputs, shape (its size,): of commands the contract's, of sensors those of training.

    Infinite where there are none.
    """
    own = {field.name: (field.lower, field.upper) for field in commands}
    lower, upper = (np.full(inputs.block.shape, bound, np.float32) for bound in (-np.inf, np.inf))
    start = 0
    for name, row in inputs.named.items():
        end = start + row.shape[1]
        if name in own:
            lower[start:end], upper[start:end] = own[name]
        elif name in ranges:
            lower[start:end], upper[start:end] = _widened(name, ranges[name], row.shape[1])
        start = end
    return lower, upper


def _widened(name: str, found: tuple[Bounds, Bounds], size: int) -> tuple[Array, Array]:
    """What a field may be on the robot; NaN, as which None is read, allows everything."""
    least, greatest = (np.array(bound, np.float64) for bound in found)
    if least.shape != (size,) or greatest.shape != (size,):
        raise ContractMismatchError(
            f"the range of {name} in training has {least.size} and {greatest.size} values, the field {size}"
        )
    margin = RANGE_MARGIN * (greatest - least)
    return np.nan_to_num(least - margin, nan=-np.inf), np.nan_to_num(greatest + margin, nan=np.inf)
