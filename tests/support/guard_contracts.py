"""Contracts of a small arm that the laws and the findings are tested with."""

from typing import Any

import pytest
from tests.support.guard_driver import contract_of

from physai.sdk.contract.policy_contract import PolicyContract


def joint(name: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -2.0, "position_upper": 2.0, "velocity_limit": 3.0, "effort_limit": 50.0}
    return {"name": name, "kind": "revolute", **limits, **fields}


def envelope(name: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -1.5, "position_upper": 1.3, "velocity_limit": 2.0, "effort_limit": 50.0}
    return {"joint": name, **limits, **fields}


def arm_document(*, incremental: bool = False, weak: bool = False, watched: bool = False) -> dict[str, Any]:
    """Two position servos, an effort joint, and one without motor; 20 ms per period, samples of at most 50 ms.

    Args:
        incremental: commands are changes of the one before.
        weak: the envelope allows the servos less effort than their drives give.
        watched: format 2, with every field that it adds.
    """
    kind = "_incremental" if incremental else ""
    size = 0.1 if incremental else 1.0
    servo = {"stiffness": 80.0, "damping": 4.0}
    effort = {"effort_limit": 30.0} if weak else {}
    document: dict[str, Any] = {
        "format_version": 1,
        "task": "laws",
        "robot": {
            "name": "arm",
            "base": "fixed",
            "joints": [
                joint("shoulder", default_pos=0.2, **servo),
                joint("slide", kind="prismatic"),
                joint("elbow", **servo),
                {"name": "passive", "kind": "continuous", "effort_limit": 0.0},
            ],
            "sensors": [{"name": name, "size": 4, "unit": ""} for name in ("joint_pos", "joint_vel")],
        },
        "observation": {"terms": [{"name": "q", "kind": "joint_pos_rel"}]},
        "action": {
            "terms": [
                {
                    "kind": "joint_pos" + kind,
                    "joints": ["elbow", "shoulder"],
                    "scale": [0.25 * size, 0.25 * size],
                    "offset": [0.0, 0.2],
                    "lower": [-1.1, -0.3],
                    "upper": [1.1, 0.7],
                },
                {
                    "kind": "joint_effort" + kind,
                    "joints": ["slide"],
                    "scale": [33.3 * size],
                    "offset": [0.0],
                    "lower": [-33.3],
                    "upper": [29.7],
                },
            ]
        },
        "command": {},
        "timing": {
            "control_dt": 0.02,
            "physics_dt": 0.005,
            "decimation": 4,
            "deadline_s": 0.015,
            "max_observation_age_s": 0.05,
        },
        "safety": {
            "joints": [
                envelope("shoulder", **effort),
                envelope("slide", effort_limit=40.0),
                envelope("elbow", **effort),
                {"joint": "passive", "effort_limit": 0.0},
            ],
            "max_reused_commands": 2,
        },
    }
    return _watched(document) if watched else document


def _watched(document: dict[str, Any]) -> dict[str, Any]:
    """In format 2; the action's bounds are what it can command at all."""
    document["format_version"] = 2
    document["robot"]["sensors"].append({"name": "imu", "size": 2, "unit": ""})
    document["observation"]["terms"].append({"name": "imu", "kind": "sensor", "source": "imu"})
    positions = document["action"]["terms"][0]
    if positions["kind"] == "joint_pos":
        positions |= {"lower": [-0.25, -0.05], "upper": [0.25, 0.45]}
    shoulder, slide, elbow, _ = document["safety"]["joints"]
    for servo in (shoulder, elbow):
        servo |= {"acceleration_limit": 12.0, "following_error_limit": 0.2, "velocity_mismatch_limit": 0.05}
    slide |= {"velocity_mismatch_limit": 0.05}
    document["safety"] |= {
        "frozen_samples": 5,
        "sensor_ranges": [
            {"name": "joint_pos", "lower": [-2.5, -2.5, -2.5, None], "upper": [2.5, 2.5, 2.5, None]},
            {"name": "imu", "lower": [-1.0, None], "upper": [1.0, None]},
        ],
    }
    return document


def unset(document: dict[str, Any], *labels: str) -> dict[str, Any]:
    """The document without these fields of its safety envelope, or of its joints'."""
    for part in (document["safety"], *document["safety"]["joints"]):
        for label in labels:
            part.pop(label, None)
    return document


CONTRACTS = {
    ("incremental" if incremental else "absolute") + "-weak" * weak + "-watched" * watched: contract_of(
        arm_document(incremental=incremental, weak=weak, watched=watched)
    )
    for incremental in (False, True)
    for weak in (False, True)
    for watched in (False, True)
}
every_contract = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)


def graph_sensors(contract: PolicyContract) -> int:
    """Width of the sensor field imu, 0 where the contract has none."""
    return next((sensor.size for sensor in contract.robot.sensors if sensor.name == "imu"), 0)
