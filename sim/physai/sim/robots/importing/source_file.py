"""The file of a robot that is imported, whatever its format."""

import importlib
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from physai.sdk.base.errors import ModelError, PhysaiError
from physai.sdk.base.plugins import contributions, load_plugin
from physai.sim.robots.files.xmlfile import XmlFile, parse_xml, read_xml
from physai.sim.robots.importing.decisions import Decisions

GROUP = "physai.importers"
"""Entry-point group of converters, named by the suffix of the files that they read."""


@dataclass(frozen=True, kw_only=True)
class ConvertedRobot:
    """Text of a URDF or MJCF, and the decisions that its conversion took."""

    text: str
    decisions: tuple[tuple[str, str], ...] = ()
    """`(about, text)` of each."""


RobotConverter = Callable[[Path], str | ConvertedRobot]
"""From a robot's file to a URDF or MJCF. Meshes are found relative to the file's folder, those of an MJCF relative to
its `meshdir`, an absolute path."""


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
    robot = ConvertedRobot(text=text) if isinstance(text, str) else text
    if not isinstance(cast("object", robot), ConvertedRobot):
        raise ModelError(f"{source}: the importer {name!r} returns {type(text).__name__}, not the text of a file")
    decisions.add("importer", f"converted by {contributions(GROUP)[name].value}")
    for about, words in robot.decisions:
        decisions.add(about, words)
    parsed = parse_xml(robot.text.encode(), source)
    if parsed.root.tag != "mujoco":
        return parsed
    # MuJoCo reads MJCF from a file, which lasts as long as what is returned.
    folder = tempfile.TemporaryDirectory(prefix="physai-import-")
    path = Path(folder.name) / f"{source.stem}.xml"
    path.write_text(robot.text, encoding="utf-8")
    written = XmlFile(path=path, root=parsed.root, lines=parsed.lines)
    weakref.finalize(written, folder.cleanup)
    return written


def _xacro_advice(error: Exception) -> str:
    if "ament" in str(error) or "rospkg" in str(error):
        return "; source ROS's setup.bash for $(find …), or write the path instead"
    if "missing attribute 'default'" in str(error) or "Undefined substitution argument" in str(error):
        return "; expand it with its arguments, and import the result: xacro FILE ARG:=VALUE -o robot.urdf"
    return ""
