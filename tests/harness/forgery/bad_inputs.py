"""Fuzzes the arguments of every `physai` verb and reports tracebacks.

The arguments come from the verbs' own parsers: each argument of each verb in turn takes every bad value, while the
others are valid. Everything runs in a temporary folder and home.
"""

import argparse
import contextlib
import io
import json
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import cast

from tests.harness.fixtures.sample import SampleSigners, sample_contract

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.cli.grammar import every_parser
from physai.sdk.cli.main import main

LONG_S = 3.0
"""Timeout of an input that a verb accepts and starts to work on [s]."""

NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e999",
    "1e308",
    "9" * 400,
    "9" * 5000,
    "",
    "x",
    "0x10",
    "1_0",
    "\0",
    "\udcff",
)
"""Bad values for options that take a number."""

TEXTS = (
    "missing", "missing/missing", "folder", "empty", "noise", "noise.onnx", "noise.json", "noise.yaml", "noise.physai",
    "noise.csv", "noise.parquet", "noise.mcap", "noise.xml", "noise.urdf", "noise.py", "noise.npz", "null", "loop",
    "loop.json", "unreadable", "wrong.json", "list.json", "deep.json", "contract.json", "trust.json", "bundle.physai",
    "/proc/none/out", "/proc/version", "x" * 300, "a\0b", "a\0b.py", "a\0b.xml", "a\0b.json", "\udcff", "\udcff.json",
    "", "-", "..", "~none", "~none/none.xml", "a=b", "=", "nan", "-1", "9" * 5000, "{}", "\n", "#1", "x#99999999999",
)  # fmt: skip
"""Bad values for arguments that take a name, a file or a folder."""

SOUND = {
    "BUNDLE": "bundle.physai", "CONTRACT": "contract.json", "ROBOT": "cartpole", "TASK": "cartpole-swingup",
    "LOG": "log.csv", "POLICY": "policy.onnx", "KEY": "trust.json", "TWIN": "wrong.json", "HOST": "[", "RUN": "folder",
}  # fmt: skip
"""Valid values by metavar, used while another argument is bad."""


@dataclass(frozen=True)
class CommandEnding:
    """Result of a bad input."""

    arguments: tuple[str, ...]
    trace: str
    """The traceback; empty if there is none."""


def inputs() -> Iterator[tuple[str, ...]]:
    """All bad inputs, as arguments of `physai`."""
    yield from [("",), ("\0",), ("\udcff",), ("--",), ("-1",), ("nan",), ("--version=",), ("x" * 5000,)]
    yield from _of_parser((), every_parser())


def _of_parser(words: tuple[str, ...], parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    actions = [action for action in parser._actions if action.dest != "help"]
    for action in actions:
        choices: object = action.choices
        if isinstance(choices, Mapping):
            yield (*words, "none")
            yield words
            for name, child in cast("Mapping[str, argparse.ArgumentParser]", choices).items():
                yield from _of_parser((*words, name), child)
            return
    needed = {action.dest: _words(action, _sound(action)) for action in actions if _is_needed(action)}
    yield (*words, "--none", *_flat(needed))
    for action in actions:
        if action.nargs == 0:
            continue
        for value in NUMBERS if action.type in (int, float) else TEXTS:
            yield (*words, *_flat({**needed, action.dest: _words(action, value)}))


def _is_needed(action: argparse.Action) -> bool:
    return action.required if action.option_strings else action.nargs not in ("?", "*")


def _sound(action: argparse.Action) -> str:
    if action.choices:
        return str(next(iter(action.choices)))
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    return next((value for key, value in SOUND.items() if name.upper().startswith(key)), "missing")


def _words(action: argparse.Action, value: str) -> tuple[str, ...]:
    # With an equals sign; otherwise argparse takes `-1` for an option.
    return (f"{action.option_strings[-1]}={value}",) if action.option_strings else (value,)


def _flat(given: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(word for words in given.values() for word in words)


def make_files(folder: Path) -> None:
    """Creates the valid and damaged files that the inputs name."""
    contract, workshop = canonical_json(sample_contract()), SampleSigners()
    noise = bytes((37 * i * i + 11 * i) % 256 for i in range(600))
    (folder / "folder").mkdir()
    for name in [text for text in TEXTS if text.startswith("noise")]:
        (folder / name).write_bytes(b"\0 no Python" if name.endswith(".py") else noise)
    files = {
        "empty": b"", "unreadable": contract, "contract.json": contract, "wrong.json": b'{"format_version": 1}',
        "list.json": b"[1]", "deep.json": b"[" * 20_000, "bundle.physai": workshop.bundle(3),
        "trust.json": workshop.trust.model_dump_json().encode(), "log.csv": b"t,q\n0,0\n1,1\n",
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "unreadable").chmod(0)
    (folder / "null").symlink_to("/dev/null")
    for name in ("loop", "loop.json"):
        (folder / name).symlink_to(name)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, but not during an import: a half-imported module would break the following inputs."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, LONG_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def try_one(arguments: tuple[str, ...]) -> CommandEnding:
    """Runs `physai` with the arguments in this process."""
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, LONG_S)
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(list(arguments))
    except KeyboardInterrupt:
        return CommandEnding(arguments, "")
    except BaseException:
        return CommandEnding(arguments, traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return CommandEnding(arguments, "")


def _main() -> None:
    """Tries the inputs listed on stdin as JSON, and prints those that end in a traceback."""
    words: list[list[str]] = json.load(sys.stdin)
    endings = [try_one(tuple(one)) for one in words]
    found = [{"arguments": ascii(one.arguments)[:300], "trace": one.trace} for one in endings if one.trace]
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
