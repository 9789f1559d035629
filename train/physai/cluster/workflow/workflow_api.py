"""`physai workflow` as functions: run the stages of a workflow file, check it, or emit it for a cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from physai.compute.ray.ray_address import RayAddress
from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.cluster.workflow.cache.store import ResultStore
    from physai.cluster.workflow.executors.place import Place
    from physai.cluster.workflow.executors.resources import ResourceLimits
    from physai.cluster.workflow.lint import LintFinding
    from physai.cluster.workflow.model import Platform, Workflow
    from physai.cluster.workflow.runner import StageReport


@dataclass(frozen=True, kw_only=True)
class WorkflowOutcome:
    """Result of a run of a workflow."""

    workflow: str
    """Name of the workflow."""
    folder: Path
    """Folder of results and logs."""
    seconds: float
    """Duration of the run [s]."""
    stages: list[StageReport]
    """A report per stage, in an order of dependency."""

    @property
    def succeeded(self) -> bool:
        """Whether every stage has a result."""
        return all(report.state in ("done", "cached") for report in self.stages)


@dataclass(frozen=True, kw_only=True)
class CheckedWorkflow:
    """A workflow and its findings."""

    workflow: Workflow
    findings: list[LintFinding]
    """Empty if the workflow can be run."""


def run_workflow(
    file: Path | str,
    *,
    folder: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    cache: Annotated[str | None, Option(metavar="ADDRESS")] = None,
    until: Annotated[str | None, Option(metavar="STAGE")] = None,
    again: Annotated[Sequence[str], Option(flags=("--rerun",), old=("--again",), metavar="STAGE", repeat=True)] = (),
    cpus: int | None = None,
    gpus: int | None = None,
    memory: Annotated[str | None, Option(metavar="SIZE")] = None,
    ray: RayAddress = None,
    say: Callable[[str], None] | None = None,
) -> WorkflowOutcome:
    """Run the stages of a workflow, independent ones at the same time, on this computer or on Ray.

    A stage with an earlier result of the same command and inputs is not run again.

    Args:
        file: workflow file.
        folder: results and logs. None for runs/NAME-workflow.
        cache: share results with other computers at s3://BUCKET/PREFIX or a folder; a program that can write there
            decides what your stages produce.
        until: run only this stage and those it needs.
        again: run this stage even if it has a result, as a measurement; may be repeated.
        cpus: CPUs for stages together. None for all.
        gpus: GPUs for stages together. None for all.
        memory: main memory for stages together, as 16Gi. None for all.
        ray: run the stages on nodes of Ray that share the folder: auto (the cluster of RAY_ADDRESS or of this computer,
            else one started here), local (one started here), or HOST:PORT of a cluster.
        say: receives a line per event.

    Returns:
        A report per stage.

    Raises:
        WorkflowError: the file is no workflow, has findings, or a stage cannot run here.
        PhysaiError: an option is out of range.
        KeyboardInterrupt: after the running stages were stopped; finished ones are kept.
    """
    from physai.cluster.workflow.cache.shared_cache import SharedCache
    from physai.cluster.workflow.cache.store import ResultStore
    from physai.cluster.workflow.lint import require_sound
    from physai.cluster.workflow.runner import WorkflowRun
    from physai.cluster.workflow.workflow_file import load_workflow

    started = time.monotonic()
    tell: Callable[[str], None] = say or (lambda text: None)
    path = Path(file)
    workflow = load_workflow(path)
    for name in [*again, *([] if until is None else [until])]:
        if name not in workflow.stages:
            raise unknown_name("stage", name, workflow.stages)
    require_sound(workflow, path)
    shared = None if cache is None else SharedCache(cache, tell)
    store = ResultStore(Path("runs") / f"{workflow.name}-workflow" if folder is None else Path(folder), shared)
    with store.locked(), _place({"cpus": cpus, "gpus": gpus, "memory": memory}, ray, store) as place:
        run = WorkflowRun(workflow, path.parent, store, place, tell, again=again)
        try:
            reports = run.run(until)
        except KeyboardInterrupt:
            tell("stopped; run it again, which continues with the stages that have no result")
            raise
    seconds = time.monotonic() - started
    return WorkflowOutcome(workflow=workflow.name, folder=store.folder, seconds=seconds, stages=reports)


def lint_workflow(file: Path | str) -> CheckedWorkflow:
    """List what is wrong with a workflow file.

    Args:
        file: workflow file.

    Raises:
        WorkflowError: the file is no workflow.
    """
    from physai.cluster.workflow.lint import lint
    from physai.cluster.workflow.workflow_file import load_workflow

    workflow = load_workflow(Path(file))
    return CheckedWorkflow(workflow=workflow, findings=lint(workflow, Path(file).parent))


def emit_workflow(
    target: Literal["kuberay", "osmo"],
    file: Path | str,
    *,
    claim: Annotated[str | None, Option(metavar="NAME")] = None,
    ray_version: Annotated[str | None, Option(metavar="V")] = None,
    per_stage: bool = False,
    storage: Annotated[str | None, Option(metavar="URL")] = None,
    platforms: Annotated[Mapping[str, str] | None, Option(flags=("--platform",), metavar="linux/ARCH=NAME")] = None,
) -> list[dict[str, Any]]:
    """Translate a workflow into documents of a cluster.

    Args:
        target: kind of cluster.
        file: workflow file.
        claim: kuberay: volume claim of the workflow's folder. None for NAME.
        ray_version: kuberay: version of Ray in the images (default: 2.60.0).
        per_stage: kuberay: one job per stage, to be run in this order.
        storage: osmo: folder in an object store for inputs and outputs.
        platforms: osmo: the pool's platform for stages of this one; may be repeated.

    Returns:
        The documents, as YAML or JSON has them.

    Raises:
        WorkflowError: the file is no workflow, has findings, or a stage does not go with the cluster.
        PhysaiError: an option is malformed, or of another kind of cluster.
    """
    from physai.cluster.workflow.lint import require_sound
    from physai.cluster.workflow.workflow_file import load_workflow

    path = Path(file)
    workflow = load_workflow(path)
    require_sound(workflow, path, inputs_exist=False)
    if target == "kuberay":
        _refuse(target, "osmo", {"storage": storage, "platform": platforms})
        return _kuberay(workflow, path, claim or workflow.name, ray_version, per_stage=per_stage)
    from physai.cluster.workflow.emit.osmo import OsmoOptions, osmo_document

    _refuse(target, "kuberay", {"claim": claim, "ray-version": ray_version, "per-stage": per_stage})
    address = storage or ""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9_./:@-]+", address):
        raise PhysaiError(f"emit osmo needs `storage`, a URL such as s3://bucket/folder, got {address or 'none'}")
    for name in platforms or {}:
        if name not in ("linux/amd64", "linux/arm64"):
            raise PhysaiError(f"`platforms` takes linux/amd64=NAME or linux/arm64=NAME, got {name!r}")
    named = cast("dict[Platform, str]", dict(platforms or {}))
    return [osmo_document(workflow, OsmoOptions(storage=address.rstrip("/"), platforms=named))]


@contextmanager
def _place(limits: Mapping[str, Any], ray: str | None, store: ResultStore) -> Generator[Place]:
    if ray is None:
        from physai.cluster.workflow.executors.local import Here

        yield Here(_limits(limits))
        return
    given = [name for name, value in limits.items() if value is not None]
    if given:
        raise PhysaiError(f"`{given[0]}` limits stages on this computer, and `ray` {ray} has its own limits")
    from physai.cluster.workflow.executors.ray_place import RayPlace
    from physai.compute.ray.cluster import connected

    with ExitStack() as stack:
        yield RayPlace(lambda: stack.enter_context(connected(ray, processors=1)), lambda: store.begin("nodes"))


def _limits(limits: Mapping[str, Any]) -> ResourceLimits:
    from physai.cluster.workflow.executors.resources import ResourceLimits
    from physai.cluster.workflow.model import Resources

    asked: dict[str, int] = {}
    for name, least in (("cpus", 1), ("gpus", 0)):
        value: int | None = limits[name]
        if value is not None:
            if not least <= value <= 4096:
                raise PhysaiError(f"--{name} must lie in {least} … 4096, got {value}")
            asked[name] = value
    memory: str | None = limits["memory"]
    if memory is not None:
        if not re.fullmatch(r"[1-9][0-9]{0,6}(Mi|Gi)", memory):
            raise PhysaiError(f"`memory` takes a size such as 512Mi or 16Gi, got {memory!r}")
        asked["memory_bytes"] = Resources(memory=memory).memory_bytes
    return ResourceLimits(**asked)


def _kuberay(
    workflow: Workflow, file: Path, claim: str, ray_version: str | None, *, per_stage: bool
) -> list[dict[str, Any]]:
    from physai.cluster.workflow.emit.kuberay import RAY_VERSION, KubeRayOptions, ray_jobs

    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", claim):
        raise PhysaiError(f"`claim` takes the name of a PersistentVolumeClaim, such as robots-1, got {claim!r}")
    options = KubeRayOptions(claim=claim, ray_version=ray_version or RAY_VERSION, per_stage=per_stage)
    return ray_jobs(workflow, file.name, options)


def _refuse(target: str, other: str, options: Mapping[str, object]) -> None:
    for name in (name for name, value in options.items() if value):
        raise PhysaiError(f"--{name} is an option of emit {other}, not of {target}")
