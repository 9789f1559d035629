"""The robot as a policy from elsewhere knows it: its gains, its default pose, and what else the policy brings along."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.errors import ModelError, unknown_name
from physai.sdk.base.files import read_bounded
from physai.sim.robots.checks.feet import lowest_touching
from physai.sim.robots.files.archive import pack, pack_model
from physai.sim.robots.files.package import read_package
from physai.sim.robots.importing.actuation import Servos, stated_effort
from physai.sim.robots.importing.importer import DECISIONS_FILE, ImportOptions, import_robot
from physai.sim.robots.importing.meshes.assets import HULL_VERTICES
from physai.sim.robots.importing.pose.home import controls_at_home
from physai.sim.robots.importing.replaced import plain_actuator
from physai.sim.robots.loader import Robot, load_robot, robot_names
from physai.sim.robots.spec import VELOCITY_LIMITS, has_floating_base, home_qpos, joint_ids

UNSTATED_SPEED = 98765.0
"""Speed limit that the importer is to write where a file states none, so that it is found again [rad/s]."""
ASSUMED = (b"rotor inertia", b"speed limits")
"""Words of the importer's decisions about joints to which it gave an inertia or a speed limit of its own."""
EFFORT_SHARE = 1.01
"""How far the policy's effort limit may exceed the file's, as roundings do."""
ROBOT_FILE = "robot.zip"
MAX_BYTES = 16 << 20
"""Of the importer's decisions."""


@dataclass(frozen=True, kw_only=True)
class FittedRobot:
    """A robot with a policy's gains and pose."""

    robot: Robot
    speeds: tuple[float, ...]
    """Speed limits of the joints in the file [rad/s], 0 where it states none."""
    notes: tuple[str, ...]
    """What was assumed, one sentence each."""


def fitted_robot(model: str | Path, described: PolicyDescription, folder: Path) -> FittedRobot:
    """Write a robot with a policy's gains and pose as a zip, and load it.

    Args:
        model: MJCF or URDF file of the robot, a folder with one, or the name of a built-in robot.
        described: the policy.
        folder: for the zip and what it is made from; exists.

    Raises:
        ForeignPolicyError: the robot lacks a joint of the policy, or a joint of it is neither commanded nor held.
        ModelError: the robot cannot be loaded.
    """
    name, path, notes = _plain(model, folder)
    data, main = pack_model(path)
    package = read_package(data, main=main)
    spec = mujoco.MjSpec.from_string(package.mjcf(), assets=package.assets)
    if not _is_ours(model):
        # The importer bounds them for speed; with other hulls of its feet a biped turned another way.
        for mesh in spec.meshes:
            mesh.maxhullvert = -1 if mesh.maxhullvert == HULL_VERTICES else mesh.maxhullvert
    notes += _differences(spec.compile(), described)
    _actuate(spec, described, Path(model))
    speeds = _limit_speeds(spec, described)
    if any(speeds) and described.velocity_limit is None:
        notes.append(
            "speed limits: those of the file do not limit how fast targets move, which are no trajectories when a "
            "robot walks; state velocity_limit=[…] if they are to"
        )
    _pose(spec, described)
    file = folder / ROBOT_FILE
    file.write_bytes(pack({f"{name}.xml": spec.to_xml().encode(), **package.assets}))
    return FittedRobot(robot=load_robot(file), speeds=speeds, notes=tuple(notes))


def _is_ours(model: str | Path) -> bool:
    """Whether it is a built-in robot or an imported folder, and not the file of its maker."""
    return str(model) in robot_names() or Path(model).is_dir()


def _differences(model: Any, described: PolicyDescription) -> Iterator[str]:
    """Limits of the policy beyond those of the robot's file, and values that neither states, as one sentence each."""
    columns = {str(model.joint(joint).name): joint for joint in joint_ids(model)}
    known = [name for name in described.joints if name in columns]
    stated = {name: stated_effort(model, columns[name]) for name in known}
    more = [
        f"{name} {effort:g} for {stated[name]:g}"
        for name, effort in zip(described.joints, described.effort or (), strict=False)
        if stated.get(name) and effort > EFFORT_SHARE * stated[name]
    ]
    if more:
        yield f"effort: the policy's limits exceed those of the robot's file: {', '.join(more[:4])}" + _more(more)
    bare = [name for name in known if not model.dof_armature[model.jnt_dofadr[columns[name]]]]
    if bare and described.armature is None:
        yield f"armature: neither the policy nor the robot's file states that of {', '.join(bare[:4])}{_more(bare)}: 0"


def _more(names: list[str]) -> str:
    return " …" if len(names) > 4 else ""


def _plain(model: str | Path, folder: Path) -> tuple[str, Path, list[str]]:
    """The robot's name and MJCF file, without gains and inertias of ours, and what was assumed to import it."""
    path = Path(model)
    if _is_ours(model):
        record = path / DECISIONS_FILE
        made = read_bounded(record, limit=MAX_BYTES, error=ForeignPolicyError) if record.is_file() else b""
        if any(words in made for words in ASSUMED):
            raise ForeignPolicyError(
                f"{path}: physai robots import gave its joints inertias or speed limits of its own, with which the "
                "policy was not trained; name the file that the robot was imported from"
            )
        robot = load_robot(str(model))
        return robot.name, robot.path, []
    options = ImportOptions(servos=Servos(keep=True, speed=UNSTATED_SPEED), floating=True)
    try:
        imported = import_robot(path, folder / (path.stem or "robot"), options)
    except ModelError as error:
        # The importer's way out is an option of its own.
        raise ForeignPolicyError(str(error).split("; without `servo` none")[0]) from None
    made = [one for one in imported.decisions.made if one.about not in ("actuators", "speed limits", "home")]
    return imported.robot.name, imported.robot.path, [f"{one.about}: {one.text}" for one in made]


def _actuate(spec: mujoco.MjSpec, described: PolicyDescription, path: Path) -> None:
    """Replace the actuators by position servos with the policy's gains."""
    model: Any = spec.compile()
    names = [str(model.joint(joint).name) for joint in joint_ids(model)]
    for name in (*described.joints, *(described.held or {})):
        if name not in names:
            raise ForeignPolicyError(f"{path}: {unknown_name('joint', name, names)}; the policy names it")
    efforts = {str(model.joint(joint).name): stated_effort(model, joint) for joint in joint_ids(model)}
    held = described.held or {}
    gains = dict(zip(described.joints, zip(described.stiffness, described.damping, strict=True), strict=True))
    gains |= {name: (one.stiffness, one.damping) for name, one in held.items()}
    loose = [name for name in names if efforts[name] and name not in gains]
    if loose:
        raise ForeignPolicyError(
            f"{path}: the policy does not command {', '.join(loose[:4])}{' …' if len(loose) > 4 else ''}; state how "
            'each is held: `settings` held={"JOINT": {"position": 0, "stiffness": 50, "damping": 2}, …}'
        )
    efforts |= dict(zip(described.joints, described.effort or (), strict=False))
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    by_name = {str(joint.name): joint for joint in spec.joints}
    for name in [name for name in names if name in gains]:
        if not efforts[name] > 0.0:
            raise ForeignPolicyError(f"{path}: {name} has no effort limit; state all of them: `settings` effort=[…]")
        servo, joint = plain_actuator(spec, name), by_name[name]
        stiffness, damping = gains[name]
        servo.set_to_position(kp=stiffness, kv=damping)
        servo.forcerange, servo.forcelimited = [-efforts[name], efforts[name]], 1
        row = int(model.joint(name).id)
        if model.jnt_limited[row]:
            servo.ctrlrange, servo.ctrllimited = model.jnt_range[row].tolist(), 1
        joint.actfrcrange, joint.actfrclimited = [-efforts[name], efforts[name]], 1
    for name, inertia in zip(described.joints, described.armature or (), strict=False):
        by_name[name].armature = inertia


def _limit_speeds(spec: mujoco.MjSpec, described: PolicyDescription) -> tuple[float, ...]:
    """State the policy's speed limits, and no others; return the file's."""
    model: Any = spec.compile()
    names = [str(model.joint(joint).name) for joint in joint_ids(model)]
    known = next((numeric for numeric in spec.numerics if numeric.name == VELOCITY_LIMITS), None)
    stated = [float(value) for value in known.data][: len(names)] if known is not None else [0.0] * len(names)
    limits = dict.fromkeys(names, 0.0) | dict(zip(described.joints, described.velocity_limit or (), strict=False))
    if known is not None:
        spec.delete(known)
    spec.add_numeric(name=VELOCITY_LIMITS, data=list(limits.values()))
    return tuple(0.0 if speed == UNSTATED_SPEED else speed for speed in stated)


def _pose(spec: mujoco.MjSpec, described: PolicyDescription) -> None:
    """Make the policy's default pose the home keyframe, with the lowest point of the robot on the floor."""
    model: Any = spec.compile()
    qpos = np.array(home_qpos(model))
    positions = dict(zip(described.joints, described.default_pos, strict=True))
    positions |= {name: one.position for name, one in (described.held or {}).items()}
    for name, position in positions.items():
        qpos[int(model.joint(name).qposadr[0])] = position
    if has_floating_base(model):
        qpos[2] -= lowest_touching(model, qpos)
    for key in [key for key in spec.keys if key.name == "home"]:
        spec.delete(key)
    home = spec.add_key(name="home", qpos=qpos.tolist())
    home.ctrl = controls_at_home(spec.compile())
