"""Fetches a public policy, and the robot that it was made for, from the places where they are published."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.files import oserror_as
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.foreign.zoo.table import Zoo, ZooFiles, ZooPolicy, ZooSource

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FetchedPolicy:
    """A policy that was fetched."""

    policy: ZooPolicy
    folder: Path
    command: tuple[str, ...]
    """Words of the command that imports it."""
    licences: dict[str, str]
    """Licence of each source, by its folder in `folder`."""

    @property
    def command_line(self) -> str:
        """The command for a shell."""
        return shlex.join(self.command)


def fetch_policy(
    name: str,
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",), metavar="DIR")] = None,
    zoo: Zoo | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> FetchedPolicy:
    """Fetch the files of a public policy and of its robot; their SHA-256 is compared, and none of them is run.

    Args:
        name: name of the policy in the table, `physai zoo`.
        out: folder to make, which must not exist or be empty (default: the policy's name).
        zoo: the table; None for that of physai.
        say: called with a line before each download.

    Raises:
        UnknownNameError: the table has no such policy.
        ForeignPolicyError: a file cannot be had or is another than the table has, or the folder is there; nothing is
            kept.
    """
    from physai.foreign.zoo.table import load_zoo

    zoo = load_zoo() if zoo is None else zoo
    policy = zoo.policy(name)
    folder = Path(out or name).expanduser()
    with oserror_as(ForeignPolicyError, f"{folder}: cannot be written"):
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise ForeignPolicyError(f"{folder}: exists and is not an empty folder; choose another one with `out`")
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        # Renamed when all is there and right, so that no half of a policy is ever in its place.
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
        try:
            licences = _fetch(zoo, policy, made, say)
            made.chmod(0o755)
            made.replace(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return FetchedPolicy(policy=policy, folder=folder, command=_command(zoo, policy, folder), licences=licences)


def _fetch(zoo: Zoo, policy: ZooPolicy, folder: Path, say: Callable[[str], None]) -> dict[str, str]:
    robot = zoo.robots.get(policy.robot)
    parts: list[ZooFiles] = [policy] if robot is None else [policy, robot]
    wanted: dict[str, set[str]] = {}
    for part in parts:
        licence_files = zoo.sources[part.source].licence_files
        wanted.setdefault(part.source, set()).update((part.file, *part.files, *part.sha256, *licence_files))
    with tempfile.TemporaryDirectory(prefix="physai-zoo-") as work:
        for source, files in wanted.items():
            say(f"fetching {zoo.sources[source].address}")
            _download(zoo.sources[source], files, folder / source, Path(work))
    for part in parts:
        for file, expected in part.sha256.items():
            _compare(folder / part.source / file, f"{part.source}: {file}", expected)
    return {name: zoo.sources[name].stated_licence for name in wanted}


def _download(source: ZooSource, files: set[str], folder: Path, work: Path) -> None:
    # Few commands fetch; tarfile, zipfile and urllib take time to import.
    from physai.foreign.zoo.archives import repository_files, wheel_files

    folder.mkdir()
    if source.github is not None:
        repository_files(source.github, source.version, files, folder, work)
    else:
        wheel_files(str(source.pypi), source.version, files, folder, work)


def _compare(path: Path, name: str, expected: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise ForeignPolicyError(
            f"{name} has the SHA-256 {digest.hexdigest()}, the table has {expected}: it is another file than the one "
            "that was tried; nothing is kept"
        )


def _command(zoo: Zoo, policy: ZooPolicy, folder: Path) -> tuple[str, ...]:
    robot = zoo.robots.get(policy.robot)
    model = policy.robot if robot is None else str(folder / robot.source / robot.file)
    settings = (f"{name}={json.dumps(setting.value)}" for name, setting in policy.settings.items())
    return (
        *("physai", "import", str(folder / policy.source / policy.file), "--model", model),
        *(word for setting in settings for word in ("--set", setting)),
        *("-o", str(Path("runs") / policy.name)),
    )
