"""A policy with preallocated buffers: inputs are written in place, one call computes, targets are read in place."""

from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.inference.engine import Floats, InferenceEngine, InferenceError
from physai.sdk.contract.interface import HISTORY_PREFIX, STARTED, graph_interface, last_memory, step_memory
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyHeader
from physai.sdk.policy.memory import CommandMemory, Commands

# Memory of the network itself, which is meaningless to another network.
HIDDEN_STATE = "hidden"

WARM_UP_STEPS = 20


class IoBuffer:
    """Named vectors in one contiguous float32 block, shape (1, size) each."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.block: Floats = np.zeros(sum(sizes.values()), np.float32)
        """All vectors, shape (sum of sizes,)."""
        self.named: dict[str, Floats] = {}
        """Views of the block."""
        self._zeros = np.zeros_like(self.block)
        start = 0
        for name, size in sizes.items():
            self.named[name] = self.block[start : start + size].reshape(1, size)
            start += size

    def finite(self) -> bool:
        """Whether every number is finite."""
        # NaN and infinity times 0 are NaN, which equals nothing; one dot product is faster than `isfinite().all()`.
        return bool(self._zeros.dot(self.block) == 0.0)


# Computes the graph: reads memory 0 or 1, writes the other one and the targets; raises EngineError if it fails.
Compute = Callable[[int], None]


class BoundPolicy:
    """A policy with its inputs, targets and memory; not thread-safe."""

    def __init__(self, header: PolicyHeader, bind: Callable[["BoundPolicy"], Compute]) -> None:
        """Allocate the arrays and bind a computation to them."""
        interface = graph_interface(header.contract)
        self.header = header
        self.inputs = IoBuffer({**interface.sensors, **interface.commands})
        """Sensor and command fields, written by the caller."""
        self.targets = IoBuffer(interface.targets)
        """Joint commands of the last step."""
        # Two, so that a step reads one and writes the other; one that fails leaves the memory as it was.
        self.memories = (IoBuffer(header.state_sizes), IoBuffer(header.state_sizes))
        self._commands = CommandMemory(header.contract)
        # A policy without memory has no block to check.
        self._forgets = not header.state_sizes
        commanded = [name for target in interface.targets for name in (last_memory(target), step_memory(target))]
        histories = [name for name in header.state_sizes if name.startswith(HISTORY_PREFIX)]
        # Memory that the first call fills in and that stays valid for the first real step.
        self._lasting = {STARTED, *commanded, *histories}
        self._current = 0
        self._compute = bind(self)

    @classmethod
    def onnx(cls, data: bytes, header: PolicyHeader, *, source: str) -> "BoundPolicy":
        """Create a policy in onnxruntime, which reads and writes the arrays in place.

        Args:
            data: the ONNX file, already checked by `OnnxEngine`.
            header: parsed from its metadata.
            source: its name, for messages.

        Raises:
            EngineError: onnxruntime cannot load it.
        """
        return cls(header, lambda policy: _bind_onnx(policy, data, source))

    @classmethod
    def engine(cls, engine: InferenceEngine) -> "BoundPolicy":
        """Create a policy in any other engine, which works on copies."""
        return cls(engine.header, lambda policy: _bind_engine(policy, engine))

    @property
    def memory(self) -> Mapping[str, Floats]:
        """Live view of the current memory by name, shape (1, size) each."""
        return self.memories[self._current].named

    def step(self) -> bool:
        """Compute the targets, and advance the memory if every result is finite.

        Returns:
            Whether every result is finite.

        Raises:
            EngineError: the computation fails; the memory is unchanged.
        """
        source = self._current
        self._compute(source)
        if self.targets.finite() and (self._forgets or self.memories[1 - source].finite()):
            self._current = 1 - source
            return True
        return False

    def dry_run(self) -> bool:
        """Compute as `step` does, without advancing the memory.

        Raises:
            EngineError: the computation fails.
        """
        self._compute(self._current)
        return self.targets.finite()

    def reset(self) -> None:
        """Zero the memory, as at the start of an episode."""
        self.memories[self._current].block[:] = 0.0

    def begin(self, commands: Commands, steps: Commands) -> bool:
        """Start an episode on the sample in `inputs`, from the commands that the robot has.

        One call from zero memory fills the histories; all other memory is zeroed again. The next step then computes
        what a first call computes in the twin, except that it continues from the robot's commands.

        Returns:
            Whether every result of the call is finite; the memory is all zero if not.

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
        """Correct the memory after the robot received other commands than the graph's own.

        Args:
            commands: sent last, by output name, shape (1, joints of the term).
            steps: their changes from the previous ones, same shapes.
        """
        self._commands.overwrite(self.memories[self._current].named, commands, steps)

    def take_over(self, other: "BoundPolicy") -> None:
        """Continue from the memory of another policy of the same contract.

        Histories and last commands are defined by the contract and stay valid. The network's hidden state, and memory
        that the other policy does not have, start at zero.
        """
        mine, theirs = self.memories[self._current], other.memories[other._current]
        for name, values in mine.named.items():
            known = theirs.named.get(name)
            # A retrained policy may have other histories or another network.
            if known is None or known.shape != values.shape or name == HIDDEN_STATE:
                values[:] = 0.0
            else:
                values[:] = known

    def warm_up(self) -> None:
        """Compute a few times, so that the first tick is not the first computation; then reset.

        Raises:
            EngineError: the computation fails.
        """
        for _ in range(WARM_UP_STEPS):
            self.step()
        self.reset()


def _bind_onnx(policy: BoundPolicy, data: bytes, source: str) -> Compute:
    session, _ = open_session(data, source=source)
    try:
        # One per memory, bound once: binding takes longer than running a small graph.
        bindings = [session.io_binding(), session.io_binding()]
        for memory, binding in enumerate(bindings):
            given, wanted = _given(policy, memory), _wanted(policy, memory)
            for name, row in given.items():
                binding.bind_input(name, "cpu", 0, np.float32, row.shape, row.ctypes.data)
            for name, row in wanted.items():
                binding.bind_output(name, "cpu", 0, np.float32, row.shape, row.ctypes.data)
    except Exception as error:
        # Onnxruntime raises a dozen types of its own.
        raise InferenceError(f"{source}: onnxruntime cannot load it: {error}") from error
    # Called without RunOptions: a run of a small graph takes 10 µs, with them 45 µs (onnxruntime 1.31).
    run = session.run_with_iobinding

    def compute(memory: int) -> None:
        try:
            run(bindings[memory])
        except Exception as error:
            raise InferenceError(f"{source}: onnxruntime cannot compute it: {error}") from error

    return compute


def _bind_engine(policy: BoundPolicy, engine: InferenceEngine) -> Compute:
    given = [_given(policy, memory) for memory in (0, 1)]
    wanted = [_wanted(policy, memory) for memory in (0, 1)]

    def compute(memory: int) -> None:
        answers = engine.run(given[memory])
        for name, row in wanted[memory].items():
            # Copied into place, because the engine's outputs are valid until its next call only.
            row[:] = answers[name]

    return compute


def _given(policy: BoundPolicy, memory: int) -> dict[str, Floats]:
    """Return the graph's inputs when it reads that memory."""
    return {**policy.inputs.named, **_prefixed(STATE_PREFIX, policy.memories[memory])}


def _wanted(policy: BoundPolicy, memory: int) -> dict[str, Floats]:
    """Return the graph's outputs when it reads that memory."""
    return {**policy.targets.named, **_prefixed(NEXT_PREFIX, policy.memories[1 - memory])}


def _prefixed(prefix: str, rows: IoBuffer) -> dict[str, Floats]:
    return {prefix + name: row for name, row in rows.named.items()}
