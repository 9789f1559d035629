"""`physai robots import` and `physai robots check`: bring a robot from elsewhere, and try it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import add_worker_arguments, check_worker_options
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sim.cli.robots_batch import ImportRequest, run_batch

if TYPE_CHECKING:
    from physai.sim.robots import Robot
    from physai.sim.robots.checks.check import RobotCheck
    from physai.sim.robots.importing.importer import Imported, ImportOptions

_IMPORT = """Make a folder of a robot that physai and plain MuJoCo load, from a URDF (with meshes), a xacro or an MJCF
file. What the file leaves open is decided, printed, and kept in decisions.json; options decide otherwise."""
TOLD = ("base", "meshes", "mass", "end effector")
"""Parts of a robot whose decisions are printed."""
SHOWN = 2
"""Findings of the check that an import prints; all lines together are ten."""
_CHECK = """Hold a robot still for 5 s, move each of its joints, and say what is unstable, too stiff for the physics
step or colliding with itself. Ends with 1 if the robot is not fit to be trained on."""


def add_import_parser(actions: Any) -> None:
    """Adds the action `import`."""
    parser = actions.add_parser("import", help="make a robot folder from somebody else's file", description=_IMPORT)
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="URDF (.urdf), xacro (.xacro) or MJCF (.xml) file; several, or a folder of them, are imported one by one",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write (default: the file's stem); of several files, where their folders go (default: here)",
    )
    add_worker_arguments(parser)
    parser.add_argument("--ee", metavar="LINK", help="link or site at the end effector (default: by name and chain)")
    parser.add_argument(
        "--servo",
        default="auto",
        metavar="KP,KD",
        help="gains of all servos [N·m/rad, N·m·s/rad], effort for motors instead of servos, or none to keep the "
        "file's actuators (default: auto, from effort limit, inertia and bandwidth)",
    )
    parser.add_argument("--bandwidth", type=float, default=5.0, metavar="HZ", help="of auto's servos (default: 5)")
    parser.add_argument(
        "--speed", type=float, default=2.0, metavar="RAD_S", help="speed limit of hinges without one (default: 2)"
    )
    parser.add_argument(
        "--effort",
        metavar="N_M",
        help="effort limits instead of the file's [N·m, N]: one of all joints, or JOINT=N_M,… with patterns as wrist_*",
    )
    parser.add_argument("--drive", metavar="JOINT,…", help="joints that get a servo (default: those with an actuator)")
    parser.add_argument("--fix", metavar="JOINT,…", help="joints of a URDF to hold still; patterns as gripper_*")
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--floating", action="store_true", help="the base of a URDF is free (default: if it has legs)")
    base.add_argument("--fixed-base", action="store_true", help="the base of a URDF is fixed to the world")
    parser.add_argument("--no-gravcomp", action="store_true", help="servos of a fixed robot do not carry its weight")
    parser.add_argument(
        "--no-counterbalance",
        action="store_true",
        help="motors alone carry the weight, also where a stated effort limit is less than it at home",
    )
    parser.add_argument("--balance", action="store_true", help="raise moments of inertia that no body can have")
    parser.add_argument(
        "--decimate",
        type=int,
        metavar="FACES",
        help="reduce visual meshes to so many triangles each; collisions and masses stay (default: keep all)",
    )
    parser.add_argument("--verbose", action="store_true", help="print every decision and finding")
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_check_parser(actions: Any) -> None:
    """Adds the action `check`."""
    parser = actions.add_parser("check", help="try whether a robot can be simulated", description=_CHECK)
    parser.add_argument("robot", metavar="ROBOT", help="a robot's name, file or folder")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_import(arguments: argparse.Namespace) -> int:
    """Imports, draws a preview and checks; 0 also if the check found something, which it says."""
    from physai.sim.robots.importing.importer import PREVIEW_FILE, import_robot

    check_worker_options(arguments)
    options = _options(arguments)
    source: Path = arguments.files[0]
    if len(arguments.files) > 1 or source.is_dir():
        return run_batch(arguments, options, import_one)
    if arguments.jobs is not None or arguments.ray is not None:
        raise PhysaiError("--jobs and --ray are for several files, or a folder of them; leave them out for one")
    folder: Path = arguments.out or Path(source.name.split(".")[0])
    start = time.monotonic()
    _say(f"importing {source} into {folder}")
    imported = import_robot(source, folder, options)
    picture = _preview(imported.robot, folder / PREVIEW_FILE)
    _say("checking that it holds still and moves")
    check = _checked(imported.robot)
    imported.keep(check.record())
    seconds = time.monotonic() - start
    if arguments.json:
        print(json.dumps(_record(imported, folder, picture, check, seconds), indent=2))
        return 0
    _print_decisions(imported, verbose=arguments.verbose)
    _print_check(check, most=None if arguments.verbose else SHOWN, way_out=f"physai robots check {folder}/")
    _print_summary(imported, folder, picture, check, seconds)
    return 0


def _print_decisions(imported: Imported, *, verbose: bool) -> None:
    """Print all decisions, or those on which it depends what the robot is; the rest is in decisions.json."""
    last = {decision.about: decision.line() for decision in imported.decisions.made}
    for line in imported.decisions.lines() if verbose else [last[about] for about in TOLD if about in last]:
        print(printable(f"  {line}"))


def _print_summary(imported: Imported, folder: Path, picture: str | None, check: RobotCheck, seconds: float) -> None:
    spec, decisions = imported.robot.spec, imported.decisions
    print(
        printable(
            f"{folder}: {len(spec.joints)} joints, base {spec.base}, {seconds:.1f} s; {len(decisions.made)} decisions "
            f"in {imported.record.name} (--verbose prints them)"
        )
    )
    if picture is not None:
        axes = ", with the axes of the end effector: x red, y green, z blue" if spec.chains else ""
        print(printable(f"picture: {picture}{axes}"))
    print(printable(f"next: {_next(imported.robot, check)} {folder}/"))


def _record(imported: Imported, folder: Path, picture: str | None, check: RobotCheck, seconds: float) -> dict[str, Any]:
    return {
        "robot": imported.robot.name,
        "folder": str(folder),
        "base": imported.robot.spec.base,
        "joints": [joint.name for joint in imported.robot.spec.joints],
        "chains": [chain.name for chain in imported.robot.spec.chains],
        "preview": picture,
        "seconds": round(seconds, 3),
        "decisions": imported.decisions.records(),
        "check": check.record(),
    }


def _imported_record(source: Path, folder: Path, options: ImportOptions) -> dict[str, Any]:
    """Imports, draws a preview and checks; returns what `--json` prints.

    Raises:
        PhysaiError: the file cannot be imported.
    """
    from physai.sim.robots.importing.importer import PREVIEW_FILE, import_robot

    start = time.monotonic()
    imported = import_robot(source, folder, options)
    picture = _preview(imported.robot, folder / PREVIEW_FILE)
    check = _checked(imported.robot)
    imported.keep(check.record())
    return _record(imported, folder, picture, check, time.monotonic() - start)


def import_one(options: ImportOptions, request: ImportRequest) -> dict[str, Any]:
    """Import a file; what a worker does. Problems of the file, and bugs, are in the record."""
    try:
        return {"file": str(request.file), **_imported_record(request.file, request.folder, options)}
    except PhysaiError as error:
        problem = str(error)
    except Exception as error:  # the others are imported all the same, and the record says what to report
        problem = f"a bug in physai: {type(error).__name__}: {error}"
    return {"file": str(request.file), "error": problem}


def _next(robot: Robot, check: RobotCheck) -> str:
    """The next command that suits the robot, without its folder."""
    if not check.servos:
        return "physai train swingup --model"
    if not check.stable:
        return "change what is named above, then physai robots check"
    if check.floating:
        return "physai train velocity --model" if _has_legs(robot) else "physai robots show"
    return "physai train reach --model" if robot.spec.chains else "physai robots show"


def _has_legs(robot: Robot) -> bool:
    from physai.sim.robots import home_qpos
    from physai.sim.robots.checks.feet import find_feet

    return len(find_feet(robot.model, home_qpos(robot.model))) > 1


def run_check(arguments: argparse.Namespace) -> int:
    """Checks; 1 if something severe was found."""
    from physai.sim.robots import load_robot

    robot = load_robot(arguments.robot)
    joints = len(robot.spec.joints)
    _say(f"holding {robot.name} for 5 s and moving its {joints} joints" if joints else f"dropping {robot.name}")
    check = _checked(robot)
    if arguments.json:
        print(json.dumps(check.record(), indent=2))
    else:
        _print_check(check)
    return 0 if check.stable else 1


def _checked(robot: Any) -> RobotCheck:
    from physai.sim.robots.checks.check import check_robot

    return check_robot(robot)


def _preview(robot: Robot, path: Path) -> str | None:
    from physai.sim.playback.markers import end_effector_axes
    from physai.sim.playback.rendering import render_png
    from physai.sim.robots import home_qpos

    try:
        render_png(robot.model, home_qpos(robot.model), path, strokes=end_effector_axes(robot.model))
    except PhysaiError as error:
        _say(f"no preview: {error}")
        return None
    return str(path)


def _options(arguments: argparse.Namespace) -> ImportOptions:
    from physai.compute.cli.options import require_range
    from physai.sim.robots.importing.actuation import Servos
    from physai.sim.robots.importing.importer import ImportOptions
    from physai.sim.robots.importing.meshes.assets import MAX_STL_FACES
    from physai.sim.robots.importing.meshes.decimation import LEAST_FACES

    require_range("--bandwidth", arguments.bandwidth, 0.1, 100.0)
    require_range("--speed", arguments.speed, 1e-3, 1e3)
    if arguments.decimate is not None:
        require_range("--decimate", arguments.decimate, LEAST_FACES, MAX_STL_FACES)
    kp, kd = _gains(arguments.servo)
    return ImportOptions(
        end_effector=arguments.ee,
        servos=Servos(
            kp=kp,
            kd=kd,
            bandwidth_hz=arguments.bandwidth,
            speed=arguments.speed,
            keep=arguments.servo == "none",
            effort=arguments.servo == "effort",
            efforts=_efforts(arguments.effort),
        ),
        driven=_names(arguments.drive),
        fixed=_names(arguments.fix) or (),
        floating=True if arguments.floating else False if arguments.fixed_base else None,
        compensate=not arguments.no_gravcomp,
        counterbalance=not arguments.no_counterbalance,
        balance=arguments.balance,
        faces=arguments.decimate,
    )


def _gains(text: str) -> tuple[float | None, float | None]:
    from physai.compute.cli.options import require_range

    if text in ("auto", "none", "effort"):
        return None, None
    parts = text.split(",")
    try:
        kp, kd = (float(part) for part in parts)
    except ValueError as error:
        raise PhysaiError(f"--servo {text[:40]}: expected auto, effort, none, or two numbers as 100,10") from error
    require_range("--servo KP", kp, 1e-6, 1e9)
    require_range("--servo KD", kd, 0.0, 1e9)
    return kp, kd


def _efforts(text: str | None) -> tuple[tuple[str, float], ...]:
    from physai.compute.cli.options import require_range
    from physai.sim.robots.importing.actuation import LARGEST_EFFORT

    pairs: list[tuple[str, float]] = []
    for part in [] if text is None else text.split(","):
        joint, _, number = part.rpartition("=")
        try:
            effort = float(number)
        except ValueError as error:
            raise PhysaiError(f"--effort {part[:40]}: expected a number, or JOINT=NUMBER as wrist_*=28") from error
        require_range("--effort", effort, 1e-6, LARGEST_EFFORT)
        pairs.append((joint or "*", effort))
    return tuple(pairs)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in text.split(",") if name)


def _print_check(check: RobotCheck, *, most: int | None = None, way_out: str = "") -> None:
    findings = sorted(check.findings, key=lambda finding: not finding.severe)
    for finding in findings[:most]:
        mark = styled("unstable" if finding.severe else "note", "red" if finding.severe else "yellow", sys.stdout)
        advice = f"; try {finding.next_step}" if finding.next_step else ""
        print(f"{mark} " + printable(f"{finding.about}: {finding.text}{advice}"))
    if most is not None and len(findings) > most:
        print(printable(f"and {len(findings) - most} more: {way_out}"))
    if check.stable:
        held = "holds its joints still where it hangs" if check.floating else "holds still"
        rest = check.joints - check.servos
        others = f", not {', '.join(check.unmoved)}" if check.unmoved else ""
        others += f"; {rest} without a servo" if rest else ""
        others += "" if check.stands is None else "; it stands" if check.stands else "; it does NOT stand"
        print(printable(f"stable: {check.robot} {held}, {check.moved} of {check.joints} joints moved as told{others}"))
    else:
        stands = ", it does NOT stand" if check.stands is False else ""
        print(printable(f"not stable: {check.robot}{stands}, see above"))


def _say(text: str) -> None:
    print(styled(printable(text), "dim", sys.stderr), file=sys.stderr, flush=True)
