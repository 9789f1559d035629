"""Runs an exported policy in simulation: onnxruntime on the file that the robot runs, without torch."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from physai.sdk.base.files import oserror_as
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.sdk.onnx.session import open_session
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import MAX_POLICY_BYTES, NEXT_PREFIX, STATE_PREFIX, PolicyError
from physai.sdk.policy.memory import Bools, CommandMemory, Commands
from physai.sim.engines.protocol import Array
from physai.sim.policies.resolve import find_policy

Floats = npt.NDArray[np.float32]


def read_policy(path: Path | str) -> bytes:
    """Reads a policy file after a trial run in a subprocess.

    Raises:
        PolicyError: the file cannot be read, or is rejected.
        ContractError: its contract is malformed.
        ApartError: it hangs, crashes or needs too much memory; see `try_policy`.
    """
    path = Path(path)
    with oserror_as(PolicyError, f"{path}: cannot be read"), path.open("rb") as file:
        data = file.read(MAX_POLICY_BYTES + 1)
    try_policy(data, source=str(path))
    return data


class OnnxPolicy:
    """An exported policy; keeps the graph's recurrent state between calls, one row per world."""

    def __init__(self, data: bytes, *, source: str, num_threads: int = 1, device: PolicyDevice = CPU) -> None:
        """Opens a policy; call `reset` before the first command.

        Args:
            data: the ONNX file.
            source: name of the file in messages.
            num_threads: threads per call; more than one is faster for large networks only.
            device: where it is computed; `DevicePolicy` keeps what it computes there.

        Raises:
            DeviceError: the device cannot compute all of it.
            PolicyError: the file is rejected, see `open_session`.
            ContractError: its contract is malformed.
        """
        # Spinning threads would take processor time from the physics.
        self._session, self.header = open_session(
            data, source=source, num_threads=num_threads, spin=False, device=device
        )
        self.source = source
        self._targets = list(graph_interface(self.contract).targets)
        self._commands = CommandMemory(self.contract)
        self._num_worlds = 0
        self._state: dict[str, Floats] = {}
        self._before: dict[str, Floats] = {}

    @classmethod
    def load(cls, path: Path | str, *, num_threads: int = 1, device: PolicyDevice = CPU) -> Self:
        """Opens a policy file after a trial run in a subprocess; call `reset` before the first command.

        Args:
            path: policy.onnx, or a folder that contains it: of a run, of an export, or written by `physai.train.wrap`.
            num_threads: see `__init__`.
            device: see `__init__`.

        Raises:
            DeviceError: the device cannot compute all of it.
            PolicyError: there is no policy, or the file cannot be read, or is rejected.
            TaskError: the path is the folder of a team, which has a policy per robot.
            ContractError: its contract is malformed.
            ApartError: it hangs, crashes or needs too much memory; see `try_policy`.
        """
        file = find_policy(Path(path))
        return cls(read_policy(file), source=str(file), num_threads=num_threads, device=device)

    @property
    def contract(self) -> PolicyContract:
        """The contract the policy was trained for."""
        return self.header.contract

    @property
    def fingerprint(self) -> str:
        return self.contract.fingerprint

    @property
    def state(self) -> dict[str, Floats]:
        """Copies of the recurrent state by name, shape (num_worlds, size)."""
        return {name: value.copy() for name, value in self._state.items()}

    def reset(self, num_worlds: int) -> None:
        """Clears the state and sets the number of worlds.

        Raises:
            PolicyError: `num_worlds` is below 1.
        """
        if num_worlds < 1:
            raise PolicyError(f"a policy needs at least one world, got {num_worlds}")
        self._num_worlds = num_worlds
        self._state = {name: np.zeros((num_worlds, size), np.float32) for name, size in self.header.state_sizes.items()}
        self._before = self._state

    def reset_worlds(self, mask: Bools) -> None:
        """Clears the state of the masked worlds, shape (num_worlds,)."""
        self._state = {name: np.where(mask[:, None], np.float32(0.0), value) for name, value in self._state.items()}

    def undo(self, mask: Bools) -> None:
        """Restores the state that the masked worlds, shape (num_worlds,), had before the last call.

        For worlds whose last sample was rejected, so that the robot would not have run the policy.
        """
        before = self._before
        self._state = {name: np.where(mask[:, None], before[name], value) for name, value in self._state.items()}

    def remember(self, sent: Commands, steps: Commands, mask: Bools) -> None:
        """Overwrites the state of the masked worlds with the commands sent; see `CommandMemory.overwrite`.

        If both apply, call `undo` first.

        Args:
            sent: commands sent to the joints in the period of the last call.
            steps: their changes from the previous control period.
            mask: worlds in which they differ from the policy's output, shape (num_worlds,).

        Raises:
            PolicyError: an output is missing, or an array has another shape.
        """
        if mask.any():
            # A copy: `_before` may share the arrays that are about to be overwritten.
            self._state = self.state
            self._commands.overwrite(self._state, sent, steps, mask)

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> dict[str, Floats]:
        """Computes joint commands for one control period; advances the state of worlds with finite outputs.

        `contract.robot.sensors` and `contract.command.fields` have the names and sizes of the fields; `header.inputs`
        has those that this policy reads, and its memory as `state.…`, which the object keeps.

        Args:
            sensors: sensor fields by name in SI units, shape (num_worlds, size); unknown fields are ignored.
            commands: command fields by name, shape (num_worlds, size); empty for a task without commands.

        Returns:
            Joint commands by output name [rad, m, N·m or N], shape (num_worlds, joints of the term).

        Raises:
            PolicyError: `reset` was not called, or a field is missing or has the wrong shape.
        """
        if not self._num_worlds:
            raise PolicyError("call reset(num_worlds) before the first command")
        memory = {STATE_PREFIX + name: value for name, value in self._state.items()}
        outputs = self.evaluate({**sensors, **commands, **memory})
        self._before = self._state
        self._state = {name: outputs[NEXT_PREFIX + name] for name in self._state}
        # Same as on the robot: non-finite outputs do not change the state.
        finite = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in outputs.values()])
        if not finite.all():
            self.undo(~finite)
        return {name: outputs[name] for name in self._targets}

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Floats]:
        """Computes all outputs of the graph for explicit inputs, including the state; has no side effects.

        Raises:
            PolicyError: an input is missing or has the wrong shape.
        """
        feed = self._feed(inputs, lambda name, value: np.ascontiguousarray(value, np.float32))
        return dict(zip(self.header.outputs, self._session.run(None, feed), strict=True))

    def _feed(self, inputs: Mapping[str, Array], prepared: Callable[[str, Array], Array]) -> dict[str, Array]:
        """The inputs in the graph's order, of one number of worlds, each prepared by its name."""
        feed: dict[str, Array] = {}
        num_worlds = -1
        for name, size in self.header.inputs.items():
            if name not in inputs:
                raise PolicyError(f"the policy reads {name!r}, which is not among {', '.join(inputs)}")
            value = prepared(name, inputs[name])
            num_worlds = len(value) if num_worlds < 0 and value.ndim else num_worlds
            if tuple(value.shape) != (num_worlds, size):
                shape = tuple(value.shape)
                raise PolicyError(f"input {name!r} has shape {shape}, expected ({max(num_worlds, 1)}, {size})")
            feed[name] = value
        return feed
