"""Converts a robot in OpenUSD to MJCF, exactly, or refuses it with the prim."""

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from physai.foreign.usd.agreement import compare
from physai.foreign.usd.fitted import add_targets, fit, plain_names
from physai.foreign.usd.frames import UsdUnits
from physai.foreign.usd.layers import open_stage
from physai.foreign.usd.library import EXTRA, require_usd, said
from physai.foreign.usd.schemas import check_mjc, unread
from physai.foreign.usd.stated import StatedRobot, read_robot
from physai.sdk.base.errors import ModelError
from physai.sdk.base.process.isolation import ApartError, JsonFacts, ReportProgress, call_apart, serve
from physai.sim.robots.importing.source_file import ConvertedRobot

STEP_S = 60.0
"""Maximum time of each step in the child [s]."""
_SHOWN = 4


def to_mjcf(source: Path) -> ConvertedRobot:
    """Convert a robot in OpenUSD to MJCF.

    MuJoCo's decoder is native code and the file a stranger's: a child process with limits of time and memory reads it.

    Raises:
        MissingExtraError: the extra `usd` is not installed.
        ModelError: the file cannot be read, or holds what MuJoCo does not have; names the prim.
    """
    if not source.is_file():
        raise ModelError(f"{source}: no such file")
    require_usd()
    request = json.dumps({"source": str(source.resolve())}).encode()
    try:
        facts, blobs = call_apart(__name__, request, what=f"reading {source.name}", limit_s=lambda _: STEP_S)
    except ApartError as error:
        raise ModelError(f"{source}: {error}") from None
    return ConvertedRobot(text=blobs[0].decode(), decisions=tuple((about, text) for about, text in facts["decisions"]))


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    source = Path(json.loads(request)["source"])
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)  # OpenUSD and MuJoCo print a line for each prim that they do not know
    for name in ("PXR_AR_DEFAULT_SEARCH_PATH", "PXR_PLUGINPATH_NAME"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # MuJoCo writes its warnings to the working folder
        text, decisions = converted(source, report)
        os.chdir("/")
    return {"decisions": decisions}, [text.encode()]


def converted(source: Path, report: ReportProgress) -> tuple[str, list[tuple[str, str]]]:
    """Return MJCF text and decisions `(about, text)` of a robot, in this process.

    Raises:
        ModelError: the file cannot be read, or holds what MuJoCo does not have; names the prim.
    """
    import mujoco

    report({"stage": "opening"})
    stage = open_stage(source)
    report({"stage": "reading the stage"})
    try:
        units = UsdUnits(stage)
        left = list(unread(stage, units))
        robot = read_robot(stage, units)
    except (RuntimeError, ArithmeticError) as error:  # OpenUSD's own are RuntimeErrors
        raise ModelError(f"/: OpenUSD cannot read the stage: {said(error)}") from error
    report({"stage": "MuJoCo's decoder"})
    try:
        spec: Any = mujoco.MjSpec.from_file(str(source))
    except (ValueError, mujoco.FatalError) as error:
        raise ModelError(
            f"MuJoCo's decoder: {' '.join(str(error).split())[:300]} (is it installed? {EXTRA})"
        ) from error
    report({"stage": "fitting"})
    check_mjc(spec, stage, units)
    fit(spec, robot, source.stem)
    try:
        add_targets(spec, robot)
        compare(mujoco.MjSpec.from_string(_full_xml(spec)).compile(), robot)
        doubled = plain_names(spec)
        text = _full_xml(spec)
    except (ValueError, mujoco.FatalError) as error:
        raise ModelError(f"MuJoCo does not compile it: {' '.join(str(error).split())[:300]}") from error
    return text, [*left, *_said(robot, doubled)]


def _full_xml(spec: Any) -> str:
    """Return a model as MJCF with all digits; MuJoCo writes six otherwise."""
    import mujoco

    spec.compile()
    library = ctypes.CDLL(str(next(Path(str(mujoco.__file__)).parent.glob("libmujoco.*"))))
    digits = library._mjPRIVATE__get_xml_precision()
    library._mjPRIVATE__set_xml_precision(17)
    try:
        return str(spec.to_xml())
    finally:
        library._mjPRIVATE__set_xml_precision(digits)


def _said(robot: StatedRobot, doubled: list[str]) -> Iterator[tuple[str, str]]:
    if robot.unseen:
        yield "shapes", f"that MuJoCo does not have are not drawn: {_some(robot.unseen)}"
    plain = [path for path, shape in robot.shapes.items() if shape.collides and shape.friction is None]
    if plain:
        yield "friction", f"is not stated, MuJoCo's 1 is taken: {_some(plain)}"
    groups = sorted({str(shape.collider.GetPath()) for shape in robot.shapes.values() if shape.of_group})
    if groups:
        yield "collisions", f"of an Xform are those of the shapes below it: {_some(groups)}"
    hulls = [path for path, shape in robot.shapes.items() if shape.collides and shape.kind == "mesh"]
    if hulls:
        yield "meshes", f"collide as their convex hulls: {_some(hulls)}"
    still = [path for path, body in robot.bodies.items() if body.still]
    if still:
        yield "base", f"is kinematic, and so fixed to the world: {_some(still)}"
    idle = [joint.path for joint in robot.joints if joint.idle is not None]
    if idle:
        yield (
            "drives",
            f"without stiffness and damping leave their maxForce as the joint's limit of effort: {_some(idle)}",
        )
    if robot.mjc:
        yield (
            "MuJoCo's USD",
            "does not hold gravcomp, contype, conaffinity, friction of geoms with a material, excludes, contact pairs, "
            "equality constraints, sensors and the integrator implicitfast of an MJCF; add those to the result",
        )
    if doubled:
        yield "names", f"are paths where the last name is not unique: {_some(doubled)}"


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
