"""Reader of runs of Isaac Lab: `exported/policy.onnx`, `policy.pt` or a checkpoint, `params/env.yaml`, and
`IO_descriptors.yaml`.

The descriptors, which `train.py --export_io_descriptors` writes, name the joints in their order; the environment names
them by patterns (`isaac_environment`). What both state has to agree. Isaac Lab's program tells the rest:

- The terms of the observation are in the order of the file; values are clipped, then scaled; a history is one of each
  term, oldest sample first, and begins with copies of the first one (`managers/observation_manager.py`,
  `utils/buffers/circular_buffer.py`). The descriptors lack terms whose function has none (`get_IO_descriptors`).
- Target = scale · output + offset, within `clip`; the last action is the output, after `clip_actions` of agent.yaml
  (`envs/mdp/actions/joint_actions.py`, `managers/action_manager.py`, `isaaclab_rl/rsl_rl/vecenv_wrapper.py`).
- Gains of the descriptors are those of the actuators, 0 for actuators that are networks; the numbers are of single
  precision (`envs/utils/io_descriptors.py`, `assets/articulation/articulation.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from physai.foreign.description import GENERAL_QUESTIONS, PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.isaac_environment import (
    WAY_OUT,
    IsaacEnvironment,
    environment,
    kind_of,
    require_positions,
    state_observation,
    term_of,
    two_poses,
)
from physai.foreign.readers.isaac.manager_terms import (
    JOINT_KINDS,
    WIDTHS,
    document,
    mapping,
    single,
)
from physai.foreign.readers.isaac.weights_reading import AGENT, CHECKPOINTS, WeightsReading
from physai.foreign.readers.mjlab import KEYS as MJLAB
from physai.foreign.readers.values import NETWORKS, listed, number, numbers, short
from physai.foreign.reading import PolicyReading, PolicySource, open_questions

FAR = [-1e3, 1e3]
"""Bounds of targets that no joint reaches [rad]."""
ENVIRONMENT, DESCRIPTORS = "env.yaml", "IO_descriptors.yaml"
FOLDERS = ("params", "exported", "io_descriptors", *CHECKPOINTS)
POLICIES = ("exported/policy.onnx", "exported/policy.pt", "policy.onnx", "policy.pt")
VECTORS = {
    "default_pos": "default_joint_pos",
    "stiffness": "default_joint_stiffness",
    "damping": "default_joint_damping",
}
TRAINED_IN = ("default_joint_armature", "default_joint_friction", "default_joint_pos_limits")
"""Properties of the simulated robot; the robot's file has its own."""
BY_NAME = ("default_pos", "stiffness", "damping", "action_scale", "observation")


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Files of a run."""

    network: Path
    environment: Path | None
    descriptors: Path | None
    agent: Path | None


@dataclass(kw_only=True)
class IsaacReading(WeightsReading):
    """Statements of a run's files; those by patterns follow once the joints have names."""

    environment: IsaacEnvironment | None = None
    """The environment, if no file names the joints."""

    def complete(self, settings: Mapping[str, Any]) -> PolicyDescription:
        """Add what the user states, and what the environment has for the joints by their names."""
        if self.environment is None:
            return super().complete(settings)
        joints = settings.get("joints")
        if joints is None:
            known = {*self.values, *settings, *BY_NAME}
            remark = f" (pose, gains and scales of {ENVIRONMENT} are by patterns of joints' names, and follow)"
            raise open_questions(self.network, [name for name in GENERAL_QUESTIONS if name not in known], remark)
        names = list(cast("list[Any]", joints)) if isinstance(joints, list | tuple) else []
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ForeignPolicyError(f"joints is {short(joints)}, expected different names")
        self.environment.state_by_joints(self, names, None)
        return super().complete(settings)


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy by its network, its env.yaml or descriptors, or its run folder; None if it is of another family.

    Raises:
        ForeignPolicyError: the files are not as Isaac Lab writes them, or have what a description cannot express.
    """
    run = None if set(source.metadata) >= MJLAB else _run(source.file)
    if run is None:
        return None
    settings = _document(run.environment, {"sim", "decimation", "scene"})
    described = _document(run.descriptors, {"actions", "observations", "articulations"})
    # Runs of mjlab have an env.yaml of the same form.
    is_other = settings is not None and "mujoco" in mapping(settings["sim"], f"{run.environment}: sim")
    if is_other or (settings is None and described is None):
        return None
    agent = (document(run.agent) or {}) if run.agent else {}
    used = {path for path in (run.environment, run.descriptors, run.agent) if path is not None}
    reading = IsaacReading(family="isaac_lab", network=run.network, files=used)
    reading.look(run.agent)
    group = _group(agent, run.agent)
    _outputs(reading, agent, run.agent)
    robot_joints: list[str] | None = None
    if described is not None and run.descriptors is not None:
        robot_joints = _described(reading, described, group, run.descriptors)
    if settings is not None and run.environment is not None:
        trained = environment(settings, run.environment, group)
        trained.state_fixed(reading)
        if robot_joints is None and (joints := trained.joints) is not None:
            reading.state("joints", joints, f"{ENVIRONMENT}: actions.….joint_names, whose order is preserved")
        if "joints" in reading.values:
            trained.state_by_joints(reading, reading.values["joints"], robot_joints)
        else:
            reading.environment = trained
            trained.state_observation(reading)
    return reading


def _document(file: Path | None, keys: set[str]) -> dict[str, Any] | None:
    found = None if file is None else document(file)
    return found if found is not None and keys <= set(found) else None


def _run(file: Path) -> _Run | None:
    given = file.resolve()
    is_network = given.suffix.lower() in (*NETWORKS, ".pth") and not given.is_dir()
    is_named = given.name == ENVIRONMENT or given.name.endswith(DESCRIPTORS)
    if not (is_network or is_named or given.is_dir()):
        return None
    folder = given if given.is_dir() else given.parent
    home = folder.parent if folder is not given and folder.name in FOLDERS else folder
    # A run of unitree_rl_lab, whose reader knows more of it.
    if not is_named and (home / "params" / "deploy.yaml").is_file():
        return None
    places = (home / "params", home)
    trained, agent = (
        next((place / name for place in places if (place / name).is_file()), None) for name in (ENVIRONMENT, AGENT)
    )
    found = [given] if given.name.endswith(DESCRIPTORS) else []
    for place in [] if found else [home, *(home / name for name in FOLDERS)]:
        found += islice(place.glob(f"*{DESCRIPTORS}"), 2)
    if trained is None and not found:
        return None
    if len(found) > 1:
        raise ForeignPolicyError(f"{home}: has {found[0].name} and {found[1].name}; give the one of the policy")
    network = file if is_network else next((home / name for name in POLICIES if (home / name).is_file()), None)
    if network is None:
        raise ForeignPolicyError(
            f"{home}: no {POLICIES[0]} or {POLICIES[1]}, which `play.py` writes; give a checkpoint by its own name"
        )
    for path in (network, trained, agent, *found):
        if path is not None and not path.resolve().is_relative_to(home):
            raise ForeignPolicyError(f"{path}: leads outside the run's folder")
    return _Run(network=network, environment=trained, descriptors=found[0] if found else None, agent=agent)


def _group(agent: dict[str, Any], file: Path | None) -> str:
    """Return the name of the group of terms that the policy observes."""
    groups = mapping(agent.get("obs_groups"), f"{file}: obs_groups")
    # rl_games has them elsewhere.
    env = mapping(mapping(agent.get("params"), f"{file}: params").get("env"), f"{file}: params.env")
    groups = groups or mapping(env.get("obs_groups"), f"{file}: params.env.obs_groups")
    chosen = groups.get("policy", groups.get("actor", groups.get("obs", ["policy"])))
    names = cast("list[Any]", chosen) if isinstance(chosen, list) else []
    if len(names) != 1 or not isinstance(names[0], str):
        raise ForeignPolicyError(f"{file}: obs_groups are {short(groups)}, so far policies of one group are imported")
    return names[0]


def _outputs(reading: WeightsReading, agent: dict[str, Any], file: Path | None) -> None:
    # What other libraries do around weights alone is read with these.
    if agent and "algorithm" not in agent and reading.weights is None:
        raise ForeignPolicyError(f"{file}: not of rsl_rl; what other libraries do around a network is not read so far")
    if agent.get("clip_actions") is not None:
        reading.state("output_limit", number(agent["clip_actions"], f"{file}: clip_actions"), f"{AGENT}: clip_actions")


def _described(reading: PolicyReading, described: dict[str, Any], group: str, file: Path) -> list[str]:
    """State what descriptors have; return the joints of the robot in their order."""
    joints, scales, offsets, bounds = _actions(_list(described["actions"], f"{file}: actions"), file)
    robot, asset = _articulation(described, joints, file)
    names = _names(robot["joint_names"], f"{file}: articulations.{asset}.joint_names")
    scene = mapping(described.get("scene"), f"{file}: scene")
    if "dt" in scene:
        reading.state("control_dt", round(number(scene["dt"], f"{file}: scene.dt"), 12), f"{file.name}: scene.dt")
    reading.state("joints", joints, f"{file.name}: actions.joint_names")
    reading.state("action_scale", scales, f"{file.name}: actions.scale")
    if any(pair != FAR for pair in bounds):
        for at, name in enumerate(("target_lower", "target_upper")):
            reading.state(name, [pair[at] for pair in bounds], f"{file.name}: actions.clip")
    vectors = {
        name: _numbers(robot.get(key), names, f"{file}: articulations.{asset}.{key}") for name, key in VECTORS.items()
    }
    if [vectors["default_pos"][joint] for joint in joints] != offsets:
        raise two_poses(f"{file}: actions.offset", offsets)
    for name, key in VECTORS.items():
        own = [vectors[name][joint] for joint in joints]
        if name == "default_pos" or all(vectors["stiffness"][joint] for joint in joints):
            reading.state(name, own, f"{file.name}: articulations.{asset}.{key}")
        else:
            reading.unread.append(f"{file.name}: articulations.{asset}.{key}: 0 stands for gains that no file states")
    if any(_numbers(robot.get("default_joint_vel"), names, f"{file}: default_joint_vel").values()):
        raise ForeignPolicyError(f"{file}: articulations.{asset}.default_joint_vel: default speeds are not read so far")
    held = _held(vectors, [name for name in names if name not in joints])
    if held:
        reading.state("held", held, f"{file.name}: articulations.{asset}; code: targets that no action sets are 0")
    reading.unread += [f"{file.name}: articulations.{asset}.{key}" for key in TRAINED_IN if key in robot]
    found: list[dict[str, Any]] = []
    groups = mapping(described["observations"], f"{file}: observations")
    for term in _list(groups.get(group), f"{file}: observations.{group}"):
        found += _term(term, joints, vectors["default_pos"], held, f"{file}: observations.{group}.{term.get('name')}")
    state_observation(reading, found, f"{file.name}: observations.{group}")
    return names


def _actions(
    actions: list[dict[str, Any]], file: Path
) -> tuple[list[str], list[float], list[float], list[list[float]]]:
    """Return the joints of all actions with their scales, offsets and bounds of their targets."""
    bounds: list[list[float]] = []
    joints: list[str] = []
    scales: list[float] = []
    offsets: list[float] = []
    for action in actions:
        where = f"{file}: actions.{action.get('name')}"
        require_positions(str(action.get("full_path")), where)
        names = _names(action.get("joint_names"), f"{where}.joint_names")
        bounds += _bounds(action.get("clip"), names, f"{where}.clip")
        joints += names
        scales += _numbers(action.get("scale"), names, f"{where}.scale").values()
        offsets += _numbers(action.get("offset"), names, f"{where}.offset").values()
    if len(set(joints)) != len(joints) or not joints:
        raise ForeignPolicyError(f"{file}: actions command {short(joints)}, expected different joints")
    return joints, scales, offsets, bounds


def _bounds(clip: Any, names: list[str], where: str) -> list[list[float]]:
    """Return the least and the greatest target of each joint."""
    if clip is None:
        return [FAR] * len(names)
    pairs = [numbers(pair, where) for pair in listed(clip, where)]
    if len(pairs) != len(names) or any(len(pair) != 2 or not pair[0] < pair[1] for pair in pairs):
        raise ForeignPolicyError(f"{where} is {short(pairs)}, expected a lower and a greater number for each joint")
    return pairs


def _articulation(described: dict[str, Any], joints: list[str], file: Path) -> tuple[dict[str, Any], str]:
    """Return the robot that has the joints, and its name."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in mapping(described["articulations"], f"{file}: articulations").items():
        robot = mapping(value, f"{file}: articulations.{name}")
        if set(joints) <= set(_names(robot.get("joint_names"), f"{file}: articulations.{name}.joint_names")):
            found[name] = robot
    if len(found) != 1:
        raise ForeignPolicyError(f"{file}: articulations: {len(found)} have the joints of the actions, expected one")
    return next(iter(found.values())), next(iter(found))


def _held(vectors: dict[str, dict[str, float]], names: list[str]) -> dict[str, dict[str, float]]:
    """Return how the joints that no action commands are held; none if that is in no file."""
    if any(vectors["default_pos"][name] or not vectors["stiffness"][name] for name in names):
        return {}
    labels = {"position": "default_pos", "stiffness": "stiffness", "damping": "damping"}
    return {name: {label: vectors[key][name] for label, key in labels.items()} for name in names}


def _term(
    term: dict[str, Any], joints: list[str], pose: dict[str, float], held: dict[str, Any], where: str
) -> list[dict[str, Any]]:
    kind = kind_of(str(term.get("full_path")), where)
    settings = {
        **mapping(term.get("overloads"), f"{where}.overloads"),
        **mapping(term.get("extras"), f"{where}.extras"),
    }
    names: list[str] | None = None
    if kind in JOINT_KINDS:
        names = _names(term.get("joint_names"), f"{where}.joint_names")
        others = [name for name in names if name not in joints and name not in held]
        if others:
            raise ForeignPolicyError(
                f"{where} observes {others[0]}, which no action commands and whose target is in no file; describe the "
                "policy in a physai.yaml"
            )
        for key, expected in (("joint_pos_offsets", pose), ("joint_vel_offsets", dict.fromkeys(names, 0.0))):
            if term.get(key) is not None and _numbers(term[key], names, where) != {one: expected[one] for one in names}:
                raise ForeignPolicyError(f"{where}.{key} is {short(term[key])}, which is not the robot's default")
    width = len(names) if names is not None else len(joints) if kind == "last_action" else WIDTHS[kind]
    if term.get("shape") != [width]:
        hint = "; so far policies that follow a velocity are imported" if kind == "command" else ""
        raise ForeignPolicyError(f"{where}.shape is {short(term.get('shape'))}, expected {width}{hint}")
    return term_of(kind, settings, where, names=names, joints=joints)


def _list(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected a list; {WAY_OUT}")
    return [mapping(one, where) for one in cast("list[Any]", value)]


def _names(value: Any, where: str) -> list[str]:
    names = cast("list[Any]", value if isinstance(value, list) else [value])
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected different names")
    return names


def _numbers(value: Any, names: list[str], where: str) -> dict[str, float]:
    """Return numbers by the names of joints: one for all, or one each; rows of equal worlds count once."""
    rows = cast("list[Any]", value) if isinstance(value, list) else [value]
    if rows and all(isinstance(row, list) for row in rows) and all(row == rows[0] for row in rows):
        rows = cast("list[Any]", rows[0])
    found = [single(one) for one in numbers(rows, where)]
    found = found * len(names) if not isinstance(value, list) else found
    if len(found) != len(names):
        raise ForeignPolicyError(f"{where} has {len(found)} numbers for {len(names)} joints")
    return dict(zip(names, found, strict=True))
