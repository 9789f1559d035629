"""Strict, bounded reading of YAML files: no aliases unless allowed, no duplicate keys, integers of at most 64 bits.

PyYAML is installed by the extras that read such files.
"""

from collections.abc import Hashable
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain

MAX_DEPTH = 100
"""Maximum nesting of brackets."""
MAX_EXPANDED = 100_000
"""Maximum number of values of a file with aliases, each counted as often as aliases repeat it."""


def read_yaml(
    path: Path, *, what: str, max_bytes: int, error: type[PhysaiError], words_are_text: bool = False, tags: bool = False
) -> Any:
    """Read a YAML file as plain data; None if it is empty.

    Args:
        path: the file.
        what: kind of file, for messages: `a gates file`.
        max_bytes: its maximum size.
        error: type of the exception to raise.
        words_are_text: whether `on`, `no` and dates are strings, as in files whose keys are column names.
        tags: whether a file of Python's `yaml.dump` is read, too: its tags, such as `!!python/tuple`, are read as if
            they were not there (nothing is imported or called), and aliases are allowed.

    Raises:
        PhysaiError: of type `error`, if it cannot be read, is too large, or is not YAML within these restrictions.
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
        return yaml.load(content, Loader=_loader(words_are_text, tags))
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        # PyYAML does not validate explicitly tagged values: `!!int ''` raises IndexError, `!!bool x` KeyError.
        raise error(f"{path}: not YAML, as {what} is: {' '.join(str(problem).split()):.300}") from None


def _depth(content: bytes) -> int:
    """Return the maximum nesting of brackets, including those in strings and comments."""
    # PyYAML's run time is quadratic in the nesting.
    steps = (1 if char in b"[{" else -1 for char in content if char in b"[{]}")
    return max(accumulate(steps), default=0)


@cache
def _loader(words_are_text: bool, tags: bool) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):
        expanded = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias, place, before = self.check_event(yaml.AliasEvent), self.peek_event().start_mark, self.expanded
            node = super().compose_node(parent, index)
            # A node without a size is not complete: the alias stands in what it repeats.
            self.expanded += getattr(node, "size", MAX_EXPANDED + 1) if alias else 1
            node.size = self.expanded - before
            # Nested aliases expand a small file exponentially ("billion laughs").
            if alias and not (tags and self.expanded <= MAX_EXPANDED):
                raise yaml.YAMLError(f"aliases are {'too many' if tags else 'not allowed'}, {place}")
            if tags and node.tag.startswith("tag:yaml.org,2002:python/"):
                node.tag = "tag:yaml.org,2002:" + {"mapping": "map", "sequence": "seq", "scalar": "str"}[node.id]
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            construct: Any = self.construct_object
            seen: set[Hashable] = set()
            # PyYAML silently keeps the last of duplicate keys.
            for key_node, _ in node.value:
                key: Hashable = construct(key_node, deep=True)
                if key in seen:
                    raise yaml.YAMLError(f"{key!r} occurs twice, {key_node.start_mark}")
                seen.add(key)
            return super().construct_mapping(node, deep=deep)

        def whole_number(self, node: Any) -> int:
            value = self.construct_yaml_int(node)
            # A longer one, written in hexadecimal, can exceed the number of decimal digits that Python prints.
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
