"""Reader of booster_gym's policies: `deploy/configs/<robot>.yaml`, the network that it names, and `envs/<robot>.yaml`.

The program alone (`deploy/utils/policy.py`) tells what the observation is: gravity, angular velocity, command, cosine
and sine of the gait's clock, positions, velocities, and the last action after it was clipped. The clock is 0 while the
norm of the command is below 1e-5. The policy commands the joints from number 11 of the robot; that program names none.
Their names are those of the model in which `play_mujoco.py` plays the same policies: `asset: mujoco_file` of the
training's file, which also has the range of the commands.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.mjcf_joints import joint_order
from physai.foreign.readers.values import NETWORKS, begins_at_once, number, numbers, scaled
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.formats.yaml_file import read_yaml

MAX_BYTES = 1 << 18
MAX_FILES, MAX_KEYS = 64, 2000
"""Greatest number of files in a folder of configurations that are looked at, and of their keys."""
FIRST = 11
"""Number of the first joint that the policy commands (`policy.py`)."""
STANDS_BELOW = 1e-5
SLEW = 1.0
"""Greatest change of each element of the command per second [m/s², rad/s²]."""
PER_JOINT, OTHERS = 3, 11
"""Numbers of the observation: three for each joint, and gravity, angular velocity, command and clock."""
VECTORS = {"default_pos": "common.default_qpos", "stiffness": "common.stiffness", "damping": "common.damping"}
SCALES = ("gravity", "ang_vel", "lin_vel", "dof_pos", "dof_vel")
AGREE = {
    "common.dt": "sim.dt",
    "policy.num_actions": "env.num_actions",
    "policy.num_observations": "env.num_observations",
    "policy.control.action_scale": "control.action_scale",
    "policy.control.decimation": "control.decimation",
    "policy.normalization.clip_actions": "normalization.clip_actions",
    **{f"policy.normalization.{name}": f"normalization.{name}" for name in SCALES},
}
"""Keys that are read, and those of the training's file with the same meaning."""
NETWORK, GAIT, MODEL = "policy.policy_path", "policy.gait_frequency", "asset.mujoco_file"
RANGES = tuple(f"commands.{name}" for name in ("lin_vel_x", "lin_vel_y", "ang_vel_yaw"))

Values = dict[str, Any]
"""Values of a file by the names of their mappings and their own: `policy.control.action_scale`."""


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy by its YAML file, its network, or the folder `deploy`; None if it is not of this family.

    Raises:
        ForeignPolicyError: more than one file describes it, or a file is not as the program reads it.
    """
    found = _found(source.file)
    if len(found) > 1:
        names = ", ".join(sorted(file.name for file in found))
        raise ForeignPolicyError(f"{source.file}: several files describe a policy there: {names}; name one of them")
    if not found:
        return None
    file, values = next(iter(found.items()))
    home = file.parent.parent
    root = home.parent if home.name == "deploy" else home
    reading = PolicyReading(family="booster", network=_network(file, values, root), files={file})
    where = file.relative_to(root).as_posix()
    _fields(reading, where, values)
    _observation(reading, where, values)
    training = root / "envs" / file.name
    if root is not home and training.is_file():
        _training(reading, where, values, training, root)
    begins_at_once(reading, "prepares in prepare.default_qpos (deploy.py)")
    reading.state("command_slew", [SLEW] * 3, "code: at most dt · decimation per control period (policy.py)")
    _unread(reading, where, values)
    return reading


def _found(given: Path) -> dict[Path, Values]:
    """The files that describe a policy, with their values."""
    if given.suffix.lower() in (".yaml", ".yml"):
        file = given.resolve()
        if file.parent.name != "configs":
            return {}
        values = _values(file, strict=file.parent.parent.name == "deploy")
        return {file: values} if _is_family(values) else {}
    place = given.resolve()
    if given.is_dir():
        folder = place if (place / "configs").is_dir() else place.parent
    elif given.suffix.lower() in NETWORKS:
        folder = place.parent.parent
    else:
        return {}
    files = sorted(islice((folder / "configs").glob("*.yaml"), MAX_FILES))
    known = {file: values for file in files if _is_family(values := _values(file, strict=False))}
    if not given.is_dir():
        known = {file: values for file, values in known.items() if _path(folder, values[NETWORK]) == place}
    return known


def _is_family(values: Values) -> bool:
    return {NETWORK, "common.default_qpos", "policy.normalization.clip_actions"} <= set(values)


def _values(file: Path, *, strict: bool) -> Values:
    """The values of a file; none of a file that cannot be read, unless `strict`."""
    try:
        found = read_yaml(file, what="a file of booster_gym", max_bytes=MAX_BYTES, error=ForeignPolicyError)
    except ForeignPolicyError:
        if strict:
            raise
        return {}
    return dict(islice(_flat(found, ""), MAX_KEYS))


def _flat(found: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(found, dict):
        return
    for key, value in cast("dict[Any, Any]", found).items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _path(folder: Path, name: Any) -> Path | None:
    return (folder / name).resolve() if isinstance(name, str) and "\0" not in name else None


def _network(file: Path, values: Values, root: Path) -> Path:
    # The program runs in the folder above `configs`.
    path = _path(file.parent.parent, values[NETWORK])
    if path is None:
        raise ForeignPolicyError(f"{file}: {NETWORK} names the network, got {values[NETWORK]!r}")
    if not path.is_relative_to(root):
        raise ForeignPolicyError(f"{file}: {NETWORK} {values[NETWORK]!r} leads outside the repository")
    return path


def _fields(reading: PolicyReading, where: str, values: Values) -> None:
    count = values.get("policy.num_actions")
    for name, key in VECTORS.items():
        if key not in values:
            continue
        vector = numbers(values[key], f"{where}: {key}")
        reading.state(name, vector[FIRST:], f"{where}: {key}; code: from number {FIRST} on")
        if isinstance(count, int) and len(vector) != FIRST + count:
            reading.contradictions.append(
                f"{where}: {key} has {len(vector)} numbers, {FIRST} and num_actions are {FIRST + count}"
            )
    expected = values.get("policy.num_observations")
    if isinstance(count, int) and expected is not None and expected != PER_JOINT * count + OTHERS:
        reading.contradictions.append(
            f"{where}: num_observations is {expected}, {count} joints make {PER_JOINT * count + OTHERS}"
        )
    for name, key in (
        ("action_scale", "policy.control.action_scale"),
        ("output_limit", "policy.normalization.clip_actions"),
    ):
        if key in values:
            reading.state(name, values[key], f"{where}: {key}")
    keys = ("common.dt", "policy.control.decimation")
    if all(key in values for key in keys):
        step, decimation = (number(values[key], f"{where}: {key}") for key in keys)
        reading.state("control_dt", round(step * decimation, 12), f"{where}: {keys[0]} · {keys[1]}")


def _observation(reading: PolicyReading, where: str, values: Values) -> None:
    scales = {key: number(values.get(f"policy.normalization.{key}"), f"{where}: normalization.{key}") for key in SCALES}
    frequency = number(values.get(GAIT), f"{where}: {GAIT}")
    if not frequency > 0.0:
        raise ForeignPolicyError(f"{where}: {GAIT} is {frequency:g}, expected above 0 [Hz]")
    clock = {"period_s": 1.0 / frequency, "phases": [0.0], "gate": STANDS_BELOW}
    terms = [
        {"of": "gravity", "scale": scales["gravity"]},
        {"of": "ang_vel", "scale": scales["ang_vel"]},
        *scaled("command", [scales["lin_vel"], scales["lin_vel"], scales["ang_vel"]]),
        {"of": "clock", "clock": {**clock, "wave": "cos"}},
        {"of": "clock", "clock": {**clock, "wave": "sin"}},
        {"of": "joint_pos", "scale": scales["dof_pos"]},
        {"of": "joint_vel", "scale": scales["dof_vel"]},
        {"of": "last_action"},
    ]
    source = f"{where}: policy.normalization, {GAIT}; code: the order of the terms and the clock (policy.py)"
    reading.state("observation", terms, source)


def _training(reading: PolicyReading, where: str, values: Values, training: Path, root: Path) -> None:
    """State what the training's file alone has, and compare the rest."""
    trained = _values(training, strict=True)
    reading.files.add(training)
    place = training.relative_to(root).as_posix()
    for key, other in AGREE.items():
        if key in values and other in trained and values[key] != trained[other]:
            reading.contradictions.append(f"{key} is {values[key]} ({where}), {other} is {trained[other]} ({place})")
    if all(key in trained for key in RANGES):
        ranges = [numbers(trained[key], f"{place}: {key}") for key in RANGES]
        if any(len(each) != 2 for each in ranges):
            raise ForeignPolicyError(f"{place}: expected two numbers for each of {', '.join(RANGES)}")
        bounds = [[each[end] for each in ranges] for end in (0, 1)]
        reading.state("command", bounds, f"{place}: {', '.join(RANGES)}")
    # The training's programs run in the folder of the repository.
    model = _path(root, trained.get(MODEL))
    if model is not None and model.is_file():
        names, parts = joint_order(model, root)
        reading.files |= parts
        source = f"{place}: {MODEL}, the joints of {model.name}; code: play_mujoco.py plays the same policy with it"
        reading.state("joints", names, source)
        _gains(reading, trained, names, place)


def _gains(reading: PolicyReading, trained: Values, names: list[str], where: str) -> None:
    """Name gains with which it was trained that differ from those of the deployed program, which hold."""
    for name in ("stiffness", "damping"):
        parts = {
            key.removeprefix(f"control.{name}."): value
            for key, value in trained.items()
            if key.startswith(f"control.{name}.")
        }
        for joint, deployed in zip(names, reading.values.get(name, []), strict=False):
            # As in the training's program, the last part of a name that fits counts.
            fitting = [value for part, value in parts.items() if part in joint]
            if fitting and fitting[-1] != deployed:
                reading.unread.append(
                    f"{where}: control.{name} is {fitting[-1]} for {joint}, the deployed program has {deployed:g}"
                )


def _unread(reading: PolicyReading, where: str, values: Values) -> None:
    known = {*AGREE, *VECTORS.values(), NETWORK, GAIT}
    reading.unread += [f"{where}: {key}" for key in sorted(set(values) - known)]
    reading.unread += [
        "code: the program's clock runs on while the robot stands (policy.py); here it begins at 0 after that",
        "code: the program filters targets, 0.2 of the new one and 0.8 of the last one every common.dt (deploy.py); "
        "here the motors get the new one at once",
        f"code: the program holds joints 0 to {FIRST - 1} at common.default_qpos with common.stiffness and "
        "common.damping (deploy.py); for a robot file that has them, state them with `settings` held={…}",
        "code: common.torque_limit bounds the motors of mech.parallel_mech_indexes alone (deploy.py); here the effort "
        "limits of the robot file hold",
    ]
