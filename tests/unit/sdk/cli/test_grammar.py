"""`physai NOUN VERB`, short cuts, and names of the last version."""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.plugins import contributions
from physai.sdk.cli.grammar import (
    GROUP,
    NOUNS,
    OLD_NAMES,
    RESERVED,
    SHORT_CUTS,
    canonical,
    choose,
    every_parser,
    names,
)

OPTIONS = Path(__file__).parents[3] / "data" / "options.txt"
"""Each command with its options, sorted."""

ALONE = {"bench", "completion", "demo", "doctor"}
"""Commands about this installation, which have no noun."""


def children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        choices: object = action.choices
        if isinstance(choices, Mapping):
            return cast("Mapping[str, argparse.ArgumentParser]", choices)
    return {}


def leaves(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = children(parser)
    if not below:
        yield path, parser
    for name, child in below.items():
        yield from leaves(f"{path} {name}".strip(), child)


def test_every_command_is_a_noun_with_verbs_or_a_short_cut() -> None:
    first = children(every_parser())
    assert set(first) == set(names())
    for name, parser in first.items():
        assert bool(children(parser)) == (name not in {*SHORT_CUTS, *ALONE}), name


def test_short_cuts_are_twelve_verbs_of_nouns() -> None:
    assert len(SHORT_CUTS) == 12
    for short, long in SHORT_CUTS.items():
        noun, verb = long.split(".")
        assert choose([short]).command is choose([noun, verb]).command
        assert canonical([short, "--help"]) == (noun, verb, "--help")


@pytest.mark.parametrize("old", OLD_NAMES)
def test_a_name_of_the_last_version_works_and_says_the_new_one(
    old: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    new = OLD_NAMES[old]
    chosen = choose([*old, "--help"])
    assert capsys.readouterr().err == f"note: {' '.join(old)} is now {' '.join(new)}\n"
    assert f"{chosen.name} {' '.join(chosen.words)}" == f"{' '.join(new)} --help"
    assert canonical([*old, "x"])[-1] == "x"
    chosen.parser()


def test_nothing_takes_the_places_of_verbs_to_come() -> None:
    for words in RESERVED:
        name, *verb = words.split()
        assert (verb and f"{name}.{verb[0]}" not in contributions(GROUP)) or name not in names()
    assert set(NOUNS) <= set(names())


def test_a_typo_is_told_with_what_is_near() -> None:
    with pytest.raises(PhysaiError, match="did you mean policy"):
        choose(["polciy", "train"])
    with pytest.raises(PhysaiError, match="did you mean validate"):
        choose(["sim", "valdate", "x"]).parse()


def test_an_option_in_the_wrong_place_is_told_with_its_verbs() -> None:
    with pytest.raises(PhysaiError, match="no option --json in this place; it stands behind list or show"):
        choose(["tasks", "--json"]).parse()
    with pytest.raises(PhysaiError, match="no option --jsno; did you mean --json"):
        choose(["tasks", "--jsno"]).parse()


def test_no_option_is_lost() -> None:
    """A type that the bridge does not know leaves its option out without a word; the list of all options shows it."""
    found: list[str] = []
    for path, parser in leaves("", every_parser()):
        if path not in SHORT_CUTS:
            flags = sorted(flag for flag in parser._option_string_actions if flag.startswith("--") and flag != "--help")
            found.append(" ".join([*path.split(), *flags]))
    stored = OPTIONS.read_text(encoding="utf-8").splitlines()
    assert sorted(found) == stored, f"if this is meant, change {OPTIONS.name}"


TEXT = {"Path", "str", "ray_address"}
"""Types of words that are texts for the user."""
WRITTEN = {"--out": {"FILE", "DIR"}}
"""Metavars of options that have several: a verb writes a file or a folder."""


def test_an_option_has_one_meaning_over_all_commands() -> None:
    """The same flag has the same type, metavar and choices everywhere."""
    meanings: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, parser in leaves("", every_parser()):
        if path in SHORT_CUTS:
            continue
        for action in parser._actions:
            for flag in action.option_strings:
                if flag.startswith("--") and flag != "--help":
                    kind = getattr(action.type, "__name__", "str" if action.nargs != 0 else "flag")
                    metavar = "" if action.metavar in WRITTEN.get(flag, ()) else action.metavar
                    meaning = ("text" if kind in TEXT else kind, metavar, tuple(action.choices or ()))
                    meanings[flag][meaning].append(path)
    assert len(meanings) > 100
    assert {flag: dict(kinds) for flag, kinds in meanings.items() if len(kinds) > 1} == {}


def test_durations_end_in_s() -> None:
    for path, parser in leaves("", every_parser()):
        for action in parser._actions:
            if action.metavar == "S":
                assert all(re.search(r"-s$|^-[a-z]$", flag) for flag in action.option_strings), (path, action)
