"""Examples, guides and the task that `physai new` writes import public names only."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MENU = ("README.md", "docs/index.md", "docs/how-to/*.md", "docs/tutorials/*.md", "docs/explanation/*.md")
INTERNAL = {
    "examples/agents/reaching.py": {"physai.train.models.kinematics"},
    "examples/newton_engine/__init__.py": {"physai.sim.engines.warp_host"},
    "examples/newton_engine/engine.py": {
        "physai.sim",
        "physai.sim.engines.protocol",
        "physai.sim.engines.warp",
        "physai.sim.engines.warp_device",
    },
    "examples/newton_engine/model_import.py": {"physai.sim.engines.warp"},
}
"""Internal modules that examples still import: no inverse kinematics is public, and Newton's engine builds on ours.

The set may shrink; the adapters of libraries (`physai.train.adapters`) are documented module by module."""


def programs() -> Iterator[tuple[str, str]]:
    """Name and source of each program that a user may copy."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    template = ROOT / "sim" / "physai" / "sim" / "tasks" / "template.py"
    yield "physai new", template.read_text(encoding="utf-8")
    for pattern in MENU:
        for page in sorted(ROOT.glob(pattern)):
            for number, program in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8"))):
                # A fragment of a program, indented, imports nothing.
                if not program.startswith(" "):
                    yield f"{page.relative_to(ROOT).as_posix()}:{number}", program


def internal(source: str) -> set[str]:
    """Modules of physai, or names of a package, that the source imports and that are not public."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "physai":
            if node.module.startswith("physai.train.adapters."):
                continue
            public: set[str] = set()
            if node.module.count(".") == 1:
                public = set(getattr(importlib.import_module(node.module), "__all__", ()))
            if not {alias.name for alias in node.names} <= public:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            found |= {name for name in names if name.startswith("physai.") and name.count(".") > 1}
    return found


@pytest.mark.parametrize(("name", "source"), programs(), ids=lambda value: value if "\n" not in value else "")
def test_a_program_for_users_imports_public_names_only(name: str, source: str) -> None:
    assert internal(source) == INTERNAL.get(name, set())
