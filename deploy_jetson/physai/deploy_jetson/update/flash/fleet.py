"""Fleet files: the robots of a rollout, its canaries and its limits, in YAML.

hosts:
- cell-1                          # [user@]HOST[:port], or an alias in the ssh configuration
- jetson@cell-2:2222
- {host: cell-3, root: /data/physai}
canaries: [cell-1]                  # or the number of hosts from the top of the list; default 1
parallel: 4                         # maximum number of robots at once; default 8
max_failure_share: 0.1              # start no further robot once more than this share has failed; default 0
root: /var/lib/physai               # default for hosts without one; likewise `physai`, the command on the robot
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, ValidationError

from physai.deploy_jetson.update.flash.flash_errors import FlashError
from physai.deploy_jetson.update.flash.target import Target
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.robot import Frozen

MAX_FILE_BYTES = 1 << 20
MAX_HOSTS = 10_000

PathOnRobot = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[ -~]+$")]
Address = Annotated[str, Field(min_length=1, max_length=400)]


class _Host(Frozen):
    """A host with individual settings."""

    host: Address
    root: PathOnRobot | None = None
    physai: PathOnRobot | None = None


class _Document(Frozen):
    """Schema of a fleet file."""

    hosts: Annotated[list[Address | _Host], Field(min_length=1, max_length=MAX_HOSTS)]
    canaries: Annotated[int, Field(ge=0, le=MAX_HOSTS)] | list[Address] = 1
    parallel: Annotated[int, Field(ge=1, le=256)] = 8
    max_failure_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    root: PathOnRobot | None = None
    physai: PathOnRobot = "physai"


@dataclass(frozen=True)
class Fleet:
    """Robots that receive the same bundle."""

    canaries: tuple[Target, ...]
    """Flashed first; all must commit before any other robot is started."""
    others: tuple[Target, ...]
    parallel: int = 8
    """Maximum number of robots at once."""
    max_failure_share: float = 0.0
    """Maximum share of failed robots at which another robot is started."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """All robots, canaries first."""
        return (*self.canaries, *self.others)


def load_fleet(path: Path, *, root: PurePosixPath | None = None, physai: str | None = None) -> Fleet:
    """Loads a fleet file.

    Args:
        path: the file.
        root: default tree of the hosts; overrides the file's.
        physai: default command on the hosts; overrides the file's.

    Raises:
        FlashError: the file is missing, too large, not YAML, or invalid.
    """
    document = read_yaml(path, what="a fleet file", max_bytes=MAX_FILE_BYTES, error=FlashError)
    try:
        fleet = _Document.model_validate(document)
    except ValidationError as error:
        raise FlashError(f"{path}: {_said(error)}; for example: hosts: [cell-1, jetson@cell-2:2222]") from None
    return _arrange(fleet, path, root, physai)


def _said(error: ValidationError) -> str:
    """The first problem of a fleet file in a line, without the names of types in it."""
    # Each arm of a union has its own problem; the one farthest inside is of the arm that was meant.
    first = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
    names = {*_Document.model_fields, *_Host.model_fields}
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in names)
    if first["type"] == "extra_forbidden":
        return f"{where or 'the file'} has the unknown key {str(first['loc'][-1])!r:.80}"
    return f"{where or 'the file'}: {first['msg'].replace('Input should', 'must')} (got {first['input']!r:.80})"


def _arrange(fleet: _Document, path: Path, root: PurePosixPath | None, physai: str | None) -> Fleet:
    usual_root = root or (None if fleet.root is None else PurePosixPath(fleet.root))
    names: dict[str, Target] = {}
    for entry in fleet.hosts:
        host = entry if isinstance(entry, _Host) else _Host(host=entry)
        own_root = usual_root if host.root is None else PurePosixPath(host.root)
        target = Target.parse(host.host, root=own_root, physai=host.physai or physai or fleet.physai)
        twin = next((name for name, known in names.items() if known == target), None)
        if host.host in names or twin is not None:
            raise FlashError(f"{path}: {host.host} occurs twice")
        names[host.host] = target
    chosen = list(names)[: fleet.canaries] if isinstance(fleet.canaries, int) else fleet.canaries
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise FlashError(f"{path}: canaries: {unknown[0]} is not one of the hosts")
    canaries = tuple(names[name] for name in dict.fromkeys(chosen))
    others = tuple(target for name, target in names.items() if name not in chosen)
    return Fleet(canaries, others, fleet.parallel, fleet.max_failure_share)
