"""An exported policy in the twin: onnxruntime on the same file the robot runs, without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.onnx.session import open_session
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import MAX_POLICY_BYTES, NEXT_PREFIX, STATE_PREFIX, PolicyError
from physai.sdk.policy.memory import Bools, CommandMemory, Commands
from physai.sim.engines.protocol import Array

Floats = npt.NDArray[np.float32]


class OnnxPolicy:
    """A policy that was exported; keeps the graph's memory between calls, one row per world."""

    def __init__(self, data: bytes, *, source: str, num_threads: int = 1) -> None:
        """Opens a policy; call `reset` before the first command.

        Args:
            data: the ONNX file.
            source: where it came from, for messages.
            num_threads: threads of one call; more than one pays for large networks only.

        Raises:
            PolicyError: the file is refused, see `open_session`.
            ContractError: its contract is malformed.
        """
        # Threads that wait by spinning would take the processor from the physics.
        self._session, self.header = open_session(data, source=source, num_threads=num_threads, spin=False)
        self.source = source
        self._targets = list(graph_interface(self.contract).targets)
        self._commands = CommandMemory(self.contract)
        self._num_worlds = 0
        self._state: dict[str, Floats] = {}
        self._before: dict[str, Floats] = {}

    @classmethod
    def load(cls, path: Path | str, *, num_threads: int = 1) -> Self:
        """Opens a policy file once another process has computed it; see `__init__`.

        Raises:
            PolicyError: the file cannot be read, or is refused.
            ContractError: its contract is malformed.
            ApartError: it hangs, crashes or takes too much memory; see `try_policy`.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_POLICY_BYTES + 1)
        except OSError as error:
            raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
        try_policy(data, source=str(path))
        return cls(data, source=str(path), num_threads=num_threads)

    @property
    def contract(self) -> PolicyContract:
        """The contract the policy was trained under."""
        return self.header.contract

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the contract."""
        return self.contract.fingerprint

    @property
    def state(self) -> dict[str, Floats]:
        """Memory before the next command by name, shape (num_worlds, size); copies."""
        return {name: value.copy() for name, value in self._state.items()}

    def reset(self, num_worlds: int) -> None:
        """Forgets everything, in that many worlds.

        Raises:
            PolicyError: fewer than one world.
        """
        if num_worlds < 1:
            raise PolicyError(f"a policy needs at least one world, got {num_worlds}")
        self._num_worlds = num_worlds
        self._state = {name: np.zeros((num_worlds, size), np.float32) for name, size in self.header.state_sizes.items()}
        self._before = self._state

    def reset_worlds(self, mask: Bools) -> None:
        """Forgets everything in the masked worlds, whose episode has ended; mask has shape (num_worlds,)."""
        self._state = {name: np.where(mask[:, None], np.float32(0.0), value) for name, value in self._state.items()}

    def undo(self, mask: Bools) -> None:
        """Returns the memory of the masked worlds to what it was before the last call: their policy was not asked.

        Args:
            mask: shape (num_worlds,): worlds whose sample was not believed, for instance.
        """
        before = self._before
        self._state = {name: np.where(mask[:, None], before[name], value) for name, value in self._state.items()}

    def remember(self, sent: Commands, steps: Commands, mask: Bools) -> None:
        """Makes the memory of the masked worlds that of the commands they got; see `CommandMemory.overwrite`.

        Call it after `undo`, where both apply.

        Args:
            sent: commands that went to the joints in the period of the last call.
            steps: their changes from what was sent in the control period before.
            mask: worlds in which these are not the policy's own, shape (num_worlds,).

        Raises:
            PolicyError: an output is missing, or an array has another shape.
        """
        if mask.any():
            self._state = self.state
            self._commands.overwrite(self._state, sent, steps, mask)

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> dict[str, Floats]:
        """Joint commands of one control period, and the memory moves on where all that was computed is finite.

        Args:
            sensors: sensor fields by name in SI units, shape (num_worlds, size); further ones are ignored.
            commands: command fields by name, shape (num_worlds, size).

        Returns:
            Joint commands by output name [rad, m, N·m or N], shape (num_worlds, joints of the term).

        Raises:
            PolicyError: `reset` was not called, or a field is missing or of another shape.
        """
        if not self._num_worlds:
            raise PolicyError("call reset(num_worlds) before the first command")
        memory = {STATE_PREFIX + name: value for name, value in self._state.items()}
        outputs = self.evaluate({**sensors, **commands, **memory})
        self._before = self._state
        self._state = {name: outputs[NEXT_PREFIX + name] for name in self._state}
        # As on the robot: of numbers that are not finite nothing is remembered.
        finite = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in outputs.values()])
        if not finite.all():
            self.undo(~finite)
        return {name: outputs[name] for name in self._targets}

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Floats]:
        """All outputs of the graph for explicit inputs, state included; remembers nothing.

        Raises:
            PolicyError: an input is missing or of another shape.
        """
        feed: dict[str, Floats] = {}
        num_worlds = -1
        for name, size in self.header.inputs.items():
            if name not in inputs:
                raise PolicyError(f"the policy reads {name!r}, which is not among {', '.join(inputs)}")
            value = np.ascontiguousarray(inputs[name], np.float32)
            num_worlds = len(value) if num_worlds < 0 and value.ndim else num_worlds
            if value.shape != (num_worlds, size):
                raise PolicyError(f"input {name!r} has shape {value.shape}, expected ({max(num_worlds, 1)}, {size})")
            feed[name] = value
        return dict(zip(self.header.outputs, self._session.run(None, feed), strict=True))
