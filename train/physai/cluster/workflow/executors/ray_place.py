"""Stages as tasks of a Ray cluster whose nodes share the folder of results."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from physai.cluster.workflow.executors.place import Ended, Given
from physai.cluster.workflow.executors.processes import STOP_S
from physai.cluster.workflow.executors.ray_node import QUESTION, SHARE, Seen, StageAttempt, attempt_stage, look
from physai.cluster.workflow.executors.resources import asked_by
from physai.cluster.workflow.model import Platform, WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError
from physai.compute.ray.head import Head, says_whether_lost
from physai.sdk.base.errors import PhysaiError

ANSWER_S = 90.0
"""How long nodes may take to say whether they can run stages [s]; each starts a process and imports physai."""


@dataclass(frozen=True, kw_only=True)
class _Node:
    id: str
    host: str
    platform: Platform | None
    cpus: float
    gpus: float
    memory_bytes: float

    def __str__(self) -> str:
        return (
            f"{self.host} ({self.platform}) has {self.cpus:g} CPUs, {self.gpus:g} GPUs and "
            f"{int(self.memory_bytes) >> 20} MiB"
        )


class RayPlace:
    """Runs each attempt as a task; Ray chooses the node. See `Place`."""

    def __init__(self, connect: Callable[[], Any], fresh: Callable[[], Path]) -> None:
        """Does nothing until a stage has no result.

        Args:
            connect: connects this process with a cluster; returns the module.
            fresh: makes a folder among the results.
        """
        self._connect, self._fresh = connect, fresh
        self._running: dict[Any, str] = {}

    @cached_property
    def _ray(self) -> Any:
        return self._connect()

    @cached_property
    def head(self) -> Head:
        return Head(self._ray, way_out="run the workflow again, which continues with the stages that have no result")

    @cached_property
    def _task(self) -> Any:
        return self._ray.remote(max_retries=0)(attempt_stage)

    @cached_property
    def _nodes(self) -> list[_Node]:
        return _nodes(self._ray, self._fresh())

    def require(self, name: str, stage: WorkflowStage) -> None:
        """Check that all nodes can run stages, and that one has what this stage asks for.

        Raises:
            WorkflowError: a node has another version of physai or does not share the folder, or none has enough.
        """
        asked, platform = asked_by(stage), _platform(name, stage)
        for node in self._nodes:
            enough = asked.cpus <= node.cpus and asked.gpus <= node.gpus and asked.memory_bytes <= node.memory_bytes
            if enough and platform in (None, node.platform):
                return
        raise WorkflowError(
            f"stage {name} asks for {asked.cpus} CPUs, {asked.gpus} GPUs and {asked.memory_bytes >> 20} MiB of memory"
            f"{'' if platform is None else f' on {platform}'}, and no node has all of it: "
            f"{'; '.join(map(str, self._nodes[:10]))}; lower it, or add a node"
        )

    @says_whether_lost
    def start(
        self,
        name: str,
        stage: WorkflowStage,
        inputs: Mapping[str, Given],
        fresh: Callable[[], Path],
        log: Path,
        *,
        first: bool,
    ) -> Path | None:
        """Hand an attempt to Ray, which runs it as soon as a node has what the stage asks for."""
        asked, platform = asked_by(stage), _platform(name, stage)
        options: dict[str, Any] = {"num_cpus": asked.cpus, "num_gpus": asked.gpus, "memory": asked.memory_bytes}
        if platform is not None:
            fitting = ",".join(node.id for node in self._nodes if node.platform == platform)
            options["label_selector"] = {"ray.io/node-id": f"in({fitting})"}
        order = StageAttempt(
            name=name,
            stage=stage,
            inputs=dict(inputs),
            fresh=fresh(),
            log=log,
            first=first,
            secrets={credential.env: os.environ[credential.env] for credential in stage.credentials},
            version=version("physai-sdk"),
        )
        self._running[self._task.options(name=f"physai {name}", **options).remote(order)] = name
        return order.fresh

    @says_whether_lost
    def wait(self) -> list[Ended]:
        """Wait until an attempt ends.

        Raises:
            ClusterError: the head does not answer.
        """
        ready: list[Any] = []
        while not ready:
            self.head.require()
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
        return [self._ended(self._running.pop(reference), reference) for reference in ready]

    def _ended(self, name: str, reference: Any) -> Ended:
        exceptions: Any = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except exceptions.RayTaskError as error:
            problem = str(error.cause) if isinstance(error.cause, PhysaiError) else _brief(error)
            return Ended(stage=name, problem=problem)
        except exceptions.OutOfMemoryError:
            return Ended(stage=name, problem="its node had no memory left; raise `memory` in the stage's resources")
        except exceptions.RayError as error:
            return Ended(stage=name, problem=_brief(error), lost=True)

    def stop(self) -> None:
        """Interrupt all attempts, and kill those that have not ended within 10 s."""
        try:
            # Without a head they end by themselves.
            if self._running and self.head.usable:
                for reference in self._running:
                    self._ray.cancel(reference)
                _, rest = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_S + 2.0)
                for reference in rest:
                    self._ray.cancel(reference, force=True)
        finally:
            if "head" in vars(self):
                self.head.close()


def _nodes(ray: Any, folder: Path) -> list[_Node]:
    """The nodes that have processors, after each has said that it can run stages."""
    token = secrets.token_hex(16)
    (folder / QUESTION).write_text(token)
    from ray.util.scheduling_strategies import (  # type: ignore[import-untyped]
        NodeAffinitySchedulingStrategy,
    )

    strategy: Any = NodeAffinitySchedulingStrategy
    # The head of a cluster on Kubernetes has no processors for tasks.
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0.0) >= 1.0]
    asked = [
        ray.remote(num_cpus=0, max_retries=0)(look)
        .options(scheduling_strategy=strategy(node["NodeID"], soft=False))
        .remote(folder, token, node["NodeID"])
        for node in alive
    ]
    if not alive:
        raise WorkflowError("no node of the cluster has a processor; add one with `ray start --address`")
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=ANSWER_S)
    answered = set(ready)
    found: list[_Node] = []
    for node, reference in zip(alive, asked, strict=True):
        host = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        if reference not in answered:
            raise WorkflowError(f"node {host} did not answer within {ANSWER_S:g} s; see `ray status`")
        seen = _seen(ray, reference, host)
        if not seen.problem and not (folder / node["NodeID"]).exists():
            seen = replace(seen, problem=f"its {folder} is another one")
        if seen.problem:
            raise WorkflowError(f"node {host} cannot use {folder.parent.parent}: {seen.problem}; {SHARE}")
        if seen.version != version("physai-sdk"):
            raise WorkflowError(
                f"node {host} has physai {seen.version}, this computer {version('physai-sdk')}; install the same "
                "version on all nodes"
            )
        found.append(
            _Node(
                id=node["NodeID"],
                host=seen.host,
                platform=seen.platform,
                cpus=node["Resources"]["CPU"],
                gpus=node["Resources"].get("GPU", 0.0),
                memory_bytes=node["Resources"].get("memory", 0.0),
            )
        )
    return found


def _seen(ray: Any, reference: Any, host: str) -> Seen:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        raise WorkflowError(
            f"node {host} cannot run stages: {_brief(error)}; it needs physai-sdk[cluster] {version('physai-sdk')}"
        ) from error


def _platform(name: str, stage: WorkflowStage) -> Platform | None:
    """The platform of all members."""
    platforms: set[Platform] = {asked for member in stage.gang if (asked := member.resources.platform) is not None}
    if len(platforms) > 1:
        raise WorkflowError(
            f"members of stage {name} ask for {' and '.join(sorted(platforms))}, and on Ray they run on one node; emit "
            "the workflow for OSMO"
        )
    return next(iter(platforms), None)


def _brief(error: Exception) -> str:
    """The end of a message of Ray, whose last line is that of the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first, last = lines[:1], lines[-1:]
    return " … ".join(dict.fromkeys([*first, *last]))[:400]
