"""Reader of Berkeley Humanoid Lite's deployment files: `configs/policy_*.yaml`, next to `checkpoints/`.

The order of the terms is in the program alone: command, angular velocity, gravity, positions, velocities, last action.
"""

from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.formats.yaml_file import read_yaml

KEYS = ("policy_checkpoint_path", "policy_dt", "joint_kp", "joint_kd", "default_joint_positions", "action_indices")
FIELDS = {
    "joints": "joints",
    "default_pos": "default_joint_positions",
    "stiffness": "joint_kp",
    "damping": "joint_kd",
    "effort": "effort_limits",
    "action_scale": "action_scale",
    "control_dt": "policy_dt",
}
TERMS = ("command", "ang_vel", "gravity", "joint_pos", "joint_vel", "last_action")
LIMITS = ("action_limit_lower", "action_limit_upper")
COUNTS = ("num_joints", "num_actions", "num_observations")
PER_JOINT, OTHERS = 3, 9
"""Numbers of the observation: three for each joint, and a command, an angular velocity and a gravity."""
MAX_BYTES = 1 << 18


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy; None if the file is not of this family.

    Raises:
        ForeignPolicyError: the file names no network, or commands joints in another order than it lists them.
    """
    file = source.file
    if file.suffix.lower() not in (".yaml", ".yml"):
        return None
    found = read_yaml(file, what="a deployment file", max_bytes=MAX_BYTES, error=ForeignPolicyError, tags=True)
    if not isinstance(found, dict) or not set(KEYS) <= set(cast("dict[Any, Any]", found)):
        return None
    values = cast("dict[str, Any]", found)
    # The path is relative to the repository, whose folder `configs` the file lies in.
    home, checkpoint = file.resolve().parent.parent, values["policy_checkpoint_path"]
    if not isinstance(checkpoint, str):
        raise ForeignPolicyError(f"{file}: policy_checkpoint_path names the ONNX file, got {checkpoint!r}")
    network = (home / checkpoint).resolve()
    if not network.is_relative_to(home):
        raise ForeignPolicyError(f"{file}: policy_checkpoint_path leads outside the repository")
    reading = PolicyReading(family="berkeley", network=network, files={file})
    for name, key in FIELDS.items():
        if key in values:
            reading.state(name, values[key], f"{file.name}: {key}")
    _limits(reading, values, file)
    _counts(reading, values, file)
    reading.state("observation", [{"of": term} for term in TERMS], "code: the order of the terms")
    reading.unread += sorted(set(values) - {*KEYS, *FIELDS.values(), *COUNTS, *LIMITS, "history_length"})
    return reading


def _limits(reading: PolicyReading, values: dict[str, Any], file: Path) -> None:
    lower, upper = (values.get(key) for key in LIMITS)
    if lower is None and upper is None:
        return
    if not isinstance(upper, int | float) or lower != -upper:
        raise ForeignPolicyError(
            f"{file}: action_limit_lower {lower} and action_limit_upper {upper}, expected -x and x"
        )
    reading.state("output_limit", upper, f"{file.name}: action_limit_upper")


def _counts(reading: PolicyReading, values: dict[str, Any], file: Path) -> None:
    """Compare the file's own counts with its lists."""
    joints = values.get("joints")
    count = len(cast("list[Any]", joints)) if isinstance(joints, list) else None
    if count is not None:
        for key, expected in zip(COUNTS, (count, count, PER_JOINT * count + OTHERS), strict=True):
            if values.get(key, expected) != expected:
                reading.contradictions.append(f"{file.name}: {key} is {values[key]}, its lists make {expected}")
    indices = values["action_indices"]
    if count is not None and (indices != list(range(count)) or any(isinstance(one, bool) for one in indices)):
        raise ForeignPolicyError(f"{file}: action_indices command some joints only, which the reader does not know")
    if values.get("history_length") not in (None, 0):
        raise ForeignPolicyError(f"{file}: history_length {values['history_length']}, which the reader does not know")
