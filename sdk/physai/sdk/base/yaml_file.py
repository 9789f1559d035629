"""YAML files of users, with bounds: small, without aliases, no key twice.

YAML keeps the last of two equal keys without a word, an alias can make a small file huge, and a number in hexadecimal
may have more digits than Python prints. PyYAML comes with the
extras that read such files.
"""

from collections.abc import Hashable
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain

MAX_DEPTH = 100
"""Most brackets of a file that are open at once."""


def read_yaml(path: Path, *, what: str, max_bytes: int, error: type[PhysaiError], words_are_text: bool = False) -> Any:
    """What a YAML file holds: plain data, None for an empty one.

    Args:
        path: the file.
        what: what it is, for messages: `a gates file`.
        max_bytes: its greatest size.
        error: raised for whatever is wrong with it.
        words_are_text: whether `on`, `no` and dates are text, as they are where columns have such names.

    Raises:
        PhysaiError: of the type `error`: it cannot be read, is too large, or is no such YAML.
    """
    import yaml

    try:
        content = read_plain(path, limit=max_bytes)
    except OSError as problem:
        raise error(f"{path}: cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    if not len(content) <= max_bytes:
        raise error(f"{path}: more than {max_bytes} bytes, the most {what} may have")
    if not _depth(content) <= MAX_DEPTH:
        raise error(f"{path}: more than {MAX_DEPTH} brackets are open at once, {what} needs a few")
    try:
        return yaml.load(content, Loader=_loader(words_are_text))
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        # PyYAML takes a tag's word for what follows it: `!!int ''` ends in IndexError, `!!bool x` in KeyError.
        raise error(f"{path}: not YAML, as {what} is: {' '.join(str(problem).split()):.300}") from None


def _depth(content: bytes) -> int:
    """Most brackets open at once, those in text and comments included; PyYAML takes the square of it in time."""
    steps = (1 if char in b"[{" else -1 for char in content if char in b"[{]}")
    return max(accumulate(steps), default=0)


@cache
def _loader(words_are_text: bool) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError(f"aliases are not allowed, {self.peek_event().start_mark}")
            compose: Any = super().compose_node
            return compose(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            construct: Any = self.construct_object
            seen: set[Hashable] = set()
            for key_node, _ in node.value:
                key: Hashable = construct(key_node, deep=True)
                if key in seen:
                    raise yaml.YAMLError(f"{key!r} occurs twice, {key_node.start_mark}")
                seen.add(key)
            return super().construct_mapping(node, deep=deep)

        def whole_number(self, node: Any) -> int:
            value = self.construct_yaml_int(node)
            if not value.bit_length() <= 64:
                raise yaml.YAMLError(f"a number of {value.bit_length()} bits, {node.start_mark}")
            return value

    Strict.add_constructor("tag:yaml.org,2002:int", Strict.whole_number)
    if words_are_text:
        Strict.yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in pairs if tag.rpartition(":")[2] in ("int", "float", "null")]
            for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    return Strict
