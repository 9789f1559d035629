"""Workflows whose stages are cheap: each shows or compares contracts."""

import json
from pathlib import Path
from typing import Any

import yaml
from tests.support.fixtures_contract import SMALL


def write_contract(path: Path, task: str = "pendulum-swingup") -> None:
    """Writes a contract of a task with this name."""
    path.write_text(json.dumps({**SMALL, "task": task}), encoding="utf-8")


def write_workflow(path: Path, stages: dict[str, Any], **fields: Any) -> Path:
    """Writes a workflow file with these stages."""
    document = {"format_version": 1, "name": "contracts", **fields, "stages": stages}
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def show(contract: dict[str, str], **fields: Any) -> dict[str, Any]:
    """A stage that prints a contract into its output `said`."""
    return {
        "command": ["contract", "show", "${inputs.contract}", "--json"],
        "inputs": {"contract": contract},
        "stdout": "said",
        "outputs": {"said": "said.json"},
        **fields,
    }


def compare(left: dict[str, str], right: dict[str, str], **fields: Any) -> dict[str, Any]:
    """A stage that copies the left contract and prints how the right one differs from it."""
    return {
        "command": ["contract", "diff", "${inputs.left}", "${inputs.right}", "--json"],
        "inputs": {"left": left, "right": right},
        "stdout": "said",
        "exit_codes": [0, 1],
        "outputs": {"said": "said.json", "contract": {"path": "contract.json", "copy_of": "left"}},
        **fields,
    }
