"""Values of a Python file without running it: assignments whose right side is a call with literal arguments."""

import ast
from collections import Counter
from pathlib import Path
from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.files import read_bounded

MAX_BYTES = 1 << 20


def calls(path: Path) -> dict[str, dict[str, Any]]:
    """Return keyword arguments of calls by the name they are assigned to, as far as they are literals.

    `g1 = RobotConfig(angles=(0.1, 0.2), names=OTHER)` gives `{"g1": {"angles": (0.1, 0.2)}}`. A name that is bound or
    changed more than once is left out, as is a call with `**` or arguments without names: what holds is not known.

    Raises:
        ForeignPolicyError: the file cannot be read, or is not Python.
    """
    data = read_bounded(path, limit=MAX_BYTES, error=ForeignPolicyError)
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ForeignPolicyError(f"{path}: not Python: {str(error)[:100]}") from None
    bound = _bound(tree)
    found: dict[str, dict[str, Any]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            name, call = node.targets[0].id, node.value
            if bound[name] == 1 and not call.args and all(keyword.arg for keyword in call.keywords):
                found[name] = dict(_literals(call))
    return found


def _bound(tree: ast.Module) -> Counter[str]:
    """Count the places in the file where each name is bound or changed."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names[node.id] += 1
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            names.update(inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names[node.name] += 1
        elif isinstance(node, ast.alias):
            names[(node.asname or node.name).split(".")[0]] += 1
    return names


def _literals(call: ast.Call) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for keyword in call.keywords:
        try:
            pairs.append((keyword.arg or "", ast.literal_eval(keyword.value)))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return pairs
