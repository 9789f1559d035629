"""Checks of arguments that many procedures share: ranges, and files to be written."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, write_atomic

MAX_SEED = 2**32 - 1
"""Greatest seed of a stand-in, a virtual robot or a bootstrap."""


def require_range(name: str, value: float, least: float, most: float) -> None:
    """Check that a value lies in a range, both ends included; NaN lies in none.

    Args:
        name: the parameter.
        value: its value.
        least: smallest value allowed.
        most: greatest value allowed.

    Raises:
        PhysaiError: the value lies outside.
    """
    if not least <= value <= most:
        raise PhysaiError(f"`{name}` must lie in {least} … {most}, got {value}")


def require_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Check that a value is one of a `Literal`, which Python does not.

    Args:
        name: the parameter.
        value: its value.
        choices: values allowed.

    Raises:
        PhysaiError: the value is none of them.
    """
    choices = tuple(choices)
    if value not in choices:
        raise PhysaiError(f"`{name}` must be {' or '.join(choices)}, got {value!r}")


def several(values: Any) -> tuple[Any, ...]:
    """Values of a parameter that takes several, also if one path was given alone: a string is a sequence of letters."""
    return (values,) if isinstance(values, str | Path) else tuple(values)


def writable_file(path: str | Path, example: str) -> Path:
    """Check, before slow work, that a file can be written.

    Args:
        path: the file.
        example: name of such a file, for the message.

    Raises:
        PhysaiError: its folder is missing, or it is a folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise PhysaiError(f"{path}: folder {path.parent} does not exist")
    if path.is_dir():
        raise PhysaiError(f"{path} is a folder; name a file, such as {path / example}")
    return path


def writable_folder(name: str, path: str | Path) -> Path:
    """Create a folder for a report, before slow work.

    Raises:
        PhysaiError: the folder that the parameter `name` gives cannot be created.
    """
    with oserror_as(PhysaiError, f"`{name}` {path}"):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def write_page(path: Path, text: str) -> Path:
    """Write a page atomically.

    Raises:
        PhysaiError: it cannot be written.
    """
    with oserror_as(PhysaiError, f"{path}: cannot be written"):
        write_atomic(path, text.encode())
    return path
