"""Null transport and dry-run policy, with which a tick runs without any effect to warm the caches."""

from collections.abc import Mapping

from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy, IoBuffer
from physai.sdk.policy.memory import Commands
from physai.sdk.transport.protocol import Array, Sample


# While the loop sleeps between two ticks, the tick's code and data leave the processor's caches: after 2 ms of sleep
# the first run of a small policy takes 79 µs and the second one 15 µs, a whole tick 117 and 36 µs (two cores of an AMD
# EPYC, shared with other programs). The same code therefore runs shortly before it is needed, and its results are
# discarded.
class NullTransport:
    """A transport that receives nothing new and discards commands."""

    name = "warm-up"

    def __init__(self, sample: Sample) -> None:
        """Share the sample of the real transport."""
        self._sample = sample

    def sample(self) -> Sample:
        """See `Transport`."""
        return self._sample

    def poll(self) -> bool:
        """See `Transport`."""
        return False

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport`."""


class DryRunPolicy:
    """A policy that is evaluated without changing its state."""

    def __init__(self, policy: BoundPolicy) -> None:
        """Share the inputs and targets of the real policy."""
        self._policy = policy
        self.inputs: IoBuffer = policy.inputs
        self.targets: IoBuffer = policy.targets

    def step(self) -> bool:
        """See `BoundPolicy`."""
        return self._policy.dry_run()

    def reset(self) -> None:
        """See `BoundPolicy`."""

    def begin(self, commands: Commands, steps: Commands) -> bool:
        """See `BoundPolicy`."""
        return True

    def sent(self, commands: Commands, steps: Commands) -> None:
        """See `BoundPolicy`."""
