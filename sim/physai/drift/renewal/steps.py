"""Steps of a renewal: each one's output is a file, and a step whose inputs are unchanged is not repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.drift.errors import DriftError
from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.files import oserror_as, read_bounded, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.files.rederivation import VerdictTerms
    from physai.twin.logs import RobotLog

STEPS_FILE = "renewal.json"
STEPS_TYPE = "application/vnd.physai.renewal+json"
"""Type of the payload that a key signs, so that these signatures count nowhere else."""
MAX_STEPS_BYTES = 1 << 16
MAX_FILE_BYTES = 1 << 30
"""Greatest size of a file whose hash is taken."""


class RenewalSteps:
    """Steps that are done, kept in the folder of a renewal with the hashes of their inputs and of their output.

    With a key, steps count only if this key signed them: a file that somebody edited makes it sign nothing.
    """

    def __init__(self, folder: Path, key: SigningKey | None = None) -> None:
        """Read the steps of an earlier run; a damaged file, and one that the key did not sign, count as none."""
        self.folder, self._key = folder, key
        self._file = folder / STEPS_FILE
        self._done: dict[str, Any] = {}
        with suppress(ValueError, LookupError, TypeError, RecursionError, DriftError):
            found: dict[str, Any] = json.loads(read_bounded(self._file, limit=MAX_STEPS_BYTES, error=DriftError))
            if found["signature"] == self._signature(dict(found["done"])):
                self._done = dict(found["done"])

    def _signature(self, done: Mapping[str, Any]) -> str:
        # Of the same steps, an Ed25519 key has one signature only.
        payload = json.dumps(done, sort_keys=True).encode()
        return "" if self._key is None else self._key.sign(payload, STEPS_TYPE).value.hex()

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
            document = {"done": self._done, "signature": self._signature(self._done)}
            write_atomic(self._file, json.dumps(document, indent=2).encode())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        DriftError: it cannot be read, or is larger than `MAX_FILE_BYTES`.
    """
    return sha256(read_bounded(path, limit=MAX_FILE_BYTES, error=DriftError)).hexdigest()


def log_hash(log: RobotLog) -> str:
    """Return the SHA-256 of all that was read of a recording, which its column map decides as well."""
    stated = (log.sha256, str(log.origin), log.command_kind, log.joint_names, log.notes, log.driven, log.duty_gain)
    found = sha256(repr(stated).encode())
    for name, values in (("time", log.time), *log.series(), *(() if log.base is None else log.base.series())):
        found.update(name.encode() + values.tobytes())
    return found.hexdigest()


def option_hashes(options: ValidationOptions | VerdictTerms) -> dict[str, str]:
    """Return the options of a validation or signature by name: files by their hashes, everything else by its text.

    Options on which neither depends are left out.
    """
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        name: file_sha256(Path(value)) if isinstance(value, str | Path) and Path(value).is_file() else repr(value)
        for name, value in given.items()
        if name not in ("jobs", "ray", "say")
    }


def _digest(inputs: Mapping[str, object]) -> str:
    # Another version may decide otherwise.
    document = {**inputs, "physai": version("physai-sdk")}
    return sha256_hex(json.dumps(document, sort_keys=True, default=str).encode())
