"""The extra of physai-sdk that installs a missing module."""

import os
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from physai.sdk.base.errors import MissingExtraError

DISTRIBUTION = "physai-sdk"

_DISTRIBUTIONS = {
    "OpenGL": "mujoco",
    "collada": "pycollada",
    "foxglove": "foxglove-sdk",
    "mlflow": "mlflow-skinny",
    "pxr": "usd-core",
    "rsl_rl": "rsl-rl-lib",
    "warp": "warp-lang",
    "yaml": "pyyaml",
}
"""Distribution of a module that has another name; all other modules are named like their distribution."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([A-Za-z0-9._-]+)['\"]")


def missing_extra(user: str, error: ModuleNotFoundError, *, preferred: str | None = None) -> MissingExtraError:
    """Return the error that says which extra to install for a module that was not found.

    Args:
        user: what needs the module, for the message.
        error: names the module.
        preferred: extra to name if it installs the module, or if no extra does.
    """
    module = (error.name or "a module").split(".")[0]
    if module in sys.stdlib_module_names:
        return MissingExtraError(
            f"{user} needs {module} of Python's standard library, which user {os.geteuid()} cannot import: is "
            f"{Path(os.__file__).parent} whole, and may that user read it?"
        )
    extra = extra_with(module, preferred)
    remedy = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"install what provides {module}"
    return MissingExtraError(f"{user} needs {error.name}, which is not installed: {remedy}")


def extra_with(module: str, preferred: str | None = None) -> str | None:
    """Return the smallest extra that installs a module; None if none of physai-sdk does and none is preferred.

    `preferred` is returned if it installs the module, or if no extra does.
    """
    extras = requirements(metadata.requires(DISTRIBUTION) or [])
    wanted = _normal(_DISTRIBUTIONS.get(module, module))
    listing = sorted((len(names), extra) for extra, names in extras.items() if extra and wanted in map(_normal, names))
    return preferred if preferred in {extra for _, extra in listing} or not listing else listing[0][1]


def requirements(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the distributions of each extra from Requires-Dist lines; the empty key holds the base requirements."""
    # The build writes an extra that includes another one with all that the other lists.
    extras: dict[str, list[str]] = {}
    for line in lines:
        name, extra = _NAME.match(line), _EXTRA.search(line)
        if name and name[0] != DISTRIBUTION:
            extras.setdefault(extra[1] if extra else "", []).append(name[0])
    return extras


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
