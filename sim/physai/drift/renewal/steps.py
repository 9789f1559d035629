"""Steps of a renewal: each one's output is a file, and a step whose inputs are unchanged is not repeated."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from physai.drift.errors import DriftError
from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.files import oserror_as, read_bounded, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex

STEPS_FILE = "renewal.json"
MAX_STEPS_BYTES = 1 << 16
MAX_FILE_BYTES = 1 << 30
"""Greatest size of a file whose hash is taken."""


class RenewalSteps:
    """Steps that are done, kept in the folder of a renewal with the hashes of their inputs and of their output."""

    def __init__(self, folder: Path) -> None:
        """Read the steps of an earlier run; a damaged file counts as none."""
        self.folder = folder
        self._file = folder / STEPS_FILE
        self._done: dict[str, Any] = {}
        with suppress(ValueError, RecursionError, DriftError):
            found: object = json.loads(read_bounded(self._file, limit=MAX_STEPS_BYTES, error=DriftError))
            self._done = cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def is_done(self, name: str, inputs: Mapping[str, object], output: Path) -> bool:
        """Whether a step was done with these inputs, and its output is as it was then."""
        return output.is_file() and self._done.get(name) == [_digest(inputs), file_sha256(output)]

    def keep(self, name: str, inputs: Mapping[str, object], output: Path) -> None:
        """Note that a step is done.

        Raises:
            DriftError: the folder cannot be written.
        """
        self._done[name] = [_digest(inputs), file_sha256(output)]
        with oserror_as(DriftError, f"{self._file}: cannot be written"):
            write_atomic(self._file, json.dumps(self._done, indent=2).encode())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        DriftError: it cannot be read, or is larger than `MAX_FILE_BYTES`.
    """
    return sha256(read_bounded(path, limit=MAX_FILE_BYTES, error=DriftError)).hexdigest()


def option_hashes(options: ValidationOptions) -> dict[str, str]:
    """Return the options of a validation by name: files by their hashes, everything else by its text.

    Options on which no verdict depends are left out.
    """
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        name: file_sha256(Path(value)) if isinstance(value, str | Path) and Path(value).is_file() else repr(value)
        for name, value in given.items()
        if name not in ("jobs", "ray")
    }


def _digest(inputs: Mapping[str, object]) -> str:
    # Another version may decide otherwise.
    document = {**inputs, "physai": version("physai-sdk")}
    return sha256_hex(json.dumps(document, sort_keys=True, default=str).encode())
