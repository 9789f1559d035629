"""Reader of LimX's deployment folders: `model/ROBOT/params.yaml` with `policy/TYPE/encoder.onnx` and `policy.onnx`.

The program (`controllers/PointfootController.py` and `SolefootController.py` of tron1-rl-deploy-python) has what the
files lack: the order of the terms, a clock of the gait, and joints in pairs for policies of Isaac Lab. The encoder
reads a history of samples, oldest first; the policy reads the encoder's output, the newest sample and the command.
"""

import math
from pathlib import Path
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.values import WHEELS, begins_at_once, number
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.files import read_bounded
from physai.sdk.base.formats.yaml_file import read_yaml

PARAMS, POLICY, ENCODER = "params.yaml", "policy.onnx", "encoder.onnx"
SECTION = "PointfootCfg"
TYPES = ("isaacgym", "isaaclab")
FREQUENCY, GAIT = 2.0, (0.5, 0.5, 0.1)
"""Frequency of the gait [Hz] and what else the program says of it, where the file does not."""
STICK = 0.5
"""What the program makes of a full stick before `user_cmd_scales`."""
COMMANDS = ("lin_vel_x", "lin_vel_y", "ang_vel_yaw")
MAX_BYTES, MAX_NETWORK = 1 << 18, 1 << 26
UNREAD = (
    "observations of the policy are clipped to clip_observations, those of the encoder are not; here neither is",
    "the last action is what remains of it within user_torque_limit at the last step of 2 ms; here it is the network's",
    "no file states the unit of the command that the network reads: taken as m/s and rad/s",
    "the program's clock begins at 0 after each turn; here it goes on",
)


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy; None if the file is not of this family.

    Raises:
        ForeignPolicyError: the folder holds several policies, or one of a robot with wheels, or its settings are
            damaged.
    """
    home = _home(source.file)
    if home is None:
        return None
    params = home / PARAMS
    found = read_yaml(params, what="a deployment file", max_bytes=MAX_BYTES, error=ForeignPolicyError, tags=True)
    section = cast("dict[Any, Any]", found).get(SECTION) if isinstance(found, dict) else None
    if not isinstance(section, dict):
        return None
    settings = _Settings(params, cast("dict[str, Any]", section))
    network, kind = _network(source.file, home)
    names = settings.names()
    if wheels := [name for name in names if "wheel" in name.lower()]:
        raise ForeignPolicyError(f"{params}: {WHEELS.format(', '.join(wheels))}")
    order = _order(len(names), kind)
    reading = PolicyReading(family="limx", network=network, files={params})
    pairs = "; code: joints in pairs" if kind == "isaaclab" else ""
    reading.state("joints", [names[at] for at in order], f"{params.name}: joint_names{pairs}")
    _motors(reading, settings, [names[at] for at in order])
    _observation(reading, settings, kind)
    begins_at_once(reading, "stands up within stand_mode.stand_duration")
    reading.unread += UNREAD
    return reading


def _home(file: Path) -> Path | None:
    """Folder with the parameters, in which the file lies."""
    if file.is_dir():
        return file if (file / PARAMS).is_file() else None
    if file.name == PARAMS:
        return file.parent
    if file.name not in (POLICY, ENCODER):
        return None
    above = list(file.resolve().parents)[1:3]
    return next((folder for folder in above if (folder / PARAMS).is_file()), None)


def _network(file: Path, home: Path) -> tuple[Path, str]:
    """The policy's file, and with what it was trained."""
    policies = {kind: home / "policy" / kind / POLICY for kind in TYPES}
    policies = {kind: path for kind, path in policies.items() if path.is_file()}
    if file.is_dir() or file.name == PARAMS:
        if len(policies) != 1:
            names = ", ".join(str(path) for path in policies.values()) or "none"
            raise ForeignPolicyError(f"{home}: give the file of one policy ({names})")
        kind, path = next(iter(policies.items()))
        return path, kind
    path = file.parent / POLICY
    kind = file.resolve().parent.name
    if kind in TYPES:
        return path, kind
    # Copies lie one folder above.
    content = _bytes(path)
    same = [kind for kind, other in policies.items() if _bytes(other) == content]
    if len(same) != 1:
        raise ForeignPolicyError(
            f"{path}: the folder {' or '.join(TYPES)} tells the order of joints, and it is in none"
        )
    return path, same[0]


def _bytes(path: Path) -> bytes:
    return read_bounded(path, limit=MAX_NETWORK, error=ForeignPolicyError)


def _order(count: int, kind: str) -> list[int]:
    """Indices in the file of the joints in the policy's order."""
    if kind == "isaacgym":
        return list(range(count))
    half = count // 2
    return [at + side * half for at in range(half) for side in (0, 1)]


class _Settings:
    """Values of the parameters, which are checked when they are taken."""

    def __init__(self, file: Path, section: dict[str, Any]) -> None:
        self.file = file
        self._section = section

    def value(self, *path: str) -> Any:
        """A value; None if there is none."""
        at: Any = self._section
        for key in path:
            at = cast("dict[str, Any]", at).get(key) if isinstance(at, dict) else None
        return at

    def number(self, *path: str) -> float:
        """A number.

        Raises:
            ForeignPolicyError: there is none.
        """
        found = number(self.value(*path), f"{self.file}: {'.'.join(path)}")
        if not math.isfinite(found):
            raise ForeignPolicyError(f"{self.file}: {'.'.join(path)} is {found}, expected a finite number")
        return found

    def whole(self, *path: str) -> int:
        """A whole number of at least 1."""
        value = self.number(*path)
        if value != int(value) or not 1 <= value <= 1_000:
            raise ForeignPolicyError(f"{self.file}: {'.'.join(path)} is {value:g}, expected a whole number from 1")
        return int(value)

    def names(self) -> list[str]:
        """Names of the joints, those of the left leg first."""
        names = self.value("joint_names")
        listed = cast("list[Any]", names) if isinstance(names, list) else []
        if not listed or len(listed) % 2 or not all(isinstance(name, str) for name in listed):
            raise ForeignPolicyError(f"{self.file}: joint_names has no names for two legs")
        return [str(name) for name in listed]


def _motors(reading: PolicyReading, settings: _Settings, joints: list[str]) -> None:
    file = settings.file.name
    pose = [settings.number("init_state", "default_joint_angle", name) for name in joints]
    reading.state("default_pos", pose, f"{file}: init_state.default_joint_angle")
    values = {
        "stiffness": [settings.number("control", "stiffness")] * len(joints),
        "damping": [settings.number("control", "damping")] * len(joints),
        "effort": [settings.number("control", "user_torque_limit")] * len(joints),
    }
    for at, name in enumerate(joints):
        if name.startswith("ankle"):
            values["damping"][at] = settings.number("control", "ankle_joint_damping")
            values["effort"][at] = settings.number("control", "ankle_joint_torque_limit")
    for name, key in (("stiffness", "stiffness"), ("damping", "damping"), ("effort", "user_torque_limit")):
        reading.state(name, values[name], f"{file}: control.{key}")
    reading.state("action_scale", settings.number("control", "action_scale_pos"), f"{file}: control.action_scale_pos")
    reading.state(
        "output_limit",
        settings.number("normalization", "clip_scales", "clip_actions"),
        f"{file}: normalization.clip_scales.clip_actions",
    )
    period = settings.whole("control", "decimation") / settings.number("loop_frequency")
    reading.state("control_dt", period, f"{file}: control.decimation / loop_frequency")


def _observation(reading: PolicyReading, settings: _Settings, kind: str) -> None:
    scales = {key: settings.number("normalization", "obs_scales", key) for key in ("ang_vel", "dof_pos", "dof_vel")}
    if any(settings.value("imu_orientation_offset", key) for key in ("roll", "pitch", "yaw")):
        raise ForeignPolicyError(
            f"{settings.file}: imu_orientation_offset turns the IMU, which the reader does not know"
        )
    stated = settings.value("gait") is not None
    frequency = settings.number("gait", "frequencies") if stated else FREQUENCY
    height = settings.number("gait", "swing_height") if stated else GAIT[-1]
    if not frequency > 0.0:
        raise ForeignPolicyError(f"{settings.file}: gait.frequencies is {frequency:g}, expected more than 0")
    history = settings.whole("size", "obs_history_length")
    terms: list[dict[str, Any]] = [
        {"of": "ang_vel", "scale": scales["ang_vel"]},
        {"of": "gravity"},
        {"of": "joint_pos", "scale": scales["dof_pos"]},
        {"of": "joint_vel", "scale": scales["dof_vel"]},
        {"of": "last_action"},
        *({"of": "clock", "clock": {"wave": w, "period_s": 1.0 / frequency, "phases": [0.0]}} for w in ("sin", "cos")),
        {"of": "constant", "values": [frequency, *GAIT[:-1], height]},
    ]
    frames = list(range(len(terms)))
    terms = [{**term, "history": history} for term in terms]
    terms.append({"of": "command"})
    if kind == "isaacgym" and settings.whole("size", "commands_size") > len(COMMANDS):
        # Two commands that the program leaves at 0.
        terms.append({"of": "constant", "values": [0.0] * (settings.whole("size", "commands_size") - len(COMMANDS))})
    where = f"{settings.file.name}: normalization.obs_scales; code: the order of the terms"
    reading.state("observation", terms, where)
    greatest = [STICK * settings.number("user_cmd_scales", key) for key in COMMANDS]
    bounds = [[-value for value in greatest], greatest]
    reading.state("command", bounds, f"{settings.file.name}: user_cmd_scales, times {STICK:g} for a full stick in code")
    commands = list(range(len(frames), len(terms)))
    networks = [
        {"file": ENCODER, "reads": [{"terms": frames, "layout": "time"}]},
        {"file": POLICY, "reads": [{"network": 0}, {"terms": frames, "samples": 1}, {"terms": commands}]},
    ]
    reading.state("networks", networks, "code: compute_encoder, compute_actions")
