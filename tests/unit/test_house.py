"""The bounds of .ci/house.toml: sizes of packages, folders, files and functions, and names that are there twice."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BOUNDS: dict[str, Any] = tomllib.loads((ROOT / ".ci" / "house.toml").read_text(encoding="utf-8"))
PACKAGES = {path.parent.name: path.parent for path in sorted(ROOT.glob("*/physai/*/py.typed"))}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def files(package: str) -> list[Path]:
    return sorted(PACKAGES[package].rglob("*.py"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def code_lines(path: Path) -> int:
    """Lines without blank ones, comments, docstrings and the texts below fields."""
    texts: set[int] = set()
    for node in nodes(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return sum(1 for number, line in lines if number not in texts and line.strip() and line.strip()[0] != "#")


def text_lines(node: Definition) -> int:
    """Lines of the docstring, which grows with every documented argument."""
    first = node.body[0]
    value = first.value if isinstance(first, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return (first.end_lineno or 0) - first.lineno + 1 if is_text else 0


def definitions() -> Iterator[tuple[Path, Definition]]:
    for package in PACKAGES:
        for path in files(package):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path, node


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_few_lines(package: str) -> None:
    assert sum(map(code_lines, files(package))) <= BOUNDS["lines"][package]


def test_files_are_short() -> None:
    longer = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in files(package)
        if path.read_text(encoding="utf-8").count("\n") > BOUNDS["files"]["most_lines"]
    }
    assert longer == set(BOUNDS["files"]["longer"])


def test_functions_fit_a_screen() -> None:
    longer = {
        node.name
        for _, node in definitions()
        if not isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno - text_lines(node) >= BOUNDS["functions"]["most_lines"]
    }
    assert longer == set(BOUNDS["functions"]["longer"])


def test_folders_have_few_rooms() -> None:
    folders = Counter[Path]()
    for package in PACKAGES:
        for path in files(package):
            if path.name != "__init__.py":
                folders[path.parent] += 1
            else:
                folders[path.parent.parent] += 1
    larger = [folder for folder, rooms in folders.items() if rooms > BOUNDS["folders"]["most_rooms"]]
    assert len(larger) <= BOUNDS["folders"]["larger"], sorted(larger)


def test_few_public_classes_share_a_name() -> None:
    names = Counter(node.name for _, node in definitions() if isinstance(node, ast.ClassDef))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert len(twice) <= BOUNDS["names"]["classes_twice"], sorted(twice)


def test_few_modules_of_a_package_share_a_name() -> None:
    twice: list[str] = []
    for package in PACKAGES:
        names = Counter(path.stem for path in files(package) if not path.stem.startswith("__"))
        twice += [f"{package}: {name}" for name, count in names.items() if count > 1]
    assert len(twice) <= BOUNDS["names"]["modules_twice"], twice


def test_argparse_is_the_command_lines_alone() -> None:
    """Procedures are functions; the bridge in `sdk/cli` makes the command line from them."""
    users = {
        path.relative_to(ROOT).as_posix()
        for package in BOUNDS["lines"]
        for path in files(package)
        if re.search(r"\bargparse\b", path.read_text(encoding="utf-8"))
    }
    outside = {name for name in users if not name.startswith("sdk/physai/sdk/cli/")}
    assert outside == set()
