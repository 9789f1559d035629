"""Verbs made from signatures and docstrings."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parsing.parameter import parameters_of
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.cli.verb import AsJson, Option, noun, verb

if TYPE_CHECKING:
    from decimal import Decimal as Recipe


@dataclass(frozen=True)
class Oven:
    """An oven.

    Attributes:
        heat: temperature [K].
        gas: burn gas.
    """

    heat: float = 450.0
    gas: bool = False


def _door(word: str) -> str:
    if word not in ("open", "shut"):
        raise PhysaiError(f"{word!r} is no state of a door")
    return word


def bake(
    cake: str,
    layers: Sequence[str],
    *,
    out: Annotated[Path, Option(flags=("-o",), old=("--output",))] = Path("cake.json"),
    recipe: Recipe | Path | None = None,
    shape: Literal["round", "square"] = "round",
    rest_s: float | None = None,
    eggs: int = 3,
    sweet: bool = True,
    set: Annotated[Mapping[str, str] | None, Option(metavar="NAME=AMOUNT", lone="help")] = None,
    guests: Annotated[Sequence[str], Option(repeat=True)] = (),
    oven: Annotated[Oven, Option(flatten=True)] = Oven(),
    server: Annotated[str | None, Option(bare="auto")] = None,
    cold: Annotated[bool, Option(exclusive="heat")] = False,
    warm: Annotated[bool, Option(exclusive="heat")] = False,
    secret: Annotated[bool, Option(hidden=True)] = False,
    oven_door: Annotated[str, Option(check=_door)] = "shut",
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Bake a cake.

    Args:
        cake: name of the cake.
        layers: layers from below.
        out: file to write.
        recipe: a recipe, or its file. None for ./usual.txt of ~/.kitchen.
        shape: shape of 100 % of the cakes.
        rest_s: time to rest before `eggs` are added [s]; None for no rest.
        eggs: number of eggs.
        sweet: with sugar.
        set: amounts.
        guests: one guest.
        server: serve it there.
        oven_door: state of the door.
        tell: receives progress.
    """
    if eggs < 0:
        raise PhysaiError(f"`eggs` is {eggs}, with {oven.heat:g} K of `heat`")
    return {name: value for name, value in locals().items() if name != "tell"}


SEEN: dict[str, Any] = {}


@verb(bake, summary="bake a cake")
def bake_verb(call: Callable[..., dict[str, Any]], *, out: Path, eggs: int, as_json: AsJson = False) -> int:
    """Present the cake.

    exit code: 7 it is baked
    """
    SEEN.clear()
    SEEN.update(call(), seen_out=out, seen_eggs=eggs, as_json=as_json)
    return 7


def run(command: CliCommand, *words: str) -> int:
    parser = Parser(prog="physai bake")
    command.add_arguments(parser)
    return command.run(parser.parse(list(words)))


def test_defaults_are_those_of_the_function() -> None:
    assert run(bake_verb, "sponge", "jam", "cream") == 7
    expected = bake("sponge", ("jam", "cream"))
    assert {name: SEEN[name] for name in expected} == expected
    assert (SEEN["seen_out"], SEEN["seen_eggs"], SEEN["as_json"]) == (Path("cake.json"), 3, False)


def test_each_kind_of_option_arrives() -> None:
    words = "-o x.json --recipe r.yaml --shape square --rest-s 2.5 --eggs 4 --no-sweet --set a=1 --set b=2"
    run(bake_verb, "c", "l", *words.split(), "--guests", "A", "--guests", "B", "--heat", "500", "--server", "--json")
    assert SEEN["recipe"] == Path("r.yaml")
    assert SEEN["set"] == {"a": "1", "b": "2"}
    assert SEEN["guests"] == ("A", "B")
    assert SEEN["oven"] == Oven(500.0)
    assert (SEEN["shape"], SEEN["rest_s"], SEEN["eggs"], SEEN["sweet"]) == ("square", 2.5, 4, False)
    assert (SEEN["seen_out"], SEEN["seen_eggs"], SEEN["as_json"]) == (Path("x.json"), 4, True)
    assert SEEN["server"] == "auto"


def test_options_may_stand_between_words() -> None:
    run(bake_verb, "c", "--eggs", "4", "jam", "--server", "--cold", "cream", "-o", "x.json", "--", "--dough")
    assert (SEEN["cake"], SEEN["layers"], SEEN["eggs"]) == ("c", ("jam", "cream", "--dough"), 4)
    assert (SEEN["server"], SEEN["cold"], SEEN["out"]) == ("auto", True, Path("x.json"))


def test_values_of_an_option_end_with_two_dashes() -> None:
    run(bake_verb, "c", "--server", "--", "jam")
    assert (SEEN["server"], SEEN["layers"]) == ("auto", ("jam",))
    with pytest.raises(PhysaiError, match="LAYERS; --server took 'jam', end its values with `--` in front of the word"):
        run(bake_verb, "c", "--server", "jam")
    with pytest.raises(PhysaiError, match=r"required: CAKE, LAYERS \(see"):
        run(bake_verb)


def test_a_key_may_stand_alone() -> None:
    run(bake_verb, "c", "l", "--set", "help", "--set", "b=2", "--oven-door", "open")
    assert SEEN["set"] == {"help": "", "b": "2"}
    assert SEEN["oven_door"] == "open"


def test_old_spellings_work_and_name_the_new_one() -> None:
    with redirect_stderr(io.StringIO()) as told:
        run(bake_verb, "c", "l", "--output=y.json")
    assert SEEN["out"] == Path("y.json")
    assert told.getvalue() == "note: --output is now --out\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["c"], "LAYERS"),
        (["c", "l", "--shape", "oval"], "oval"),
        (["c", "l", "--eggs", "x"], "whole number"),
        (["c", "l", "--rest-s", "nan"], "finite"),
        (["c", "l", "--tell", "x"], "no option --tell"),
        (["c", "l", "--secret"], "no option --secret"),
        (["c", "l", "--set", "x"], "KEY=VALUE"),
        (["c", "l", "--oven-door", "ajar"], "'ajar' is no state of a door"),
        (["c", "l", "--cold", "--warm"], "not allowed with"),
        (["c", "l", "--eggs", "-1"], "^--eggs is -1, with 450 K of --heat$"),
    ],
)
def test_bad_words_are_refused(words: list[str], error: str) -> None:
    with pytest.raises(PhysaiError, match=error):
        run(bake_verb, *words)


def test_help_is_the_docstring() -> None:
    parser = Parser(prog="physai bake")
    bake_verb.add_arguments(parser)
    text = " ".join(parser.format_help().split())
    for part in (
        "[-h] [-o FILE] [--recipe FILE]",
        "a recipe, or its file (default: ./usual.txt of ~/.kitchen)",
        "time to rest before --eggs are added [s] (default: no rest)",
        "number of eggs (default: 3)",
        "shape of 100 % of the cakes (default: round)",
        "--set NAME=AMOUNT amounts",
        "[--json] CAKE LAYERS [LAYERS ...]",
        "temperature [K] (default: 450)",
        "exit code: 7 it is baked",
    ):
        assert part in text


def test_a_noun_has_verbs_and_their_old_names() -> None:
    kitchen = noun("cook", {"bake": bake_verb}, old_names={"roast": "bake"})
    assert run(kitchen, "bake", "c", "l") == 7
    with redirect_stderr(io.StringIO()) as told:
        assert run(kitchen, "roast", "c", "l") == 7
    assert told.getvalue() == "note: roast is now bake\n"
    with pytest.raises(PhysaiError, match="did you mean bake"):
        run(kitchen, "bale", "c", "l")
    with pytest.raises(PhysaiError, match="required: VERB"):
        run(kitchen)


def test_a_noun_may_have_a_default() -> None:
    @verb(summary="list the ovens")
    def listed(*, as_json: AsJson = False) -> int:
        return 3 if as_json else 4

    ovens = noun("ovens", {"list": listed}, default="list")
    assert (run(ovens), run(ovens, "list"), run(ovens, "list", "--json")) == (4, 4, 3)


@verb(summary="eat")
def eat_verb(
    plate: Annotated[Path | None, Option(word=True)] = None,
    sides: Annotated[Sequence[str], Option(word=True)] = ("salt",),
) -> int:
    """Eat."""
    SEEN.clear()
    SEEN.update(plate=plate, sides=sides)
    return 0


def test_words_that_are_left_out_have_their_defaults() -> None:
    run(eat_verb)
    assert SEEN == {"plate": None, "sides": ("salt",)}
    run(eat_verb, "blue", "peas", "rice")
    assert {"plate": Path("blue"), "sides": ("peas", "rice")} == SEEN


@verb(summary="serve")
def serve_verb(
    first: Annotated[Path | str, Option(metavar="DISH")],
    second: Annotated[str | Path | Recipe, Option(metavar="DISH")],
) -> int:
    """Serve."""
    SEEN.clear()
    SEEN.update(first=first, second=second)
    return 0


def test_the_first_arm_counts_though_the_unions_are_equal() -> None:
    run(serve_verb, "./pie", "./pie")
    assert {"first": Path("pie"), "second": "./pie"} == SEEN


def test_a_noun_may_have_a_verb_that_runs_without_its_name() -> None:
    @verb(summary="list cakes")
    def listed(cakes: Annotated[Sequence[str], Option(word=True)] = ("all",)) -> int:
        """List cakes.

        Args:
            cakes: names.
        """
        SEEN.update(cakes=cakes)
        return 5

    kitchen = noun("cook", {"list": listed, "bake": bake_verb}, default="list")
    assert run(kitchen) == 5
    assert SEEN["cakes"] == ("all",)
    assert run(kitchen, "list", "x", "y") == 5
    assert SEEN["cakes"] == ("x", "y")


def test_words_that_follow_may_look_like_options() -> None:
    @verb(summary="pass words on")
    def passed(words: Annotated[Sequence[str], Option(word=True, rest=True)] = ()) -> int:
        """Pass words on.

        Args:
            words: words.
        """
        SEEN.update(words=words)
        return 0

    assert run(passed, "a", "--b", "-c") == 0
    assert SEEN["words"] == ("a", "--b", "-c")


def test_a_path_as_a_word_may_be_left_out() -> None:
    SEEN["file"] = None

    @verb(summary="open a file")
    def opened(file: Annotated[Path | None, Option(word=True)] = None) -> int:
        """Open a file.

        Args:
            file: the file.
        """
        SEEN.update(file=file)
        return 0

    assert run(opened) == 0
    assert SEEN["file"] is None
    assert run(opened, "a.txt") == 0
    assert SEEN["file"] == Path("a.txt")


def _file_first(one: Annotated[Path | str | None, Option(metavar="CAKE")] | int = None) -> None:  # type: ignore[assignment]
    """Bake."""


def _text_first(one: Annotated[str | Path | None, Option(metavar="CAKE")] | int = None) -> None:  # type: ignore[assignment]
    """Bake."""


def test_the_first_arm_of_a_union_is_what_the_signature_says_even_after_an_equal_union() -> None:
    assert parameters_of(_file_first, {})["one"].kind is Path
    assert parameters_of(_text_first, {})["one"].kind is str
