"""Inputs of policy and guard from the transport's latest sample, with finiteness and age checks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.io.policy_io import IoBuffer
from physai.deploy_jetson.runtime.io.robot_check import degrees_hint
from physai.deploy_jetson.runtime.io.velocity import VelocityEstimate
from physai.deploy_jetson.ticks.reasons import HARMLESS, RuntimeFault
from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JOINT_SENSORS
from physai.sdk.policy.command_shaping import CommandShape, command_shapes, shaped_command
from physai.sdk.signing.status.status_document import NarrowedCommand
from physai.sdk.transport.protocol import Array, Sample, require_vectors

_GREATEST = float(np.finfo(np.float32).max)
_GREATEST_SQUARE = _GREATEST**2

_FIELD_NOT_FINITE, _COMMAND_CUT = int(RuntimeFault.FIELD_NOT_FINITE), int(RuntimeFault.COMMAND_CUT)


class SensorInput:
    """The newest measurements of a robot, read from the transport's sample in place."""

    def __init__(self, contract: PolicyContract, sample: Sample, inputs: IoBuffer) -> None:
        """Bind a transport's sample to a policy's inputs.

        Raises:
            ContractMismatchError: the robot does not measure joint positions, or a field that the policy reads.
            TransportError: a field of the sample is no float64 vector of the contract's size.
        """
        self._contract = contract
        self._sample = sample
        joints = len(contract.robot.joints)
        if "joint_pos" not in sample.fields:
            raise ContractMismatchError("the robot measures no joint_pos, so nothing can guard it")
        require_vectors(contract, sample)
        start = contract.safety.start
        if start is not None and start.tilt is not None and "imu_quat" not in sample.fields:
            raise ContractMismatchError("the robot's transport has no imu_quat, the start envelope reads it for `tilt`")
        self.joint_pos: Array = sample.fields["joint_pos"].reshape(1, joints)
        """Measured positions, shape (1, joints)."""
        # Without a velocity sensor, positions are differentiated.
        measured = "joint_vel" in sample.fields
        self._velocity = VelocityEstimate(contract.robot.joints)
        self.joint_vel: Array = sample.fields["joint_vel"].reshape(1, joints) if measured else self._velocity.joint_vel
        """Measured velocities, or differences of the last two positions, shape (1, joints)."""
        self._measured = measured
        # The fields that the guard reads, in float64: float32 would overflow to infinity in the square of `read`, and
        # pass its comparison.
        self._raw = [sample.fields[name] for name in ("joint_pos", "joint_vel") if name in sample.fields]
        self.fields: dict[str, Array] = {
            sensor.name: sample.fields[sensor.name].reshape(1, -1)
            for sensor in contract.robot.sensors
            if sensor.name in sample.fields
        }
        """Measured fields by name, shape (1, size) each."""
        self._narrowed: tuple[tuple[str, NarrowedCommand], ...] = ()
        # Of each command field with a slew or a gate, its bounds and what the policy saw last.
        self._own_shapes = command_shapes(contract.command.fields, contract.timing.control_dt)
        self._seen = {name: np.zeros_like(shape.lower) for name, shape in self._own_shapes.items()}
        self._follows = True
        self.bind(inputs)

    def bind(self, inputs: IoBuffer) -> None:
        """Write to another policy's inputs from now on.

        Raises:
            ContractMismatchError: a field is missing.
        """
        fields, named = self._sample.fields, inputs.named
        missing = [name for name in named if name not in fields]
        if missing:
            raise ContractMismatchError(f"the robot's transport has no {', '.join(missing)}, the policy reads it")
        self._pairs = [(row[0], fields[name]) for name, row in named.items()]
        self._inputs = inputs
        self.narrow(self._narrowed)

    def narrow(self, ranges: Sequence[tuple[str, NarrowedCommand]]) -> None:
        """Cut commands to these ranges by field, too, within those of training; an empty sequence ends that."""
        self._narrowed, named = tuple(ranges), self._inputs.named
        cuts: list[tuple[Floats, Floats, Floats]] = []
        shapes: list[tuple[Floats, Floats, CommandShape]] = []
        for field in self._contract.command.fields:
            if field.name in named:
                own = [one for name, one in self._narrowed if name == field.name]
                lower = np.max([field.lower, *(one.lower for one in own)], axis=0)
                upper = np.min([field.upper, *(one.upper for one in own)], axis=0)
                row, least, most = named[field.name][0], lower.astype(np.float32), upper.astype(np.float32)
                cuts.append((row, least, most))
                if field.shaped:
                    shape = replace(self._own_shapes[field.name], lower=least, upper=most)
                    shapes.append((row, self._seen[field.name], shape))
        # Each command field, with its range in training or a narrower one.
        self._cuts, self._shapes = cuts, shapes

    def rest_commands(self) -> None:
        """Let the commands that the policy sees begin at zero."""
        for seen in self._seen.values():
            seen[:] = 0.0
        self._follows = True

    def resume_commands(self) -> None:
        """Let them begin at those of the next sample: the policy that ran before has seen these for a while."""
        self._follows = False

    def shape_commands(self, trouble: int) -> None:
        """Write the commands that the policy sees over those of the last sample; once per control period.

        Args:
            trouble: of `read`; a sample that is not valid changes nothing.
        """
        if trouble & ~HARMLESS:
            return
        for row, seen, shape in self._shapes:
            seen[:] = shaped_command(row, seen if self._follows else row, shape)
            row[:] = seen
        self._follows = True

    def read(self) -> int:
        """Copy the sample to the policy's inputs; return bits of `RuntimeFault`, 0 if it is valid."""
        for row, values in self._pairs:
            row[:] = values
        if not self._measured:
            self._velocity.update(self.joint_pos, self._sample.stamp_ns)
        for values in self._raw:
            # A value beyond float32 is invalid: the guard computes in float64 and would accept it.
            if not values.dot(values) <= _GREATEST_SQUARE:
                values[~(np.abs(values) <= _GREATEST)] = math.nan
        if not self._inputs.finite():
            return _FIELD_NOT_FINITE
        trouble = 0
        for row, lower, upper in self._cuts:
            if ((row < lower) | (row > upper)).any():
                # Commands are rarely out of range, so most ticks stop at the comparison above.
                np.maximum(row, lower, out=row)
                np.minimum(row, upper, out=row)
                trouble = _COMMAND_CUT
        return trouble

    def complaint(self) -> str:
        """Describe the first invalid value of the last sample; empty if all are valid."""
        for name, row in self._inputs.named.items():
            for index, value in enumerate(row[0].tolist()):
                if not math.isfinite(value):
                    return f"{self._element(name, index)} is {value}"
        for bounds in self._contract.safety.sensor_ranges or ():
            if bounds.name not in self.fields:
                continue
            values: list[float] = self.fields[bounds.name][0].tolist()
            for index, (value, low, high) in enumerate(zip(values, bounds.lower, bounds.upper, strict=True)):
                least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
                if not least <= value <= most:
                    return self._implausible(bounds.name, index, value, least, most)
        return ""

    def _element(self, name: str, index: int) -> str:
        """Name an element of a field, by its joint if it has one."""
        if name in JOINT_SENSORS:
            return f"{name} of {self._contract.robot.joints[index].name}"
        return f"{name}[{index}]"

    def _implausible(self, name: str, index: int, value: float, least: float, most: float) -> str:
        text = f"{self._element(name, index)} = {value:.4g} is outside [{least:.4g}, {most:.4g}]"
        turns = name in ("joint_pos", "joint_vel") and self._contract.robot.joints[index].kind != "prismatic"
        return text + (degrees_hint(value, least, most) if turns else "")

    def age_ns(self, wall_ns: int, now_ns: int) -> int:
        """Return the sample's age by the sensor's stamp (CLOCK_REALTIME), at least the time since it arrived [ns].

        Negative if the stamp is in the future.
        """
        sample = self._sample
        by_stamp = wall_ns - sample.stamp_ns
        if by_stamp < 0:
            return by_stamp
        # The wall clock may be set; the time since the sample arrived is a lower bound that does not depend on it.
        here = now_ns - sample.received_ns
        return here if here > by_stamp else by_stamp
