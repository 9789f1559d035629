"""A cache of results that several computers share, in an object store or a folder."""

from collections.abc import Callable
from pathlib import Path

from physai.cluster.workflow.workflow_file import WorkflowError
from physai.compute.objects.address import Address, ArtefactError, explained
from physai.compute.objects.transfer import pull, push


class SharedCache:
    """One artefact per result, below an address and named by the result's key.

    A cache that fails costs time and no result: the stage is run, or its result stays here.

    Args:
        address: of the cache.
        say: receives one line per failure.

    Raises:
        WorkflowError: the address is malformed, or the store cannot be read.
    """

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        self._say = say
        try:
            self._address = Address.parse(address)
            with explained(self._address, "read"):
                self._address.filesystem().exists((self._address / "results").path)
                self._require_bucket()
        except ArtefactError as error:
            raise WorkflowError(f"`cache` {error}") from None

    def _require_bucket(self) -> None:
        if self._address.scheme not in ("file", "memory"):
            bucket = self._address.path.partition("/")[0]
            self._address.filesystem().ls(bucket)

    def pull(self, key: str, path: Path) -> bool:
        """Copy a result into a new folder, if there is one."""
        place = self._address / key
        try:
            if not self._exists(place):
                return False
            pull(place, path)
        except ArtefactError as error:
            self._say(f"cache: {error}")
            return False
        return True

    def push(self, path: Path) -> None:
        """Copy a result to the cache."""
        try:
            push(path, self._address / path.name)
        except ArtefactError as error:
            self._say(f"cache: {error}")

    def _exists(self, place: Address) -> bool:
        with explained(place, "read"):
            return bool(place.filesystem().exists((place / "manifest.json").path))
