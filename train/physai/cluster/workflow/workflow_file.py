"""Reads workflow files."""

from graphlib import TopologicalSorter
from pathlib import Path

from pydantic import ValidationError

from physai.cluster.workflow.model import Workflow
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.formats.yaml_file import read_yaml

MAX_FILE_BYTES = 1 << 18


class WorkflowError(PhysaiError):
    """A workflow file is not valid, or its workflow cannot be run or emitted."""


WORKFLOW_FILE = DocumentKind(
    name="workflow file", format_version=1, max_bytes=MAX_FILE_BYTES, max_depth=100, error=WorkflowError
)


def load_workflow(path: Path) -> Workflow:
    """Read a workflow file; `physai.cluster.workflow.lint` checks what its stages refer to.

    Raises:
        WorkflowError: it cannot be read, is too large, is not YAML without aliases, or is not a workflow.
    """
    document = read_yaml(path, what="a workflow file", max_bytes=MAX_FILE_BYTES, error=WorkflowError)
    try:
        return Workflow.model_validate(document)
    except ValidationError as error:
        raise WORKFLOW_FILE.invalid(error, source=str(path)) from None


def in_order(workflow: Workflow) -> list[str]:
    """Names of the stages, each after those it needs, otherwise as in the file.

    Raises:
        CycleError: some stages need each other.
    """
    graph = {name: [other for other in workflow.stages if other in workflow.needs(name)] for name in workflow.stages}
    return list(TopologicalSorter(graph).static_order())
