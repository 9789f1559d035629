"""Reads the files of an exported policy that go into a bundle."""

import os
from collections.abc import Sequence
from pathlib import Path

from physai.sdk.base.files import open_plain, oserror_as
from physai.sdk.bundle.archive import MAX_GOLDEN_BYTES, POLICY_FILES, BundleError
from physai.sdk.policy.header import GOLDEN_FILE, MAX_POLICY_BYTES, POLICY_FILE
from physai.sdk.policy.team_record import require_one_robot

EXPORT_FOLDER = "export"
"""Folder inside a run that `physai export` writes to."""

VARIANTS = {name.removeprefix("policy.").removesuffix(".onnx"): name for name in POLICY_FILES[1:]}
"""Reduced-precision files of a policy by short name: `int8`."""


def find_export(path: Path) -> Path:
    """Folder of an exported policy, given a run folder, an export folder or a policy file.

    Raises:
        BundleError: no exported policy is found.
        TaskError: the path is the folder of a team.
    """
    for folder in (path / EXPORT_FOLDER, path):
        if (folder / POLICY_FILE).is_file():
            return folder
    if path.is_file() and (path.parent / POLICY_FILE).is_file():
        return path.parent
    require_one_robot(path)
    raise BundleError(f"{path} holds no exported policy; make one with: physai export {path}")


def read_members(folder: Path, variants: Sequence[str] | None = None) -> dict[str, bytes]:
    """Contents of the files in an export folder that a bundle is packed from, by name.

    Args:
        folder: contains `policy.onnx`, `golden.npz` and any variants.
        variants: short names of the variants to include; None includes all that exist.

    Raises:
        BundleError: a file is missing, too large or unreadable.
    """
    if variants is None:
        names = [name for name in VARIANTS.values() if (folder / name).is_file()]
    else:
        names = [VARIANTS[variant] for variant in variants]
    policies = {name: _read(folder / name, MAX_POLICY_BYTES) for name in (POLICY_FILE, *names)}
    return {**policies, GOLDEN_FILE: _read(folder / GOLDEN_FILE, MAX_GOLDEN_BYTES)}


def _read(path: Path, limit: int) -> bytes:
    with oserror_as(BundleError, f"{path}: cannot be read"), open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size <= limit:
            raise BundleError(f"{path}: {size} bytes, at most {limit} are allowed")
        return file.read(limit + 1)
