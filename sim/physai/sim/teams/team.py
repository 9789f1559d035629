"""The definition of a team: a task for each robot, and one model that all of them are in."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import mujoco
import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.policy.team_record import MAX_MEMBERS
from physai.sim.engines.protocol import Stage
from physai.sim.tasks.task import Task

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_OPTIONS = (
    "timestep",
    "integrator",
    "gravity",
    "disableflags",
    "enableflags",
    "cone",
    "solver",
    "impratio",
    "iterations",
)
"""Options of the physics that all robots of a team share."""
_SAME = (
    "body_mass",
    "body_inertia",
    "dof_damping",
    "dof_armature",
    "jnt_range",
    "actuator_gainprm",
    "actuator_biasprm",
)
"""Fields in which a robot of the team's model must not differ from the robot of its task."""

Place: TypeAlias = tuple[float, float, float]
"""Position of a robot's world frame in that of the team [m]."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """Robots that share one physics; each keeps the contract, sensors, rewards and success of its own task.

    An episode ends for all of them together. A member's functions see the state of its own robot only.
    """

    name: str
    summary: str
    """One line."""
    members: Mapping[str, Task]
    """The task of each robot, by the member's name."""
    model: Any
    """Compiled MjModel with all robots, see `team_model`: a member's elements have its name and `_` before theirs."""
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of `physai train` for this team by name; they hold for every member."""

    def __post_init__(self) -> None:
        """Raises TaskError if the members cannot share a physics, or are not what the model holds."""
        _require_names(self.members)
        first, *others = self.members.values()
        for name, task in self.members.items():
            _require_joints_only(name, task)
        for task in others:
            _require_same_clock(first, task)
        step, agreed = float(self.model.opt.timestep), first.contract.timing.physics_dt
        if not abs(step - agreed) <= 1e-9:
            raise TaskError(f"team {self.name}: the model's time step is {step:g} s, its members' {agreed:g} s")
        for name, task in self.members.items():
            rows = robot_rows(self, name)
            for same in _SAME:
                require_same_field(self, name, task, same, rows)

    @property
    def critic_size(self) -> int:
        """Size of the critic's input that sees all members."""
        return sum(task.critic_size for task in self.members.values())


@dataclass(frozen=True)
class RobotRows:
    """Elements of a member: for each kind, their rows in the member's own model and in the team's."""

    own: Mapping[str, list[int]]
    team: Mapping[str, list[int]]
    qpos: slice
    """The member's columns of the team's `qpos`."""
    qvel: slice
    ctrl: slice


def team_model(
    members: Mapping[str, Task],
    places: Mapping[str, Place],
    couple: Callable[[mujoco.MjSpec], None] | None = None,
) -> Any:
    """Puts the robots of tasks into one compiled model.

    Args:
        members: tasks by the member's name, which becomes the prefix `NAME_` of its robot's elements.
        places: where each robot's world frame is.
        couple: adds to the model what acts between the robots, such as a tendon, an equality or contact pairs.

    Raises:
        TaskError: the names are wrong, the robots' physics have different options, or the model does not compile.
    """
    _require_names(members)
    if set(places) != set(members):
        raise TaskError(f"a team of {', '.join(members)} needs a place for each; places are given for {sorted(places)}")
    first = next(iter(members))
    for name, task in members.items():
        _require_same_options(first, members[first].model.opt, name, task.model.opt)
    spec = mujoco.MjSpec()
    _take_options(spec.option, members[first].robot.model_spec.option)
    spec.option.timestep = members[first].contract.timing.physics_dt
    for name, task in members.items():
        if not np.isfinite(places[name]).all() or len(places[name]) != 3:
            raise TaskError(f"member {name}: its place is {places[name]}, it must be three finite numbers [m]")
        frame = spec.worldbody.add_frame(pos=list(places[name]))
        spec.attach(task.robot.model_spec.copy(), prefix=f"{name}_", frame=frame)
    if couple is not None:
        couple(spec)
    try:
        model = spec.compile()
    except ValueError as error:
        raise TaskError(f"the team of {', '.join(members)} does not compile: {' '.join(str(error).split())}") from error
    return model


def robot_rows(team: Team, member: str) -> RobotRows:
    """Rows of a member's robot in the team's model.

    Raises:
        TaskError: the model lacks a part of the robot, or mixes those of several.
    """
    own, model = team.members[member].model, team.model
    bodies = [(b, _found(team, member, mujoco.mjtObj.mjOBJ_BODY, own.body(b).name)) for b in range(1, own.nbody)]
    joints = [(j, _found(team, member, mujoco.mjtObj.mjOBJ_JOINT, own.joint(j).name)) for j in range(own.njnt)]
    to_body, to_joint = dict(bodies), dict(joints)
    kinds: dict[str, list[tuple[int, int]]] = {"body": bodies, "jnt": joints}
    for kind, count in (("dof", own.nv), ("geom", own.ngeom)):
        mine, theirs = getattr(own, f"{kind}_bodyid"), getattr(model, f"{kind}_bodyid")
        rows = [i for i in range(count) if int(mine[i]) in to_body]
        kinds[kind] = _paired(team, member, kind, rows, np.isin(theirs, list(to_body.values())))
    driving = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT) & np.isin(
        model.actuator_trnid[:, 0], list(to_joint.values())
    )
    kinds["actuator"] = _paired(team, member, "actuator", list(range(own.nu)), driving)
    # As many of each kind of joint, so positions lie side by side where velocities do, which `_block` checks.
    start = int(model.jnt_qposadr[to_joint[0]])
    return RobotRows(
        own={kind: [a for a, _ in pairs] for kind, pairs in kinds.items()},
        team={kind: [b for _, b in pairs] for kind, pairs in kinds.items()},
        qpos=slice(start, start + own.nq),
        qvel=_block(team, member, [b for _, b in kinds["dof"]]),
        ctrl=_block(team, member, [b for _, b in kinds["actuator"]]),
    )


def require_same_field(team: Team, member: str, task: Task, field: str, rows: RobotRows) -> None:
    """Checks that a member's robot has the same values of a field in the team's model as in its task's own.

    Raises:
        TaskError: it has others, or the field is of elements that no robot owns.
    """
    kind = field.partition("_")[0]
    if kind not in rows.own:
        raise TaskError(f"member {member}: {field} is not of a robot's bodies, joints, shapes or actuators")
    mine, theirs = np.array(getattr(task.model, field)), np.array(getattr(team.model, field))
    if not np.allclose(mine[rows.own[kind]], theirs[rows.team[kind]], rtol=1e-12, atol=1e-12):
        raise TaskError(
            f"team {team.name}: {field} of {member} is not that of the task {task.name}; make the team's model of its "
            "tasks with team_model"
        )


def _require_names(members: Mapping[str, Task]) -> None:
    if not 2 <= len(members) <= MAX_MEMBERS:
        raise TaskError(f"a team has 2 to {MAX_MEMBERS} members, got {len(members)}")
    for name in members:
        if not _NAME.fullmatch(name):
            raise TaskError(f"{name[:64]!r} names no member: a lowercase letter, then up to 31 of a-z, 0-9 and _")


def _require_joints_only(name: str, task: Task) -> None:
    # A robot that stands elsewhere than in its own model has other positions in the world than its task expects.
    if task.stage != Stage.NONE or task.derived:
        needed = ", ".join(task.derived) or task.stage.name
        raise TaskError(
            f"member {name}: the task {task.name} reads {needed} in the world frame; robots of a team are placed "
            "elsewhere, so their tasks may read joints only"
        )
    if task.contract.robot.base != "fixed":
        raise TaskError(f"member {name}: the robot {task.robot.name} has a floating base; a team's robots are fixed")


def _require_same_clock(first: Task, task: Task) -> None:
    for what, one, other in (
        ("control period [s]", first.contract.timing.control_dt, task.contract.timing.control_dt),
        ("physics time step [s]", first.contract.timing.physics_dt, task.contract.timing.physics_dt),
        ("episode length [s]", first.episode_length_s, task.episode_length_s),
    ):
        if one != other:
            raise TaskError(f"a team shares one clock: the {what} of {first.name} is {one:g}, of {task.name} {other:g}")


def _require_same_options(first: str, shared: Any, name: str, own: Any) -> None:
    for option in _OPTIONS:
        mine, theirs = np.asarray(getattr(own, option)), np.asarray(getattr(shared, option))
        if not np.array_equal(mine, theirs):
            raise TaskError(f"member {name}: its physics has the {option} {mine}, that of {first} has {theirs}")


def _take_options(option: Any, source: Any) -> None:
    for name in (name for name in dir(source) if not name.startswith("_")):
        setattr(option, name, getattr(source, name))


def _found(team: Team, member: str, kind: mujoco.mjtObj, name: str) -> int:
    found = mujoco.mj_name2id(team.model, kind, f"{member}_{name}") if name else -1
    if found < 0:
        raise TaskError(f"team {team.name}: its model has no {member}_{name or '(without a name)'}; use team_model")
    return int(found)


def _paired(team: Team, member: str, kind: str, own: Sequence[int], theirs: Any) -> list[tuple[int, int]]:
    rows = [int(row) for row in np.flatnonzero(theirs)]
    if len(rows) != len(own):
        raise TaskError(
            f"team {team.name}: {member} has {len(rows)} elements of the kind {kind} in the team's model, {len(own)} "
            "in its own"
        )
    return list(zip(own, rows, strict=True))


def _block(team: Team, member: str, columns: Sequence[int]) -> slice:
    start = columns[0] if columns else 0
    if list(columns) != list(range(start, start + len(columns))):
        raise TaskError(f"team {team.name}: the parts of {member} do not follow each other in the team's model")
    return slice(start, start + len(columns))
