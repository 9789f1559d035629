"""NVIDIA OSMO's workflow for a workflow: a task per stage, or a group of tasks per gang.

The fields are those of OSMO's workflow specification, version 2, https://github.com/NVIDIA/OSMO. OSMO reads inputs and
writes outputs in an object store, and moves the outputs of a task to those that need them.
"""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from physai.cluster.workflow.lint import image_of, image_platform
from physai.cluster.workflow.model import GangMember, Platform, Resources, Workflow, WorkflowStage
from physai.cluster.workflow.placeholders import filled
from physai.cluster.workflow.workflow_file import WorkflowError, in_order


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskInput(_Object):
    """The outputs of another task."""

    task: str


class UrlFolder(_Object):
    """Files in an object store."""

    url: str


class OsmoTask(_Object):
    """A container of a workflow."""

    name: str
    lead: Literal[True] | None
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    resource: str
    inputs: tuple[TaskInput | UrlFolder, ...] | None
    outputs: tuple[UrlFolder, ...] | None
    credentials: dict[str, dict[str, str]] | None
    environment: dict[str, str] | None
    exitActions: dict[str, str] | None  # noqa: N815


class OsmoGroup(_Object):
    """Tasks that run at the same time."""

    name: str
    tasks: tuple[OsmoTask, ...]


class ResourceSpec(_Object):
    """Resources that a task occupies."""

    cpu: int
    gpu: int
    memory: str
    platform: str | None


class WorkflowSpec(_Object):
    """A workflow."""

    name: str
    resources: dict[str, ResourceSpec]
    tasks: tuple[OsmoTask, ...] | None
    groups: tuple[OsmoGroup, ...] | None


class Document(_Object):
    """A workflow file of OSMO."""

    version: Literal[2] = 2
    workflow: WorkflowSpec


@dataclass(frozen=True, kw_only=True)
class OsmoOptions:
    """Facts about the cluster that a workflow file does not state."""

    storage: str
    """URL of a folder in an object store: `inputs` in it is the folder of the workflow file, `outputs` gets results."""
    platforms: dict[Platform, str] = field(default_factory=dict[Platform, str])
    """Names of the pool's platforms for those of stages."""


def osmo_document(workflow: Workflow, options: OsmoOptions) -> dict[str, Any]:
    """A workflow as OSMO's.

    Raises:
        WorkflowError: a stage has no image, or a platform that `options` does not name.
    """
    gangs = any(stage.members for stage in workflow.stages.values())
    resources: dict[str, ResourceSpec] = {}
    groups: list[OsmoGroup] = []
    for name in in_order(workflow):
        stage = workflow.stages[name]
        tasks: list[OsmoTask] = []
        for member in stage.gang:
            task = _task(workflow, name, member, options, grouped=gangs)
            resources[task.name] = _resource(name, member.resources, image_platform(workflow, stage, member), options)
            tasks.append(task)
        groups.append(OsmoGroup(name=f"{name}-group", tasks=tuple(tasks)))
    spec = WorkflowSpec(
        name=workflow.name,
        resources=resources,
        # OSMO takes tasks or groups, not both.
        tasks=None if gangs else tuple(task for group in groups for task in group.tasks),
        groups=tuple(groups) if gangs else None,
    )
    return Document(workflow=spec).model_dump(exclude_none=True)


def _resource(stage: str, asked: Resources, wanted: Platform | None, options: OsmoOptions) -> ResourceSpec:
    if asked.platform is not None and asked.platform not in options.platforms:
        raise WorkflowError(
            f"stage {stage} runs on {asked.platform}, which every pool of OSMO names its own way; "
            f"give `platforms` {asked.platform}=NAME, as `osmo resource list` prints it"
        )
    platform = None if wanted is None else options.platforms.get(wanted)
    return ResourceSpec(cpu=asked.cpus, gpu=asked.gpus, memory=asked.memory, platform=platform)


def _task_name(stage_name: str, stage: WorkflowStage, member: GangMember) -> str:
    return stage_name if stage.command is not None else f"{stage_name}-{member.name}"


def _lead_task(workflow: Workflow, name: str) -> str:
    stage = workflow.stages[name]
    return next(_task_name(name, stage, member) for member in stage.gang if member.lead)


def _task(workflow: Workflow, name: str, member: GangMember, options: OsmoOptions, *, grouped: bool) -> OsmoTask:
    stage = workflow.stages[name]
    image = image_of(workflow, stage, member)
    if image is None:
        raise WorkflowError(f"stage {name} has no image, which a cluster needs; add `image` to it")
    needs = [other for other in in_order(workflow) if other in workflow.needs(name)]
    inputs: list[TaskInput | UrlFolder] = [TaskInput(task=_lead_task(workflow, other)) for other in needs]
    if any(given.path is not None for given in stage.inputs.values()):
        inputs.append(UrlFolder(url=f"{options.storage}/inputs/"))

    def value(kind: str, key: str) -> str:
        if kind == "host":
            return f"{{{{host:{name}-{key}}}}}"
        if kind == "outputs":
            return f"{{{{output}}}}/{stage.outputs[key].path}"
        given = stage.inputs[key]
        if given.origin is None:
            return f"{{{{input:{len(needs)}}}}}/{given.path}"
        source, output = given.origin
        return f"{{{{input:{needs.index(source)}}}}}/{workflow.stages[source].outputs[output].path}"

    words = filled(member.command, value)
    before, after = _shell(stage, value) if member.lead else ([], "")
    script = "\n".join(["set -eu", *before, f'exec "$0" "$@"{after}'])
    secrets: dict[str, dict[str, str]] = {}
    for credential in stage.credentials:
        secrets.setdefault(credential.secret, {})[credential.env] = credential.key
    return OsmoTask(
        name=_task_name(name, stage, member),
        lead=True if grouped and member.lead else None,
        image=image.name,
        command=("sh", "-c", script, "physai") if before or after else ("physai",),
        args=tuple(words),
        resource=_task_name(name, stage, member),
        inputs=tuple(inputs) or None,
        outputs=(UrlFolder(url=f"{options.storage}/outputs/{name}/"),) if member.lead and stage.outputs else None,
        credentials=secrets or None,
        environment=image.environment or None,
        exitActions=_exit_actions(stage) if member.lead else None,
    )


def _shell(stage: WorkflowStage, value: Any) -> tuple[list[str], str]:
    """Lines of a shell script before a command, and the redirection of what it prints."""
    before: list[str] = []
    for name, output in stage.outputs.items():
        path = value("outputs", name)
        if "/" in output.path:
            before.append(f"mkdir -p {_quoted(path.rpartition('/')[0])}")
        if output.copy_of is not None:
            before.append(f"cp -R {_quoted(value('inputs', output.copy_of))} {_quoted(path)}")
    return before, "" if stage.stdout is None else f" > {_quoted(value('outputs', stage.stdout))}"


def _quoted(path: str) -> str:
    # OSMO replaces its tokens before the shell runs, also in quotes.
    return shlex.quote(path)


def _exit_actions(stage: WorkflowStage) -> dict[str, str] | None:
    actions: dict[str, str] = {}
    if set(stage.exit_codes) != {0}:
        actions["COMPLETE"] = exit_ranges(stage.exit_codes)
    if stage.retries:
        actions["RESCHEDULE"] = exit_ranges(set(range(1, 256)) - set(stage.exit_codes))
    return actions or None


def exit_ranges(codes: Iterable[int]) -> str:
    """Exit codes as OSMO writes them: `0-1,5`."""
    spans: list[list[int]] = []
    for code in sorted(set(codes)):
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)
