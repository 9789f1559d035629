"""Checks of the policy node's command line: rclpy ignores what names another node, no parameter, or nothing at all."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import yaml

from physai.ros.parameters import PARAMETERS, ParameterError
from physai.sdk.base.errors import unknown_name

# Parameters of every rclpy node, and of its topics.
OF_RCLPY = ("use_sim_time", "start_type_description_service")
QOS_PREFIX = "qos_overrides."

ROS_ARGUMENTS, END = "--ros-args", "--"


def require_names(names: Iterable[str]) -> None:
    """Refuse parameters that the node does not have.

    Args:
        names: of the parameters that were given to the node.

    Raises:
        UnknownNameError: the node would run with the default of the parameter that was meant.
    """
    for name in names:
        if name not in PARAMETERS and name not in OF_RCLPY and not name.startswith(QOS_PREFIX):
            raise unknown_name("parameter", name, PARAMETERS)


def require_ros_arguments(words: Sequence[str]) -> None:
    """Refuse words that are not between `--ros-args` and `--`.

    Args:
        words: command line without the program.

    Raises:
        ParameterError: rclpy would ignore the word, or take it as a remapping.
    """
    is_ros = False
    for word in words:
        if word == ROS_ARGUMENTS:
            is_ros = True
        elif is_ros and word == END:
            is_ros = False
        elif not is_ros:
            raise ParameterError(
                f"unexpected argument {word!r}: parameters and remappings follow {ROS_ARGUMENTS}, for instance "
                f"{ROS_ARGUMENTS} -p root:=FOLDER"
            )


def require_effect(words: Sequence[str], node: str) -> None:
    """Refuse parameter files and `-p NODE:NAME:=VALUE` that set no parameter of this node.

    Args:
        words: command line that rclpy has accepted.
        node: full name of this node, `/namespace/name`.

    Raises:
        ParameterError: the node would run with defaults instead.
    """
    for flag, value in pairwise(words):
        if flag == "--params-file":
            patterns = list(_sections(_yaml(value), ""))
            if not any(_matches(pattern, node) for pattern in patterns):
                named = ", ".join(patterns) or "no node"
                raise ParameterError(f"{value} has parameters of {named}, but none of {node}; name it, or /**")
        elif flag in ("-p", "--param"):
            # Without a colon before the value it is a parameter of every node.
            target, colon, name = value.partition(":=")[0].rpartition(":")
            if colon and not _matches(f"/{target.strip('/')}", node):
                raise ParameterError(
                    f"-p {value} sets a parameter of the node /{target.strip('/')}, but this one is {node}; leave "
                    f"the node's name out: -p {name}:=…"
                )


def _yaml(path: str) -> object:
    try:
        return cast("object", yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except Exception as error:
        # PyYAML raises many types: `!!bool x` is a KeyError.
        raise ParameterError(f"{path}: no YAML: {error}") from None


def _sections(record: object, prefix: str) -> Iterator[str]:
    """Yield the node names and patterns that have parameters; namespaces may be nested."""
    if not isinstance(record, dict):
        return
    for key, value in cast("dict[object, object]", record).items():
        if key != "ros__parameters":
            yield from _sections(value, f"{prefix}/{str(key).strip('/')}")
        elif isinstance(value, dict):
            yield prefix


def _matches(pattern: str, node: str) -> bool:
    """Whether a pattern matches a node's name; `*` stands for one token, `**` for any number of tokens."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("/")]
    return re.fullmatch("/".join(parts).replace("/.*", "(/.*)?"), node) is not None
