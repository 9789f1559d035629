"""A contract of a policy that sees and plans: one joint, one camera, plans of 16 steps of 50 ms."""

import json
from pathlib import Path
from typing import Any, cast

from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract

PATH = Path(__file__).parents[1] / "unit/sdk/contract/pendulum.contract.json"

CAMERA: dict[str, Any] = {
    "name": "wrist",
    "width": 640,
    "height": 480,
    "encoding": "rgb8",
    "lens": {"k": [600.0, 600.0, 320.0, 240.0], "tolerance": 0.01},
    "mount": {"frame": "world", "translation": [0.0, 0.0, 1.0], "quat": [1.0, 0.0, 0.0, 0.0]},
    "rate_hz": 30.0,
    "exposure_s": [0.001, 0.02],
    "stamp": "mid_exposure",
}
IMAGE: dict[str, Any] = {
    "name": "wrist_rgb",
    "camera": "wrist",
    "crop": {"x": 80, "y": 0, "width": 480, "height": 480},
    "pool": 5,
    "max_age_s": 0.1,
    "max_skew_s": 0.03,
}


def plan_document() -> dict[str, Any]:
    """A contract with one camera and plans of 16 steps of 50 ms."""
    value = cast("dict[str, Any]", json.loads(PATH.read_text(encoding="utf-8")))
    value["format_version"] = 3
    value["robot"]["cameras"] = [json.loads(json.dumps(CAMERA))]
    terms = value["observation"]["terms"]
    value["observation"]["terms"] = [
        term for term in terms if term["kind"] not in ("previous_action", "last_target") and term["history"] == 1
    ]
    value["observation"]["images"] = [json.loads(json.dumps(IMAGE))]
    value["observation"]["instructions"] = {"allowed": ["push the red puck", "push the blue puck"]}
    value["observation"]["noise"] = 8
    term = value["action"]["terms"][0]
    term["kind"] = "joint_pos"
    joints = {joint["name"]: joint for joint in value["robot"]["joints"]}
    for number, name in enumerate(term["joints"]):
        joints[name]["kind"] = "revolute"
        joints[name]["position_lower"], joints[name]["position_upper"] = -3.0, 3.0
        term["lower"][number], term["upper"][number], term["offset"][number] = -1.0, 1.0, 0.0
    for envelope in value["safety"]["joints"]:
        envelope["position_lower"], envelope["position_upper"] = -3.0, 3.0
    value["action"]["terms"] = [term]
    value["action"]["plan"] = {"steps": 16, "step_s": 0.05, "committed": 6, "seam": [0.1] * len(term["joints"])}
    value["timing"]["plan"] = {"period_s": 0.2, "deadline_s": 0.3, "max_age_s": 0.75}
    return value


def plan_contract(document: dict[str, Any] | None = None) -> PolicyContract:
    """The contract of a document, by default the one above."""
    return parse_contract(json.dumps(plan_document() if document is None else document), source="test.json")
