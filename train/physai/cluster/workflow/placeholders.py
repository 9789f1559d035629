"""`${inputs.NAME}`, `${outputs.NAME}` and `${host.MEMBER}` in the words of a command."""

import re
from collections.abc import Callable, Iterator, Sequence

_PLACEHOLDER = re.compile(r"\$\{(?:(inputs|outputs|host)\.([a-z][a-z0-9_-]*)\}|([^}]*)\}?)")


def placeholders(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Kind and name of every placeholder, once; the kind is empty, and the name its text, if it is malformed."""
    found = (match for word in words for match in _PLACEHOLDER.finditer(word))
    yield from dict.fromkeys((match[1], match[2]) if match[1] else ("", match[0]) for match in found)


def filled(words: Sequence[str], value: Callable[[str, str], str]) -> list[str]:
    """The words with every placeholder replaced by its value, a function of kind and name."""
    return [_PLACEHOLDER.sub(lambda found: value(found[1], found[2]), word) for word in words]
