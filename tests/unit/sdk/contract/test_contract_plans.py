"""Fields of sight and plans: what fits together, what does not, and that nothing runs such a contract yet."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.io import load_contract, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract

PATH = Path(__file__).with_name("pendulum.contract.json")

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


def document() -> dict[str, Any]:
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
    value["timing"]["plan"] = {"period_s": 0.2, "deadline_s": 0.3, "max_age_s": 0.8}
    return value


def parsed(value: dict[str, Any]) -> PolicyContract:
    return parse_contract(json.dumps(value), source="test.json")


def refusal(value: dict[str, Any]) -> str:
    with pytest.raises(ContractError) as caught:
        parsed(value)
    return str(caught.value)


def test_a_contract_with_a_camera_an_instruction_and_plans_is_read_and_written_without_loss(tmp_path: Path) -> None:
    contract = parsed(document())
    path = tmp_path / "again.json"
    path.write_text(contract.model_dump_json())
    assert load_contract(path) == contract
    assert contract.action.plan is not None
    assert contract.action.plan.length_s == pytest.approx(0.8)


def test_a_contract_without_any_leaves_no_trace_of_them() -> None:
    text = load_contract(PATH).model_dump_json()
    assert not any(f'"{name}"' in text for name in ("cameras", "images", "instructions", "noise", "plan"))


def test_a_graph_for_it_is_refused_by_name_as_nothing_runs_it_yet() -> None:
    with pytest.raises(ContractError, match=r"has action\.plan: policies that see or plan can be described, but"):
        graph_interface(parsed(document()))


def test_an_older_format_has_none_of_the_fields() -> None:
    value = document() | {"format_version": 2}
    assert "format_version: 2 has no such robot.cameras, which came with format 3" in refusal(value)


WRONG: list[tuple[str, Any, str]] = [
    ("observation.images.0.camera", "wirst", "camera: no camera named 'wirst'; did you mean wrist?"),
    ("observation.images.0.crop.x", 200, "crop: columns to 680 and rows to 480 of an image with 640 and 480"),
    ("observation.images.0.pool", 7, "pool: 7 does not divide both 480 columns and 480 rows"),
    ("observation.images.0.max_age_s", 0.02, "max_age_s: 0.02 s is over before the next of 30.0 images per second"),
    ("observation.images.0.times_s", [0.1, 0.0], "image wrist_rgb: times_s [0.1, 0.0] do not ascend"),
    ("observation.instructions.allowed", ["go", "go"], "instruction 'go' occurs twice"),
    ("observation.instructions.allowed", ["go\n"], "allowed"),
    ("robot.cameras.0.exposure_s", [0.001, 0.05], "exposures 0.001 to 0.05 s at 30.0 images per second"),
    ("robot.cameras.0.exposure_s", [0.02, 0.001], "exposures 0.02 to 0.001 s"),
    (
        "robot.cameras.0.mount.quat",
        [1.0, 1.0, 0.0, 0.0],
        "camera mount: quat (1.0, 1.0, 0.0, 0.0) has length 1.41421356",
    ),
    ("robot.cameras.0.encoding", "yuv422", "encoding"),
    ("action.plan.seam", [0.1] * 9, "action.plan.seam: 9 values for"),
    ("action.plan.committed", 16, "plan: 16 committed steps of 16 leave none to decide"),
    ("action.plan.committed", 5, "deadline_s: 0.3 s is more than the 5 committed steps of 0.05 s last"),
    ("action.plan.step_s", 0.001, "period_s: steps of 0.001 s are shorter than control_dt"),
    ("timing.plan.max_age_s", 0.9, "max_age_s: 0.9 s is more than 16 steps of 0.05 s cover"),
    ("timing.plan.period_s", 0.4, "an image of 0.1 s, deadline_s 0.3 and period_s 0.4 add up to 0.8 s"),
    ("timing.plan", None, "timing.plan: action.plan and timing.plan need each other"),
    ("action.plan", None, "timing.plan: action.plan and timing.plan need each other"),
    ("action.terms.0.kind", "joint_pos_incremental", "a plan is one term of kind joint_pos, got joint_pos_incremental"),
    ("observation.terms.0.history", 3, "plans are computed at irregular times, so no term has a history"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[f"{path}={value}" for path, value, _ in WRONG])
def test_values_that_do_not_fit_are_refused_with_both(path: str, value: object, message: str) -> None:
    whole = document()
    place: Any = whole
    *parents, last = path.split(".")
    for key in parents:
        place = place[int(key)] if key.isdigit() else place[key]
    place[last] = value
    assert message in refusal(whole)


@pytest.mark.parametrize("name", ["images", "instructions", "noise"])
def test_a_policy_of_one_period_reads_no(name: str) -> None:
    whole = document()
    whole["action"]["plan"] = whole["timing"]["plan"] = None
    assert f"observation.{name}: only a policy with action.plan reads it" in refusal(whole)


@pytest.mark.parametrize("twice", ["cameras", "images"])
def test_names_are_unique(twice: str) -> None:
    whole = document()
    entries = whole["robot"]["cameras"] if twice == "cameras" else whole["observation"]["images"]
    entries.append(entries[0])
    assert "occurs twice" in refusal(whole)
