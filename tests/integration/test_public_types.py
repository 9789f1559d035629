"""Public names can be imported, and every type in a public signature or field is public itself."""

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

PACKAGES = (
    *("sdk", "compute", "sim", "twin", "gates", "drift"),
    *("train", "cluster", "rlhf", "service", "deploy_jetson", "ros"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_there_once(package: str) -> None:
    module = importlib.import_module(f"physai.{package}")
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def names_of(module: ModuleType) -> dict[str, Any]:
    """Names that annotations of a module may use, with those imported for type checkers alone."""
    names = dict(vars(module))
    for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    home = importlib.import_module(statement.module)
                    names |= {alias.asname or alias.name: getattr(home, alias.name) for alias in statement.names}
                elif isinstance(statement, ast.Assign | ast.AnnAssign):
                    exec(ast.unparse(statement), names)
    return names


def types_in(annotation: object) -> Iterator[type]:
    """Classes that an annotation names, however deep."""
    if isinstance(annotation, list):
        for part in cast("list[object]", annotation):
            yield from types_in(part)
    for part in typing.get_args(annotation):
        yield from types_in(part)
    origin: Any = typing.get_origin(annotation)
    for named in cast("tuple[object, ...]", (annotation, origin)):
        if isinstance(named, type):
            yield named


def annotations_of(thing: Any) -> Iterator[object]:
    """Annotations of a public function, or of a class's public fields, methods and properties."""
    if inspect.isfunction(thing):
        names = names_of(sys.modules[thing.__module__])
        for text in thing.__annotations__.values():
            yield eval(text, names) if isinstance(text, str) else text
    elif inspect.isclass(thing):
        for base in (base for base in thing.__mro__ if base.__module__.startswith("physai.")):
            names = names_of(sys.modules[base.__module__])
            for name, text in inspect.get_annotations(base).items():
                if not name.startswith("_"):
                    yield eval(text, names) if isinstance(text, str) else text
            for name, member in vars(base).items():
                if not name.startswith("_") or name == "__call__":
                    inner = getattr(member, "fget", None) or getattr(member, "func", None)
                    yield from annotations_of(inner or getattr(member, "__func__", member))


def test_every_type_in_a_public_signature_is_public() -> None:
    things: list[tuple[str, Any]] = []
    for package in PACKAGES:
        module = importlib.import_module(f"physai.{package}")
        things += [(f"{package}.{name}", getattr(module, name)) for name in module.__all__]
    public = {id(thing): name for name, thing in things}
    hidden = {
        f"{kind.__module__}.{kind.__qualname__} in {name}"
        for name, thing in things
        for annotation in annotations_of(thing)
        for kind in types_in(annotation)
        if kind.__module__.startswith("physai.") and id(kind) not in public
    }
    assert hidden == set()
    assert len(public) > 200
