"""Settings on the command line."""

from collections.abc import Iterable

from physai.sdk.base.errors import PhysaiError


def option_pair(text: str) -> tuple[str, str]:
    """Name and value of a `--set KEY=VALUE`.

    Raises:
        PhysaiError: it has no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise PhysaiError(f"--set {text}: expected key=value")
    return key.strip().replace("-", "_"), value.strip()


def option_pairs(words: Iterable[str]) -> dict[str, str]:
    """Settings by name of all `--set KEY=VALUE`; the last value of a name wins.

    Raises:
        PhysaiError: a word has no `=`.
    """
    return dict(option_pair(word) for word in words)
