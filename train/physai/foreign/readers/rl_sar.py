"""Reader of rl_sar's policies: `policy/<robot>/<name>/config.yaml` with its network, and `policy/<robot>/base.yaml`.

Its program reads base.yaml when it starts, and replaces each key that config.yaml has when a policy begins (`ReadYaml`
in `rl_sdk.cpp`). These facts stand in the program alone:

- Joint i of the policy is joint `joint_mapping[i]` of the robot, which `joint_names` names; gains, pose and scales are
  in the order of the policy (`GetState` and `SetCommand` in `rl_sim.cpp`, `rl_sim_mujoco.cpp` and `rl_real_*.cpp`).
- The period is dt · decimation of base.yaml, for which the loops are made before config.yaml is read.
- Gravity and last action have no scale; `clip_obs` bounds the scaled observation (`ComputeObservation`).
- A history begins with zeros; its number 0 is the newest observation (`observation_buffer.cpp`, whose `reset` is not
  called).
- The observed last action is the clipped one (`RunModel` and `Forward`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.values import NETWORKS, WHEELS, begins_at_once, number, numbers, scaled, short
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.formats.yaml_file import read_yaml

CONFIG, BASE = "config.yaml", "base.yaml"
MAX_BYTES = 1 << 18
MAX_ABOVE = 3
"""Greatest number of folders between a policy and its robot's base.yaml."""
FIELDS = {
    "default_pos": "default_dof_pos",
    "stiffness": "rl_kp",
    "damping": "rl_kd",
    "effort": "torque_limits",
    "action_scale": "action_scale",
}
TERMS: dict[str, tuple[str, str | None]] = {
    "lin_vel": ("base_lin_vel", "lin_vel_scale"),
    "ang_vel": ("ang_vel", "ang_vel_scale"),
    "gravity_vec": ("gravity", None),
    "commands": ("command", "commands_scale"),
    "dof_pos": ("joint_pos", "dof_pos_scale"),
    "dof_vel": ("joint_vel", "dof_vel_scale"),
    "actions": ("last_action", None),
}
"""Kind of each observation, and the key of its scale."""
MOTIONS = ("whole_body_tracking/", "RoboMimic_Deploy/phase")
LOWER, UPPER = "clip_actions_lower", "clip_actions_upper"
HISTORY, PRIORITY = "observations_history", "observations_history_priority"


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy by its config.yaml, its network or its folder; None if it is not of this family.

    Raises:
        ForeignPolicyError: the files are not as the program reads them, or the policy drives wheels or tracks a motion.
    """
    file = _config_file(source.file)
    settings = None if file is None else _settings(file)
    if file is None or settings is None:
        return None
    reading = PolicyReading(family="rl_sar", network=_network(settings, source.file), files={file, settings.base_file})
    for name, key in FIELDS.items():
        if (value := settings.get(key)) is not None:
            reading.state(name, value, settings.source(key))
    count = _joints(reading, settings)
    wheels = settings.get("wheel_indices")
    if wheels not in (None, []):
        joints = _list(reading.values.get("joints")) or []
        names = [str(name) for index, name in enumerate(joints) if index in (_list(wheels) or [])]
        raise ForeignPolicyError(f"{file}: wheel_indices {wheels}: {WHEELS.format(', '.join(names))}")
    _period(reading, settings)
    _output_limit(reading, settings, count)
    _observation(reading, settings, count)
    begins_at_once(reading, "gets up within 2 to 3 s (RLFSMStateGetUp in fsm_*.hpp)")
    reading.unread += settings.unread()
    return reading


@dataclass
class _Settings:
    """The keys of both files, those of config.yaml before those of base.yaml."""

    file: Path
    base_file: Path
    config: dict[str, Any]
    base: dict[str, Any]
    used: set[str] = field(default_factory=set[str])

    def get(self, key: str) -> Any:
        """Value that holds, None for none."""
        self.used.add(key)
        return self.config[key] if key in self.config else self.base.get(key)

    def source(self, key: str) -> str:
        """Place of the value that holds, and the value that it replaces."""
        if key not in self.config:
            return f"{BASE}: {key}"
        replaced = key in self.base and self.base[key] != self.config[key]
        return f"{CONFIG}: {key}" + (f" ({BASE} has {short(self.base[key])})" if replaced else "")

    def error(self, problem: str) -> ForeignPolicyError:
        return ForeignPolicyError(f"{self.file}: {problem}")

    def unread(self) -> list[str]:
        return sorted({*self.config, *self.base} - self.used)


def _config_file(file: Path) -> Path | None:
    folder = file if file.is_dir() else file.parent
    if folder is not file and file.name != CONFIG and file.suffix.lower() not in NETWORKS:
        return None
    return folder.resolve() / CONFIG if (folder / CONFIG).is_file() else None


def _settings(file: Path) -> _Settings | None:
    """Keys of a policy and its robot; None if neither file is of this family."""
    home = next((one for one in file.parent.parents[:MAX_ABOVE] if (one / BASE).is_file()), None)
    config, problem = _document(file)
    is_config = _has_two(config, {"model_name", "observations", "rl_kp", "clip_obs"})
    if home is None:
        if is_config:
            raise ForeignPolicyError(
                f"{file}: no {BASE} in the folders above; the names of the joints and the control period stand in it: "
                "import from the folder policy/ of rl_sar"
            )
        return None
    base, other = _document(home / BASE)
    is_base = _has_two(base, {"joint_names", "joint_mapping", "num_of_dofs", "decimation"})
    if not is_config and not is_base:
        return None
    if error := problem or other:
        raise error
    return _Settings(
        file=file,
        base_file=home / BASE,
        config=_named(config, file.parent.relative_to(home.parent).as_posix(), file),
        base=_named(base, home.name, home / BASE),
    )


def _document(file: Path) -> tuple[dict[Any, Any], ForeignPolicyError | None]:
    try:
        found = read_yaml(file, what="a file of rl_sar", max_bytes=MAX_BYTES, error=ForeignPolicyError)
    except ForeignPolicyError as error:
        return {}, error
    return cast("dict[Any, Any]", found) if isinstance(found, dict) else {}, None


def _has_two(document: dict[Any, Any], keys: set[str]) -> bool:
    """Whether a mapping in a file has some of the keys by which a family is known."""
    return any(len(keys & set(cast("dict[Any, Any]", one))) >= 2 for one in document.values() if isinstance(one, dict))


def _named(document: dict[Any, Any], name: str, file: Path) -> dict[str, Any]:
    """Values under the name of the folder, by which the program finds them."""
    found = document.get(name)
    if not isinstance(found, dict):
        raise ForeignPolicyError(
            f"{file}: has {', '.join(str(key)[:40] for key in list(document)[:4])}, and nothing under {name!r}, the "
            "name of its folder, where the program looks"
        )
    return {str(key): value for key, value in cast("dict[Any, Any]", found).items()}


def _network(settings: _Settings, given: Path) -> Path:
    name = settings.get("model_name")
    if not isinstance(name, str) or "\0" in name:
        raise settings.error(f"model_name names the network, got {name!r}")
    folder = settings.file.parent
    path = folder / name
    if not path.resolve().is_relative_to(folder):
        raise settings.error(f"model_name {name!r} is outside its folder")
    if given.suffix.lower() in NETWORKS and not given.is_dir() and given.resolve() != path.resolve():
        raise settings.error(f"it describes {name}, not {given.name}")
    return path


def _joints(reading: PolicyReading, settings: _Settings) -> int | None:
    """State the joints in the policy's order; return how many the policy has, if that is known."""
    names, mapping = _list(settings.get("joint_names")), _list(settings.get("joint_mapping"))
    dofs = settings.get("num_of_dofs")
    if names is None or mapping is None:
        return dofs if isinstance(dofs, int) else None
    count = len(names)
    if not _is_order(mapping, count):
        raise settings.error(f"joint_mapping {short(mapping)} is no order of the {count} joint_names")
    if dofs not in (None, count):
        reading.contradictions.append(f"num_of_dofs is {dofs}, joint_names has {count} names")
    where = f"{settings.source('joint_names')}, {settings.source('joint_mapping')}"
    reading.state("joints", [names[index] for index in mapping], f"{where}; code: joint i is joint_mapping[i]")
    return count


def _period(reading: PolicyReading, settings: _Settings) -> None:
    keys = ("dt", "decimation")
    settings.used |= {*keys}
    for file, values in ((BASE, settings.base), (CONFIG, settings.config)):
        both = {**settings.base, **values}
        if any(key in values for key in keys) and all(key in both for key in keys):
            step, decimation = (number(both[key], f"{file}: {key}") for key in keys)
            reading.state("control_dt", round(step * decimation, 12), f"{file}: dt · decimation")


def _output_limit(reading: PolicyReading, settings: _Settings, count: int | None) -> None:
    """State the bound of the outputs; the program clips them if both keys are there."""
    lower, upper = settings.get(LOWER), settings.get(UPPER)
    if not lower or not upper:
        return
    low, high = numbers(lower, settings.source(LOWER)), numbers(upper, settings.source(UPPER))
    if len(set(high)) > 1 or low != [-one for one in high]:
        raise settings.error(
            f"{LOWER} {short(lower)} and {UPPER} {short(upper)}: expected one x and -x for all joints; other bounds "
            "of the outputs cannot be expressed, also not in a physai.yaml"
        )
    if count not in (None, len(high)):
        reading.contradictions.append(f"{UPPER} has {len(high)} numbers, joint_names has {count} names")
    reading.state("output_limit", high[0], settings.source(UPPER))


def _observation(reading: PolicyReading, settings: _Settings, count: int | None) -> None:
    if (given := settings.get("observations")) is None:
        return
    names = _list(given)
    if names is None or not all(isinstance(one, str) for one in names):
        raise settings.error(f"observations {short(given)}: expected names")
    clip = number(settings.get("clip_obs"), f"{settings.file.name}: clip_obs")
    length = _history(reading, settings)
    terms: list[dict[str, Any]] = []
    for name in names:
        found = _terms(name, settings)
        if len(found) > 1 and length > 1 and settings.get(PRIORITY) == "term":
            raise settings.error(
                f"commands_scale {short(settings.get('commands_scale'))} has a scale for each element, and "
                f"{PRIORITY} is term: the history of a command with several scales cannot be expressed"
            )
        terms += found
    for term in terms:
        if scale := term.get("scale", 1.0):
            # The bound is on the scaled value.
            term["clip"] = clip / abs(scale)
        if length > 1:
            term["history"] = length
    where = f"{settings.source('observations')}, …_scale, clip_obs; code: ComputeObservation"
    reading.state("observation", terms, where)
    expected = settings.get("num_observations")
    if count is not None and expected is not None:
        width = sum(count if TERMS[name][0] in ("joint_pos", "joint_vel", "last_action") else 3 for name in names)
        if width != expected:
            reading.contradictions.append(f"num_observations is {expected}, its observations make {width}")


def _terms(name: str, settings: _Settings) -> list[dict[str, Any]]:
    if name.startswith(MOTIONS):
        raise settings.error(f"observations has {name!r}: it tracks a motion; so far policies that walk are imported")
    if name not in TERMS:
        raise settings.error(
            f"observations has {name!r}, which the reader does not know; describe the policy in a physai.yaml"
        )
    kind, key = TERMS[name]
    if key is None:
        return [{"of": kind}]
    value = settings.get(key)
    if value is None:
        raise settings.error(f"observations has {name!r} and no {key} is stated, for which the program takes 0")
    where = settings.source(key)
    if kind != "command":
        return [{"of": kind, "scale": number(value, where)}]
    scales = numbers(value, where)
    if len(scales) != 3:
        raise settings.error(f"commands_scale has {len(scales)} numbers, expected 3")
    return scaled(kind, scales)


def _history(reading: PolicyReading, settings: _Settings) -> int:
    """State the layout of a history; return its length, 1 for none."""
    chosen, priority = settings.get(HISTORY), settings.get(PRIORITY)
    if chosen in (None, []):
        return 1
    steps = _list(chosen) or [None]
    ascending = list(range(len(steps)))
    if not _is_order(steps, len(steps)) or steps not in (ascending, ascending[::-1]):
        raise settings.error(
            f"{HISTORY} {short(chosen)}: expected 0 to the oldest, or the reverse; others cannot be expressed, also "
            "not in a physai.yaml"
        )
    if priority not in ("time", "term"):
        raise settings.error(f"{PRIORITY} is {short(priority)}, expected time or term")
    if len(steps) > 1:
        reading.state("layout", priority, settings.source(PRIORITY))
        reading.state("newest", "first" if steps[0] == 0 else "last", settings.source(HISTORY))
        reading.state("first_fill", "zero", "code: the buffer begins with zeros (observation_buffer.cpp)")
    return len(steps)


def _list(value: Any) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def _is_order(value: list[Any], count: int) -> bool:
    """Whether a list has each of the numbers from 0 once."""
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    return whole and sorted(value) == list(range(count))
