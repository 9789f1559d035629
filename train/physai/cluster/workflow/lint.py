"""Checks a workflow: what stages refer to, what they may run, and what a cluster would notice only late."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError
from pathlib import Path, PurePosixPath

from physai.cluster.workflow.command_words import parsed_words, word_problems
from physai.cluster.workflow.model import GangMember, Image, Platform, Workflow, WorkflowStage
from physai.cluster.workflow.model_files import named_outside, surplus
from physai.cluster.workflow.placeholders import placeholders
from physai.cluster.workflow.workflow_file import WorkflowError, in_order
from physai.sdk.base.errors import UnknownNameError, unknown_name

_ARCHITECTURES = {"linux/amd64": r"amd64|x86[_-]64|x64", "linux/arm64": r"arm64|aarch64|armv8|jetson|l4t"}
"""How names of images say their architecture."""
MAX_NAME = 255
"""Maximum length of a file's name on Linux."""
_RUNS_CODE = re.compile(r"PATH|LD_.*|PYTHON.*|BASH_ENV|ENV|HOME|RAY_.*|CUDA_VISIBLE_DEVICES")
"""Environment variables that say what a stage runs, and where."""


@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """Something that a workflow cannot run with."""

    stage: str
    """Name of the stage; empty for the whole file."""
    rule: str
    message: str


def lint(workflow: Workflow, folder: Path | None = None) -> list[LintFinding]:
    """List what is wrong with a workflow.

    Args:
        workflow: the workflow.
        folder: folder of its file, in which inputs must exist; None does not look for them.
    """
    found = [LintFinding(stage="", rule="names", message=text) for text in _same_names(workflow)]
    found += [LintFinding(stage="", rule="images", message=text) for text in _mislabelled(workflow)]
    for name, stage in workflow.stages.items():
        checks = {
            "inputs": _inputs(workflow, stage, folder),
            "outputs": _outputs(stage),
            "command": [*_commands(stage), *(() if folder is None else _undeclared(stage, folder))],
            "gang": _gang(stage),
            "platform": _platforms(workflow, stage),
            "credentials": _credentials(stage),
        }
        found += [LintFinding(stage=name, rule=rule, message=text) for rule, texts in checks.items() for text in texts]
    return [*found, *_cycle(workflow)]


def require_sound(workflow: Workflow, source: Path, *, inputs_exist: bool = True) -> None:
    """Check a workflow.

    Args:
        workflow: the workflow.
        source: its file.
        inputs_exist: whether inputs with a path must exist here.

    Raises:
        WorkflowError: with all findings.
    """
    findings = lint(workflow, source.parent if inputs_exist else None)
    if findings:
        lines = [f"  {finding.stage}: {finding.message}".replace("  : ", "  ") for finding in findings]
        raise WorkflowError("\n".join([f"{source}: {len(findings)} findings", *lines]))


def image_of(workflow: Workflow, stage: WorkflowStage, member: GangMember) -> Image | None:
    """The image of a member; None if it has none, or an unknown one."""
    return workflow.images.get(member.image or stage.image or "")


def image_platform(workflow: Workflow, stage: WorkflowStage, member: GangMember) -> Platform | None:
    """The platform that a member asks for, or the only one that its image has; None if either will do."""
    image = image_of(workflow, stage, member)
    built = image.platforms if image is not None else ()
    return member.resources.platform or (built[0] if len(built) == 1 else None)


def _same_names(workflow: Workflow) -> Iterator[str]:
    # OSMO tells task names apart by their letters and digits only; a gang's tasks are named STAGE-MEMBER.
    seen: dict[str, str] = {}
    for name, stage in workflow.stages.items():
        for task in [name] if stage.command is not None else [f"{name}-{member.name}" for member in stage.members]:
            other = seen.setdefault(task.replace("-", ""), task)
            if other is not task:
                yield f"{other} and {task} are the same name without hyphens, as OSMO reads them; rename one"


def _mislabelled(workflow: Workflow) -> Iterator[str]:
    for key, image in workflow.images.items():
        for platform, pattern in _ARCHITECTURES.items():
            if platform not in image.platforms and re.search(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])", image.name):
                yield (
                    f"image {key}: {image.name} is named as one for {platform}, but its platforms are "
                    f"{', '.join(image.platforms)}; correct one"
                )


def _inputs(workflow: Workflow, stage: WorkflowStage, folder: Path | None) -> Iterator[str]:
    for name, given in stage.inputs.items():
        if given.origin is not None:
            source, output = given.origin
            try:
                _require("stage", source, workflow.stages)
                _require(f"output of {source}", output, workflow.stages[source].outputs)
            except UnknownNameError as error:
                yield f"input {name}: {error}"
        elif given.path is not None and _escapes(given.path):
            yield f"input {name}: {given.path!r} leads out of the folder of the workflow file; move it there"
        elif given.path is not None and folder is not None:
            if not (folder / given.path).exists():
                yield f"input {name}: there is no {folder / given.path}"
            elif not (folder / given.path).resolve().is_relative_to(folder.resolve()):
                yield f"input {name}: {given.path!r} links out of the folder of the workflow file; copy it there"
            if (most := surplus(folder / given.path)) is not None:
                yield (
                    f"input {name}: {given.path!r} has more than {most} files; what the others are read with "
                    "is not checked: name a smaller folder, or pack them into fewer files"
                )
            for model, other in named_outside(folder / given.path):
                yield (
                    f"input {name}: {model} is read with {other}, which is not in {given.path!r}, so the stage does "
                    "not see it; name a folder that has both, such as the one that `physai robots import` makes"
                )


def _require(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise unknown_name(kind, name, known)


def _outputs(stage: WorkflowStage) -> Iterator[str]:
    written = {name for member in stage.gang for kind, name in placeholders(member.command) if kind == "outputs"}
    paths: dict[PurePosixPath, str] = {}
    for name, output in stage.outputs.items():
        path = PurePosixPath(output.path)
        if _escapes(output.path):
            yield f"output {name}: {output.path!r} leads out of the stage's folder"
        if not (longest := max((len(part) for part in path.parts), default=0)) <= MAX_NAME:
            yield f"output {name}: a name of {longest} characters, of which file systems allow {MAX_NAME}"
        for other_path, other in paths.items():
            if path == other_path or path in other_path.parents or other_path in path.parents:
                yield f"outputs {other} and {name} are at {other_path} and {path}; give each a path of its own"
        paths[path] = name
        if output.copy_of is None and name not in written | {stage.stdout}:
            yield f"output {name} is never written; add ${{outputs.{name}}} to the command, or `stdout: {name}`"
        if output.copy_of is not None and output.copy_of not in stage.inputs:
            yield f"output {name}: {unknown_name('input', output.copy_of, stage.inputs)}"
        if name == stage.stdout and output.copy_of is not None:
            yield f"output {name} is both what the command prints and a copy of {output.copy_of}; choose one"
    if stage.stdout is not None and stage.stdout not in stage.outputs:
        yield f"stdout: {unknown_name('output', stage.stdout, stage.outputs)}"


def _escapes(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return ".." in parts or not parts


def _commands(stage: WorkflowStage) -> Iterator[str]:
    hosts = {member.name for member in stage.members}
    known = {"inputs": set(stage.inputs), "outputs": set(stage.outputs), "host": hosts}
    for member in stage.gang:
        malformed = False
        for kind, name in placeholders(member.command):
            if kind == "":
                malformed = True
                yield f"{name!r} is no placeholder; write ${{inputs.NAME}}, ${{outputs.NAME}} or ${{host.MEMBER}}"
            elif name not in known[kind]:
                yield f"${{{kind}.{name}}}: {unknown_name({'host': 'member'}.get(kind, kind[:-1]), name, known[kind])}"
        if not malformed:
            yield from word_problems(member.command)


def _undeclared(stage: WorkflowStage, folder: Path) -> Iterator[str]:
    # Of words without a slash or ending many are names, which a file may have, too.
    words = [part for member in stage.gang for word in member.command for part in re.split("[=,]", word)]
    for word in dict.fromkeys(words):
        if ("/" in word or PurePosixPath(word).suffix) and not _escapes(word) and os.path.exists(folder / word):
            yield (
                f"{word!r} lies next to the workflow file, where no stage looks; name it as an input with a path, and "
                "write ${inputs.NAME}"
            )


def _gang(stage: WorkflowStage) -> Iterator[str]:
    names = [member.name for member in stage.gang]
    if len(set(names)) != len(names):
        yield f"members {', '.join(names)}: each needs a name of its own"
    leads = [member.name for member in stage.gang if member.lead]
    if len(leads) != 1:
        yield (
            f"{len(names)} members ({', '.join(names)}) and {len(leads)} leads; give exactly one `lead: true`, its end "
            "is the stage's"
        )


def _platforms(workflow: Workflow, stage: WorkflowStage) -> Iterator[str]:
    for key in dict.fromkeys([stage.image, *(member.image for member in stage.gang)]):
        if key is not None and key not in workflow.images:
            yield str(unknown_name("image", key, workflow.images))
    for member in stage.gang:
        image, platform = image_of(workflow, stage, member), member.resources.platform
        if image is not None and platform is not None and platform not in image.platforms:
            who = "it runs" if stage.command is not None else f"member {member.name} runs"
            yield (
                f"{who} on {platform}, but its image {image.name} is for {', '.join(image.platforms)}; "
                "build it for that platform, or choose another image"
            )


def _credentials(stage: WorkflowStage) -> Iterator[str]:
    given = {credential.env for credential in stage.credentials}
    for member in stage.gang:
        for option, variable in _needed(parsed_words(member.command)):
            if variable not in given:
                yield f"{option} takes its token from {variable}; add it to the stage's credentials"
    names = [credential.env for credential in stage.credentials]
    for name in filter(_RUNS_CODE.fullmatch, names):
        yield f"{name} is no place for a secret: it decides which code runs, and where; choose another variable"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"credentials set {name} twice"


def _needed(parsed: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Options that need a secret, with its environment variable."""
    if parsed.get("server"):
        yield "--server", "PHYSAI_TOKEN"
    if parsed.get("wandb"):
        yield "--wandb", "WANDB_API_KEY"


def _cycle(workflow: Workflow) -> Iterator[LintFinding]:
    try:
        in_order(workflow)
    except CycleError as error:
        path: list[str] = error.args[1]
        yield LintFinding(stage="", rule="cycle", message=f"stages need each other: {' needs '.join(reversed(path))}")
