"""`physai workflow`: run the stages of a workflow file, check it, or emit it for a cluster."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from physai.cluster.cli.generators import ray_address
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parser import key_values

if TYPE_CHECKING:
    from physai.cluster.workflow.cache.store import ResultStore
    from physai.cluster.workflow.executors.place import Place
    from physai.cluster.workflow.model import Platform, Workflow
    from physai.cluster.workflow.runner import StageReport

_STYLES = {"done": "green", "cached": "dim", "failed": "red", "skipped": "red"}
_LIMITS = ("cpus", "gpus", "memory")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser(
        "run",
        help="run the stages, here or on a Ray cluster",
        description="Run the stages of a workflow, independent ones at the same time, on this computer or on Ray. "
        "A stage with an earlier result of the same command and inputs is not run again. Exit code 0: every stage has "
        "a result; 1: one failed.",
    )
    run.add_argument("--folder", type=Path, metavar="DIR", help="results and logs (default: runs/NAME-workflow)")
    run.add_argument(
        "--cache",
        metavar="ADDRESS",
        help="share results with other computers at s3://BUCKET/PREFIX or a folder; who can write there decides what "
        "your stages produce",
    )
    run.add_argument("--until", metavar="STAGE", help="run only this stage and those it needs")
    run.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="STAGE",
        help="run this stage even if it has a result, as a measurement; may be repeated",
    )
    run.add_argument("--cpus", type=int, metavar="N", help="CPUs for stages together (default: all)")
    run.add_argument("--gpus", type=int, metavar="N", help="GPUs for stages together (default: all)")
    run.add_argument("--memory", metavar="SIZE", help="main memory for stages together, as 16Gi (default: all)")
    run.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        type=ray_address,
        metavar="ADDRESS",
        help="run the stages on nodes of Ray that share the folder: auto (the cluster of RAY_ADDRESS or of this "
        "computer, else one started here), local (one started here), or HOST:PORT of a cluster",
    )
    check = actions.add_parser(
        "lint",
        help="list what is wrong with a workflow file",
        description="List what is wrong with a workflow file. Exit code 0: nothing; 1: something.",
    )
    emit = actions.add_parser(
        "emit", help="write a workflow for a cluster", description="Write a workflow for a cluster, as YAML."
    )
    emit.add_argument("target", choices=["kuberay", "osmo"], metavar="kuberay|osmo", help="kind of cluster")
    emit.add_argument("-o", "--out", type=Path, metavar="FILE", help="file to write (default: print)")
    emit.add_argument("--claim", metavar="NAME", help="kuberay: volume claim of the workflow's folder (default: NAME)")
    emit.add_argument("--ray-version", metavar="V", help="kuberay: version of Ray in the images (default: 2.60.0)")
    emit.add_argument("--per-stage", action="store_true", help="kuberay: one job per stage, to be run in this order")
    emit.add_argument("--storage", metavar="URL", help="osmo: folder in an object store for inputs and outputs")
    emit.add_argument(
        "--platform",
        action="append",
        default=[],
        metavar="linux/ARCH=NAME",
        help="osmo: the pool's platform for stages of this one; may be repeated",
    )
    for action in (run, check, emit):
        action.add_argument("file", type=Path, metavar="FILE", help="workflow file")
        action.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    from physai.cluster.workflow.workflow_file import load_workflow

    workflow = load_workflow(arguments.file)
    actions = {"run": _run_stages, "lint": _lint, "emit": _emit}
    return actions[arguments.action](workflow, arguments)


def _run_stages(workflow: Workflow, arguments: argparse.Namespace) -> int:
    from physai.cluster.workflow.cache.shared_cache import SharedCache
    from physai.cluster.workflow.cache.store import ResultStore
    from physai.cluster.workflow.lint import require_sound
    from physai.cluster.workflow.runner import WorkflowRun
    from physai.sdk.base.errors import unknown_name

    started = time.monotonic()
    for name in [*arguments.again, *([] if arguments.until is None else [arguments.until])]:
        if name not in workflow.stages:
            raise unknown_name("stage", name, workflow.stages)
    require_sound(workflow, arguments.file)
    shared = None if arguments.cache is None else SharedCache(arguments.cache, _say)
    store = ResultStore(arguments.folder or Path("runs") / f"{workflow.name}-workflow", shared)
    with store.locked(), _place(arguments, store) as place:
        run = WorkflowRun(workflow, arguments.file.parent, store, place, _say, again=arguments.again)
        try:
            reports = run.run(arguments.until)
        except KeyboardInterrupt:
            _say("stopped; run it again, which continues with the stages that have no result")
            raise
    seconds = time.monotonic() - started
    if arguments.json:
        record = {
            "workflow": workflow.name,
            "folder": str(store.folder),
            "seconds": seconds,
            "stages": [report.as_record() for report in reports],
        }
        print(json.dumps(record, indent=2))
    else:
        print(_summary(workflow.name, reports, seconds))
        print(printable(f"results: {store.folder / 'results'}"))
    return 0 if all(report.state in ("done", "cached") for report in reports) else 1


@contextmanager
def _place(arguments: argparse.Namespace, store: ResultStore) -> Generator[Place]:
    if arguments.ray is None:
        from physai.cluster.workflow.executors.local import Here

        yield Here(_limits(arguments))
        return
    given = [name for name in _LIMITS if getattr(arguments, name) is not None]
    if given:
        raise PhysaiError(f"--{given[0]} limits stages on this computer, and --ray {arguments.ray} has its own limits")
    from physai.cluster.workflow.executors.ray_place import RayPlace
    from physai.compute.ray.cluster import connected

    with ExitStack() as stack:
        yield RayPlace(
            lambda: stack.enter_context(connected(arguments.ray, processors=1)), lambda: store.begin("nodes")
        )


def _limits(arguments: argparse.Namespace) -> Any:
    from physai.cluster.workflow.executors.resources import ResourceLimits
    from physai.cluster.workflow.model import Resources

    asked: dict[str, int] = {}
    for name, least in (("cpus", 1), ("gpus", 0)):
        value: int | None = getattr(arguments, name)
        if value is not None:
            if not least <= value <= 4096:
                raise PhysaiError(f"--{name} must lie in {least} … 4096, got {value}")
            asked[name] = value
    if arguments.memory is not None:
        if not re.fullmatch(r"[1-9][0-9]{0,6}(Mi|Gi)", arguments.memory):
            raise PhysaiError(f"--memory takes a size such as 512Mi or 16Gi, got {arguments.memory!r}")
        asked["memory_bytes"] = Resources(memory=arguments.memory).memory_bytes
    return ResourceLimits(**asked)


def _say(line: str) -> None:
    style = next((style for state, style in _STYLES.items() if f": {state}" in line), None)
    text = printable(line)
    print(styled(text, style, sys.stderr) if style else text, file=sys.stderr, flush=True)


def _summary(name: str, reports: list[StageReport], seconds: float) -> str:
    counts = {state: sum(report.state == state for report in reports) for state in _STYLES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{name}: {len(reports)} stages in {seconds:.1f} s: {said}"


def _lint(workflow: Workflow, arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from physai.cluster.workflow.lint import lint

    findings = lint(workflow, arguments.file.parent)
    if arguments.json:
        print(json.dumps({"workflow": workflow.name, "findings": [asdict(finding) for finding in findings]}, indent=2))
    elif findings:
        for finding in findings:
            print(printable(f"{finding.stage or workflow.name}: {finding.message} [{finding.rule}]"))
    else:
        print(f"{workflow.name}: {len(workflow.stages)} stages, nothing found")
    return 1 if findings else 0


def _emit(workflow: Workflow, arguments: argparse.Namespace) -> int:
    import yaml

    from physai.cluster.workflow.lint import require_sound
    from physai.sdk.base.files import write_atomic

    require_sound(workflow, arguments.file, inputs_exist=False)
    documents = _documents(workflow, arguments)
    if arguments.json:
        text = json.dumps(documents if len(documents) > 1 else documents[0], indent=2) + "\n"
    else:
        # ASCII, so that no terminal or pipe with another encoding changes a word on the way.
        text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=False, width=4096)
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        write_atomic(arguments.out, text.encode())
    return 0


def _documents(workflow: Workflow, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    if arguments.target == "kuberay":
        _refuse(arguments, "osmo", "storage", "platform")
        return _kuberay(workflow, arguments)
    from physai.cluster.workflow.emit.osmo import OsmoOptions, osmo_document

    _refuse(arguments, "kuberay", "claim", "ray_version", "per_stage")
    storage = arguments.storage or ""
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9_./:@-]+", storage):
        raise PhysaiError(f"emit osmo needs --storage, a URL such as s3://bucket/folder, got {storage or 'none'}")
    platforms = key_values(arguments.platform, "--platform")
    for name in platforms:
        if name not in ("linux/amd64", "linux/arm64"):
            raise PhysaiError(f"--platform takes linux/amd64=NAME or linux/arm64=NAME, got {name!r}")
    named = cast("dict[Platform, str]", platforms)
    return [osmo_document(workflow, OsmoOptions(storage=storage.rstrip("/"), platforms=named))]


def _kuberay(workflow: Workflow, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from physai.cluster.workflow.emit.kuberay import RAY_VERSION, KubeRayOptions, ray_jobs

    claim = arguments.claim or workflow.name
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", claim):
        raise PhysaiError(f"--claim takes the name of a PersistentVolumeClaim, such as robots-1, got {claim!r}")
    options = KubeRayOptions(
        claim=claim, ray_version=arguments.ray_version or RAY_VERSION, per_stage=arguments.per_stage
    )
    return ray_jobs(workflow, arguments.file.name, options)


def _refuse(arguments: argparse.Namespace, target: str, *names: str) -> None:
    for name in names:
        if getattr(arguments, name):
            raise PhysaiError(f"--{name.replace('_', '-')} is an option of emit {target}, not of {arguments.target}")


command = CliCommand(
    summary="run stages from recordings to a signed bundle, or emit them for a cluster",
    add_arguments=_add_arguments,
    run=_run,
)
