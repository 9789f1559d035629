"""A policy with preallocated buffers: inputs are written in place, one call computes, targets are read in place."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from physai.deploy_jetson.inference.engine import EngineError, Floats, InferenceEngine
from physai.sdk.contract.interface import HISTORY_PREFIX, STARTED, graph_interface, last_memory, step_memory
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyHeader
from physai.sdk.policy.memory import CommandMemory, Commands

HIDDEN_STATE = "hidden"
"""Memory that is the network's own: it means nothing to another network."""

WARM_UP_STEPS = 20


class IoBuffer:
    """Named vectors that lie one after the other in one float32 block, shape (1, size) each."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.block: Floats = np.zeros(sum(sizes.values()), np.float32)
        """All of them, shape (sum of sizes,)."""
        self.named: dict[str, Floats] = {}
        """Views of the block."""
        self._zeros = np.zeros_like(self.block)
        start = 0
        for name, size in sizes.items():
            self.named[name] = self.block[start : start + size].reshape(1, size)
            start += size

    def finite(self) -> bool:
        """Whether every number is finite: NaN and infinity times 0 are NaN, and NaN equals nothing."""
        return bool(self._zeros.dot(self.block) == 0.0)


Compute = Callable[[int], None]
"""Computes a graph from one memory into the other: reads memory 0 or 1, writes the other one and the targets, raises
EngineError where that fails."""


class PolicyStep(Protocol):
    """What a tick asks of a policy."""

    inputs: IoBuffer
    targets: IoBuffer

    def step(self) -> bool:
        """See `BoundPolicy`."""
        ...

    def reset(self) -> None:
        """See `BoundPolicy`."""
        ...

    def begin(self, commands: Commands, steps: Commands) -> bool:
        """See `BoundPolicy`."""
        ...

    def sent(self, commands: Commands, steps: Commands) -> None:
        """See `BoundPolicy`."""
        ...


class BoundPolicy:
    """One policy, its inputs, its targets and its memory; one thread."""

    def __init__(self, header: PolicyHeader, bind: Callable[["BoundPolicy"], Compute]) -> None:
        """Makes the arrays, and lets `bind` tie a computation to them."""
        interface = graph_interface(header.contract)
        self.header = header
        self.inputs = IoBuffer({**interface.sensors, **interface.commands})
        """Sensor and command fields, written by the caller."""
        self.targets = IoBuffer(interface.targets)
        """Joint commands of the last step."""
        self.memories = (IoBuffer(header.state_sizes), IoBuffer(header.state_sizes))
        self._commands = CommandMemory(header.contract)
        self._forgets = not header.state_sizes
        commanded = [name for target in interface.targets for name in (last_memory(target), step_memory(target))]
        histories = [name for name in header.state_sizes if name.startswith(HISTORY_PREFIX)]
        self._lasting = {STARTED, *commanded, *histories}
        self._current = 0
        self._compute = bind(self)

    @classmethod
    def onnx(cls, data: bytes, header: PolicyHeader, *, source: str) -> "BoundPolicy":
        """A policy in onnxruntime, which reads and writes the arrays themselves.

        Args:
            data: the ONNX file, checked before (`OnnxEngine`).
            header: what its metadata say.
            source: its name, for messages.

        Raises:
            EngineError: onnxruntime cannot load it.
        """
        return cls(header, lambda policy: _bind_onnx(policy, data, source))

    @classmethod
    def engine(cls, engine: InferenceEngine) -> "BoundPolicy":
        """A policy in any other engine, which gets copies."""
        return cls(engine.header, lambda policy: _bind_engine(policy, engine))

    @property
    def memory(self) -> Mapping[str, Floats]:
        """What it remembers, by name, shape (1, size) each; live."""
        return self.memories[self._current].named

    def step(self) -> bool:
        """Computes the targets, and moves the memory on if all that came out is finite; whether it is.

        Raises:
            EngineError: the computation fails; the memory is as before.
        """
        source = self._current
        self._compute(source)
        if self.targets.finite() and (self._forgets or self.memories[1 - source].finite()):
            self._current = 1 - source
            return True
        return False

    def dry_run(self) -> bool:
        """Computes as `step` does, and leaves the memory where it is.

        Raises:
            EngineError: the computation fails.
        """
        self._compute(self._current)
        return self.targets.finite()

    def reset(self) -> None:
        """Forgets: every memory is zero, as at the start of an episode."""
        self.memories[self._current].block[:] = 0.0

    def begin(self, commands: Commands, steps: Commands) -> bool:
        """Begins anew on the sample in `inputs`: the next step is the first one of an episode, from these commands on.

        A call from nothing fills the histories. Of what else it remembers nothing is kept, so the next step computes
        what a first call computes in the twin, but for the commands: it goes on from those that the robot has.

        Returns:
            Whether all that the call computed is finite; the memory is all zero if it is not.

        Raises:
            EngineError: the computation fails.
        """
        self.reset()
        if not self.step():
            return False
        memory = self.memories[self._current].named
        self._commands.overwrite(memory, commands, steps)
        for name, values in memory.items():
            if name not in self._lasting:
                values[:] = 0.0
        return True

    def sent(self, commands: Commands, steps: Commands) -> None:
        """Corrects the memory where the robot got something else than the graph's own commands.

        Args:
            commands: sent last, by output name, shape (1, joints of the term).
            steps: their changes from the ones before, likewise.
        """
        self._commands.overwrite(self.memories[self._current].named, commands, steps)

    def take_over(self, other: "BoundPolicy") -> None:
        """Goes on from another policy's memory of the same contract.

        Histories and last commands are the contract's own terms and stay right. The network's hidden state, and what
        the other does not have, start at zero.
        """
        mine, theirs = self.memories[self._current], other.memories[other._current]
        for name, values in mine.named.items():
            known = theirs.named.get(name)
            if known is None or known.shape != values.shape or name == HIDDEN_STATE:
                values[:] = 0.0
            else:
                values[:] = known

    def warm_up(self) -> None:
        """Computes a few times, so that the first tick is not the first computation; forgets it again.

        Raises:
            EngineError: the computation fails.
        """
        for _ in range(WARM_UP_STEPS):
            self.step()
        self.reset()


def _bind_onnx(policy: BoundPolicy, data: bytes, source: str) -> Compute:
    session, _ = open_session(data, source=source)
    try:
        bindings = [session.io_binding(), session.io_binding()]
        for memory, binding in enumerate(bindings):
            given, wanted = _given(policy, memory), _wanted(policy, memory)
            for name, row in given.items():
                binding.bind_input(name, "cpu", 0, np.float32, row.shape, row.ctypes.data)
            for name, row in wanted.items():
                binding.bind_output(name, "cpu", 0, np.float32, row.shape, row.ctypes.data)
    except Exception as error:  # onnxruntime raises a dozen types of its own
        raise EngineError(f"{source}: onnxruntime cannot load it: {error}") from error
    # Without options of its own a run takes 10 µs of a small graph; onnxruntime 1.31 takes 45 µs with them.
    run = session.run_with_iobinding

    def compute(memory: int) -> None:
        try:
            run(bindings[memory])
        except Exception as error:
            raise EngineError(f"{source}: onnxruntime cannot compute it: {error}") from error

    return compute


def _bind_engine(policy: BoundPolicy, engine: InferenceEngine) -> Compute:
    given = [_given(policy, memory) for memory in (0, 1)]
    wanted = [_wanted(policy, memory) for memory in (0, 1)]

    def compute(memory: int) -> None:
        answers = engine.run(given[memory])
        for name, row in wanted[memory].items():
            row[:] = answers[name]

    return compute


def _given(policy: BoundPolicy, memory: int) -> dict[str, Floats]:
    """Inputs of the graph when it reads that memory."""
    return {**policy.inputs.named, **_prefixed(STATE_PREFIX, policy.memories[memory])}


def _wanted(policy: BoundPolicy, memory: int) -> dict[str, Floats]:
    """Outputs of the graph when it reads that memory."""
    return {**policy.targets.named, **_prefixed(NEXT_PREFIX, policy.memories[1 - memory])}


def _prefixed(prefix: str, rows: IoBuffer) -> dict[str, Floats]:
    return {prefix + name: row for name, row in rows.named.items()}
