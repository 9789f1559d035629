"""Generators on Ray: each an actor in a process of its own, on this computer or another one."""

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import torch

from physai.sdk.base.errors import PhysaiError
from physai.sim.policies.resolve import absolute
from physai.sim.workers.cluster import ClusterError, brief, require_same_versions, versions
from physai.train.cluster.executor import GeneratorLostError
from physai.train.cluster.generator import Arrays, Chunk, Order, RolloutGenerator, Weights
from physai.train.cluster.placement import Seat
from physai.train.config import TrainConfig
from physai.train.runners.collector import Share
from physai.train.runners.run_config import RunTaskSource

START_S = 180.0
"""How long a generator may take to start, for instance while a cluster starts another computer [s]."""
LEAST_PATIENCE_S = 60.0
"""How long any chunk may take [s]."""
PATIENCE = 20.0
"""How much longer a chunk may take than the longest before."""
_SAME = ("physai-sdk", "torch", "mujoco", "numpy")
"""Packages that must have the same version everywhere, because numbers depend on them."""


class GeneratorActor:
    """What runs in an actor's process."""

    def __init__(self, num_threads: int = 1) -> None:
        """Takes so many processors, for its engine; call `begin` first."""
        # torch rounds differently with another number of threads.
        torch.set_num_threads(1)
        self._threads = num_threads
        self._generator: RolloutGenerator | None = None

    def begin(
        self, source: RunTaskSource, config: TrainConfig, share: Share, count: int, state: Arrays | None
    ) -> dict[str, str]:
        """Builds the worlds; returns versions of what computes them, and the process."""
        self._generator = RolloutGenerator(source.load(), config, share, count, num_threads=self._threads, state=state)
        return {**versions(_SAME), "pid": str(os.getpid()), "host": socket.gethostname()}

    def collect(self, order: Order, weights: Weights) -> Chunk:
        """See `RolloutGenerator`."""
        return self._begun.collect(order, weights)

    def state(self) -> Arrays:
        """See `RolloutGenerator`."""
        return self._begun.state

    @property
    def _begun(self) -> RolloutGenerator:
        if self._generator is None:
            raise ClusterError("the generator has not begun")
        return self._generator


class RayExecutor:
    """Generators as actors of the Ray cluster that this process is connected with."""

    def __init__(self, ray: Any, source: RunTaskSource, config: TrainConfig, *, seats: Sequence[Seat] = ()) -> None:
        """Starts nothing yet.

        Args:
            ray: the module.
            source: where every computer finds the task.
            config: settings of the run.
            seats: where each generator starts; where Ray finds a processor, if empty.
        """
        self._seats = seats
        self._ray, self._source, self._config = ray, absolute(source), config
        # Supervision is ours: an actor that Ray restarts would begin new worlds.
        self._actor: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(GeneratorActor)
        self._actors: dict[int, Any] = {}
        self._begun: dict[int, Any] = {}
        self._asked: dict[int, tuple[Any, float]] = {}
        """What each generator works on, and since when."""
        self._longest_s = 0.0
        self.processes: dict[int, tuple[str, int]] = {}
        """Host and process of each generator that has answered."""

    def start(self, which: int, share: Share, count: int, state: Arrays | None) -> None:
        """Starts an actor and does not wait for it."""
        self._end(which)
        seat = self._seats[which] if self._seats else Seat()
        actor = self._actor.options(**seat.options).remote(seat.processors)
        self._actors[which] = actor
        self._begun[which] = actor.begin.remote(self._source, self._config, share, count, state)

    def _end(self, which: int) -> None:
        self._asked.pop(which, None)
        self.processes.pop(which, None)
        actor = self._actors.pop(which, None)
        if actor is not None:
            # It may only have been cut off, and work on.
            self._ray.kill(actor, no_restart=True)

    def publish(self, weights: Weights) -> Any:
        """One copy in the object store of each computer."""
        return self._ray.put(weights)

    def submit(self, which: int, order: Order, weights: Any) -> None:
        """Asks an actor for a chunk."""
        self._asked[which] = self._actors[which].collect.remote(order, weights), time.monotonic()

    def answered(self, timeout_s: float) -> bool:
        """Waits that long for a chunk [s]; whether one is there, or its actor's process died."""
        asked = [reference for reference, _ in self._asked.values()]
        return bool(asked and self._ray.wait(asked, num_returns=1, timeout=timeout_s)[0])

    def next_chunk(self) -> tuple[int, Chunk]:
        """The next chunk of any actor.

        Raises:
            GeneratorLostError: an actor's process or computer died, cannot be reached, or takes too long.
            PhysaiError: a generator failed in a way that would repeat itself.
        """
        while True:
            references = {asked: which for which, (asked, _) in self._asked.items()}
            ready, _ = self._ray.wait(list(references), num_returns=1, timeout=1.0)
            if ready:
                which = references[ready[0]]
                self._await_begin(which, timeout_s=0.0)
                chunk: Chunk = self._get(which, ready[0])
                self._longest_s = max(self._longest_s, time.monotonic() - self._asked.pop(which)[1])
                return which, chunk
            for which, (_, since) in self._asked.items():
                waited_s = time.monotonic() - since
                begun = which in self.processes
                if not begun and self._ray.wait([self._begun[which]], timeout=0.0)[0]:
                    self._await_begin(which, timeout_s=0.0)
                limit_s = max(LEAST_PATIENCE_S, PATIENCE * self._longest_s) + (0.0 if begun else START_S)
                if not waited_s <= limit_s:
                    raise GeneratorLostError(which, f"no answer in {waited_s:.0f} s")

    def state(self, which: int) -> Arrays:
        """Where the worlds of an actor stand that has not been asked for a chunk yet.

        Raises:
            GeneratorLostError: its process or computer died.
            ClusterError: no processor is free for it.
        """
        self._await_begin(which, timeout_s=START_S)
        return self._get(which, self._actors[which].state.remote(), timeout_s=LEAST_PATIENCE_S)

    def _await_begin(self, which: int, *, timeout_s: float) -> None:
        if which in self.processes:
            return
        if not self._ray.wait([self._begun[which]], timeout=timeout_s)[0]:
            whole, free = (
                resources().get("CPU", 0.0)
                for resources in (self._ray.cluster_resources, self._ray.available_resources)
            )
            raise ClusterError(
                f"generator {which} did not start within {timeout_s:.0f} s: {len(self._actors)} generators take a "
                f"processor each, the cluster has {whole:g}, {free:g} of them free; start fewer with --generators, or "
                "add computers with `ray start --address`"
            )
        about: dict[str, str] = self._get(which, self._begun[which])
        require_same_versions(about["host"], {name: about[name] for name in _SAME})
        self.processes[which] = about["host"], int(about["pid"])

    def _get(self, which: int, reference: Any, *, timeout_s: float | None = None) -> Any:
        exceptions: Any = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=timeout_s)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, PhysaiError):
                raise error.cause from None
            raise ClusterError(f"generator {which} failed: {error.cause!r}") from error
        except exceptions.RayError as error:
            raise GeneratorLostError(which, brief(error)) from error

    def close(self) -> None:
        """Ends all actors."""
        for which in list(self._actors):
            self._end(which)
