"""Statements of an Isaac Lab environment's configuration, `params/env.yaml`, about a policy that was trained in it.

It names joints by patterns, and in no order: that of the USD file, unless the actions have names and `preserve_order`.
Isaac Lab's program tells the rest:

- A joint that no pattern of `init_state.joint_pos` matches is at 0. Gains that are null are those of the USD file;
  actuators that are networks have none (`assets/articulation/articulation.py`, `actuators/actuator_base.py`).
- The offset of the targets is the default pose with `use_default_offset` (`envs/mdp/actions/joint_actions.py`).
- A group's history replaces those of its terms; 0 is none (`managers/observation_manager.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.manager_terms import (
    JOINT_KINDS,
    by_name,
    fits,
    mapping,
    one_of,
    require_out_of_reach,
    single,
    terms,
)
from physai.foreign.readers.isaac.start_events import state_start
from physai.foreign.readers.values import number, numbers, short
from physai.foreign.reading import PolicyReading

LIBRARIES = ("isaaclab.envs.mdp.", "omni.isaac.lab.envs.mdp.")
ACTION = "actions.joint_actions.JointPositionAction"
TERMS = {
    "base_ang_vel": "ang_vel",
    "base_lin_vel": "base_lin_vel",
    "projected_gravity": "gravity",
    "generated_commands": "command",
    "joint_pos_rel": "joint_pos",
    "joint_vel_rel": "joint_vel",
    "joint_vel": "joint_vel",
    "last_action": "last_action",
}
GROUP = {"concatenate_terms", "concatenate_dim", "enable_corruption", "history_length", "flatten_history_dim"}
"""Settings of a group of terms."""
RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_z")
READ = {"sim", "decimation", "scene", "observations", "actions", "commands", "events"}
TRAINED_IN = ("effort_limit", "effort_limit_sim", "velocity_limit", "velocity_limit_sim", "armature", "friction")
"""Properties of the simulated actuators; the robot's file has its own."""
WAY_OUT = "describe the policy in a physai.yaml, or write descriptors with `train.py --export_io_descriptors`"
ALL = (None, [None, None, None], "slice(None,None,None)")
"""Indices of all joints: a slice, as it is written."""
PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, kw_only=True)
class IsaacEnvironment:
    """An environment with managers, whose actions command positions of one robot."""

    file: Path
    values: dict[str, Any]
    group: str
    """Name of the group of terms that the policy observes."""
    actions: dict[str, dict[str, Any]]
    asset: str
    """Name of the robot in the scene."""
    robot: dict[str, Any]
    """Its settings."""

    @property
    def joints(self) -> list[str] | None:
        """Joints in the order of the actions; None if it is that of the USD file."""
        found: list[str] = []
        for name, action in self.actions.items():
            patterns = _patterns(action.get("joint_names"), f"{self.file}: actions.{name}.joint_names")
            if not action.get("preserve_order") or not all(PLAIN.fullmatch(pattern) for pattern in patterns):
                return None
            found += patterns
        return found

    def state_fixed(self, reading: PolicyReading) -> None:
        """State what has nothing to do with joints."""
        file, name = self.file, self.file.name
        step = number(mapping(self.values["sim"], f"{file}: sim").get("dt"), f"{file}: sim.dt")
        period = round(step * number(self.values["decimation"], f"{file}: decimation"), 12)
        reading.state("control_dt", period, f"{name}: sim.dt · decimation")
        state = mapping(self.robot.get("init_state"), f"{file}: scene.{self.asset}.init_state")
        if any(mapping(state.get("joint_vel"), f"{file}: joint_vel").values()):
            raise ForeignPolicyError(
                f"{file}: scene.{self.asset}.init_state.joint_vel: default speeds are not read so far"
            )
        actuators = mapping(self.robot.get("actuators"), f"{file}: scene.{self.asset}.actuators")
        reading.unread += [
            f"{name}: scene.{self.asset}.actuators.{one}.{key}: of the simulator that it was trained in"
            for one, actuator in actuators.items()
            for key in TRAINED_IN
            if mapping(actuator, f"{file}: {one}").get(key) is not None
        ]
        reading.unread += [f"{name}: {key}" for key in sorted(set(self.values) - READ)]

    def state_observation(self, reading: PolicyReading) -> None:
        """State the observation, if it needs no names of joints."""
        observation = self._observation(reading, None, None)
        if observation is not None:
            self._state_observation(reading, observation)

    def state_by_joints(self, reading: PolicyReading, joints: list[str], robot_joints: list[str] | None) -> None:
        """State what the environment has by patterns of joints' names.

        Args:
            reading: for the values.
            joints: joints of the policy in the order of its outputs.
            robot_joints: all joints of the robot in their own order; None if only the policy's are known.
        """
        where = f"{self.file.name}: scene.{self.asset}"
        state = mapping(self.robot.get("init_state"), f"{where}.init_state")
        pose = _numbers(state.get("joint_pos"), joints, f"{where}.init_state.joint_pos", 0.0)
        at = dict(zip(joints, pose, strict=True))
        scales: dict[str, float] = {}
        for name, action in self.actions.items():
            place = f"{self.file.name}: actions.{name}"
            own = _own(action.get("joint_names"), joints, f"{place}.joint_names")
            scales |= zip(own, _numbers(action.get("scale"), own, f"{place}.scale", 1.0), strict=True)
            offsets = _numbers(action.get("offset"), own, f"{place}.offset", 0.0)
            if not action.get("use_default_offset", True) and offsets != [at[joint] for joint in own]:
                raise two_poses(f"{place}.offset", offsets)
        if lacking := [joint for joint in joints if joint not in scales]:
            raise ForeignPolicyError(f"{self.file}: no action commands {lacking[0]}, which joints has")
        by_names = "by the names of the joints"
        reading.state("default_pos", pose, f"{where}.init_state.joint_pos, {by_names}")
        state_start(reading, self.values.get("events"), joints, self.asset, self.file.name)
        for key in ("stiffness", "damping"):
            gains = self._gains(joints, key, f"{where}.actuators")
            if gains is not None:
                reading.state(key, gains, f"{where}.actuators.….{key}, {by_names}")
        scale = [scales[joint] for joint in joints]
        reading.state("action_scale", scale, f"{self.file.name}: actions.….scale, {by_names}")
        self._state_observation(reading, self._observation(reading, joints, robot_joints) or [])

    def _gains(self, joints: list[str], key: str, where: str) -> list[float] | None:
        """Return a gain of each joint; None if one is in no file."""
        found: dict[str, float] = {}
        driven: set[str] = set()
        for name, value in mapping(self.robot.get("actuators"), where).items():
            actuator = mapping(value, f"{where}.{name}")
            own = _own(actuator.get("joint_names_expr"), joints, f"{where}.{name}.joint_names_expr")
            if twice := driven & set(own):
                raise ForeignPolicyError(f"{where}.{name}: {min(twice)} has another actuator, too")
            driven |= set(own)
            if actuator.get(key) is not None and "ActuatorNet" not in str(actuator.get("class_type")):
                # A joint that no pattern of a table matches has a gain of 0.
                found |= zip(own, _numbers(actuator[key], own, f"{where}.{name}.{key}", 0.0), strict=True)
        complete = all(joint in found and (found[joint] or key == "damping") for joint in joints)
        return [found[joint] for joint in joints] if complete else None

    def _observation(
        self, reading: PolicyReading, joints: list[str] | None, robot_joints: list[str] | None
    ) -> list[dict[str, Any]] | None:
        """Return the terms; None if they need the names of the joints and those are not known."""
        where = f"{self.file}: observations.{self.group}"
        group = mapping(mapping(self.values["observations"], f"{self.file}: observations").get(self.group), where)
        if not group.get("concatenate_terms", True) or group.get("concatenate_dim", -1) != -1:
            raise ForeignPolicyError(f"{where}: its terms are not one vector")
        if not set(group) - GROUP:
            raise ForeignPolicyError(f"{where}: there are no terms")
        found: list[dict[str, Any]] = []
        needs_names = False
        for name, value in group.items():
            if name in GROUP or value is None:
                continue
            place = f"{where}.{name}"
            term = dict(mapping(value, place))
            if group.get("history_length") is not None:
                term |= {key: group[key] for key in ("history_length", "flatten_history_dim") if key in group}
            kind = kind_of(str(term.get("func")).replace(":", "."), place)
            params = mapping(term.get("params"), f"{place}.params")
            if kind == "command":
                self._state_command(reading, params, place)
            if params.get("action_name") is not None and len(self.actions) > 1:
                raise ForeignPolicyError(f"{place} observes one of several actions, which cannot be expressed")
            entity = mapping(params.get("asset_cfg"), f"{place}.params.asset_cfg")
            if entity.get("name", self.asset) != self.asset:
                raise ForeignPolicyError(f"{place}: observes {short(entity['name'])}, the actions command {self.asset}")
            names = self._observed_joints(kind, entity, joints, robot_joints, place)
            is_each = kind in JOINT_KINDS and isinstance(term.get("scale"), list)
            if joints is None and kind in JOINT_KINDS and (is_each or entity.get("joint_names") is not None):
                needs_names = True
                continue
            found += term_of(kind, term, place, names=names, joints=joints)
        return None if needs_names else found

    def _observed_joints(
        self,
        kind: str,
        entity: dict[str, Any],
        joints: list[str] | None,
        robot_joints: list[str] | None,
        where: str,
    ) -> list[str] | None:
        """Return the joints of a term in their order; None if they are not known or it has none."""
        if kind not in JOINT_KINDS:
            return None
        patterns = entity.get("joint_names")
        if patterns is None and entity.get("joint_ids") not in ALL:
            raise ForeignPolicyError(f"{where} selects joints by number in an order that no file states; {WAY_OUT}")
        keeps_order = patterns is not None and bool(entity.get("preserve_order"))
        others_keep = len(self.actions) > 1 or any(action.get("preserve_order") for action in self.actions.values())
        if robot_joints is None and others_keep and not keeps_order:
            raise ForeignPolicyError(
                f"{where} is in the order of the USD file, which no file states, and the actions are in another one; "
                f"{WAY_OUT}"
            )
        everything = robot_joints or joints
        if everything is None or patterns is None:
            return everything
        listed = _patterns(patterns, f"{where}.params.asset_cfg.joint_names")
        if not keeps_order:
            return _own(listed, everything, f"{where}.params.asset_cfg.joint_names")
        return [joint for one in listed for joint in everything if fits(one, joint, where)]

    def _state_command(self, reading: PolicyReading, params: dict[str, Any], where: str) -> None:
        name = params.get("command_name")
        place = f"{self.file}: commands.{name}"
        command = mapping(mapping(self.values.get("commands"), f"{self.file}: commands").get(str(name)), place)
        if "VelocityCommand" not in str(command.get("class_type")):
            raise ForeignPolicyError(
                f"{where} observes the command {short(name)}, which is {short(command.get('class_type'))}; so far "
                "policies that follow a velocity are imported"
            )
        # With a curriculum, `ranges` are those of its beginning.
        key = "limit_ranges" if command.get("limit_ranges") is not None else "ranges"
        ranges = mapping(command.get(key), f"{place}.{key}")
        if all(one in ranges for one in RANGES):
            pairs = [numbers(ranges[one], f"{place}.{key}.{one}") for one in RANGES]
            if any(len(pair) != 2 for pair in pairs):
                raise ForeignPolicyError(f"{place}.{key} has not two numbers for each of {', '.join(RANGES)}")
            bounds = [[pair[end] for pair in pairs] for end in (0, 1)]
            reading.state("command", bounds, f"{self.file.name}: commands.{name}.{key}")

    def _state_observation(self, reading: PolicyReading, observation: list[dict[str, Any]]) -> None:
        state_observation(reading, observation, f"{self.file.name}: observations.{self.group}")


def environment(values: dict[str, Any], file: Path, group: str) -> IsaacEnvironment:
    """Return an environment that a file describes.

    Raises:
        ForeignPolicyError: it has no managers, or actions that do not command positions of one robot.
    """
    if not all(isinstance(values.get(key), dict) for key in ("observations", "actions")):
        raise ForeignPolicyError(
            f"{file}: an environment without managers, whose observation is in Python alone; describe the policy in a "
            "physai.yaml"
        )
    actions: dict[str, dict[str, Any]] = {}
    for name, value in mapping(values["actions"], f"{file}: actions").items():
        if value is not None:
            actions[name] = mapping(value, f"{file}: actions.{name}")
            require_positions(str(actions[name].get("class_type")).replace(":", "."), f"{file}: actions.{name}")
            if actions[name].get("clip") is not None:
                require_out_of_reach(actions[name]["clip"], f"{file}: actions.{name}.clip")
    assets = sorted({str(action.get("asset_name")) for action in actions.values()})
    scene = mapping(values["scene"], f"{file}: scene")
    if len(assets) != 1 or not isinstance(scene.get(assets[0]), dict):
        raise ForeignPolicyError(
            f"{file}: actions command {', '.join(assets) or 'nothing'}, expected one robot of the scene"
        )
    robot = mapping(scene[assets[0]], f"{file}: scene.{assets[0]}")
    return IsaacEnvironment(file=file, values=values, group=group, actions=actions, asset=assets[0], robot=robot)


def require_positions(path: str, where: str) -> None:
    """Accept the class of an action that commands positions.

    Raises:
        ForeignPolicyError: it is another class.
    """
    if path not in [library + ACTION for library in LIBRARIES]:
        raise ForeignPolicyError(f"{where} is {path[:200]}, so far policies that command positions are imported")


def two_poses(where: str, offsets: Any) -> ForeignPolicyError:
    """Return the error of actions that are not relative to the pose to which observed positions are."""
    return ForeignPolicyError(
        f"{where} is {short(offsets)}, which is not the default pose: actions and observed positions are relative to "
        "different poses; describe the policy in a physai.yaml, with an `offset` for each joint's term"
    )


def kind_of(path: str, where: str) -> str:
    """Return the kind of a term by the path of its function.

    Raises:
        ForeignPolicyError: the function is not known.
    """
    module, _, name = path.rpartition(".")
    if module not in [library + "observations" for library in LIBRARIES] or name not in TERMS:
        raise ForeignPolicyError(
            f"{where} is {path[:200]}, which the reader does not know; describe the policy in a physai.yaml"
        )
    return TERMS[name]


def term_of(
    kind: str, term: dict[str, Any], where: str, *, names: Sequence[str] | None, joints: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return a term with Isaac Lab's settings as terms of a description.

    Args:
        kind: its kind.
        term: its settings: scale, clip, history_length, flatten_history_dim, modifiers.
        where: its place, for messages.
        names: its joints, if they are known.
        joints: joints of the policy, if they are known.

    Raises:
        ForeignPolicyError: a setting is not as expected, or cannot be expressed.
    """
    if term.get("modifiers"):
        raise ForeignPolicyError(
            f"{where}.modifiers change the value, which cannot be expressed, also not in a physai.yaml"
        )
    history = term.get("history_length") or 0
    if not isinstance(history, int) or history < 0:
        raise ForeignPolicyError(f"{where}.history_length is {short(history)}, expected a number of samples")
    if history and not term.get("flatten_history_dim", True):
        raise ForeignPolicyError(f"{where}.flatten_history_dim is false: its history is not part of one vector")
    count = len(joints) if kind == "last_action" and joints else None if names is None else len(names)
    found = terms(
        kind,
        where,
        scale=term.get("scale"),
        clip=term.get("clip"),
        history=max(history, 1),
        width=count,
        names=names,
        whole=joints is None or names is None or list(names) == list(joints),
    )
    return [{**one, "scale": single(one["scale"])} for one in found]


def state_observation(reading: PolicyReading, observation: list[dict[str, Any]], where: str) -> None:
    """State the terms and the layout of their histories."""
    reading.state("observation", observation, where)
    if any(term.get("history", 1) > 1 for term in observation):
        reading.state("layout", "term", "code: a history of each term")
        reading.state("newest", "last", "code: the newest sample is the last")
        reading.state("first_fill", "repeat", "code: a history begins with copies of its first sample")


def _patterns(value: Any, where: str) -> list[str]:
    found = cast("list[Any]", value if isinstance(value, list) else [value])
    if not all(isinstance(one, str) for one in found):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected patterns of names")
    return found


def _own(patterns: Any, joints: list[str], where: str) -> list[str]:
    """Return the joints that patterns match, in the order of the joints."""
    listed = _patterns(patterns, where)
    return [joint for joint in joints if one_of(listed, joint, where) is not None]


def _numbers(value: Any, joints: list[str], where: str, default: float) -> list[float]:
    """Return the numbers of joints in the precision in which Isaac Lab has them, and its descriptors write them."""
    return [single(one) for one in by_name(value, joints, where, default)]
