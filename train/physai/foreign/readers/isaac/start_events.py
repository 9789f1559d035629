"""Start envelope that an Isaac Lab environment tells: events of mode `reset` in `params/env.yaml`.

`reset_joints_by_scale` multiplies the default pose by a number of `position_range`, `reset_joints_by_offset` adds one,
and `reset_root_state_uniform` turns the base by `pose_range` (`isaaclab/envs/mdp/events.py`).
"""

import math
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.manager_terms import mapping, one_of
from physai.foreign.readers.values import begins_between, numbers
from physai.foreign.reading import PolicyReading

SCALED, MOVED, TURNED = "reset_joints_by_scale", "reset_joints_by_offset", "reset_root_state_uniform"


def state_start(reading: PolicyReading, events: Any, joints: list[str], asset: str, where: str) -> None:
    """State the start envelope that the events of an environment tell; nothing if they tell none.

    Args:
        reading: with `default_pos`.
        events: value of the key `events`.
        joints: joints of the policy in the order of its outputs.
        asset: name of the robot in the scene.
        where: name of the file.

    Raises:
        ForeignPolicyError: a range is not two numbers.
    """
    pose: list[float] = reading.values["default_pos"]
    pairs = [(at, at) for at in pose]
    names: list[str] = []
    speed = 0.0
    for name, value in mapping(events, f"{where}: events").items():
        place = f"{where}: events.{name}"
        event = mapping(value, place)
        function = str(event.get("func")).replace(":", ".").rpartition(".")[2]
        params = mapping(event.get("params"), f"{place}.params")
        entity = mapping(params.get("asset_cfg"), f"{place}.params.asset_cfg")
        if event.get("mode") != "reset" or entity.get("name", asset) != asset:
            continue
        if function == TURNED:
            _state_tilt(reading, mapping(params.get("pose_range"), place), place)
        elif function in (SCALED, MOVED):
            least, most = _pair(params.get("position_range"), f"{place}.params.position_range")
            patterns = entity.get("joint_names")
            listed = cast("list[Any]", patterns if isinstance(patterns, list) else [patterns])
            for at, joint in enumerate(joints):
                if patterns is None or one_of([str(one) for one in listed], joint, place) is not None:
                    start = pose[at]
                    pairs[at] = (least * start, most * start) if function == SCALED else (start + least, start + most)
            if function == MOVED:
                speed = max(speed, *map(abs, _pair(params.get("velocity_range"), f"{place}.params.velocity_range")))
            names.append(name)
    if names:
        begins_between(reading, pairs, f"{where}: events.{', '.join(names)}.params.position_range")
    if speed > 0.0:
        reading.state("start_speed", speed, f"{where}: events.{', '.join(names)}.params.velocity_range")


def _state_tilt(reading: PolicyReading, ranges: dict[str, Any], where: str) -> None:
    angles = [
        max(map(abs, _pair(ranges[key], f"{where}.pose_range.{key}"))) for key in ("roll", "pitch") if key in ranges
    ]
    tilt = math.hypot(*angles)
    if tilt > 0.0:
        reading.state("start_tilt", round(min(tilt, math.pi), 6), f"{where}.params.pose_range: roll and pitch")


def _pair(value: Any, where: str) -> tuple[float, float]:
    found = numbers(list(cast("Any", value)) if isinstance(value, list | tuple) else value, where)
    if len(found) != 2:
        raise ForeignPolicyError(f"{where} has {len(found)} numbers, expected the least and the greatest")
    return found[0], found[1]
