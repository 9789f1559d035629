"""Replays a function of fixed tensors as one CUDA graph, Warp's kernels and torch's operations together."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch

from physai.sim.engines.warp import modules
from physai.sim.envs.device.device_environment import DeviceEnvironment, DeviceStep

T = TypeVar("T")

_EAGER_CALLS = 2
"""Calls before the capture: the first compiles kernels, the second finds all memory and libraries in place."""
_LOG = logging.getLogger(__name__)


class Captured(Generic[T]):
    """A function without arguments that reads and writes the same tensors in every call.

    On a CUDA device its third call records it in a graph, which that call and all later ones replay: the host launches
    once, waits for nothing and allocates nothing. Elsewhere, and where it cannot be recorded, it is called.
    """

    def __init__(self, function: Callable[[], T], device: torch.device) -> None:
        """Wraps the function; what it returns stays in place and is overwritten by the next call."""
        self._function, self._device = function, device
        self._calls = 0
        self._graph: Any = None
        self._memory: Any = None
        self._result: T | None = None
        self.why_not: str | None = None if device.type == "cuda" else f"{device.type} has no CUDA graphs"
        """Why the function is called instead of replayed; None if it is or will be replayed."""

    @property
    def replayed(self) -> bool:
        """Whether the function has been recorded."""
        return self._graph is not None

    def __call__(self) -> T:
        """Runs the function."""
        if self._graph is None and (self.why_not is not None or self._calls < _EAGER_CALLS or not self._capture()):
            self._calls += 1
            return self._function()
        warp = modules()[0]
        warp.capture_launch(self._graph, stream=warp.stream_from_torch(torch.cuda.current_stream(self._device)))
        result: Any = self._result
        return result

    def _capture(self) -> bool:
        """Records the function without running it; returns whether that worked, and warns once if not."""
        try:
            torch.cuda.synchronize(self._device)
            self._record()
        except Exception as error:  # CUDA, Warp and torch raise types of their own
            # A capture that failed leaves the device usable, but memory that it reserved unusable.
            self._graph = self._memory = self._result = None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.why_not = f"it cannot be recorded in a CUDA graph: {reason}"
            _LOG.warning("stepping without a CUDA graph, which is slower: %s", reason)
            return False
        return True

    def _record(self) -> None:
        warp = modules()[0]
        # Warp begins the capture, not torch: it ends and resumes it around the solver's loop, and torch would no longer
        # know its own capture. Torch's memory of the recording comes from a pool that nothing else uses.
        memory = torch.cuda.MemPool()
        stream = torch.cuda.Stream(self._device)
        shared = warp.stream_from_torch(stream)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.cuda.device(self._device))
            stack.enter_context(torch.cuda.stream(stream))
            # Waiting for work from before the capture is not allowed inside it, and all of it has ended.
            stack.enter_context(warp.ScopedStream(shared, sync_enter=False))
            stack.enter_context(torch.cuda.use_mem_pool(memory, self._device))
            # Relaxed, because torch may reserve memory for its pool.
            recording = warp.ScopedCapture(stream=shared, capture_mode=warp.CaptureMode.RELAXED)
            stack.enter_context(recording)
            result = self._function()
        self._graph, self._memory, self._result = recording.graph, memory, result


class CapturedEnvironment:
    """A `DeviceEnvironment` whose steps are replayed as one CUDA graph; see `Captured`."""

    def __init__(self, environment: DeviceEnvironment) -> None:
        """Wraps an environment; call `reset` before `step`."""
        self.environment = environment
        terms = environment.task.contract.action.terms
        self._targets: list[dict[str, torch.Tensor]] = [
            {
                term.target_name: torch.zeros(environment.num_worlds, len(term.joints), device=environment.device)
                for term in terms
            }
            for _ in range(environment.action_repeat)
        ]
        self._step = Captured(lambda: environment.step(*self._targets), environment.device)

    @property
    def why_not(self) -> str | None:
        """Why steps are not replayed; None if they are or will be."""
        return self._step.why_not

    def reset(self) -> DeviceStep:
        """Starts a new episode everywhere."""
        return self.environment.reset()

    def step(self, *targets: Mapping[str, torch.Tensor]) -> DeviceStep:
        """As `DeviceEnvironment.step`; the next step may overwrite what is returned."""
        for kept, given in zip(self._targets, targets, strict=True):
            for name, value in kept.items():
                value.copy_(given[name])
        return self._step()
