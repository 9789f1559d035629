"""Files that a stage read outside its inputs: its result is taken again only while they are the same.

An audit hook in the process of each command notes what it opens. It sees neither what a library opens without Python,
of which the loader of models tells it, nor worker processes, nor files that are only looked for.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from physai.sdk.base.files import read_plain
from physai.train.stages.content import content_hash
from physai.train.stages.workflow_file import WorkflowError

NOTE = "reads"
"""Name of the file with the noted paths, separated by NUL."""
MAX_NOTED = 2000
"""Maximum number of paths that a stage may read outside its inputs."""
_MAX_NOTE_BYTES = 1 << 24
ABSENT = ""
"""Instead of a hash: there is no such file."""


def noted_reads(note: Path) -> dict[str, str]:
    """Hashes of the noted files, `ABSENT` for those that are not there.

    Raises:
        WorkflowError: there are too many.
    """
    if not note.is_file():
        return {}
    data = read_plain(note, limit=_MAX_NOTE_BYTES)
    paths = {os.fsdecode(path) for path in data.split(b"\0") if path}
    if len(paths) > MAX_NOTED or len(data) > _MAX_NOTE_BYTES:
        raise WorkflowError(f"it read more than {MAX_NOTED} files outside its inputs; make their folder an input")
    return current(paths)


def current(paths: Iterable[str]) -> dict[str, str]:
    """Hashes that files have now, by path."""
    return {path: _hash(Path(path)) for path in sorted(paths)}


def _hash(path: Path) -> str:
    # A device or a folder has no content that decides anything.
    if not path.is_file():
        return ABSENT
    try:
        return content_hash(path)
    except WorkflowError:
        return ABSENT
