"""The folder of a user for what physai can make or fetch again."""

import os
from pathlib import Path

from physai.sdk.base.errors import DeviceError


def user_cache(kind: str) -> Path:
    """The folder for one kind of content, which may not exist yet.

    It is in `PHYSAI_CACHE` if that is set, else in `physai` below XDG_CACHE_HOME or `~/.cache`.

    Raises:
        DeviceError: none is set and the user has no home folder.
    """
    own, shared = os.environ.get("PHYSAI_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own) / kind
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "physai" / kind
    except RuntimeError as error:
        raise DeviceError("this user has no home folder to keep a cache in; set PHYSAI_CACHE to a folder") from error
