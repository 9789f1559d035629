"""Generators on Ray: each an actor in a process of its own, on this computer or another one."""

import dataclasses
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.train.cluster.executor import GeneratorLostError
from physai.train.cluster.generator import Arrays, Chunk, Order, RolloutGenerator, Weights
from physai.train.cluster.shares import ClusterError
from physai.train.config import TrainConfig
from physai.train.runners.collector import Share
from physai.train.runners.run_config import RunTaskSource

ANSWER_S = 10.0
"""How long the head of a cluster may take to accept a connection [s]."""
START_S = 180.0
"""How long a generator may take to start, for instance while a cluster starts another computer [s]."""
LEAST_PATIENCE_S = 60.0
"""How long any chunk may take [s]."""
PATIENCE = 20.0
"""How much longer a chunk may take than the longest before."""
_SAME = ("physai-sdk", "torch", "mujoco", "numpy")
"""Packages that must have the same version everywhere, because numbers depend on them."""
_ADDRESS = re.compile(r"[\w.-]{1,253}:\d{1,5}|\[[0-9a-fA-F:.]{2,45}\]:\d{1,5}")

logger = logging.getLogger(__name__)


class GeneratorActor:
    """What runs in an actor's process."""

    def __init__(self) -> None:
        """Takes one processor; call `begin` first."""
        torch.set_num_threads(1)
        self._generator: RolloutGenerator | None = None

    def begin(
        self, source: RunTaskSource, config: TrainConfig, share: Share, count: int, state: Arrays | None
    ) -> dict[str, str]:
        """Builds the worlds; returns versions of what computes them, and the process."""
        self._generator = RolloutGenerator(source.load(), config, share, count, num_threads=1, state=state)
        versions = {name: metadata.version(name) for name in _SAME}
        return {**versions, "pid": str(os.getpid()), "host": socket.gethostname()}

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

    def __init__(self, ray: Any, source: RunTaskSource, config: TrainConfig) -> None:
        """Starts nothing yet.

        Args:
            ray: the module.
            source: where every computer finds the task.
            config: settings of the run.
        """
        self._ray, self._source, self._config = ray, _absolute(source), config
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
        actor = self._actor.remote()
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
        for name in _SAME:
            if about[name] != metadata.version(name):
                raise ClusterError(
                    f"{about['host']} has {name} {about[name]}, this computer {metadata.version(name)}; numbers would "
                    "differ, so install the same version on all"
                )
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
            raise GeneratorLostError(which, _brief(error)) from error

    def close(self) -> None:
        """Ends all actors."""
        for which in list(self._actors):
            self._end(which)


def _brief(error: Exception) -> str:
    """The beginning of a message of Ray, which gives many lines."""
    return " ".join(str(error).split()).partition(" class_name:")[0][:200]


def _absolute(source: RunTaskSource) -> RunTaskSource:
    """The source with paths that hold in other working folders, too."""
    changed = {
        name: str(Path(value).resolve())
        for name in ("task", "robot")
        if (value := getattr(source, name)) is not None and Path(value).is_file()
    }
    return dataclasses.replace(source, **changed)


def check_address(address: str) -> None:
    """Raises ClusterError for what is neither `auto`, `local` nor HOST:PORT."""
    if address in ("auto", "local") or _ADDRESS.fullmatch(address):
        return
    way = "run the command on the cluster, for instance with `ray job submit`" if address.startswith("ray:") else ""
    raise ClusterError(
        f"--ray {address[:80]!r}: expected auto, local, or HOST:PORT of a cluster that `ray start` began"
        + (f"; {way}" if way else "")
    )


def ray_version() -> str:
    """Version of the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError("--ray needs ray: pip install 'physai-sdk[cluster]'") from error


@contextmanager
def connected(address: str, *, generators: int) -> Generator[Any]:
    """Connects with a Ray cluster while the block runs; yields the module `ray`.

    Args:
        address: `auto` joins the cluster that RAY_ADDRESS names or that runs on this computer, and starts one of this
            computer alone if there is none; `local` always does that; HOST:PORT joins that cluster.
        generators: processors that a cluster of this computer alone has at least.

    Raises:
        MissingExtraError: ray is not installed.
        ClusterError: no cluster answers, or it has another version.
    """
    check_address(address)
    # Nothing is reported to Ray's authors, and no warnings about accelerators that we do not ask for.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"--ray needs {error.name}: pip install 'physai-sdk[cluster]'") from error
    module: Any = ray
    if module.is_initialized():
        # The caller that connected this process also disconnects it.
        yield module
        return
    _connect(module, address, generators)
    try:
        yield module
    finally:
        module.shutdown()


def _require_answer(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself waits for it for minutes, and says nothing meanwhile."""
    check_address(address)
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"--ray {address}: no cluster answers there within {ANSWER_S:g} s: {error}; start one with `ray start "
            "--head`, or use --ray local"
        ) from error


def _connect(ray: Any, address: str, generators: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    named = os.environ.get("RAY_ADDRESS")
    joined = named if address == "auto" and named else address
    if joined == "auto":
        try:
            ray.init(address="auto", **quiet)
            return
        except ConnectionError:
            joined = "local"
    if joined != "local":
        _require_answer(joined)
        try:
            ray.init(address=joined, **quiet)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise ClusterError(
                f"--ray {joined}: cannot join this cluster: {_brief(error)}; start it with `ray start --head`, or use "
                "--ray local"
            ) from error
        return
    # For this cluster only; without it Ray writes one into the home folder, which may be read-only.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Workers have niceness 15 otherwise, and wait for whatever else this computer does.
    os.environ.setdefault("RAY_worker_niceness", "0")
    processors = max(generators, len(os.sched_getaffinity(0)))
    try:
        ray.init(address="local", num_cpus=processors, include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(f"--ray {address}: Ray does not start on this computer: {_brief(error)}") from error
