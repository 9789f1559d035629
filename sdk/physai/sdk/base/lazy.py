"""Lazy package exports, so that the command line starts quickly."""

import importlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_EXPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_exports(
    package: str,
    *,
    moved: Mapping[str, Sequence[str]] | None = None,
    examples: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[str], object]:
    """Return the `__getattr__` (PEP 562) of a package, which imports a name when it is first used.

    The names and their modules are read from the source of the package: each line `from MODULE import NAME as NAME` of
    its `if TYPE_CHECKING:` block is one. Type checkers and the reference read the same lines.

    Args:
        package: `__name__` of the package.
        moved: names that other packages provide now, by package; using them here warns and works for one version.
        examples: names that were in the package and are in a file of `examples/` now, by file; using them here is an
            error that names the file.
    """
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    modules = {name: module for module, name in _EXPORT.findall(source)}
    packages = {name: other for other, names in (moved or {}).items() for name in names}
    files = {name: file for file, names in (examples or {}).items() for name in names}

    def load(name: str) -> object:
        if name in packages:
            message = f"{package}.{name} is now {packages[name]}.{name}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(importlib.import_module(packages[name]), name)
        if name in files:
            # No AttributeError: `from package import name` would replace its text.
            raise ImportError(f"{package}.{name} is now in examples/{files[name]} of physai's sources, to be copied")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return load
