"""Files that a stage read outside its inputs: its result is taken again only while they are the same.

An audit hook in the process of each command notes what it opens. It sees neither what a library opens without Python,
of which the loader of models tells it, nor worker processes, nor files that are only looked for.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from physai.cluster.workflow.cache.content import content_hash
from physai.cluster.workflow.workflow_file import WorkflowError
from physai.sdk.base.files import read_plain

NOTE = "reads"
"""Name of the file with the noted paths, separated by NUL."""
MAX_NOTED = 2000
"""Maximum number of paths that a stage may read outside its inputs."""
_MAX_NOTE_BYTES = 1 << 24
ABSENT = ""
"""Instead of a hash: there is no such file."""


def noted_reads(note: Path) -> dict[str, str]:
    """Hashes of the noted files by quoted path, `ABSENT` for those that are not there.

    Raises:
        WorkflowError: there are too many.
    """
    if not note.is_file():
        return {}
    data = read_plain(note, limit=_MAX_NOTE_BYTES)
    # Quoted, since a name need not be text, as JSON is.
    paths = {quote(path) for path in data.split(b"\0") if path and not _temporary(path)}
    if len(paths) > MAX_NOTED or len(data) > _MAX_NOTE_BYTES:
        raise WorkflowError(f"it read more than {MAX_NOTED} files outside its inputs; make their folder an input")
    return current(paths)


def _temporary(path: bytes) -> bool:
    """Whether a path was that of a temporary file, which is gone."""
    return path.startswith(os.fsencode(tempfile.gettempdir()) + b"/") and not os.path.lexists(path)


def current(paths: Iterable[str]) -> dict[str, str]:
    """Hashes that files have now, by quoted path."""
    return {path: _hash(Path(shown(path))) for path in sorted(paths)}


def shown(path: str) -> str:
    """A path as it was before it was quoted."""
    return os.fsdecode(unquote_to_bytes(path))


def _hash(path: Path) -> str:
    # A device or a folder has no content that decides anything.
    if not path.is_file():
        return ABSENT
    try:
        return content_hash(path)
    except WorkflowError:
        return ABSENT
