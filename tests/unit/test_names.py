"""Names of physai that texts mention exist: `physai.package.module.name` in docstrings, pages and settings."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {path.parent.name: path.parents[2] for path in ROOT.glob("*/physai/*/py.typed")}
"""Root of each package."""
MENTION = re.compile(rf"(?<![\w./])physai\.(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
MEANT_TO_BE_MISSING = {
    "physai.train.fly",
    "physai.sdk.no_such_module",
    "physai.sim.nothing",
    "physai.sdk.contract_diff",
}
FILES = sorted(
    path
    for pattern in (
        "*.toml",
        "*.md",
        "docs/**/*.md",
        "examples/*.py",
        *(f"{name}/**/*.py" for name in ("sdk", "sim", "train", "deploy_jetson", "ros", "benchmarks", "tests")),
    )
    for path in ROOT.glob(pattern)
)


@cache
def names(module: str) -> frozenset[str] | None:
    """What a module defines, imports or contains; None if there is no such module."""
    base = PACKAGES[module.split(".")[1]] / Path(*module.split("."))
    file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
    if not file.is_file():
        return None
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    if base.is_dir():
        found |= {path.stem for path in base.iterdir()}
    return frozenset(found)


def exists(mention: str) -> bool:
    parts = mention.split(".")
    for length in range(len(parts), 1, -1):
        known = names(".".join(parts[:length]))
        if known is not None:
            return length == len(parts) or parts[length] in known
    return False


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in FILES}))
def test_every_name_that_a_text_mentions_exists(folder: str) -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {mention}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] == folder
        for mention in MENTION.findall(path.read_text(encoding="utf-8"))
        if mention not in MEANT_TO_BE_MISSING and not exists(mention)
    }
    assert not missing


def test_a_name_that_is_gone_is_noticed() -> None:
    assert exists("physai.sdk.contract.contract_diff.require_same")
    assert not exists("physai.sdk.contract_diff")
