"""On-disk store of played batches, from which an interrupted run resumes."""

import json
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import onnxruntime

from physai.gates.execution.subject import ValidationSubject
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.twin.rollouts.batch import Batch, BatchResult

FOLDER = ".state"
"""Folder inside a report folder while a run is unfinished."""
_RUN_FILE = "run.json"
_PACKAGES = ("physai-sdk", "mujoco", "numpy")


class StateError(PhysaiError):
    """The state of a run cannot be written."""


@dataclass(frozen=True)
class BatchStore:
    """Results of one subject's batches by `Batch.key`."""

    folder: Path
    resumed: int
    """Number of batches from an earlier run."""

    @classmethod
    def open(cls, report: Path, subject: ValidationSubject) -> "BatchStore":
        """Open the state inside a report folder; the state of another subject is deleted.

        Raises:
            StateError: the folder cannot be written.
        """
        folder = report / FOLDER
        # Another version of a package may play an episode differently, so its results must not be reused.
        packages = {name: version(name) for name in _PACKAGES}
        # Of the module: the package may be onnxruntime or onnxruntime-gpu.
        identity = {**subject.identity, **packages, "onnxruntime": onnxruntime.__version__}
        document = json.dumps(identity, indent=2, sort_keys=True).encode()
        with oserror_as(StateError, f"{folder}: cannot be written"):
            run = folder / _RUN_FILE
            if not (run.is_file() and run.read_bytes() == document):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                write_atomic(run, document)
        return cls(folder, len(list(folder.glob("*.npz"))))

    def get(self, batch: Batch) -> BatchResult | None:
        """Return the result of a batch; None if there is none, or its file is damaged or does not match."""
        path = self._path(batch)
        try:
            digest, _, data = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        # A damaged or modified file counts as missing; its batch is played again.
        if sha256_hex(data).encode() != digest:
            return None
        try:
            played = BatchResult.from_bytes(data)
        except ValueError:
            return None
        return played if played.fits(batch) else None

    def put(self, batch: Batch, played: BatchResult) -> None:
        """Store the result of a batch.

        Raises:
            StateError: the file cannot be written.
        """
        data = played.to_bytes()
        with oserror_as(StateError, f"{self.folder}: cannot be written"):
            write_atomic(self._path(batch), sha256_hex(data).encode() + b"\n" + data)

    def move(self, folder: Path) -> None:
        """Move the state of a finished run to another folder and replace its contents.

        Raises:
            OSError: it cannot be moved.
        """
        shutil.rmtree(folder, ignore_errors=True)
        self.folder.rename(folder)

    def _path(self, batch: Batch) -> Path:
        return self.folder / f"{batch.key}.npz"
