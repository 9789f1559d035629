"""Prints the versions, in this environment, of everything that physai-sdk and its extras need: constraints.txt.

Packages that a requirement asks for on another platform only, and that are not installed here, are left out.
"""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = "physai-sdk"


def closure() -> dict[str, str]:
    """Public version of each distribution, by canonical name."""
    extras = metadata.metadata(ROOT).get_all("Provides-Extra") or []
    pending = [(ROOT, extra) for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    versions: dict[str, str] = {}
    while pending:
        name, extra = pending.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[name] = Version(distribution.version).public
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                pending += [(needed, wanted) for wanted in ("", *requirement.extras)]
    versions.pop(ROOT)
    return versions


if __name__ == "__main__":
    print("# Versions this project is tested with; `make constraints` writes this file.")
    for distribution_name, version in sorted(closure().items()):
        print(f"{distribution_name}=={version}")
