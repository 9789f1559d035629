"""Reads a node's parameters from a ROS parameter file, for launch files that need them before the node exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

DEFAULT_ROOT = "/var/lib/physai"


def root_in(params_file: str, node: str) -> str:
    """The parameter `root` of a node; the node's default if the file does not set it or cannot be read.

    Args:
        params_file: YAML file in the format of `--params-file`.
        node: full name, `/namespace/name`.
    """
    try:
        record: object = yaml.safe_load(Path(params_file).read_text(encoding="utf-8"))
    except Exception:
        # PyYAML raises many types: `!!bool x` is a KeyError. The node itself reports what is wrong with the file.
        return DEFAULT_ROOT
    values = [parameters.get("root") for pattern, parameters in _sections(record, "") if _matches(pattern, node)]
    roots = [root for root in values if isinstance(root, str) and root]
    return roots[-1] if roots else DEFAULT_ROOT


class ParametersFileError(Exception):
    """A parameter file that was named does not set the node's parameters."""


def require(params_file: str, node: str) -> None:
    """Refuses a file without parameters for the node, which ROS would drive with defaults instead.

    Args:
        params_file: YAML file in the format of `--params-file`.
        node: full name, `/namespace/name`.

    Raises:
        ParametersFileError: it cannot be read, or names other nodes only.
    """
    try:
        record: object = yaml.safe_load(Path(params_file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParametersFileError(f"params_file: {params_file}: {error.strerror}") from None
    except Exception as error:
        # As in `root_in`.
        raise ParametersFileError(f"params_file: {params_file}: no YAML: {error}") from None
    patterns = [pattern for pattern, _ in _sections(record, "")]
    if not any(_matches(pattern, node) for pattern in patterns):
        named = ", ".join(patterns) or "no node"
        raise ParametersFileError(f"params_file: {params_file} has parameters of {named}, but none of {node}")


def _sections(record: object, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Node name or pattern, and its parameters; namespaces may be nested."""
    if not isinstance(record, dict):
        return
    for key, value in cast("dict[object, object]", record).items():
        if key == "ros__parameters":
            if isinstance(value, dict):
                yield prefix, cast("dict[str, Any]", value)
        else:
            yield from _sections(value, f"{prefix}/{str(key).strip('/')}")


def _matches(pattern: str, node: str) -> bool:
    """Whether a pattern matches a node's name; `*` stands for one token, `**` for any number of tokens."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("/")]
    return re.fullmatch("/".join(parts).replace("/.*", "(/.*)?"), node) is not None
