"""Finds, checks and compiles robot models."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from physai.sdk.base.errors import ModelError, unknown_name
from physai.sdk.base.files import open_plain
from physai.sdk.contract.robot import RobotSpec
from physai.sim import friction
from physai.sim.robots.files.archive import read_zip
from physai.sim.robots.files.named_files import announce_files
from physai.sim.robots.files.package import ZIP_START, RobotPackage, read_package
from physai.sim.robots.files.physics_options import check_options
from physai.sim.robots.files.pictures import check_model_pictures
from physai.sim.robots.files.urdf import read_urdf
from physai.sim.robots.files.xmlfile import XmlFile, read_xml
from physai.sim.robots.scene import light_up
from physai.sim.robots.spec import home_qpos, posed, robot_spec
from physai.sim.solver import use_right_solver


@dataclass(frozen=True, kw_only=True)
class Robot:
    """A robot: its editable and compiled model, and its specification in a contract."""

    name: str
    """Built-in name, or the file's stem with characters other than letters, digits, _ and - replaced by _."""
    path: Path
    """The file it was read from."""
    description: str
    """One line."""
    model_spec: mujoco.MjSpec
    """Editable model; copy it with `model_spec.copy()` before changing it."""
    model: mujoco.MjModel
    spec: RobotSpec
    """Joints, sensors and chains, derived from `model`."""


_FOLDER = Path(__file__).parent


def robot_names() -> tuple[str, ...]:
    """Names of the built-in robots, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.xml")))


def load_robot(name_or_path: str | Path) -> Robot:
    """Load a built-in robot by its name, or an MJCF (.xml), URDF (.urdf), zip or folder of a robot by its path.

    A string without a slash and without one of these endings is a name, or a folder if there is no robot of that name.
    A file that begins as a zip is read as one; a folder has one MJCF file, as those of `physai robots import`.

    Raises:
        UnknownNameError: no built-in robot has that name.
        ModelError: the file is missing, unreadable, not a robot model or not physical.
    """
    path = _locate(name_or_path)
    if _is_zip(path):
        return load_package(read_package(read_zip(path)), path)
    parsed = read_xml(path)
    model_spec, note = _read_model(parsed)
    return _robot(path, path, model_spec, note)


def load_package(package: RobotPackage, path: Path) -> Robot:
    """Load a robot from files in memory; no file is opened.

    Args:
        package: the files.
        path: the file that they come from.

    Raises:
        ModelError: the package is not a robot model or not physical; messages name the file in the package.
    """
    main = package.main
    if main.root.tag == "robot":
        model = read_urdf(main, package.read_mesh)
        return _robot(path, main.path, model.spec, model.note)
    try:
        model_spec = mujoco.MjSpec.from_string(package.mjcf(), assets=package.assets)
    except ValueError as error:
        raise ModelError(f"{main.path}: {_without_line(error)}") from error
    return _robot(path, main.path, model_spec, "")


def _robot(path: Path, source: Path, model_spec: mujoco.MjSpec, note: str) -> Robot:
    """Compile a model; `source` gives the name and is in messages."""
    name = robot_name(source)
    check_options(source, model_spec)
    light_up(model_spec)
    friction.reserve(model_spec)
    try:
        model = use_right_solver(model_spec.compile())
    except ValueError as error:
        raise ModelError(f"{source}: {_one_line(error)}") from error
    _require_finite_dynamics(source, model)
    try:
        spec = robot_spec(model, name=name)
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error
    return Robot(
        name=name,
        path=path,
        description=_description(model, source, note),
        model_spec=model_spec,
        model=model,
        spec=spec,
    )


def _is_zip(path: Path) -> bool:
    try:
        with open_plain(path) as file:
            return file.read(len(ZIP_START)) == ZIP_START
    except (OSError, ValueError):
        return False  # `read_xml` says why


def _locate(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.lower().endswith((".xml", ".urdf", ".zip")):
        path = Path(os.path.expanduser(text))  # unlike Path.expanduser, does not raise for an unknown user
        return _in_folder(path) if path.is_dir() else path
    if text not in robot_names():
        if Path(text).is_dir():
            return _in_folder(Path(text))
        raise unknown_name("robot", text, robot_names())
    return _FOLDER / f"{text}.xml"


def _in_folder(folder: Path) -> Path:
    try:
        models = sorted(folder.glob("*.xml"))
    except OSError as error:
        raise ModelError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    if len(models) != 1:
        found = f"{len(models)} MJCF files" if models else "no MJCF file"
        raise ModelError(f"{folder}: has {found}; name the file, or make a folder with: physai robots import FILE")
    return models[0]


def robot_name(path: Path) -> str:
    """The name of the robot in a file or folder, as file names, topics and contracts allow it."""
    name = re.sub(r"[^A-Za-z0-9_\-]", "_", path.stem)[:63]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def _read_model(parsed: XmlFile) -> tuple[mujoco.MjSpec, str]:
    """The model in a file, and a note on omitted parts."""
    tag = parsed.root.tag
    if tag == "robot":
        model = read_urdf(parsed)
        return model.spec, model.note
    if tag != "mujoco":
        raise parsed.error(parsed.root, f"root element <{tag}>; expected <mujoco> (MJCF) or <robot> (URDF)")
    try:
        spec = mujoco.MjSpec.from_file(str(parsed.path))
    except ValueError as error:
        raise ModelError(f"{parsed.path}: {_one_line(error)}") from error
    check_model_pictures(spec, parsed.path.parent)
    announce_files(parsed.path)
    return spec, ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).replace("XML Error:", "").replace("Error:", "").split())


def _without_line(error: Exception) -> str:
    # The text that MuJoCo parsed is one line.
    return re.sub(r", line -?\d+", "", _one_line(error))


def _require_finite_dynamics(path: Path, model: mujoco.MjModel) -> None:
    # Catches unphysical models that pass all other checks.
    data = posed(model, home_qpos(model), mujoco.mj_forward)
    if not math.isfinite(float(np.abs(data.qacc).sum())):
        raise ModelError(f"{path}: the accelerations of the home pose are not finite; check masses, inertia and limits")


def _description(model: mujoco.MjModel, path: Path, note: str) -> str:
    found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXT, "description")
    if found < 0:
        return f"from {path.name}" + (f", {note}" if note else "")
    start, size = int(model.text_adr[found]), int(model.text_size[found])
    text = bytes(model.text_data[start : start + size]).rstrip(b"\0").decode("utf-8", "replace")
    return " ".join(text.split())
