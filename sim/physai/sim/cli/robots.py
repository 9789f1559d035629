"""`physai robots`: lists, shows, renders, imports and checks robot models."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, noun, verb
from physai.sim.cli.robots_import import check_command, import_command

if TYPE_CHECKING:
    from physai.sdk.contract.robot import JointSpec
    from physai.sim.robots import Robot


@verb(summary="list the built-in robots (default)")
def _list(*, as_json: AsJson = False) -> int:
    """List the robots."""
    from physai.sim.robots import load_robot, robot_names

    robots = [load_robot(name) for name in robot_names()]
    if as_json:
        print(json.dumps([_summary(robot) for robot in robots], indent=2))
        return 0
    rows = [(r.name, str(len(r.spec.joints)), r.spec.base, f"{_mass(r):.4g}", r.description) for r in robots]
    print(table(("name", "joints", "base", "mass [kg]", "description"), rows, indent=""))
    print("\nyour own: physai robots import FILE.xml or FILE.urdf")
    return 0


@verb(summary="print joints, sensors and kinematic chains of a robot, or render it")
def _show(
    model: str, *, render: Annotated[str | None, Option(metavar="PNG", bare="")] = None, as_json: AsJson = False
) -> int:
    """Print a robot.

    Args:
        model: a robot's name, or the path of an MJCF (.xml) or URDF (.urdf) file or a robot folder.
        render: render the home pose to this file, with the axes of the end effector (default: the robot's name with
            .png, in this folder).
    """
    from physai.sim.playback.robot_import.import_files import draw_robot
    from physai.sim.robots import load_robot

    robot = load_robot(model)
    picture = None if render is None else str(draw_robot(robot, render or None))
    if as_json:
        record = {**_summary(robot), "picture": picture, "spec": robot.spec.model_dump(mode="json")}
        print(json.dumps(record, indent=2))
    else:
        print("\n".join(_sections(robot)))
        if picture is not None:
            print(printable(f"\npicture: {picture}"))
    return 0


def _summary(robot: Robot) -> dict[str, str | float | int]:
    return {
        "name": robot.name,
        "description": robot.description,
        "file": str(robot.path),
        "joints": len(robot.spec.joints),
        "base": robot.spec.base,
        "mass_kg": _mass(robot),
    }


def _mass(robot: Robot) -> float:
    """Moving mass [kg]."""
    model = robot.model
    # Bodies welded to the world are excluded: many models give them no mass.
    return float(sum(model.body_mass[body] for body in range(model.nbody) if model.body_weldid[body] != 0))


def _sections(robot: Robot) -> list[str]:
    spec = robot.spec
    chains = [
        (chain.name, str(len(chain.segments)), " ".join(s.joint for s in chain.segments if s.joint is not None))
        for chain in spec.chains
    ]
    sensors = [(s.name, str(s.size), s.unit or "-", s.frame or "-") for s in spec.sensors]
    return [
        f"robot        {robot.name}: {printable(robot.description)}",
        f"file         {printable(str(robot.path))}",
        f"base         {spec.base}",
        f"moving mass  {_mass(robot):.6g} kg",
        *_section(f"joints ({len(spec.joints)}), rad and N·m; slide joints m and N", _joints(spec.joints)),
        *_section(f"sensors ({len(spec.sensors)})", table(("name", "size", "unit", "frame"), sensors)),
        *_section(f"chains ({len(spec.chains)})", table(("name", "segments", "joints"), chains)),
    ]


def _section(title: str, body: str) -> list[str]:
    return ["", styled(title, "bold", sys.stdout), body or "  none"]


def _joints(joints: tuple[JointSpec, ...]) -> str:
    rows = [
        (
            str(index),
            joint.name,
            joint.kind,
            "-" if joint.position_lower is None else f"[{joint.position_lower:.6g}, {joint.position_upper:.6g}]",
            "-" if joint.velocity_limit is None else f"{joint.velocity_limit:.6g}",
            f"{joint.effort_limit:.6g}" if joint.effort_limit > 0.0 else "-",
            f"{joint.stiffness:.6g}" if joint.stiffness > 0.0 else "-",
            f"{joint.damping:.6g}" if joint.damping > 0.0 else "-",
            f"{joint.default_pos:.6g}",
        )
        for index, joint in enumerate(joints)
    ]
    return table(("#", "name", "kind", "position", "velocity", "effort", "kp", "kd", "default"), rows)


command = noun(
    "list, show, render, import or check robot models",
    {"list": _list, "show": _show, "import": import_command, "check": check_command},
    default="list",
)
"""The verb `robots`."""
