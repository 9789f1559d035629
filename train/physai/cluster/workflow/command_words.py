"""Checks the words of a stage's command: the verb's own parser reads them, and none names code that would be run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import cast

from physai.cluster.workflow.placeholders import filled
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.grammar import canonical, choose, names

VERBS: dict[str, frozenset[str] | None] = {
    "artefacts": None,
    "bundle": None,
    "contract": None,
    "doctor": None,
    "keys": None,
    "logs": None,
    "policy": frozenset({"train", "eval", "export", "quantize"}),
    "robot": frozenset({"measure", "flash"}),
    "robots": None,
    "runs": frozenset({"list", "compare", "plot"}),
    "sim": None,
    "tasks": frozenset({"list", "show"}),
}
"""Nouns that a stage may use, and their verbs if not all: those that read and write the files that they are given."""

_LISTED = ("runs", "tasks")
"""Nouns that list without a verb."""

_CODE_OPTIONS = ("physai", "peer_python")
"""Options whose value is a program."""

# A task's name may end up in a path, so `..` is no name.
_TASK_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def word_problems(words: Sequence[str]) -> Iterator[str]:
    """Problems of the words after `physai`, one sentence each."""
    noun, *rest = canonical(words)
    if noun not in VERBS:
        yield f"no stage runs {words[0]!r}; stages run {', '.join(_shown(name) for name in VERBS)}"
        return
    verbs = VERBS[noun]
    is_list = not rest and noun in _LISTED
    if verbs is not None and not (rest and rest[0] in verbs) and not is_list:
        got = rest[0] if rest else "nothing"
        yield f"no stage runs `{noun} {got}`; of {noun} a stage runs {', '.join(sorted(verbs))}"
        return
    try:
        parsed = _parse(words)
    except PhysaiError as error:
        yield from _paths(words)
        yield str(error)
    else:
        # Values, too: `-o/etc/x` is one word, whose path only the verb's parser sees.
        yield from _paths([*words, *_values(parsed)])
        yield from _named_code(words, parsed)


def parsed_words(words: Sequence[str]) -> Mapping[str, object]:
    """Values of the options as the verb's parser reads the words, with placeholders as paths; empty if it does not."""
    try:
        return _parse(words) if canonical(words)[0] in VERBS else {}
    except PhysaiError:
        return {}


def _parse(words: Sequence[str]) -> Mapping[str, object]:
    if {"-h", "--help"} & set(words):
        raise PhysaiError("--help is for a terminal; remove it")
    first = canonical(words)
    if first[0] not in names():
        raise PhysaiError(f"{first[0]} is not installed; a later physai-sdk has it")
    words = filled(first, lambda kind, name: f"{kind}/{name}" if kind != "host" else "127.0.0.1")
    return vars(choose(words).parse())


def _shown(noun: str) -> str:
    """`policy` as the short cuts of its verbs."""
    return ", ".join(sorted(VERBS[noun] or ())) if noun == "policy" else noun


def _values(parsed: Mapping[str, object]) -> Iterator[str]:
    for value in parsed.values():
        several: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (str(one) for one in several if isinstance(one, str | PurePath))


def _paths(words: Sequence[str]) -> Iterator[str]:
    for word in dict.fromkeys(words):
        parts = re.split("[=,]", word)
        if any(part.startswith(("/", "~", "file:")) or ".." in part.split("/") for part in parts):
            yield f"{word!r} leads out of the stage's folder; name what is there as an input with a path"


def _named_code(words: Sequence[str], parsed: Mapping[str, object]) -> Iterator[str]:
    for word in words:
        if word.lower().endswith(".py"):
            yield f"{word!r} is Python, and no file names code that physai then runs; name a built-in task"
    task = parsed.get("task")
    if isinstance(task, str | PurePath) and not _TASK_NAME.fullmatch(str(task)):
        yield f"task {str(task)!r} is a path, and no file names code that physai then runs; name a built-in task"
    for name in _CODE_OPTIONS:
        if parsed.get(name):
            yield f"--{name.replace('_', '-')} names a program, and no file names code that physai then runs; remove it"
