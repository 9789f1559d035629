"""`physai robots import` and `physai robots check`: bring a robot from elsewhere, and try it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.sim.playback.robot_import.import_files import import_robot, import_robots
from physai.sim.playback.robot_import.import_settings import ImportSettings

if TYPE_CHECKING:
    from physai.sim.playback.robot_import.import_files import RobotImport
    from physai.sim.robots import Robot
    from physai.sim.robots.checks.check import RobotCheck

TOLD = ("base", "meshes", "mass", "end effector", "gains")
"""Parts of a robot whose decisions are printed."""
SHOWN = 2
"""Findings of the check that an import prints; all lines together are ten."""


@verb(import_robots, summary="make a robot folder from somebody else's file")
def import_command(
    call: Callable[..., tuple[dict[str, Any], ...]],
    *,
    files: Sequence[str],
    options: Annotated[ImportSettings, Option(flatten=True)],
    out: Path | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    verbose: bool = False,
    as_json: AsJson = False,
) -> int:
    """Present an import; 0 also if the check found something, which it says.

    Makes a folder of a robot that physai and plain MuJoCo load, from a URDF (with meshes), a xacro or an MJCF file.
    What the file leaves open is decided, printed, and kept in decisions.json; options decide otherwise.

    Args:
        verbose: print every decision and finding.
    """
    if len(files) > 1 or Path(files[0]).is_dir():
        return _batch(call, as_json=as_json)
    if jobs is not None or ray is not None:
        raise PhysaiError("--jobs and --ray are for several files, or a folder of them; leave them out for one")
    made = import_robot(files[0], out, options, say=_say)
    if as_json:
        print(json.dumps(made.record(), indent=2))
        return 0
    _print_decisions(made, verbose=verbose)
    _print_check(made.check, most=None if verbose else SHOWN, way_out=f"physai robots check {made.folder}/")
    _print_summary(made)
    return 0


def _batch(call: Callable[..., tuple[dict[str, Any], ...]], *, as_json: bool) -> int:
    start = time.monotonic()
    records = call(say=_line)
    print(json.dumps(records, indent=2) if as_json else printable(_table(records)))
    failed = sum("error" in record for record in records)
    print(f"{len(records)} files, {failed} failed, {time.monotonic() - start:.1f} s", file=sys.stderr)
    return 1 if failed else 0


def _table(records: Sequence[dict[str, Any]]) -> str:
    rows: list[list[str]] = []
    for record in records:
        file = str(record["file"])
        if "error" in record:
            rows.append([file, "", "", "", "failed: " + " ".join(record["error"].split())[:160]])
            continue
        check = record["check"]
        state = "stable" if check["stable"] else "does not stand" if check["stands"] is False else "not stable"
        rows.append([file, record["robot"], str(len(record["joints"])), record["base"], f"{state}, {record['folder']}"])
    return table(["file", "robot", "joints", "base", "result"], rows, indent="")


def _print_decisions(made: RobotImport, *, verbose: bool) -> None:
    """Print all decisions, or those on which it depends what the robot is; the rest is in decisions.json."""
    last = {decision.about: decision.line() for decision in made.decisions.made}
    for line in made.decisions.lines() if verbose else [last[about] for about in TOLD if about in last]:
        print(printable(f"  {line}"))


def _print_summary(made: RobotImport) -> None:
    spec, decisions = made.robot.spec, made.decisions
    print(
        printable(
            f"{made.folder}: {len(spec.joints)} joints, base {spec.base}, {made.seconds:.1f} s; "
            f"{len(decisions.made)} decisions in {made.decisions_file.name} (--verbose prints them)"
        )
    )
    if made.preview is not None:
        axes = ", with the axes of the end effector: x red, y green, z blue" if spec.chains else ""
        print(printable(f"picture: {made.preview}{axes}"))
    print(printable(f"next: {_next(made.robot, made.check)} {made.folder}/"))


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


@verb(summary="try whether a robot can be simulated")
def check_command(model: str, *, as_json: AsJson = False) -> int:
    """Check a robot; 1 if something severe was found.

    Holds a robot still for 5 s, moves each of its joints, and says what is unstable, too stiff for the physics step or
    colliding with itself. Ends with 1 if the robot is not fit to be trained on.

    Args:
        model: a robot's name, file or folder.
    """
    from physai.sim.robots import load_robot
    from physai.sim.robots.checks.check import check_robot

    robot = load_robot(model)
    joints = len(robot.spec.joints)
    _say(f"holding {robot.name} for 5 s and moving its {joints} joints" if joints else f"dropping {robot.name}")
    check = check_robot(robot)
    if as_json:
        print(json.dumps(check.record(), indent=2))
    else:
        _print_check(check)
    return 0 if check.stable else 1


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


def _line(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(styled(printable(text), "dim", sys.stderr), file=sys.stderr, flush=True)
