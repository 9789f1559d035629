"""Parameters of a function as arguments of the command line."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.parsing.docstring import argument_texts, help_text
from physai.sdk.cli.parsing.parser import Parser, key_values

_EMPTY = inspect.Parameter.empty
_SCALARS = (str, int, float, bool, Path)
_METAVARS: dict[Any, str] = {Path: "FILE", int: "N"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter, with its arguments on the command line."""

    name: str
    default: Any
    kind: Any
    """Type of one word; a `Literal`; or the dataclass."""
    many: bool
    pairs: bool
    option: Option
    text: str
    flags: Mapping[str, str]
    """Flags of all options of the function by parameter."""
    fields: tuple[Parameter, ...] = ()

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is _EMPTY

    def all_flags(self) -> Iterator[tuple[str, str]]:
        """Flags of the function's options by parameter, and those of the dataclass's fields."""
        yield from self.flags.items()
        for field in self.fields:
            yield from field.all_flags()

    def is_given(self, given: Mapping[str, Any]) -> bool:
        """Whether the user gave it, or one of its fields; a dataclass without a default is always built."""
        if self.option.flatten:
            return self.required or any(field.is_given(given) for field in self.fields)
        return given.get(self.name) is not None

    def value(self, given: Mapping[str, Any]) -> Any:
        """The value of the parameter.

        Raises:
            PhysaiError: a pair is malformed, or the dataclass refuses the values.
        """
        if self.option.flatten:
            return self.kind(**{field.name: field.value(given) for field in self.fields if field.is_given(given)})
        value = given[self.name]
        if self.pairs:
            return key_values(value, self.flags[self.name], lone=self.option.lone)
        return tuple(value) if self.many else value

    def add_to(self, parser: argparse.ArgumentParser, groups: dict[str, Any]) -> None:
        """Adds the arguments to a parser; `groups` has the mutually exclusive groups made so far."""
        if self.option.flatten:
            for field in self.fields:
                field.add_to(parser, groups)
            return
        target: Any = parser
        if self.option.exclusive is not None:
            if self.option.exclusive not in groups:
                groups[self.option.exclusive] = parser.add_mutually_exclusive_group()
            target = groups[self.option.exclusive]
        if self.name in self.flags:
            names = [*self.option.flags]
            if self.flags[self.name] not in names:
                names.append(self.flags[self.name])
            target.add_argument(*names, dest=self.name, required=self.required, **self._settings())
            if isinstance(parser, Parser):
                parser.renamed_options.update(dict.fromkeys(self.option.old, self.flags[self.name]))
        else:
            target.add_argument(self.name, **self._settings())

    def _settings(self) -> dict[str, Any]:
        default = None if self.required else self.default
        text = self.option.help if self.option.help is not None else self.text
        shown = argparse.SUPPRESS if self.option.help == "" else help_text(text, default, self.flags)
        settings: dict[str, Any] = {"help": shown, "default": argparse.SUPPRESS}
        if self.kind is bool:
            return {**settings, "action": "store_false" if default else "store_true"}
        if typing.get_origin(self.kind) is Literal:
            settings["choices"] = typing.get_args(self.kind)
        else:
            settings["type"] = self.option.check or self.kind
            settings["metavar"] = self._metavar()
        if self.option.choices is not None:
            settings["choices"] = self.option.choices
        if self.option.metavar is not None:
            settings["metavar"] = self.option.metavar
        if self.pairs or self.option.repeat:
            settings["action"] = "append"
        elif self.option.rest:
            settings["nargs"] = argparse.REMAINDER
        elif self.many:
            settings["nargs"] = "+" if self.name in self.flags or self.required else "*"
        elif self.option.bare is not None:
            settings |= {"nargs": "?", "const": self.option.bare}
        elif self.name not in self.flags and not self.required:
            # argparse would convert argparse.SUPPRESS to the word's type.
            settings |= {"nargs": "?", "default": None}
        return settings

    def _metavar(self) -> str:
        if self.pairs:
            return "KEY=VALUE"
        if self.name not in self.flags:
            return self.name.upper()
        if self.kind is float and self.name.endswith("_s"):
            return "S"
        return _METAVARS.get(self.kind, self.name.rpartition("_")[2].upper())


def parameters_of(function: Callable[..., Any], texts: Mapping[str, str], *, skip: int = 0) -> dict[str, Parameter]:
    """Parameters of a function that the command line has, by name.

    Args:
        function: its annotations may be texts; a name that is not imported at run time is taken for a type that the
            command line does not have.
        texts: texts of the parameters in docstrings.
        skip: number of first parameters to leave out.
    """
    found: list[tuple[inspect.Parameter, _Kind]] = []
    names = getattr(inspect.unwrap(function), "__globals__", {}) if not isinstance(function, type) else _names(function)
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        kind = _kind_of(parameter.annotation, names)
        if kind is not None and not kind.option.hidden:
            found.append((parameter, kind))
    flags = {
        parameter.name: next((flag for flag in kind.option.flags if flag.startswith("--")), _flag(parameter, kind))
        for parameter, kind in found
        if not kind.option.word and not (_is_positional(parameter) and parameter.default is _EMPTY)
    }
    return {
        parameter.name: Parameter(
            name=parameter.name,
            default=parameter.default,
            kind=kind.type,
            many=kind.many,
            pairs=kind.pairs,
            option=kind.option,
            text=texts.get(parameter.name, ""),
            flags=flags,
            fields=tuple(parameters_of(kind.type, argument_texts(kind.type)).values()) if kind.option.flatten else (),
        )
        for parameter, kind in found
    }


@dataclasses.dataclass(frozen=True)
class _Kind:
    type: Any
    many: bool = False
    pairs: bool = False
    option: Option = dataclasses.field(default_factory=Option)


def _names(made: type) -> dict[str, Any]:
    import sys

    return vars(sys.modules[made.__module__])


def _flag(parameter: inspect.Parameter, kind: _Kind) -> str:
    word = parameter.name.removeprefix("as_") if kind.type is bool else parameter.name
    negative = "no-" if kind.type is bool and parameter.default is True else ""
    return f"--{negative}{word.strip('_').replace('_', '-')}"


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _kind_of(annotation: Any, names: dict[str, Any]) -> _Kind | None:
    """The first arm of an annotation that the command line knows; None if there is none."""
    if isinstance(annotation, str):
        return _kind_of_text(ast.parse(annotation, mode="eval").body, names)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return next((kind for arm in inner if (kind := _kind_of(arm, names)) is not None), None)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:], names)
    if annotation in _SCALARS or origin is Literal:
        return _Kind(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _Kind(str, pairs=True)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        element = _kind_of(inner[0], names)
        return None if element is None else dataclasses.replace(element, many=True)
    return None


def _kind_of_text(node: ast.expr, names: dict[str, Any]) -> _Kind | None:
    """Evaluates arms of a union one by one, so that one that is imported for type checkers alone harms no other.

    Unions are never evaluated: equal ones are one object to `typing`, with the arms in the order of the first.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _kind_of_text(node.left, names) or _kind_of_text(node.right, names)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
        first, *words = map(ast.unparse, node.slice.elts)
        return _annotated(first, [eval(word, names) for word in words], names)
    with suppress(NameError):
        return _kind_of(eval(ast.unparse(node), names), names)
    return None


def _annotated(annotation: Any, words: Sequence[Any], names: dict[str, Any]) -> _Kind | None:
    option = next((word for word in words if isinstance(word, Option)), Option())
    if option.flatten:
        return _Kind(_flattened(annotation, names), option=option)
    kind = _kind_of(annotation, names)
    return None if kind is None else dataclasses.replace(kind, option=option)


def _flattened(annotation: Any, names: dict[str, Any]) -> Any:
    evaluated = eval(annotation, names) if isinstance(annotation, str) else annotation
    return next(one for one in (evaluated, *typing.get_args(evaluated)) if dataclasses.is_dataclass(one))
