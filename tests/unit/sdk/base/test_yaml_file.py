"""YAML files of users: bounds, and nothing that surprises."""

from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.yaml_file import read_yaml


class ShelfError(PhysaiError):
    """Of these tests."""


def read(tmp_path: Path, text: str, *, words_are_text: bool = False) -> Any:
    path = tmp_path / "shelf.yaml"
    path.write_text(text)
    return read_yaml(path, what="a shelf", max_bytes=200, error=ShelfError, words_are_text=words_are_text)


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
        ("#" * 201, "more than 200 bytes, the most a shelf may have"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ShelfError) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ShelfError, match="cannot be read: no such file"):
        read_yaml(tmp_path / "none", what="a shelf", max_bytes=9, error=ShelfError)
