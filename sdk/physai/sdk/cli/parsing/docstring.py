"""Help texts from Google-style docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Examples?|Attributes):$")
_ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: (.*)$")
_NONE_FOR = re.compile(r"(?:[.;,] |^)None for ((?:[^.;]|\.(?=\S))+)(?=;|$)")


def argument_texts(documented: Callable[..., Any]) -> dict[str, str]:
    """Texts of the `Args:` (or `Attributes:`) section by name, on one line each, as written."""
    texts: dict[str, list[str]] = {}
    name = ""
    for line in _section(documented, ("Args", "Attributes")):
        entry = _ENTRY.match(line)
        if entry is not None:
            name = entry[1]
            texts[name] = [entry[2]]
        elif name:
            texts[name].append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in texts.items()}


def epilog_of(documented: Callable[..., Any]) -> str:
    """Text after the first paragraph, up to the first section; empty if there is none."""
    _, _, rest = (inspect.getdoc(documented) or "").partition("\n\n")
    lines: list[str] = []
    for line in rest.splitlines():
        if _SECTION.match(line):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def help_text(text: str, default: object, flags: Mapping[str, str]) -> str:
    """A parameter's text as the help of an option.

    Args:
        text: its text in the docstring.
        default: its default. Shown unless it is empty or the text speaks of it: "None for X" becomes "(default: X)".
        flags: flags of the options by parameter, in whose place the text names the parameters in backticks.
    """
    text = with_flags(text, flags).removesuffix(".")
    text, replaced = _NONE_FOR.subn(r" (default: \1)", text)
    shown = default is not None and not isinstance(default, bool) and default not in ("", ())
    if shown and not replaced and "default" not in text:
        words: tuple[object, ...] = cast("tuple[object, ...]", default) if isinstance(default, tuple) else (default,)
        text += f" (default: {' '.join(f'{word:g}' if isinstance(word, float) else str(word) for word in words)})"
    return text.strip().replace("%", "%%")


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """A text with the flags of options in the place of parameters in backticks."""
    for name, flag in flags.items():
        text = text.replace(f"`{name}`", flag)
    return text


def _section(documented: Callable[..., Any], names: tuple[str, ...]) -> Iterator[str]:
    inside = False
    for line in (inspect.getdoc(documented) or "").splitlines():
        title = _SECTION.match(line)
        if title is not None:
            inside = title[1] in names
        elif inside:
            yield line
