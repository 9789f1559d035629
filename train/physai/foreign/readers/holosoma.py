"""Reader of holosoma's policies: metadata of the ONNX file, and the configuration of the package around it.

The package `holosoma_inference` keeps its models in `models/`, and its settings as Python in `config/config_values/`,
which are read and not run. What its program does is in no file: it sorts the terms of the observation by name, clips
outputs to ±100, and lets the gait's clock rest at π while the command is below 0.01 (`policies/base.py`,
`policies/locomotion.py` of 0.1.3). Policies that follow a motion have it inside: the program counts periods, sees what
the call before returned, and takes both orientations relative to the heading at the start (`policies/wbt.py`).
"""

import json
import math
from pathlib import Path
from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.literals import calls
from physai.foreign.readers.values import begins_at_once
from physai.foreign.reading import PolicyReading, PolicySource

CONFIG = Path("config") / "config_values"
OUTPUT_LIMIT = 100.0
STANDS_BELOW = 0.01
TERMS: dict[str, dict[str, Any]] = {
    "actions": {"of": "last_action"},
    "base_ang_vel": {"of": "ang_vel"},
    "base_lin_vel": {"of": "base_lin_vel"},
    "command_ang_vel": {"of": "command", "elements": [2]},
    "command_lin_vel": {"of": "command", "elements": [0, 1]},
    "dof_pos": {"of": "joint_pos"},
    "dof_vel": {"of": "joint_vel"},
    "projected_gravity": {"of": "gravity"},
    "motion_command": {"of": "motion"},
    "motion_ref_ori_b": {"of": "motion_orientation"},
}
STEP, ORIENTATION, POSITION = "time_step", "ref_quat_xyzw", "ref_pos_xyz"
"""Input and outputs of policies that follow a motion."""
LAG = 1
ALSO = {"default_pos": "default_joint_pos", "action_scale": "action_scale", "control_dt": "control_dt"}
RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")


def read(source: PolicySource) -> PolicyReading | None:
    """Read a walking policy; None if the file is not of this family.

    Raises:
        ForeignPolicyError: the file tracks a motion, or its metadata or the package's settings are not as expected.
    """
    metadata = source.metadata
    if not {"dof_names", "kp", "kd"} <= set(metadata):
        return None
    follows = len(source.inputs) > 1
    if follows and list(source.inputs[1:]) != [STEP]:
        raise ForeignPolicyError(
            f"{source.file}: its inputs are {', '.join(source.inputs)}, which the reader does not know"
        )
    home = next((folder for folder in source.file.resolve().parents if (folder / CONFIG).is_dir()), None)
    if home is None:
        raise ForeignPolicyError(
            f"{source.file}: a policy of holosoma outside its package: what its observation is stands in "
            f"{CONFIG / 'observation.py'} of holosoma_inference; import it from there (unpack the wheel)"
        )
    reading = PolicyReading(family="holosoma", network=source.file, files={source.file})
    names = _json(metadata, "dof_names", source.file)
    for name, key in (("joints", "dof_names"), ("stiffness", "kp"), ("damping", "kd")):
        reading.state(name, _json(metadata, key, source.file), f"{source.file.name}: {key}")
    if metadata.get("command_ranges", "null") != "null":
        ranges = _json(metadata, "command_ranges", source.file)
        if any(len(ranges[key]) != 2 for key in RANGES):
            raise ForeignPolicyError(
                f"{source.file}: command_ranges has not two numbers for each of {', '.join(RANGES)}"
            )
        bounds = [[ranges[key][end] for key in RANGES] for end in (0, 1)]
        reading.state("command", bounds, f"{source.file.name}: command_ranges")
    _robot(reading, home, names, follows=follows)
    if follows and "experiment_config" in metadata:
        _trained_scale(reading, _json(metadata, "experiment_config", source.file), names)
    begins_at_once(reading, "moves to the default pose, or to the motion's first one (base.py, wbt.py)")
    # Hardly a file has them; one that has must agree with the package.
    for name, key in ALSO.items():
        if metadata.get(key, "null") != "null":
            reading.state(name, _json(metadata, key, source.file), f"{source.file.name}: {key}")
    return reading


def _json(metadata: Any, key: str, file: Path) -> Any:
    try:
        return json.loads(metadata[key])
    except (ValueError, RecursionError):
        raise ForeignPolicyError(f"{file}: metadata {key} is not JSON") from None


def _trained_scale(reading: PolicyReading, training: Any, names: list[str]) -> None:
    """State the action scale of the training configuration."""
    control = training["robot"]["control"]
    scale, where = _number(control["action_scale"]), f"{reading.network.name}: experiment_config.robot"
    if not control["action_scales_by_effort_limit_over_p_gain"]:
        reading.state("action_scale", scale, f"{where}.control.action_scale")
        return
    efforts = training["robot"]["dof_effort_limit_list"]
    if list(training["robot"]["dof_names"]) != names:
        raise ForeignPolicyError(f"{where}.dof_names is not dof_names of the file")
    gains = reading.values["stiffness"]
    scales = [scale * _number(effort) / _number(gain) for effort, gain in zip(efforts, gains, strict=True)]
    reading.state("action_scale", scales, f"{where}.control.action_scale · dof_effort_limit_list / kp")


def _robot(reading: PolicyReading, home: Path, names: list[str], *, follows: bool) -> None:
    """State what the package says about the robot with these joints."""
    robots, observations, tasks = (home / CONFIG / f"{kind}.py" for kind in ("robot", "observation", "task"))
    matching = {key: one for key, one in calls(robots).items() if list(one.get("dof_names", ())) == list(names)}
    if len(matching) != 1:
        raise ForeignPolicyError(f"{robots}: {len(matching)} robots have the joints of {reading.network.name}")
    key, robot = next(iter(matching.items()))
    reading.files |= {robots, observations, tasks}
    pose = robot["default_dof_angles"]
    if not isinstance(pose, list | tuple):
        raise ForeignPolicyError(
            f"{robots}: {key}.default_dof_angles is a {type(pose).__name__}, expected numbers in order"
        )
    reading.state("default_pos", list(pose), f"{robots.name}: {key}.default_dof_angles")  # pyright: ignore[reportUnknownArgumentType]
    named, does = ("wbt", "wbt") if follows else (f"loco_{key}", "locomotion")
    observation, task = calls(observations).get(named), calls(tasks).get(does)
    if observation is None or task is None:
        raise ForeignPolicyError(
            f"{home / CONFIG}: no {named} in observation.py, or no {does} in task.py, that is written plainly and once"
        )
    reading.state("control_dt", 1.0 / _number(task["rl_rate"]), f"{tasks.name}: {does}.rl_rate")
    if follows:
        body = robot["motion"]["body_name_ref"]
        motion = {"index": STEP, "position": POSITION, "orientation": ORIENTATION, "quaternion": ORIENTATION[-4:]}
        where = f"{robots.name}: {key}.motion.body_name_ref; code: rl_inference, names of the outputs"
        reading.state("motion", {**motion, "body": body[0], "lag": LAG}, where)
    else:
        # Of policies that follow a motion, a rule of the program's own holds for files that do not state it.
        reading.state("action_scale", task["policy_action_scale"], f"{tasks.name}: {does}.policy_action_scale")
    reading.state("output_limit", OUTPUT_LIMIT, "code: rl_inference clips outputs")
    wanted: list[str] = observation["obs_dict"]["actor_obs"]
    scales: dict[str, float] = observation["obs_scales"]
    terms = [_term(name, scales[name], task) for name in sorted(wanted)]
    where = f"{observations.name}: {named}; code: the terms are sorted by name"
    reading.state("observation", terms, where)
    if observation["history_length_dict"]["actor_obs"] != 1:
        raise ForeignPolicyError(f"{observations}: a history, which the reader does not know")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ForeignPolicyError(f"{value!r} is not a number")
    return float(value)


def _term(name: str, scale: float, task: dict[str, Any]) -> dict[str, Any]:
    if name in ("sin_phase", "cos_phase"):
        clock = {"wave": name[:3], "period_s": _number(task["gait_period"]), "phases": [0.0, math.pi]}
        return {"of": "clock", "scale": scale, "clock": {**clock, "gate": STANDS_BELOW, "standing_phase": math.pi}}
    if name not in TERMS:
        raise ForeignPolicyError(f"the observation has the term {name!r}, which the reader does not know")
    return {**TERMS[name], "scale": _number(scale)}
