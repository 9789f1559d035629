"""Contracts and tasks with a start envelope, and with commands that a policy sees otherwise than they are asked for."""

import json
from dataclasses import replace
from typing import Any

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.tasks.task import Task


def changed(
    contract: PolicyContract, *, start: dict[str, Any] | None = None, command: dict[str, Any]
) -> PolicyContract:
    """The contract in format 3 with a start envelope and with changes to its command fields."""
    document = json.loads(contract.model_dump_json())
    document["format_version"] = 3
    if start is not None:
        document["safety"]["start"] = start
    for field in document["command"]["fields"]:
        field |= command
    return PolicyContract.model_validate_json(json.dumps(document))


def with_start(task: Task, start: dict[str, Any] | None = None, **command: Any) -> Task:
    """The task with such a contract."""
    return replace(task, contract=changed(task.contract, start=start, command=command))
