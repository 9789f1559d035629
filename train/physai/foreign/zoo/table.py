"""Table of public policies, in `policies.json` next to this module."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.errors import unknown_name
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen

TABLE = Path(__file__).with_name("policies.json")
_KIND = DocumentKind(
    name="table of policies", format_version=1, max_bytes=1 << 18, max_depth=8, error=ForeignPolicyError
)

Text = Annotated[str, Field(min_length=1, max_length=300)]
Part = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.+-]*(/[A-Za-z0-9_][\w.+-]*)*$", max_length=200)]
"""Relative path of a file or folder."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ZooSource(Frozen):
    """A commit of a repository on GitHub, or a version of a wheel on PyPI."""

    github: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+/[A-Za-z0-9_.-]+$")] | None = None
    """Owner and name of the repository; None for a wheel."""
    pypi: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] | None = None
    """Name of the package; None for a repository."""
    version: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$|^\d+(\.\d+)+$")]
    """Commit of the repository, or version of the wheel."""
    licence: Text
    """Licence that the repository or the wheel states."""
    licence_files: tuple[Part, ...]
    """Files that state the licence, which are fetched as well."""
    note: str = ""
    """Remark about the licence."""

    @property
    def stated_licence(self) -> str:
        """Licence and remark."""
        return f"{self.licence} ({self.note})" if self.note else self.licence

    @property
    def address(self) -> str:
        """Name and version for people."""
        return f"github.com/{self.github}@{self.version[:8]}" if self.github else f"{self.pypi}=={self.version}"


class ZooFiles(Frozen):
    """Files of a source."""

    source: Text
    """Name of the source in the table."""
    file: Part
    """File that is imported."""
    files: tuple[Part, ...]
    """Other files, and folders, that its import reads."""
    sha256: dict[Part, Digest]
    """SHA-256 of files among them."""


class ZooSetting(Frozen):
    """A setting of the import that no file of the policy states."""

    value: Any
    reason: Text


class ZooPolicy(ZooFiles):
    """A public policy; its `file` is that of the network, or the one that describes it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    family: Text
    """Name of the reader."""
    robot: Text
    """Name of a robot in the table, or of a built-in one."""
    settings: dict[str, ZooSetting]
    distance_m: Annotated[float, Field(gt=0.0)] | None
    """Distance in the twin in 10 s at the command 0.5 m/s forwards [m]; None if it was not measured."""
    note: str


class Zoo(Frozen):
    """The table."""

    format_version: Literal[1]
    sources: dict[str, ZooSource]
    robots: dict[str, ZooFiles]
    policies: tuple[ZooPolicy, ...]

    def policy(self, name: str) -> ZooPolicy:
        """Return the policy of a name; raises UnknownNameError if there is none."""
        known = {policy.name: policy for policy in self.policies}
        if name not in known:
            raise unknown_name("policy", name, known)
        return known[name]


@cache
def load_zoo() -> Zoo:
    """Read the table."""
    return _KIND.parse(Zoo, TABLE.read_bytes(), source=TABLE.name)
