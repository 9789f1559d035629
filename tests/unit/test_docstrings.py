"""Docstrings begin with what a thing is or does: nouns or verbs, no question words."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("sdk", "sim", "train", "deploy_jetson", "ros", "benchmarks")
QUESTIONS = {"What", "Where", "Who", "Which", "How"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_opens_with_a_question_word(folder: str) -> None:
    found: list[str] = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node) or ""
                if text.split(maxsplit=1)[:1] and text.split(maxsplit=1)[0].strip(".,:") in QUESTIONS:
                    found.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert not found, "\n".join(found)
