"""Values of a Python file without running it: assignments whose right side is a call with literal arguments."""

import ast
from pathlib import Path
from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.files import read_bounded

MAX_BYTES = 1 << 20


def calls(path: Path) -> dict[str, dict[str, Any]]:
    """Return keyword arguments of calls by the name they are assigned to, as far as they are literals.

    `g1 = RobotConfig(angles=(0.1, 0.2), names=OTHER)` gives `{"g1": {"angles": (0.1, 0.2)}}`.

    Raises:
        ForeignPolicyError: the file cannot be read, or is not Python.
    """
    data = read_bounded(path, limit=MAX_BYTES, error=ForeignPolicyError)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ForeignPolicyError(f"{path}: not Python: {str(error)[:100]}") from None
    found: dict[str, dict[str, Any]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            found[node.targets[0].id] = dict(_literals(node.value))
    return found


def _literals(call: ast.Call) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        try:
            pairs.append((keyword.arg, ast.literal_eval(keyword.value)))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return pairs
