"""Reader of holosoma's walking policies: metadata of the ONNX file, and the configuration of the package around it.

The package `holosoma_inference` keeps its models in `models/`, and its settings as Python in `config/config_values/`,
which are read and not run. What its program does is in no file: it sorts the terms of the observation by name, clips
outputs to ±100, and lets the gait's clock rest at π while the command is below 0.01 (`policies/base.py`,
`policies/locomotion.py` of 0.1.3).
"""

import json
import math
from pathlib import Path
from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.literals import calls
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
}
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
    if len(source.inputs) != 1:
        raise ForeignPolicyError(
            f"{source.file}: tracks a motion (its inputs are {', '.join(source.inputs)}); so far policies that walk "
            "are imported"
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
    if "command_ranges" in metadata:
        ranges = _json(metadata, "command_ranges", source.file)
        if any(len(ranges[key]) != 2 for key in RANGES):
            raise ForeignPolicyError(
                f"{source.file}: command_ranges has not two numbers for each of {', '.join(RANGES)}"
            )
        bounds = [[ranges[key][end] for key in RANGES] for end in (0, 1)]
        reading.state("command", bounds, f"{source.file.name}: command_ranges")
    _robot(reading, home, names)
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


def _robot(reading: PolicyReading, home: Path, names: list[str]) -> None:
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
    observation = calls(observations).get(f"loco_{key}")
    task = calls(tasks).get("locomotion")
    if observation is None or task is None:
        raise ForeignPolicyError(
            f"{home / CONFIG}: no loco_{key} in observation.py, or no locomotion in task.py, that is written plainly "
            "and once"
        )
    reading.state("control_dt", 1.0 / _number(task["rl_rate"]), f"{tasks.name}: locomotion.rl_rate")
    reading.state("action_scale", task["policy_action_scale"], f"{tasks.name}: locomotion.policy_action_scale")
    reading.state("output_limit", OUTPUT_LIMIT, "code: rl_inference clips outputs")
    wanted: list[str] = observation["obs_dict"]["actor_obs"]
    scales: dict[str, float] = observation["obs_scales"]
    terms = [_term(name, scales[name], task) for name in sorted(wanted)]
    where = f"{observations.name}: loco_{key}; code: the terms are sorted by name"
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
