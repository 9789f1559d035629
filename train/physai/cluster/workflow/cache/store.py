"""Results of stages by the hash of everything that they were made from."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from physai.cluster.workflow.cache.content import output_hash
from physai.cluster.workflow.cache.reads import current
from physai.cluster.workflow.cache.shared_cache import SharedCache
from physai.cluster.workflow.model import WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError
from physai.sdk.base.files import read_plain, write_atomic
from physai.sdk.base.formats.documents import DocumentKind

_RECORD_FILE = "result.json"
OUTPUTS_FOLDER = "outputs"


class Result(BaseModel):
    """A stage's result, as `result.json` next to its outputs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    key: str
    stage: str
    exit_code: int
    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    """How long the successful attempt took [s]."""
    hashes: dict[str, str]
    """Hash of every output by name."""
    outside: dict[str, str] = {}
    """Hash of every file that the stage read outside its inputs, by quoted path; see `reads`."""


_RESULT_FILE = DocumentKind(
    name="result of a stage", format_version=1, max_bytes=1 << 20, max_depth=10, error=WorkflowError
)


def stage_key(stage: WorkflowStage, inputs: Mapping[str, tuple[str, str]]) -> str:
    """SHA-256 of what a stage's result depends on: its commands, physai's version, its inputs and its outputs' paths.

    Args:
        stage: the stage.
        inputs: file name and content hash of every input, by name.
    """
    record = {
        "format": 1,
        "physai": version("physai-sdk"),
        "commands": [[member.name, member.lead, list(member.command)] for member in stage.gang],
        "stdout": stage.stdout,
        "exit_codes": sorted(stage.exit_codes),
        "inputs": {name: list(given) for name, given in inputs.items()},
        "outputs": {name: [output.path, output.copy_of] for name, output in stage.outputs.items()},
    }
    return hashlib.sha256(rfc8785.dumps(record)).hexdigest()


class ResultStore:
    """A folder of results.

    `cache/KEY` holds one complete result each, `new` those in the making, `inputs` what the last attempts read,
    `results/STAGE` links to a stage's newest outputs, `logs/STAGE.log` is what its commands printed. A shared cache
    gets every new result, and has those of other computers.
    """

    def __init__(self, folder: Path, shared: SharedCache | None = None) -> None:
        self._shared = shared
        self._missed: set[str] = set()
        """Keys that the shared cache was asked for; what it had is in this folder since."""
        self.folder = folder.absolute()
        self._cache, self._new, self._inputs = self.folder / "cache", self.folder / "new", self.folder / "inputs"
        for path in (self._cache, self._new, self._inputs, self.folder / "results", self.folder / "logs"):
            path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes from running a workflow in this folder.

        Raises:
            WorkflowError: one does.
        """
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise WorkflowError(
                    f"another `physai workflow run` uses {self.folder}; wait for it, or give `folder`"
                ) from None
            # A killed run leaves unfinished results, which nothing reads.
            for path in self._new.iterdir():
                shutil.rmtree(path, ignore_errors=True)
            yield

    def log(self, stage: str) -> Path:
        """The log of a stage."""
        return self.folder / "logs" / f"{stage}.log"

    def output(self, key: str, path: str) -> Path:
        """Path of an output of a result."""
        return self._cache / key / OUTPUTS_FOLDER / path

    def find(self, key: str, stage: WorkflowStage) -> Result | None:
        """The result for a key if it is complete and its outputs have their hashes; any other is removed.

        The files that the stage read outside its inputs must have theirs, too.
        """
        folder = self._cache / key
        if not os.path.lexists(folder) and not self._pulled(key):
            return None
        with suppress(OSError, WorkflowError):
            data = read_plain(folder / _RECORD_FILE, limit=_RESULT_FILE.max_bytes)
            result = _RESULT_FILE.parse(Result, data, source=key)
            hashes = {
                name: output_hash(folder, f"{OUTPUTS_FOLDER}/{output.path}") for name, output in stage.outputs.items()
            }
            same = result.outside == current(result.outside)
            if result.key == key and result.hashes == hashes and not folder.is_symlink() and same:
                return result
        self._set_aside(key)
        return None

    def _pulled(self, key: str) -> bool:
        """Whether the shared cache had the result, which is now here."""
        if self._shared is None or key in self._missed:
            return False
        self._missed.add(key)
        # What a killed run leaves in `new` is removed by the next one.
        path = Path(tempfile.mkdtemp(prefix="pulled.", dir=self._new)) / key
        if not self._shared.pull(key, path):
            return False
        path.rename(self._cache / key)
        return True

    def inputs(self, stage: str) -> Path:
        """Folder with what the last attempt at a stage saw of its inputs.

        It stays, because outputs name it: a twin says by a relative path which robot it is of.
        """
        return self._inputs / stage

    def begin(self, stage: str) -> Path:
        """A fresh folder for a result."""
        fresh = Path(tempfile.mkdtemp(prefix=f"{stage}.", dir=self._new))
        (fresh / OUTPUTS_FOLDER).mkdir()
        return fresh

    def commit(self, fresh: Path, result: Result) -> None:
        """Make a fresh folder the result for its key, in one step."""
        write_atomic(fresh / _RECORD_FILE, result.model_dump_json().encode())
        if os.path.lexists(self._cache / result.key):
            self._set_aside(result.key)
        fresh.rename(self._cache / result.key)
        if self._shared is not None:
            self._shared.push(self._cache / result.key)

    def publish(self, result: Result) -> None:
        """Link `results/STAGE` to a result's outputs."""
        link = self.folder / "results" / result.stage
        new = link.with_name(f".{link.name}.{os.urandom(8).hex()}")
        new.symlink_to(Path("..") / "cache" / result.key / OUTPUTS_FOLDER)
        new.replace(link)

    def _set_aside(self, key: str) -> None:
        aside = Path(tempfile.mkdtemp(prefix="broken.", dir=self._new))
        (self._cache / key).rename(aside / key)
        shutil.rmtree(aside, ignore_errors=True)
