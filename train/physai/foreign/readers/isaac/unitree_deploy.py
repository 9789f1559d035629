"""Reader of policies of unitree_rl_lab and unitree_rl_mjlab: `exported/policy.onnx` with `params/deploy.yaml`.

Both have a program of the same build, and the file means what that program does with it (`deploy/include`):

- `joint_ids_map[i]` is the motor of joint i of the policy. Pose, scale and offset are in the policy's order, stiffness
  and damping in that of the motors (`unitree_articulation.h`, `FSM/State_RLBase.h`, `robots/*/src/State_RLBase.cpp`).
  No file names a motor; its order is that of the robot's SDK, which env.yaml of a run of unitree_rl_lab repeats.
- Target = scale · output + offset, within `clip`; the last action is the output itself
  (`isaaclab/envs/mdp/actions/joint_actions.h`, `isaaclab/manager/action_manager.h`).
- The terms of the observation are in the order of the file. A value is clipped, then scaled; with `scale_first`, which
  holds for the terms after it, it is scaled, then clipped. A history is one of each term, oldest sample first, and
  begins with copies of the first sample; with `use_gym_history` it is one of the whole observation
  (`isaaclab/manager/manager_term_cfg.h`, `isaaclab/manager/observation_manager.h`).
- The command is the stick's position within `commands.base_velocity.ranges`; `gait_phase` is sine and cosine of a phase
  that begins at 0, advances once when the policy takes over and before each observation, and never rests
  (`isaaclab/envs/mdp/observations*`).
"""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.manager_terms import document, mapping, terms
from physai.foreign.readers.values import NETWORKS, begins_at_once, listed, number, numbers, short
from physai.foreign.reading import PolicyReading, PolicySource

DEPLOY, ENVIRONMENT = Path("params") / "deploy.yaml", Path("params") / "env.yaml"
EXPORTED = "exported"
POLICIES = ("policy.onnx", "policy.pt")
KEYS = ("joint_ids_map", "step_dt", "stiffness", "damping", "default_joint_pos", "actions", "observations")
ACTION = "JointPositionAction"
TERMS = {
    "base_ang_vel": "ang_vel",
    "base_lin_vel": "base_lin_vel",
    "projected_gravity": "gravity",
    "velocity_commands": "command",
    "joint_pos_rel": "joint_pos",
    "joint_vel_rel": "joint_vel",
    "last_action": "last_action",
    "gait_phase": "clock",
}
MOTION = "motion_"
RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_z")
SCALE_FIRST, BY_TIME = "scale_first", "use_gym_history"
MAX_MOTORS = 64
GAINS = {"stiffness": "joint_stiffness", "damping": "joint_damping"}
ALSO = {**GAINS, "default_pos": "default_joint_pos", "action_scale": "action_scale"}
"""Fields that metadata of mjlab state, too."""

_LEGS = tuple(f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf"))
_ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll", "wrist_pitch", "wrist_yaw")
_SIDES = ("left", "right")


def _both(*parts: str) -> tuple[str, ...]:
    return tuple(f"{side}_{part}_joint" for side in _SIDES for part in parts)


_G1 = (
    *_both("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll"),
    *("waist_yaw_joint", "waist_roll_joint", "waist_pitch_joint"),
    *_both(*_ARM),
)
_H1 = (
    *("right_hip_roll_joint", "right_hip_pitch_joint", "right_knee_joint"),
    *("left_hip_roll_joint", "left_hip_pitch_joint", "left_knee_joint"),
    *("torso_joint", "left_hip_yaw_joint", "right_hip_yaw_joint", "", "left_ankle_joint", "right_ankle_joint"),
    *(f"{side}_{part}_joint" for side in ("right", "left") for part in _ARM[:4]),
)
_H1_2 = (
    *_both("hip_yaw", "hip_pitch", "hip_roll", "knee", "ankle_pitch", "ankle_roll"),
    "torso_joint",
    *_both(*_ARM),
)
ROBOTS = {
    **dict.fromkeys(("go2", "a1", "b2"), _LEGS),
    **dict.fromkeys(("g1", "g1_29dof", "g1_23dof"), _G1),
    "h1": _H1,
    "h1_2": _H1_2,
}
"""Joints of the motors by the robot's folder in `deploy/robots`; a G1 without some joints has the others' numbers."""


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy by its network, its deploy.yaml or the folder around both; None if it is not of these families.

    Raises:
        ForeignPolicyError: the file is not as the program reads it, or has what a description cannot express.
    """
    home = _home(source.file)
    values = None if home is None else document(home / DEPLOY)
    if home is None or values is None or not {"joint_ids_map", "step_dt"} <= set(values):
        return None
    file = home / DEPLOY
    if lacking := [key for key in KEYS if key not in values]:
        raise ForeignPolicyError(f"{file}: has no {', '.join(lacking)}, which its program needs")
    network = source.file if source.file.suffix.lower() in NETWORKS else _network(home)
    reading = PolicyReading(family="unitree_deploy", network=network, files={file})
    reading.state("control_dt", values["step_dt"], f"{file.name}: step_dt")
    motors = _motors(values["joint_ids_map"], file)
    pose = _as_many(values["default_joint_pos"], motors, f"{file}: default_joint_pos")
    reading.state("default_pos", pose, f"{file.name}: default_joint_pos")
    _gains(reading, values, motors, file)
    _actions(reading, mapping(values["actions"], f"{file}: actions"), pose, file)
    _names(reading, source, home, motors)
    _observation(reading, values, len(motors), file)
    _ranges(reading, values, file)
    _metadata(reading, source)
    begins_at_once(reading, "stands up in FSM.FixStand.ts (State_FixStand.h)")
    reading.unread += sorted(set(values) - {*KEYS, "commands"})
    return reading


def _home(file: Path) -> Path | None:
    """Folder of `params` and `exported`."""
    given = file.resolve()
    if given.suffix.lower() in NETWORKS:
        home = given.parent.parent if given.parent.name == EXPORTED else None
    else:
        home = given if given.is_dir() else given.parent.parent if given.parts[-2:] == DEPLOY.parts else None
    if home is None or not (home / DEPLOY).is_file():
        return None
    return home if (home / DEPLOY).resolve().is_relative_to(home) else None


def _network(home: Path) -> Path:
    found = [home / EXPORTED / name for name in POLICIES if (home / EXPORTED / name).is_file()]
    if not found:
        raise ForeignPolicyError(f"{home}: no {' or '.join(POLICIES)} in {EXPORTED}/, where the program looks")
    if not found[0].resolve().is_relative_to(home):
        raise ForeignPolicyError(f"{found[0]}: leads outside the policy's folder")
    return found[0]


def _motors(value: Any, file: Path) -> list[int]:
    found = numbers(value, f"{file}: joint_ids_map")
    motors = [int(one) for one in found if one in range(MAX_MOTORS)]
    if not found or len(motors) != len(found) or len(set(motors)) != len(motors):
        raise ForeignPolicyError(f"{file}: joint_ids_map is {short(value)}, expected the number of a motor per joint")
    return motors


def _as_many(value: Any, motors: list[int], where: str) -> list[float]:
    found = numbers(value, where)
    if len(found) != len(motors):
        raise ForeignPolicyError(f"{where} has {len(found)} numbers, joint_ids_map has {len(motors)}")
    return found


def _gains(reading: PolicyReading, values: dict[str, Any], motors: list[int], file: Path) -> None:
    for name in GAINS:
        found = numbers(values[name], f"{file}: {name}")
        if max(motors) >= len(found):
            reading.contradictions.append(
                f"{name} has {len(found)} numbers ({file.name}), and joint_ids_map names motor {max(motors)}; the "
                "program reads it in the order of the motors"
            )
            continue
        chosen = [found[motor] for motor in motors]
        reading.state(name, chosen, f"{file.name}: {name}, joint_ids_map; code: in the order of the motors")


def _actions(reading: PolicyReading, actions: dict[str, Any], pose: list[float], file: Path) -> None:
    if list(actions) != [ACTION]:
        raise ForeignPolicyError(
            f"{file}: actions are {short(list(actions))}, so far policies with one {ACTION} are imported"
        )
    action, where = mapping(actions[ACTION], f"{file}: actions.{ACTION}"), f"{file}: actions.{ACTION}"
    count = len(pose)
    ids = action.get("joint_ids")
    # A slice of all was dumped as its start, stop and step.
    if ids not in (None, [None, None, None], list(range(count))):
        raise ForeignPolicyError(f"{where}.joint_ids is {short(ids)}: commands some joints, which is not read so far")
    lists = {"scale": [1.0] * count, "offset": [0.0] * count}
    for key in lists:
        if action.get(key) is not None:
            lists[key] = numbers(action[key], f"{where}.{key}")
            if len(lists[key]) != count:
                raise ForeignPolicyError(f"{where}.{key} has {len(lists[key])} numbers, joint_ids_map has {count}")
    if lists["offset"] != pose:
        raise ForeignPolicyError(
            f"{where}.offset is {short(lists['offset'])} and default_joint_pos {short(pose)}: actions and observed "
            "positions are relative to different poses; describe the policy in a physai.yaml, with an `offset` for "
            "each joint's term"
        )
    reading.state("action_scale", lists["scale"], f"{file.name}: actions.{ACTION}.scale")
    if action.get("clip") is not None:
        pairs = [numbers(pair, f"{where}.clip") for pair in listed(action["clip"], f"{where}.clip")]
        if len(pairs) != count or any(len(pair) != 2 or not pair[0] < pair[1] for pair in pairs):
            raise ForeignPolicyError(f"{where}.clip is {short(pairs)}, expected a lower and a greater number per joint")
        for at, name in enumerate(("target_lower", "target_upper")):
            reading.state(name, [pair[at] for pair in pairs], f"{file.name}: actions.{ACTION}.clip")
    known = ("clip", "joint_names", "scale", "offset", "joint_ids")
    reading.unread += [f"actions.{ACTION}.{key}" for key in action if key not in known]


def _names(reading: PolicyReading, source: PolicySource, home: Path, motors: list[int]) -> None:
    """State the joints, as far as something tells what the motors move."""
    path = home / ENVIRONMENT
    robot = next((after for before, after in zip(home.parts, home.parts[1:], strict=False) if before == "robots"), None)
    found: dict[str, Any] = {}
    if path.is_file() and path.resolve().is_relative_to(home):
        scene = mapping((document(path) or {}).get("scene"), f"{path}: scene")
        names = mapping(scene.get("robot"), f"{path}: scene.robot").get("joint_sdk_names")
        if names is not None:
            reading.files.add(path)
            found[f"{path.name}: scene.robot.joint_sdk_names; {DEPLOY.name}: joint_ids_map"] = names
    if robot in ROBOTS:
        found[f"code: order of the motors in unitree_sdk2 (robots/{robot}); {DEPLOY.name}: joint_ids_map"] = ROBOTS[
            robot
        ]
    for where, names in found.items():
        listed = list(cast("list[Any]", names)) if isinstance(names, list | tuple) else []
        chosen = [listed[motor] if motor < len(listed) else "" for motor in motors]
        if not all(isinstance(one, str) and one for one in chosen):
            raise ForeignPolicyError(f"{home / DEPLOY}: joint_ids_map names a motor that has no joint ({where})")
        reading.state("joints", chosen, where)
    if "joint_names" in source.metadata:
        words = [word.strip() for word in source.metadata["joint_names"].split(",")]
        reading.state("joints", words, f"{source.file.name}: joint_names")


def _observation(reading: PolicyReading, values: dict[str, Any], count: int, file: Path) -> None:
    where = f"{file}: observations"
    group = mapping(values["observations"], where)
    first = next(iter(group.values()), None)
    if not isinstance(first, dict) or "params" not in first:
        if len(group) != 1:
            raise ForeignPolicyError(f"{where} has the inputs {short(list(group))}, so far one is read")
        group = mapping(first, where)
    by_time, scale_first = group.get(BY_TIME) is True, False
    found: list[dict[str, Any]] = []
    for name, settings in group.items():
        if name in (BY_TIME, SCALE_FIRST):
            if not isinstance(settings, bool):
                raise ForeignPolicyError(f"{where}.{name} is {short(settings)}, expected true or false")
            scale_first = settings if name == SCALE_FIRST else scale_first
            continue
        term = mapping(settings, f"{where}.{name}")
        found += _term(reading, name, term, count, f"{where}.{name}", scale_first=scale_first, by_time=by_time)
        known = ("params", "clip", "scale", "history_length")
        reading.unread += [f"observations.{name}.{key}" for key in term if key not in known]
    reading.state("observation", found, f"{file.name}: observations")
    histories = {term.get("history", 1) for term in found}
    if by_time and len(histories) > 1:
        raise ForeignPolicyError(f"{where}: {BY_TIME}, and terms with histories of different lengths")
    if histories != {1}:
        place = f"{file.name}: observations.{BY_TIME}" if by_time else "code: a history of each term"
        reading.state("layout", "time" if by_time else "term", place)
        reading.state("newest", "last", "code: the newest sample is the last")
        reading.state("first_fill", "repeat", "code: a history begins with copies of its first sample")


def _term(
    reading: PolicyReading, name: str, term: dict[str, Any], count: int, where: str, *, scale_first: bool, by_time: bool
) -> list[dict[str, Any]]:
    if name.startswith(MOTION):
        raise ForeignPolicyError(f"{where}: the policy tracks a motion; so far policies that walk are imported")
    if name not in TERMS:
        raise ForeignPolicyError(f"{where}: a term that the reader does not know; describe the policy in a physai.yaml")
    history = term.get("history_length", 1)
    if not isinstance(history, int) or isinstance(history, bool) or history < 1:
        raise ForeignPolicyError(f"{where}.history_length is {short(history)}, expected at least 1")
    params, kind, clock = mapping(term.get("params"), f"{where}.params"), TERMS[name], None
    chosen = _chosen(mapping(params.get("asset_cfg"), f"{where}.params.asset_cfg").get("joint_ids"), count, where)
    names: list[str] | None = reading.values.get("joints")
    if kind == "clock":
        period = number(params.get("period"), f"{where}.params.period")
        # A clock of a contract has advanced once when it is first observed, the program's twice.
        begin = 2.0 * math.pi * number(reading.values["control_dt"], "step_dt") / period if period else math.nan
        clock = {"wave": "sin", "period_s": period, "phases": [begin, begin + math.pi / 2]}
    if chosen is not None:
        if names is None:
            raise ForeignPolicyError(
                f"{where} selects joints by number, and no file names them; describe the policy in a physai.yaml"
            )
        names = [names[one] for one in chosen]
    width = 2 if clock else count if chosen is None else len(chosen)
    return terms(
        kind,
        where,
        scale=term.get("scale"),
        clip=term.get("clip"),
        history=history,
        width=width,
        names=names,
        whole=chosen is None,
        clock=clock,
        scale_first=scale_first,
        by_time=by_time,
    )


def _chosen(ids: Any, count: int, where: str) -> list[int] | None:
    """Return the joints that a term selects, as numbers in the policy's order; None for all."""
    if ids in (None, [], [None, None, None], list(range(count))):
        return None
    found = numbers(ids, f"{where}.params.asset_cfg.joint_ids")
    if not all(one in range(count) for one in found):
        raise ForeignPolicyError(f"{where}.params.asset_cfg.joint_ids is {short(ids)}, the policy has {count} joints")
    return [int(one) for one in found]


def _ranges(reading: PolicyReading, values: dict[str, Any], file: Path) -> None:
    where = f"{file}: commands.base_velocity"
    commands = mapping(values.get("commands"), f"{file}: commands")
    ranges = mapping(mapping(commands.get("base_velocity"), where).get("ranges"), f"{where}.ranges")
    if not all(name in ranges for name in RANGES):
        return
    pairs = [numbers(ranges[name], f"{where}.ranges.{name}") for name in RANGES]
    if any(len(pair) != 2 for pair in pairs):
        raise ForeignPolicyError(f"{where}.ranges has not two numbers for each of {', '.join(RANGES)}")
    bounds = [[pair[end] for pair in pairs] for end in (0, 1)]
    reading.state("command", bounds, f"{file.name}: commands.base_velocity.ranges")


def _metadata(reading: PolicyReading, source: PolicySource) -> None:
    """Compare with metadata of mjlab, which has three decimals where the file may have fewer."""
    for name, key in ALSO.items():
        if key not in source.metadata or name not in reading.values:
            continue
        own, words = reading.values[name], source.metadata[key].split(",")
        try:
            other = [float(word) for word in words] * (len(own) if len(words) == 1 else 1)
        except ValueError:
            raise ForeignPolicyError(f"{source.file}: metadata {key} has {short(words)}, expected numbers") from None
        if len(other) != len(own) or any(abs(a - b) > _rounding(a) for a, b in zip(own, other, strict=True)):
            reading.contradictions.append(
                f"{name} is {short(own)} ({reading.sources[name]}) and {short(other)} ({source.file.name}: {key})"
            )


def _rounding(value: float) -> float:
    """Greatest difference that rounding to the decimals which a number has, or to the metadata's three, explains."""
    decimals = -int(Decimal(str(value)).as_tuple().exponent)
    return 0.0006 + min(0.5 * 10.0**-decimals, 0.07 * abs(value))
