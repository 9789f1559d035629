"""YAML files of users: bounds, and nothing that surprises."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.yaml_file import read_yaml


class ShelfError(PhysaiError):
    """Of these tests."""


def read(tmp_path: Path, text: str, *, words_are_text: bool = False, tags: bool = False) -> Any:
    path = tmp_path / "shelf.yaml"
    path.write_text(text)
    return read_yaml(path, what="a shelf", max_bytes=240, error=ShelfError, words_are_text=words_are_text, tags=tags)


def test_plain_data(tmp_path: Path) -> None:
    assert read(tmp_path, "a: [1, 2.5, x]\nb: {c: null}") == {"a": [1, 2.5, "x"], "b": {"c": None}}
    assert read(tmp_path, "") is None


def test_words_are_text_where_columns_have_such_names(tmp_path: Path) -> None:
    assert read(tmp_path, "y: on") == {"y": True}
    assert read(tmp_path, "y: on\n2020-01-01: no", words_are_text=True) == {"y": "on", "2020-01-01": "no"}
    assert read(tmp_path, "a: 2", words_are_text=True) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2", "'a' occurs twice"),
        ("b: {c: 1, c: 2}", "'c' occurs twice"),
        ("a: &x [1]\nb: *x", "aliases are not allowed"),
        ("{[1]: 2}", "unhashable"),
        ("[" * 101, "more than 100 brackets are open at once"),
        ("a: 0x" + "f" * 17, "a number of 68 bits"),
        ("a: " + "9" * 21, "a number of 70 bits"),
        ("a: !!int ''", "string index out of range"),
        ("a: !!bool x", "not YAML, as a shelf is: 'x'"),
        ("a: !!timestamp x", "not YAML, as a shelf is"),
        ("a: [", "not YAML, as a shelf is"),
        ("a: !!python/object:os.system 1", "could not determine a constructor"),
        ("[" * 90, "not YAML"),
        ("#" * 241, "more than 240 bytes, the most a shelf may have"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ShelfError) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a: !!python/tuple [1, 2.5]", {"a": [1, 2.5]}),
        ("a: !!python/object/apply:os.system ['touch ran']", {"a": ["touch ran"]}),
        ("a: !!python/object/apply:builtins.slice\n- null\n- null\n- null", {"a": [None, None, None]}),
        ("a: !!python/object/new:collections.OrderedDict {args: [{b: 1}]}", {"a": {"args": [{"b": 1}]}}),
        ("a: !!python/object:some.where.Thing {b: !!python/tuple [c]}", {"a": {"b": ["c"]}}),
        ("a: !!python/name:os.system ''", {"a": ""}),
        ("a: !!python/int 7", {"a": "7"}),
        ("a: &id001 !!python/tuple [0.5, 1.0]\nb: *id001", {"a": [0.5, 1.0], "b": [0.5, 1.0]}),
    ],
)
def test_tags_of_python_are_read_past(tmp_path: Path, text: str, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(tmp_path, text, tags=True) == data
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ShelfError, match=r"aliases are not allowed|could not determine"):
        read(tmp_path, text)


def test_the_tags_are_those_that_python_writes(tmp_path: Path) -> None:
    written = {"slice": slice(None), "tuple": (1, (2.0, None)), "type": Path, "complex": 1j}
    plain = {"slice": [None, None, None], "tuple": [1, [2.0, None]], "type": "", "complex": "1.0j"}
    assert read(tmp_path, yaml.dump(written), tags=True) == plain


def laughs(levels: int) -> str:
    """Lists of aliases in each other, which expand to 7 · 9^levels values."""
    lines = [f"{name}: &{name} [{f'*{before},' * 9}]" for before, name in pairwise("abcdef"[: levels + 1])]
    return "\n".join(["a: &a [1, 1, 1, 1, 1, 1]", *lines])


def test_aliases_may_expand_to_some_values(tmp_path: Path) -> None:
    innermost = read(tmp_path, laughs(4), tags=True)["e"][8][8][8][8]
    assert innermost == [1] * 6


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: &x [*x]", "aliases are too many"),
        ("a: &x {b: *x}", "aliases are too many"),
        ("a: &x !!python/tuple [[*x]]", "aliases are too many"),
        (laughs(5), "aliases are too many"),
        ("a: *x", "undefined alias"),
        ("a: !!python/tuple [1]\na: 2", "'a' occurs twice"),
        ("a: !!python/object:b {c: 1, c: 2}", "'c' occurs twice"),
        ("{!!python/tuple [1]: 2}", "unhashable"),
        ("a: !!python/tuple [0x" + "f" * 17 + "]", "a number of 68 bits"),
        ("a: !other [1]", "could not determine a constructor"),
        ("a: &x {b: 1}\nc: {<<: *x}", "could not determine a constructor"),
        ("a: !!python/tuple " + "[" * 101, "more than 100 brackets are open at once"),
        ("#" * 241, "more than 240 bytes, the most a shelf may have"),
    ],
)
def test_what_is_refused_with_tags(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ShelfError) as refused:
        read(tmp_path, text, tags=True)
    assert told in str(refused.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ShelfError, match="cannot be read: no such file"):
        read_yaml(tmp_path / "none", what="a shelf", max_bytes=9, error=ShelfError)
