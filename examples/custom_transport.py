"""A transport and the robot's end of it: what a driver for your bus has to implement.

python examples/custom_transport.py
"""

import time
from collections.abc import Mapping

import numpy as np

from physai.sdk import (
    JointCommand,
    PolicyContract,
    RobotEndpoint,
    Sample,
    Transport,
    TransportError,
    empty_command,
    empty_sample,
    required_fields,
)
from physai.sim import load_task


class Loopback:
    """Both ends of a wire inside one process."""

    name = "loopback"

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        if options:
            raise TransportError(f"loopback has no options, got {', '.join(options)}")

    def open(self, contract: PolicyContract) -> None:
        self._sample, self._command = empty_sample(contract), empty_command(contract)
        self._required, self._opened_ns = required_fields(contract), time.monotonic_ns()
        self._new_sample = False

    # The runtime's end: `Transport`.
    def sample(self) -> Sample:
        return self._sample

    def send(self, targets: Mapping[str, np.ndarray], stamp_ns: int) -> None:
        for name, values in targets.items():
            self._command.targets[name][:] = values
        self._command.stamp_ns, self._command.received_ns = stamp_ns, time.monotonic_ns()
        self._command.sequence += 1

    def missing(self) -> tuple[tuple[str, float], ...]:
        waited_s = (time.monotonic_ns() - self._opened_ns) * 1e-9
        return tuple((name, waited_s) for name in self._required if np.isnan(self._sample.fields[name]).any())

    # The robot's end: `RobotEndpoint`.
    def command(self) -> JointCommand:
        return self._command

    def publish(self, fields: Mapping[str, np.ndarray], stamp_ns: int) -> None:
        for name, values in fields.items():
            self._sample.fields[name][:] = values
            self._sample.stamps_ns[name] = stamp_ns
        self._sample.stamp_ns, self._sample.received_ns = stamp_ns, time.monotonic_ns()
        self._sample.sequence += 1
        self._new_sample = True

    # Both ends.
    def poll(self) -> bool:
        new, self._new_sample = self._new_sample, False
        return new

    def wait(self, timeout_s: float) -> bool:
        return self.poll()

    def problems(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


contract = load_task("cartpole-swingup").contract
wire = Loopback()
wire.open(contract)
robot: RobotEndpoint = wire
runtime: Transport = wire

print("missing:", ", ".join(name for name, _ in runtime.missing()))
robot.publish({"joint_pos": np.array([0.0, 3.1]), "joint_vel": np.zeros(2)}, time.time_ns())
assert runtime.poll()
sample = runtime.sample()
print(f"sample {sample.sequence}: {sample.fields['joint_pos']}")
runtime.send({name: np.full(values.shape, 0.5) for name, values in robot.command().targets.items()}, time.time_ns())
print(f"command {robot.command().sequence}: {robot.command().targets}")
