"""What a file of ROS parameters says of a node, for launch files that have to know it before the node is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

DEFAULT_ROOT = "/var/lib/physai"


def root_in(params_file: str, node: str) -> str:
    """The parameter `root` of a node; the node's own default where the file says nothing, or cannot be read.

    Args:
        params_file: YAML file as nodes take it with `--params-file`.
        node: full name, `/namespace/name`.
    """
    try:
        record: object = yaml.safe_load(Path(params_file).read_text(encoding="utf-8"))
    except Exception:
        # Whatever PyYAML raises: `!!bool x` alone is a KeyError. The node will say what is wrong with it.
        return DEFAULT_ROOT
    found = [parameters.get("root") for pattern, parameters in _sections(record, "") if _names(pattern, node)]
    roots = [root for root in found if isinstance(root, str) and root]
    return roots[-1] if roots else DEFAULT_ROOT


def _sections(record: object, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, or pattern of names, and parameters; namespaces may be nested."""
    if not isinstance(record, dict):
        return
    for key, value in cast("dict[object, object]", record).items():
        if key == "ros__parameters":
            if isinstance(value, dict):
                yield prefix, cast("dict[str, Any]", value)
        else:
            yield from _sections(value, f"{prefix}/{str(key).strip('/')}")


def _names(pattern: str, node: str) -> bool:
    """Whether a name with `*` for one part and `**` for any number of them means the node."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("/")]
    return re.fullmatch("/".join(parts).replace("/.*", "(/.*)?"), node) is not None
