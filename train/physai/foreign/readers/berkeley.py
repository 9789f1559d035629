"""Reader of Berkeley Humanoid Lite's deployment files: `configs/policy_*.yaml` beside `checkpoints/`.

The order of the terms is in the program alone: command, angular velocity, gravity, positions, velocities, last action.
"""

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
MAX_BYTES = 1 << 20


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy; None if the file is not of this family.

    Raises:
        ForeignPolicyError: the file names no network, or commands joints in another order than it lists them.
    """
    file = source.file
    if file.suffix.lower() not in (".yaml", ".yml"):
        return None
    found = read_yaml(file, what="a deployment file", max_bytes=MAX_BYTES, error=ForeignPolicyError)
    if not isinstance(found, dict) or not set(KEYS) <= set(cast("dict[Any, Any]", found)):
        return None
    values = cast("dict[str, Any]", found)
    # The path is relative to the repository, whose folder `configs` the file lies in.
    network = file.resolve().parent.parent / str(values["policy_checkpoint_path"])
    if not network.resolve().is_relative_to(file.resolve().parent.parent):
        raise ForeignPolicyError(f"{file}: policy_checkpoint_path leads outside the repository")
    reading = PolicyReading(family="berkeley", network=network, files={file})
    for name, key in FIELDS.items():
        if key in values:
            reading.state(name, values[key], f"{file.name}: {key}")
    if list(values["action_indices"]) != list(range(len(values["joints"]))):
        raise ForeignPolicyError(f"{file}: action_indices command some joints only, which the reader does not know")
    if values.get("history_length"):
        raise ForeignPolicyError(f"{file}: history_length {values['history_length']}, which the reader does not know")
    reading.state("observation", [{"of": term} for term in TERMS], "code: the order of the terms")
    return reading
