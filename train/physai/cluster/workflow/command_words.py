"""Checks the words of a stage's command: the verb's own parser reads them, and none names code that would be run."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import cast

from physai.cluster.workflow.placeholders import filled
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.plugins import contributions
from physai.sdk.cli.parser import Parser

VERBS: dict[str, frozenset[str] | None] = {
    "artefacts": None,
    "bundle": None,
    "contract": None,
    "doctor": None,
    "eval": None,
    "export": None,
    "flash": None,
    "keys": None,
    "logs": None,
    "quantize": None,
    "robot": frozenset({"measure"}),
    "robots": None,
    "runs": None,
    "sim": None,
    "tasks": None,
    "train": None,
}
"""Verbs that a stage may run, and their actions if not all: those that read and write the files that they are given."""

_CODE_OPTIONS = ("physai", "peer_python")
"""Options whose value is a program."""

# A task's name may end up in a path, so `..` is no name.
_TASK_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def word_problems(words: Sequence[str]) -> Iterator[str]:
    """Problems of the words after `physai`, one sentence each."""
    verb = words[0]
    if verb not in VERBS:
        yield f"no stage runs {verb!r}; the verbs of stages are {', '.join(VERBS)}"
        return
    actions = VERBS[verb]
    if actions is not None and not (len(words) > 1 and words[1] in actions):
        got = words[1] if len(words) > 1 else "nothing"
        yield f"no stage runs `{verb} {got}`; of {verb} a stage runs {', '.join(sorted(actions))}"
        return
    try:
        parsed = _parse(verb, words[1:])
    except PhysaiError as error:
        yield from _paths(words)
        yield str(error)
    else:
        # Values, too: `-o/etc/x` is one word, whose path only the verb's parser sees.
        yield from _paths([*words, *_values(parsed)])
        yield from _named_code(words, parsed)


def parsed_words(words: Sequence[str]) -> argparse.Namespace | None:
    """The words as the verb's parser reads them, with placeholders as paths; None if it does not."""
    try:
        return _parse(words[0], words[1:]) if words[0] in VERBS else None
    except PhysaiError:
        return None


def _parse(verb: str, words: Sequence[str]) -> argparse.Namespace:
    if {"-h", "--help"} & set(words):
        raise PhysaiError("--help is for a terminal; remove it")
    entry = contributions("physai.commands").get(verb)
    if entry is None:
        raise PhysaiError(f"{verb} is not installed; a later physai-sdk has it")
    parser = Parser(prog=f"physai {verb}")
    entry.load().add_arguments(parser)
    return parser.parse(filled(words, lambda kind, name: f"{kind}/{name}" if kind != "host" else "127.0.0.1"))


def _values(parsed: argparse.Namespace) -> Iterator[str]:
    for value in vars(parsed).values():
        several: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (str(one) for one in several if isinstance(one, str | PurePath))


def _paths(words: Sequence[str]) -> Iterator[str]:
    for word in dict.fromkeys(words):
        parts = re.split("[=,]", word)
        if any(part.startswith(("/", "~", "file:")) or ".." in part.split("/") for part in parts):
            yield f"{word!r} leads out of the stage's folder; name what is there as an input with a path"


def _named_code(words: Sequence[str], parsed: argparse.Namespace) -> Iterator[str]:
    for word in words:
        if word.lower().endswith(".py"):
            yield f"{word!r} is Python, and no file names code that physai then runs; name a built-in task"
    task: object = getattr(parsed, "task", None)
    if isinstance(task, str) and not _TASK_NAME.fullmatch(task):
        yield f"task {task!r} is a path, and no file names code that physai then runs; name a built-in task"
    for name in _CODE_OPTIONS:
        if getattr(parsed, name, None):
            yield f"--{name.replace('_', '-')} names a program, and no file names code that physai then runs; remove it"
