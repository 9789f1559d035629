"""Damaged documents: bytes flipped, cut, moved; words and the leaves of JSON replaced by what parsers trip over."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import yaml

_HUGE = "@huge@"
"""Stands for an integer of more digits than Python reads, until the document is text."""

LEAVES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 5e-324, 0.5,
    float("nan"), float("inf"), "", "x", "\0", "\ud800", "é\u2028", "a" * 5000, "0" * 64, "../../etc/passwd",
    [], {}, [[]], [{}], {"": 0}, {"x": None}, [0] * 300, _HUGE, "nan", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z",
)  # fmt: skip

WORDS: tuple[bytes, ...] = (
    b"", b"0", b"-1", b"nan", b"inf", b"-inf", b"1e999", b"1e308", b"1e-320", b"4294967296", b"18446744073709551616",
    b"9" * 400, b"9" * 5000, b"0x" + b"f" * 5000, b"1:" * 400 + b"1", b"null", b"~", b"true", b"\0", b"\xff\xfe",
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"[" * 2000, b"{" * 2000, b"[" * 60, b'"', b"'", b"<", b"&#0;", b"&a;", b"&a ",
    b"*a", b"<<", b"!!int ''", b"!!timestamp x", b"!!bool x", b"!!float x", b"!!binary x", b"!!set x", b"!!omap x",
    b"!!python/object:os.system x", b"2020-13-45", b"2020-01-01 00:00:00 +99:99", b"9999-12-31 23:59:59 -23:59", b"\t",
    b"? ", b"- ", b"a" * 5000, b"../..", b"/dev/zero", b"\n", b"\r", b",", b";", b":", b"=", b"%s", b"\x1b[2J",
)  # fmt: skip

_WORD = re.compile(rb"[A-Za-z0-9_.+-]+")


class Mutator:
    """Draws damaged versions of documents; equal seeds draw equal ones."""

    def __init__(self, originals: Sequence[bytes]) -> None:
        self._originals = originals
        self._random = random.Random()

    def draw(self, seed: int) -> bytes:
        """The damaged document of a seed."""
        self._random.seed(seed)
        data = self._random.choice(self._originals)
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 6))):
            data = self._random.choice(_CHANGES)(self, data)
        return data

    def _span(self, data: bytes) -> tuple[int, int]:
        start = self._random.randrange(len(data) + 1)
        return start, min(len(data), start + self._random.choice((1, 2, 4, 8, 16, 64, 512)))

    def flip(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.randint(1, 4) if data else 0):
            changed[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def overwrite(self, data: bytes) -> bytes:
        """Some bytes replaced: by zeros, ones or chance, as counts and sizes are."""
        start, stop = self._span(data)
        size = stop - start
        return (
            data[:start]
            + self._random.choice((bytes(size), b"\xff" * size, self._random.randbytes(size)))
            + data[stop:]
        )

    def truncate(self, data: bytes) -> bytes:
        return data[: self._random.randrange(len(data) + 1)]

    def delete(self, data: bytes) -> bytes:
        start, stop = self._span(data)
        return data[:start] + data[stop:]

    def repeat(self, data: bytes) -> bytes:
        start, stop = self._span(data)
        return data[:stop] + data[start:stop] * self._random.choice((1, 1, 20)) + data[stop:]

    def splice(self, data: bytes) -> bytes:
        other = self._random.choice(self._originals)
        return data[: self._span(data)[0]] + other[self._span(other)[0] :]

    def word(self, data: bytes) -> bytes:
        """A word or a number replaced by another."""
        words = list(_WORD.finditer(data[: 1 << 16]))
        if not words:
            return data + self._random.choice(WORDS)
        start, stop = self._random.choice(words).span()
        return data[:start] + self._random.choice(WORDS) + data[stop:]

    def document(self, data: bytes) -> bytes:
        """A leaf, key or branch of a JSON or YAML document changed; other data flipped."""
        try:
            return self._edited(json.loads(data) if data[:1] in b"{[" else yaml.safe_load(data))
        except Exception:  # damaged already
            return self.flip(data)

    def _edited(self, parsed: Any) -> bytes:
        places = [(None, None), *_places(parsed)]
        container, key = self._random.choice(places)
        if container is None:
            parsed = self._random.choice(LEAVES)
        else:
            self._edit(container, key)
        text = json.dumps(parsed, separators=self._random.choice(((",", ":"), (", ", ": "))), sort_keys=False)
        return text.replace(f'"{_HUGE}"', "1" * 5000).encode()

    def _edit(self, container: Any, key: Any) -> None:
        old, choice = container[key], self._random.random()
        if choice < 0.6:
            container[key] = self._random.choice(LEAVES)
        elif choice < 0.7:
            del container[key]
        elif choice < 0.8:
            deep = old
            for _ in range(self._random.choice((1, 3, 20, 200))):
                deep = [deep] if self._random.random() < 0.5 else {"x": deep}
            container[key] = deep
        elif isinstance(container, dict):
            name = self._random.choice(("", "x", "\0", "\ud800", "a" * 300, "__class__", str(key) + " "))
            cast("dict[str, Any]", container)[name] = old
            if self._random.random() < 0.5:
                del container[key]
        else:
            container.extend([old] * self._random.choice((1, 40)))


_CHANGES: tuple[Callable[[Mutator, bytes], bytes], ...] = (
    Mutator.flip, Mutator.overwrite, Mutator.truncate, Mutator.delete, Mutator.repeat, Mutator.splice,
    Mutator.word, Mutator.word, Mutator.document, Mutator.document, Mutator.document, Mutator.document,
)  # fmt: skip


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every container and key below a node of a document."""
    found: list[tuple[Any, Any]] = []
    pending = [node]
    while pending:
        container = pending.pop()
        if isinstance(container, dict):
            keys: list[Any] = list(cast("dict[Any, Any]", container))
        elif isinstance(container, list):
            keys = list(range(len(cast("list[Any]", container))))
        else:
            continue
        for key in keys:
            found.append((cast("Any", container), key))
            pending.append(container[key])
    return found
