"""The software that made an artefact: version, commit or distribution, and container image."""

import hashlib
import json
import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from physai.sdk.base.errors import PhysaiError

IMAGE_VARIABLE = "PHYSAI_IMAGE_DIGEST"
"""Environment variable with the digest of the container image; an image cannot hold its own."""

IMAGE_DIGEST = r"^sha256:[0-9a-f]{64}$"
_DISTRIBUTION = "physai-sdk"
_GIT_S = 10.0
"""How long git may take [s]."""


class Software(BaseModel):
    """The software that made an artefact; what is unknown is left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    version: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[ -~]+$")]
    """Version of physai-sdk."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Git commit of the checkout that it ran from, or that it was installed from."""
    dirty: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether tracked files of the checkout differed from the commit."""
    distribution_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """SHA-256 of the wheel that it was installed from; of the installer's list of files if that is unknown."""
    image: Annotated[str, Field(pattern=IMAGE_DIGEST)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Digest of the container image: `sha256:…`."""

    def __str__(self) -> str:
        """Return one line for a person."""
        parts = [f"physai {self.version}"]
        if self.commit is not None:
            parts.append(f"commit {self.commit[:12]}{' with changes' if self.dirty else ''}")
        if self.distribution_sha256 is not None:
            parts.append(f"distribution {self.distribution_sha256[:12]}")
        if self.image is not None:
            parts.append(f"image {self.image[:19]}")
        return ", ".join(parts)


def running_software() -> Software:
    """Return the software of this process, as it was when first asked for; the image is that of the environment.

    Raises:
        PhysaiError: PHYSAI_IMAGE_DIGEST is set and is no digest.
    """
    return Software(**_installed(), image=_image_digest())


def _image_digest() -> str | None:
    text = os.environ.get(IMAGE_VARIABLE, "")
    if not text:
        return None
    if not re.fullmatch(IMAGE_DIGEST, text):
        raise PhysaiError(
            f"{IMAGE_VARIABLE} is {text[:80]!r}, expected sha256: and 64 hexadecimal digits, as `docker inspect` "
            "prints an image's RepoDigests; correct or unset it"
        )
    return text


@cache
def _installed() -> dict[str, Any]:
    found = distribution(_DISTRIBUTION)
    facts: dict[str, Any] = {"version": found.version}
    checkout = _checkout(Path(__file__))
    if checkout is not None:
        return {**facts, "commit": checkout[0], "dirty": checkout[1]}
    origin = _origin(found.read_text("direct_url.json"))
    if not origin:
        origin = {"distribution_sha256": _listed_sha256(found.read_text("RECORD"))}
    return {**facts, **origin}


def _checkout(file: Path) -> tuple[str, bool] | None:
    """Commit of the repository that tracks a file, and whether tracked files were changed; None without one."""
    # An environment may lie in the repository of something else.
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None
    text = _git(file.parent, "describe", "--always", "--abbrev=64", "--dirty=+", "--exclude=*")
    return None if text is None else (text.removesuffix("+"), text.endswith("+"))


def _git(folder: Path, *words: str) -> str | None:
    try:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _origin(direct_url: str | None) -> dict[str, str]:
    """Commit or hash in `direct_url.json` (PEP 610), which installers write for what is not from an index."""
    with suppress(ValueError, TypeError, AttributeError):
        document: Any = json.loads(direct_url or "{}")
        commit: Any = document.get("vcs_info", {}).get("commit_id")
        if isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
            return {"commit": commit}
        digest: Any = document.get("archive_info", {}).get("hashes", {}).get("sha256")
        if isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest):
            return {"distribution_sha256": digest}
    return {}


def _listed_sha256(record: str | None) -> str | None:
    """SHA-256 of the lines of RECORD that name a file of the package with its hash; None if there are none."""
    lines = sorted(line for line in (record or "").splitlines() if line.startswith("physai/") and ",sha256=" in line)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else None
