"""Runs an exported policy on a device, in torch tensors: ONNX Runtime reads and writes their memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.sdk.onnx.session import Session
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyError
from physai.sdk.policy.memory import Bools, Commands
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import Floats, OnnxPolicy

Tensor = torch.Tensor


def bind(session: Session, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Any:
    """Bind a session's inputs and outputs to the memory of tensors.

    Args:
        session: the session.
        inputs: float32 tensors by input name, contiguous and all on the session's device; must outlive the binding.
        outputs: likewise by output name; running the session overwrites them.

    Returns:
        ONNX Runtime's `IOBinding`.
    """
    binding = session.io_binding()
    for tensors, add in ((inputs, binding.bind_input), (outputs, binding.bind_output)):
        for name, tensor in tensors.items():
            place = tensor.device
            add(name, place.type, place.index or 0, np.float32, tuple(tensor.shape), tensor.data_ptr())
    return binding


class DevicePolicy(OnnxPolicy):
    """An exported policy whose inputs, outputs and recurrent state are tensors of one device.

    `act` takes and gives tensors, and nothing of it passes through the host. Called with the arrays of a twin that is
    simulated on the host, it copies the sensors to the device and the commands back; the state stays there.
    """

    def __init__(self, data: bytes, *, source: str, num_threads: int = 1, device: PolicyDevice = CPU) -> None:
        """Opens a policy; call `reset` before the first command.

        Args:
            data: the ONNX file.
            source: name of the file in messages.
            num_threads: threads per call on a CPU.
            device: where it is computed.

        Raises:
            DeviceError: the device cannot compute all of it.
            PolicyError: the file is rejected, see `open_session`.
            ContractError: its contract is malformed.
        """
        super().__init__(data, source=source, num_threads=num_threads, device=device)
        self.device = torch.device(device.memory)
        self._memory: dict[str, Tensor] = {}
        self._memory_before: dict[str, Tensor] = {}

    @property
    def state(self) -> dict[str, Floats]:
        """Copies of the recurrent state on the host by name, shape (num_worlds, size)."""
        return {name: value.cpu().numpy().copy() for name, value in self._memory.items()}

    @property
    def device_state(self) -> dict[str, Tensor]:
        """The recurrent state itself, on the device; each call replaces the tensors and changes none."""
        return dict(self._memory)

    def reset(self, num_worlds: int) -> None:
        super().reset(num_worlds)
        self._memory = {
            name: torch.zeros((num_worlds, size), device=self.device) for name, size in self.header.state_sizes.items()
        }
        self._memory_before = self._memory

    def reset_worlds(self, mask: Bools | Tensor) -> None:
        fresh = torch.as_tensor(mask, device=self.device)[:, None]
        self._memory = {name: torch.where(fresh, 0.0, value) for name, value in self._memory.items()}

    def undo(self, mask: Bools | Tensor) -> None:
        back, before = torch.as_tensor(mask, device=self.device)[:, None], self._memory_before
        self._memory = {name: torch.where(back, before[name], value) for name, value in self._memory.items()}

    def remember(self, sent: Commands, steps: Commands, mask: Bools) -> None:
        if mask.any():
            # The guard, which replaced these commands, computes on the host.
            state = self.state
            self._commands.overwrite(state, sent, steps, mask)
            self._memory = self._upload(state)

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> dict[str, Floats]:
        fields = {**sensors, **commands}
        outputs = self.act(self._upload({name: fields[name] for name in self.header.inputs if name in fields}))
        return {name: value.cpu().numpy() for name, value in outputs.items()}

    def act(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Computes joint commands for one control period; advances the state of worlds with finite outputs.

        Args:
            fields: sensor and command fields by name, float32 on the device, shape (num_worlds, size); unknown fields
                are ignored.

        Returns:
            Joint commands by output name [rad, m, N·m or N] on the device, shape (num_worlds, joints of the term).

        Raises:
            PolicyError: `reset` was not called, or a field is missing or has the wrong shape, type or device.
        """
        if not self._num_worlds:
            raise PolicyError("call reset(num_worlds) before the first command")
        outputs = self.compute({**fields, **{STATE_PREFIX + name: value for name, value in self._memory.items()}})
        self._memory_before = self._memory
        self._memory = {name: outputs[NEXT_PREFIX + name] for name in self._memory}
        # Same as on the robot: non-finite outputs do not change the state. Without a question to the device whether
        # there are any, which would wait for it.
        finite = torch.stack([values.isfinite().all(dim=1) for values in outputs.values()]).all(dim=0)
        self.undo(~finite)
        return {name: outputs[name] for name in self._targets}

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Floats]:
        wanted = {name: inputs[name] for name in self.header.inputs if name in inputs}
        return {name: value.cpu().numpy() for name, value in self.compute(self._upload(wanted)).items()}

    def compute(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Computes all outputs of the graph for explicit inputs, including the state; has no side effects.

        ONNX Runtime reads the memory of the inputs and writes that of the outputs, which are new tensors.

        Raises:
            PolicyError: an input is missing or has the wrong shape, type or device.
        """
        feed = self._feed(inputs, self._own)
        worlds = len(next(iter(feed.values())))
        outputs = {name: torch.empty((worlds, size), device=self.device) for name, size in self.header.outputs.items()}
        binding = bind(self._session, feed, outputs)
        if self.device.type == "cuda":
            # ONNX Runtime computes in a stream of its own, and waits for the end of it itself.
            torch.cuda.current_stream(self.device).synchronize()
        self._session.run_with_iobinding(binding)
        return outputs

    def _own(self, name: str, value: Tensor) -> Tensor:
        """An input that is on the policy's device, contiguous."""
        if value.dtype != torch.float32 or value.device != self.device:
            raise PolicyError(
                f"input {name!r} is {value.dtype} on {value.device}, expected torch.float32 on {self.device}; "
                f"convert it with .to({str(self.device)!r}, torch.float32)"
            )
        return value.contiguous()

    def _upload(self, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
        # A copy on the CPU, too: the caller may change its array while the tensor is in use.
        return {name: torch.tensor(np.asarray(v, np.float32), device=self.device) for name, v in arrays.items()}
