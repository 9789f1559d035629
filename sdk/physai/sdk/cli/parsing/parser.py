"""An argument parser with suggestions for typos that raises errors instead of exiting."""

import argparse
import difflib
import itertools
import math
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from physai.sdk.base.errors import PhysaiError, unknown_name


class Parser(argparse.ArgumentParser):
    """ArgumentParser with did-you-mean for options and choices, without abbreviations.

    Bad arguments raise PhysaiError instead of ending the process.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)
        self.renamed_options: dict[str, str] = {}
        """Flags by those of the last version."""
        self.renamed_words: dict[str, str] = {}
        """Actions by their names in the last version."""
        # Override `type=float` and `type=int`: reject NaN, infinities and oversized integers for every option.
        self.register("type", float, _finite_number)
        self.register("type", int, _whole_number)
        # `Path("")` would be the working folder.
        self.register("type", Path, _path)
        self._way_out = ""

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Parses the arguments.

        Raises:
            PhysaiError: an argument is unknown, missing or malformed.
        """
        parsed, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(self._unknown_arguments(unknown))
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Replaces spellings of the last version, and tells the new ones on stderr; options may stand between words."""
        words: list[str] = list(args)
        for index, word in enumerate(words):
            if word == "--":
                break
            flag, sign, value = word.partition("=")
            new = self.renamed_options.get(flag) or (self.renamed_words.get(word) if index == 0 else None)
            if new is not None:
                print(f"note: {flag} is now {new}", file=sys.stderr)
                words[index] = f"{new}{sign}{value}"
        return super().parse_known_args(self._words_last(words), namespace)

    def error(self, message: str) -> NoReturn:
        """Raises PhysaiError with a pointer to the help."""
        raise PhysaiError(f"{message}{self._way_out} (see `{self.prog} --help`)")

    def _words_last(self, arguments: list[str]) -> list[str]:
        """Moves the positional words behind the options, since argparse fills all positionals from the first of them.

        Words of a verb of this parser, and those that are all passed on, keep their places.
        """
        positionals = [action for action in self._actions if not action.option_strings]
        if any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in positionals):
            return arguments
        options: list[str] = []
        words: list[str] = []
        took = ""
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if word == "--":
                words += rest
                break
            if not self._is_option(word):
                words.append(word)
                continue
            if len(word) > 2 and word[0] == "-" != word[1] and word not in self._option_string_actions:
                return arguments  # Several letters, such as `-vo FILE`.
            options.append(word)
            action = self._option_string_actions.get(word)
            least, most = _numbers_of_values(action)
            values = list(itertools.takewhile(lambda one: not self._is_option(one), rest[:most]))
            if action is not None and len(values) > least:
                took = f"; {word} took {' '.join(values[least:])!r}, end its values with `--` in front of the words"
            options += values
            del rest[: len(values)]
        missing = len(words) < sum(action.nargs in (None, argparse.ONE_OR_MORE) for action in positionals)
        self._way_out = took if missing else ""
        return [*options, "--", *words] if words else options

    def _is_option(self, word: str) -> bool:
        return word == "--" or self._parse_optional(word) is not None

    def _unknown_arguments(self, unknown: list[str]) -> str:
        option = next((word.split("=")[0] for word in unknown if word.startswith("-")), None)
        if option is None:
            return f"unexpected argument {unknown[0]!r}"
        holders = [name for name, parser in self._verbs() if option in parser._all_options()]
        if holders:
            return f"no option {option} in this place; it stands behind {' or '.join(holders)}"
        close = difflib.get_close_matches(option, self._all_options(), n=3, cutoff=0.5)
        return f"no option {option}" + (f"; did you mean {' or '.join(close)}?" if close else "")

    def _all_options(self) -> Iterable[str]:
        """Long options of this parser and of its subcommands."""
        options = {option for option in self._option_string_actions if option.startswith("--")}
        for _, parser in self._verbs():
            options.update(parser._all_options())
        return options

    def _verbs(self) -> Iterator[tuple[str, "Parser"]]:
        for action in self._actions:
            choices: object = action.choices
            if isinstance(choices, Mapping):
                parsers = cast("Mapping[str, object]", choices).items()
                yield from ((name, parser) for name, parser in parsers if isinstance(parser, Parser))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = action.metavar if isinstance(action.metavar, str) else action.dest
            message = str(unknown_name(kind.lower(), str(value), (str(choice) for choice in action.choices)))
            raise argparse.ArgumentError(None, message)


def _numbers_of_values(action: argparse.Action | None) -> tuple[int, int | None]:
    """Least and greatest number of words that an option takes as its values."""
    nargs = 0 if action is None else action.nargs
    if isinstance(nargs, int):
        return nargs, nargs
    return {None: (1, 1), argparse.OPTIONAL: (0, 1), argparse.ZERO_OR_MORE: (0, None)}.get(nargs, (1, None))


def _finite_number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise argparse.ArgumentTypeError(f"expected a finite number, got {reprlib.repr(text)}")


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)


def _whole_number(text: str) -> int:
    with suppress(ValueError):
        if (number := int(text)).bit_length() < 64:
            return number
    raise argparse.ArgumentTypeError(f"expected a whole number of at most 64 bits, got {reprlib.repr(text)}")


def key_values(words: Iterable[str], option: str, *, lone: str | None = None) -> dict[str, str]:
    """Values by key of a repeatable KEY=VALUE option; the last value of a key wins.

    Args:
        words: values of the option.
        option: its flag, for messages.
        lone: key that may be given without a value, which is then empty.

    Raises:
        PhysaiError: a word has no key or no equals sign.
    """
    values: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not (key and sign) and word != lone:
            raise PhysaiError(f"{option} takes KEY=VALUE, got {word!r}")
        values[key] = value
    return values
