"""Reader of unitree_rl_gym's policies: files of `deploy/deploy_mujoco/configs` and `deploy/deploy_real/configs`.

Files of both folders that name the same network describe the same policy, and must agree. The programs alone
(`deploy_mujoco.py` and `deploy_real.py`) tell what the observation is: angular velocity, gravity, command, positions,
velocities, last action, sine and cosine of a clock of 0.8 s, which always runs; its angle in the first observation is
that of one control period. The joints are those of the MJCF that the file for MuJoCo names, in the order of qpos; the
file for the robot has numbers of motors alone. Its program multiplies the stick, -1 to 1, by `max_cmd`.
"""

from itertools import islice
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.mjcf_joints import joint_order
from physai.foreign.readers.values import begins_at_once, begins_between, number, numbers, scaled, short
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.formats.yaml_file import read_yaml

PLACES = ("deploy_mujoco", "deploy_real")
KEYS = {"policy_path", "kps", "kds", "default_angles", "action_scale", "cmd_scale", "num_obs"}
ROOT = "{LEGGED_GYM_ROOT_DIR}/"
MAX_BYTES = 1 << 18
MAX_FILES = 64
"""Greatest number of files in a folder of configurations that are looked at."""
FIELDS = {"default_pos": "default_angles", "stiffness": "kps", "damping": "kds", "action_scale": "action_scale"}
SCALES = ("ang_vel_scale", "dof_pos_scale", "dof_vel_scale", "cmd_scale")
COUNTS = ("num_actions", "num_obs")
PERIOD = 0.8
"""Period of the gait [s]."""
PER_JOINT, OTHERS = 3, 11
"""Numbers of the observation: three for each joint, and angular velocity, gravity, command and clock."""
TRAINED = (0.5, 1.5)
"""Multiples of the default pose between which episodes began in training."""
READ = {*KEYS, *SCALES, *COUNTS, "xml_path", "simulation_dt", "control_decimation", "control_dt", "max_cmd"}
OTHER_JOINTS = "arm_waist_joint2motor_idx"

Files = dict[Path, dict[str, Any]]
"""Files of one policy, with their values."""


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy by one of its YAML files, its network, or the network's folder; None if it is of another family.

    Raises:
        ForeignPolicyError: a folder has several policies, or a file is not as the program reads it.
    """
    given = source.file.resolve()
    root = next((one for one in given.parents if any((one / "deploy" / place).is_dir() for place in PLACES)), None)
    network = None if root is None else _network(given, root)
    if root is None or network is None:
        return None
    files = {file: values for file, values in _all(root).items() if _inside(values["policy_path"], root) == network}
    reading = PolicyReading(family="unitree_rl_gym", network=network, files=set(files))
    agreed: dict[str, tuple[Any, str]] = {}
    for file, values in files.items():
        where = file.relative_to(root / "deploy").as_posix()
        _agree(reading, agreed, values, where)
        _period(reading, values, where)
        _robot(reading, values, where, root)
        reading.unread += _unread(values, where)
    _observation(reading, agreed)
    begins_at_once(reading, "moves to default_angles within 2 s (deploy_real.py, move_to_default_pos)")
    if isinstance(pose := reading.values.get("default_pos"), list):
        pairs = [(least * at, most * at) for at in numbers(pose, "default_angles") for least, most in (TRAINED,)]
        begins_between(reading, pairs, "code: 0.5 to 1.5 times default_angles (legged_robot.py, _reset_dofs)")
    reading.unread.append(
        "code: in training, commands of less than 0.2 m/s were 0 (legged_robot.py); the deployed program passes them "
        "on, and `settings` command_gate=0.2 would not"
    )
    return reading


def _network(given: Path, root: Path) -> Path | None:
    """The network that is meant: the one that a file names, a file that one names, or the only such in a folder."""
    if given.suffix.lower() in (".yaml", ".yml"):
        is_config = any(given.parent == root / "deploy" / place / "configs" for place in PLACES)
        values = _values(given, strict=True) if is_config else None
        return None if values is None else _required(values["policy_path"], root, f"{given}: policy_path")
    named = {path for values in _all(root).values() if (path := _inside(values["policy_path"], root))}
    if given.is_dir():
        inside = sorted(path for path in named if path.parent == given)
        if len(inside) > 1:
            names = ", ".join(path.name for path in inside)
            raise ForeignPolicyError(f"{given}: several policies are there: {names}; name one of them")
        return inside[0] if inside else None
    return given if given in named else None


def _all(root: Path) -> Files:
    """All files of the family in a repository, without those that cannot be read."""
    found: Files = {}
    for place in PLACES:
        for file in sorted(islice((root / "deploy" / place / "configs").glob("*.yaml"), MAX_FILES)):
            if (values := _values(file, strict=False)) is not None:
                found[file] = values
    return found


def _values(file: Path, *, strict: bool) -> dict[str, Any] | None:
    try:
        found = read_yaml(file, what="a file of unitree_rl_gym", max_bytes=MAX_BYTES, error=ForeignPolicyError)
    except ForeignPolicyError:
        if strict:
            raise
        return None
    if not isinstance(found, dict) or not set(cast("dict[Any, Any]", found)) >= KEYS:
        return None
    return {str(key): value for key, value in cast("dict[Any, Any]", found).items()}


def _inside(name: Any, root: Path) -> Path | None:
    """File of the repository that a name with the program's placeholder means; None for other names."""
    if not isinstance(name, str) or not name.startswith(ROOT) or "\0" in name:
        return None
    path = (root / name.removeprefix(ROOT)).resolve()
    return path if path.is_relative_to(root) else None


def _required(name: Any, root: Path, where: str) -> Path:
    path = _inside(name, root)
    if path is None:
        raise ForeignPolicyError(f"{where} is {short(name)}, expected {ROOT} and a file of the repository")
    return path


def _agree(reading: PolicyReading, agreed: dict[str, tuple[Any, str]], values: dict[str, Any], where: str) -> None:
    """State what a file has, and name what another one has otherwise."""
    for name, key in FIELDS.items():
        reading.state(name, values[key], f"{where}: {key}")
    for key in (*SCALES, *COUNTS):
        if key not in values:
            continue
        before, other = agreed.setdefault(key, (values[key], where))
        if before != values[key]:
            reading.contradictions.append(f"{key} is {short(before)} ({other}) and {short(values[key])} ({where})")


def _period(reading: PolicyReading, values: dict[str, Any], where: str) -> None:
    if "control_dt" in values:
        reading.state("control_dt", values["control_dt"], f"{where}: control_dt")
    keys = ("simulation_dt", "control_decimation")
    if all(key in values for key in keys):
        step, decimation = (number(values[key], f"{where}: {key}") for key in keys)
        reading.state("control_dt", round(step * decimation, 12), f"{where}: {' · '.join(keys)}")


def _robot(reading: PolicyReading, values: dict[str, Any], where: str, root: Path) -> None:
    """State the joints and the range of the commands."""
    if "xml_path" in values:
        model = _required(values["xml_path"], root, f"{where}: xml_path")
        if model.is_file():
            names, parts = joint_order(model, root)
            reading.files |= parts
            reading.state("joints", names, f"{where}: xml_path, the joints of {model.name}; code: in the order of qpos")
    if "max_cmd" in values:
        most = numbers(values["max_cmd"], f"{where}: max_cmd")
        if len(most) != 3 or not all(one >= 0.0 for one in most):
            raise ForeignPolicyError(f"{where}: max_cmd is {short(most)}, expected three numbers of at least 0")
        source = f"{where}: max_cmd; code: times the stick, -1 to 1"
        reading.state("command", [[-one for one in most], most], source)


def _observation(reading: PolicyReading, agreed: dict[str, tuple[Any, str]]) -> None:
    lacking = [key for key in (*SCALES, "num_actions") if key not in agreed]
    if lacking:
        raise ForeignPolicyError(
            f"{reading.network.name}: no file states {', '.join(lacking)}, which its program needs"
        )
    ang_vel, dof_pos, dof_vel = (number(agreed[key][0], f"{agreed[key][1]}: {key}") for key in SCALES[:3])
    command = numbers(agreed["cmd_scale"][0], f"{agreed['cmd_scale'][1]}: cmd_scale")
    if len(command) != 3:
        raise ForeignPolicyError(f"{agreed['cmd_scale'][1]}: cmd_scale has {len(command)} numbers, expected 3")
    # A clock of a contract also advances before each sample, so that they agree from the first observation on.
    clock = {"period_s": PERIOD, "phases": [0.0]}
    terms = [
        {"of": "ang_vel", "scale": ang_vel},
        {"of": "gravity"},
        *scaled("command", command),
        {"of": "joint_pos", "scale": dof_pos},
        {"of": "joint_vel", "scale": dof_vel},
        {"of": "last_action"},
        {"of": "clock", "clock": {**clock, "wave": "sin"}},
        {"of": "clock", "clock": {**clock, "wave": "cos"}},
    ]
    where = f"{agreed['cmd_scale'][1]}: …_scale; code: the order of the terms and the clock"
    reading.state("observation", terms, where)
    count, place = agreed["num_actions"]
    joints = reading.values.get("joints")
    if joints is not None and count != len(joints):
        reading.contradictions.append(f"num_actions is {short(count)} ({place}), the MJCF has {len(joints)} joints")
    expected, place = agreed["num_obs"]
    if isinstance(count, int) and expected != PER_JOINT * count + OTHERS:
        made = PER_JOINT * count + OTHERS
        reading.contradictions.append(f"num_obs is {short(expected)} ({place}), {count} joints make {made}")


def _unread(values: dict[str, Any], where: str) -> list[str]:
    found = [f"{where}: {key}" for key in sorted(set(values) - READ)]
    if OTHER_JOINTS in values:
        found.append(
            f"{where}: has joints that the policy does not command, by number of their motors; for a robot file with "
            "these joints, state them with `settings` held={…}"
        )
    if values.get("imu_type") == "torso":
        found.append(
            f"{where}: imu_type torso: the program turns what the IMU of the torso measures to the pelvis by the angle "
            "of the waist; here both are of the base"
        )
    return found
