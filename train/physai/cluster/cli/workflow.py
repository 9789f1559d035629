"""`physai workflow`: run the stages of a workflow file, check it, or emit it for a cluster."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.cluster.workflow.workflow_api import emit_workflow, lint_workflow, run_workflow
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, Option, noun, verb

if TYPE_CHECKING:
    from physai.cluster.workflow.runner import StageReport
    from physai.cluster.workflow.workflow_api import CheckedWorkflow, WorkflowOutcome

_STYLES = {"done": "green", "cached": "dim", "failed": "red", "skipped": "red"}


@verb(run_workflow, summary="run the stages, here or on a Ray cluster")
def _run(call: functools.partial[WorkflowOutcome], *, as_json: AsJson = False) -> int:
    """Run the stages.

    Independent stages run at the same time. A stage with an earlier result of the same command and inputs is not run
    again.

    exit code: 0 every stage has a result, 1 one failed
    """
    ran = call(say=_say)
    if as_json:
        record = {
            "workflow": ran.workflow,
            "folder": str(ran.folder),
            "seconds": ran.seconds,
            "stages": [report.as_record() for report in ran.stages],
        }
        print(json.dumps(record, indent=2))
    else:
        print(_summary(ran.workflow, ran.stages, ran.seconds))
        print(printable(f"results: {ran.folder / 'results'}"))
    return 0 if ran.succeeded else 1


@verb(lint_workflow, summary="list what is wrong with a workflow file")
def _lint(call: functools.partial[CheckedWorkflow], *, as_json: AsJson = False) -> int:
    """Print the findings.

    exit code: 0 nothing was found, 1 something was
    """
    checked = call()
    name = checked.workflow.name
    if as_json:
        print(json.dumps({"workflow": name, "findings": [asdict(finding) for finding in checked.findings]}, indent=2))
    for finding in () if as_json else checked.findings:
        print(printable(f"{finding.stage or name}: {finding.message} [{finding.rule}]"))
    if not checked.findings and not as_json:
        print(f"{name}: {len(checked.workflow.stages)} stages, nothing found")
    return 1 if checked.findings else 0


@verb(emit_workflow, summary="write a workflow for a cluster, as YAML")
def _emit(
    call: functools.partial[list[dict[str, Any]]],
    *,
    out: Annotated[Path | None, Option(flags=("-o",))] = None,
    as_json: AsJson = False,
) -> int:
    """Write the documents.

    Args:
        out: file to write. None for the terminal.
    """
    import yaml

    from physai.sdk.base.files import write_atomic

    documents = call()
    if as_json:
        text = json.dumps(documents if len(documents) > 1 else documents[0], indent=2) + "\n"
    else:
        # ASCII, so that no terminal or pipe with another encoding changes a word on the way.
        text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=False, width=4096)
    if out is None:
        sys.stdout.write(text)
    else:
        write_atomic(out, text.encode())
    return 0


def _say(line: str) -> None:
    style = next((style for state, style in _STYLES.items() if f": {state}" in line), None)
    text = printable(line)
    print(styled(text, style, sys.stderr) if style else text, file=sys.stderr, flush=True)


def _summary(name: str, reports: Sequence[StageReport], seconds: float) -> str:
    counts = {state: sum(report.state == state for report in reports) for state in _STYLES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{name}: {len(reports)} stages in {seconds:.1f} s: {said}"


command = noun(
    "run stages from recordings to a signed bundle, or emit them for a cluster",
    {"run": _run, "lint": _lint, "emit": _emit},
)
