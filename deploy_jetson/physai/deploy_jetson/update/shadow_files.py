"""Shadow evidence in a robot's tree, signed by the robot's key."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE, SHADOW_FOLDER
from physai.sdk.base.files import oserror_as
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.shadow import (
    FORMAT_VERSION,
    ShadowEvidence,
    ShadowEvidenceError,
    load_shadow_evidence,
    parse_shadow_evidence,
    save_shadow_evidence,
)
from physai.sdk.signing.ed25519 import load_private_key
from physai.sdk.signing.evidence import sign_evidence

MAX_FILES = 1000
_NAME = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}\.json")


def keep_evidence(root: Path, facts: dict[str, Any], *, robot: str, origin: Origin, active_sha256: str) -> Path:
    """Write the evidence of a run, in place of an earlier one of the same run; sign it if the robot has a key.

    Args:
        root: the robot's tree.
        facts: fields of `ShadowEvidence`: measured ones, and those of the shadow's bundle.
        robot: unit that ran it.
        origin: origin of what is measured here.
        active_sha256: hash of the bundle that drives.

    Returns:
        The file.

    Raises:
        ShadowEvidenceError: the facts are malformed, or the file cannot be written.
        KeyFileError: the robot's key is damaged or open to other accounts.
    """
    fields = {name: value for name, value in facts.items() if name in ShadowEvidence.model_fields}
    about = {"format_version": FORMAT_VERSION, "robot": robot, "origin": origin.model_dump()}
    document = {**fields, **about, "active_bundle_sha256": active_sha256}
    evidence = parse_shadow_evidence(json.dumps(document).encode(), source="the shadow")
    key = root / ROBOT_KEY_FILE
    if key.exists():
        signature = sign_evidence(load_private_key(key), "shadow", evidence.sha256)
        evidence = evidence.model_copy(update={"signature": signature})
    folder = root / SHADOW_FOLDER
    with oserror_as(ShadowEvidenceError, f"{folder}: cannot be written"):
        folder.mkdir(exist_ok=True)
        _make_room(folder)
    path = folder / f"{evidence.bundle_sha256[:12]}-{evidence.run}.json"
    save_shadow_evidence(evidence, path)
    return path


def evidence_of(root: Path, bundle_sha256: str) -> Iterator[ShadowEvidence]:
    """Yield the evidence in a robot's tree for a bundle; damaged files are left out."""
    for path in _files(root / SHADOW_FOLDER):
        if path.name.startswith(bundle_sha256[:12]):
            with suppress(ShadowEvidenceError):
                evidence = load_shadow_evidence(path)
                if evidence.bundle_sha256 == bundle_sha256:
                    yield evidence


def _files(folder: Path) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and not path.is_symlink()]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)
    except OSError:
        return []


def _make_room(folder: Path) -> None:
    files = _files(folder)
    for path in files[: max(0, len(files) - MAX_FILES + 1)]:
        path.unlink(missing_ok=True)
