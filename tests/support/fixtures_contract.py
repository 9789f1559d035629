"""Contracts to test with: a small one, one that uses every feature, and arbitrary ones."""

import copy
import json
from typing import Any

import pytest
from hypothesis import strategies as st

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract

SMALL: dict[str, Any] = {
    "format_version": 1,
    "task": "pendulum-swingup",
    "robot": {
        "name": "pendulum",
        "base": "fixed",
        "joints": [{"name": "pivot", "kind": "continuous", "velocity_limit": 20.0, "effort_limit": 2.5}],
        "sensors": [
            {"name": "joint_pos", "size": 1, "unit": "rad"},
            {"name": "joint_vel", "size": 1, "unit": "rad/s"},
        ],
    },
    "observation": {
        "terms": [
            {"name": "angle", "kind": "sin_cos"},
            {"name": "speed", "kind": "sensor", "source": "joint_vel", "scale": 0.1},
        ]
    },
    "action": {
        "terms": [
            {
                "kind": "joint_effort",
                "joints": ["pivot"],
                "scale": [2.5],
                "offset": [0.0],
                "lower": [-2.5],
                "upper": [2.5],
            }
        ]
    },
    "command": {},
    "timing": {
        "control_dt": 0.01,
        "physics_dt": 0.002,
        "decimation": 5,
        "deadline_s": 0.008,
        "max_observation_age_s": 0.02,
    },
    "safety": {"joints": [{"joint": "pivot", "velocity_limit": 15.0, "effort_limit": 2.5}]},
}


def _joint(name: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -2.0, "position_upper": 2.0, "velocity_limit": 3.0, "effort_limit": 50.0}
    return {"name": name, "kind": "revolute", **limits, "stiffness": 100.0, "damping": 5.0, **fields}


def _envelope(joint: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -1.5, "position_upper": 1.5, "velocity_limit": 2.0, "effort_limit": 40.0}
    return {"joint": joint, **limits, **fields}


FULL: dict[str, Any] = {
    "format_version": 1,
    "task": "arm-reach",
    "robot": {
        "name": "arm",
        "base": "floating",
        "joints": [
            _joint("shoulder", default_pos=0.25),
            _joint("elbow"),
            _joint("slide", kind="prismatic", position_lower=0.0, position_upper=0.5),
            {"name": "passive", "kind": "continuous", "effort_limit": 0.0},
        ],
        "sensors": [
            {"name": "joint_pos", "size": 4, "unit": "rad"},
            {"name": "joint_vel", "size": 4, "unit": "rad/s"},
            {"name": "imu_quat", "size": 4, "unit": "", "frame": "w"},
            {"name": "imu_ang_vel_b", "size": 3, "unit": "rad/s", "frame": "b"},
        ],
        "chains": [
            {
                "name": "ee",
                "segments": [
                    {"translation": [0.0, 0.0, 0.5], "quat": [1.0, 0.0, 0.0, 0.0], "joint": "shoulder"},
                    {
                        "translation": [0.0, 0.0, 0.4],
                        "quat": [0.0, 1.0, 0.0, 0.0],
                        "joint": "elbow",
                        "axis": [0.0, 0.6, 0.8],
                    },
                    {"translation": [0.1, 0.0, 0.0], "quat": [1.0, 0.0, 0.0, 0.0]},
                ],
            }
        ],
    },
    "observation": {
        "terms": [
            {"name": "gravity", "kind": "projected_gravity"},
            {"name": "gyro", "kind": "sensor", "source": "imu_ang_vel_b", "scale": 0.25, "clip": 10.0, "history": 3},
            {"name": "angles", "kind": "sin_cos", "joints": ["elbow", "shoulder", "passive"]},
            {"name": "positions", "kind": "joint_pos_rel"},
            {"name": "speeds", "kind": "sensor", "source": "joint_vel", "joints": ["elbow"], "offset": 0.5},
            {"name": "goal", "kind": "command", "source": "speed"},
            {"name": "error", "kind": "pose_error", "source": "pose", "chain": "ee"},
            {"name": "last", "kind": "previous_action", "history": 2},
            {"name": "lag", "kind": "last_target"},
        ]
    },
    "action": {
        "terms": [
            {
                "kind": "joint_pos",
                "joints": ["elbow", "shoulder"],
                "scale": [0.5, 0.25],
                "offset": [0.0, 0.25],
                "lower": [-1.5, -1.0],
                "upper": [1.5, 1.0],
            },
            {
                "kind": "joint_effort_incremental",
                "joints": ["slide"],
                "scale": [2.0],
                "offset": [0.0],
                "lower": [-30.0],
                "upper": [30.0],
            },
        ]
    },
    "command": {
        "fields": [
            {"name": "speed", "size": 2, "unit": "m/s", "frame": "b", "lower": [-1.0, -0.5], "upper": [1.0, 0.5]},
            {
                "name": "pose",
                "size": 7,
                "unit": "m, 1",
                "frame": "b",
                "lower": [0.2, -0.3, 0.1, -1.0, -1.0, -1.0, -1.0],
                "upper": [0.6, 0.3, 0.8, 1.0, 1.0, 1.0, 1.0],
            },
        ]
    },
    "timing": {
        "control_dt": 0.02,
        "physics_dt": 0.005,
        "decimation": 4,
        "deadline_s": 0.015,
        "max_observation_age_s": 0.05,
    },
    "safety": {
        "joints": [
            _envelope("shoulder"),
            _envelope("elbow"),
            _envelope("slide", position_lower=0.0, position_upper=0.5),
            {"joint": "passive", "effort_limit": 0.0},
        ],
        "max_reused_commands": 3,
        "parity_tolerance": 0.002,
    },
}


NEWEST: dict[str, Any] = copy.deepcopy(FULL)
NEWEST["format_version"] = 2
for _limits, _label in zip(NEWEST["safety"]["joints"], ("shoulder", "elbow"), strict=False):
    assert _limits["joint"] == _label
    _limits.update(acceleration_limit=12.0, following_error_limit=0.2, velocity_mismatch_limit=0.05)
NEWEST["safety"]["frozen_samples"] = 5
NEWEST["safety"]["sensor_ranges"] = [
    {"name": "joint_pos", "lower": [-2.5, -2.5, -0.1, None], "upper": [2.5, 2.5, 0.6, None]},
    {"name": "imu_quat", "lower": [-1.01] * 4, "upper": [1.01] * 4},
]


@pytest.fixture
def small_document() -> dict[str, Any]:
    """A pendulum's contract as a user would write it, defaults left out."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def small_contract() -> PolicyContract:
    return parse_contract(json.dumps(SMALL), source="small")


@pytest.fixture
def full_document() -> dict[str, Any]:
    """A contract with every kind of term, every field written."""
    return json.loads(canonical_json(parse_contract(json.dumps(FULL), source="full")))


@pytest.fixture
def full_contract() -> PolicyContract:
    return parse_contract(json.dumps(FULL), source="full")


@pytest.fixture
def newest_document() -> dict[str, Any]:
    """`full_document` with every field of format 2."""
    return json.loads(canonical_json(parse_contract(json.dumps(NEWEST), source="newest")))


@pytest.fixture
def newest_contract() -> PolicyContract:
    return parse_contract(json.dumps(NEWEST), source="newest")


_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}", fullmatch=True)
_numbers = st.floats(-1e9, 1e9)
_positive = st.floats(0.0, 1e9, exclude_min=True)


@st.composite
def _joints(draw: st.DrawFn, name: str) -> dict[str, Any]:
    lower, upper = sorted(draw(st.tuples(st.floats(-1e3, 0.0), st.floats(1e-3, 1e3))))
    return {
        "name": name,
        "kind": draw(st.sampled_from(["revolute", "prismatic"])),
        "position_lower": lower,
        "position_upper": upper,
        "velocity_limit": draw(st.none() | _positive),
        "effort_limit": draw(_positive),
        "stiffness": draw(st.floats(0.0, 1e9)),
        "damping": draw(st.floats(0.0, 1e9)),
        "default_pos": draw(st.floats(lower, upper)),
    }


@st.composite
def _terms(draw: st.DrawFn, name: str, joints: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(["joint_pos_rel", "previous_action", "last_target", "sensor", "projected_gravity"]))
    return {
        "name": name,
        "kind": kind,
        "source": "joint_vel" if kind == "sensor" else None,
        "joints": draw(st.none() | st.permutations(joints)) if kind in ("joint_pos_rel", "sensor") else None,
        "scale": draw(_numbers),
        "offset": draw(_numbers),
        "clip": draw(st.none() | _positive),
        "history": draw(st.integers(1, 64)),
    }


@st.composite
def _watched(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """The document in format 2, some of its fields set, some null, some left out."""
    joints = document["robot"]["joints"]
    for envelope in document["safety"]["joints"]:
        labels = ("acceleration_limit", "following_error_limit", "velocity_mismatch_limit")
        envelope.update({label: draw(st.none() | _positive) for label in labels if draw(st.booleans())})
    bounds = st.none() | st.floats(0.0, 1e3)
    lower = [None if (by := draw(bounds)) is None else joint["position_lower"] - by for joint in joints]
    upper = [None if (by := draw(bounds)) is None else joint["position_upper"] + by for joint in joints]
    ranges = [
        {"name": "joint_pos", "lower": lower, "upper": upper},
        {"name": "imu_quat", "lower": [None, -1.1, -1.1, -1.1], "upper": [1.1, 1.1, None, 1.1]},
    ]
    chosen = draw(st.lists(st.sampled_from(ranges), min_size=1, unique_by=lambda bounds: str(bounds["name"])))
    document["safety"]["sensor_ranges"] = draw(st.sampled_from([None, chosen]))
    document["safety"]["frozen_samples"] = draw(st.none() | st.integers(2, 10_000))
    return {**document, "format_version": 2}


@st.composite
def _contracts(draw: st.DrawFn) -> PolicyContract:
    names = draw(st.lists(_names, min_size=1, max_size=4, unique=True))
    joints = [draw(_joints(name)) for name in names]
    commanded = draw(st.permutations(joints))
    size = len(names)
    document = {
        "format_version": 1,
        "task": draw(_names),
        "robot": {
            "name": draw(_names),
            "base": draw(st.sampled_from(["fixed", "floating"])),
            "joints": joints,
            "sensors": [
                {"name": "joint_pos", "size": size, "unit": "rad"},
                {"name": "joint_vel", "size": size, "unit": "rad/s"},
                {"name": "imu_quat", "size": 4, "unit": ""},
            ],
        },
        "observation": {
            "terms": [draw(_terms(name, names)) for name in draw(st.lists(_names, min_size=1, max_size=4, unique=True))]
        },
        "action": {
            "terms": [
                {
                    "kind": draw(st.sampled_from(["joint_pos", "joint_pos_incremental"])),
                    "joints": [joint["name"] for joint in commanded],
                    "scale": [draw(_positive) for _ in commanded],
                    "offset": [joint["default_pos"] for joint in commanded],
                    "lower": [joint["position_lower"] for joint in commanded],
                    "upper": [joint["position_upper"] for joint in commanded],
                }
            ]
        },
        "command": {},
        "timing": {**SMALL["timing"], "deadline_s": draw(st.floats(1e-6, 0.01))},
        "safety": {
            "joints": [
                {"joint": joint["name"]}
                | {k: joint[k] for k in ("position_lower", "position_upper", "velocity_limit", "effort_limit")}
                for joint in joints
            ],
            "max_reused_commands": draw(st.integers(0, 200)),
        },
    }
    document = draw(_watched(document)) if draw(st.booleans()) else document
    return parse_contract(json.dumps(document), source="drawn")


@pytest.fixture(scope="session")
def contracts() -> st.SearchStrategy[PolicyContract]:
    """Arbitrary consistent contracts."""
    return _contracts()
