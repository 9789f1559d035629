"""The file of a robot that is imported, whatever its format."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from physai.sdk.base.errors import ModelError, PhysaiError
from physai.sdk.base.plugins import contributions, load_plugin
from physai.sim.robots.files.xmlfile import XmlFile, parse_xml, read_xml
from physai.sim.robots.importing.decisions import Decisions

GROUP = "physai.importers"
"""Entry-point group of converters, named by the suffix of the files that they read."""

RobotConverter = Callable[[Path], str]
"""From a robot's file to the text of a URDF or MJCF; meshes are found relative to the file's folder."""


def parsed_file(source: Path, decisions: Decisions) -> XmlFile:
    """A robot's file as URDF or MJCF; xacro and formats of other packages are converted.

    Raises:
        ModelError: it is missing, unreadable, or cannot be converted.
    """
    if source.suffix.lower().removeprefix(".") in contributions(GROUP):
        return _converted(source, decisions)
    if source.suffix.lower() != ".xacro":
        return read_xml(source)
    read_xml(source)  # refuses what no parser should see
    try:
        xacro: Any = importlib.import_module("xacro")
    except ImportError as error:
        raise ModelError(
            f"{source}: a xacro file needs the package xacro: pip install xacro (or convert it: xacro FILE -o "
            f"{source.stem}.urdf)"
        ) from error
    try:
        text = xacro.process_file(str(source)).toxml()
    except RecursionError as error:
        raise ModelError(f"{source}: xacro: its files or macros include each other in a circle") from error
    except Exception as error:  # xacro raises whatever its macros do
        raise ModelError(f"{source}: xacro: {' '.join(str(error).split())[:300]}{_xacro_advice(error)}") from error
    decisions.add("xacro", "expanded with its default arguments", f"xacro {source.name} ARG:=VALUE -o FILE.urdf")
    return parse_xml(str(text).encode(), source)


def _converted(source: Path, decisions: Decisions) -> XmlFile:
    """A file of a format that another package converts to URDF or MJCF."""
    name = source.suffix.lower().removeprefix(".")
    convert: RobotConverter = load_plugin(GROUP, "importer", name)
    try:
        text = convert(source)
    except PhysaiError:
        raise
    except Exception as error:  # an importer of another package may raise anything
        message = " ".join(str(error).split())
        raise ModelError(f"{source}: the importer {name!r} fails: {type(error).__name__}: {message}") from error
    if not isinstance(cast("object", text), str):
        raise ModelError(f"{source}: the importer {name!r} returns {type(text).__name__}, not the text of a file")
    decisions.add("importer", f"converted by {contributions(GROUP)[name].value}")
    return parse_xml(text.encode(), source)


def _xacro_advice(error: Exception) -> str:
    if "ament" in str(error) or "rospkg" in str(error):
        return "; source ROS's setup.bash for $(find …), or write the path instead"
    if "missing attribute 'default'" in str(error) or "Undefined substitution argument" in str(error):
        return "; expand it with its arguments, and import the result: xacro FILE ARG:=VALUE -o robot.urdf"
    return ""
