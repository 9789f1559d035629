"""Checks the options of a transport."""

from collections.abc import Mapping

from physai.sdk.base.errors import unknown_name


def only_known(transport: str, options: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise UnknownNameError for an option that a transport does not have."""
    for name in options:
        if name not in known:
            raise unknown_name(f"option of transport {transport}", name, known)
