"""Fields of sight and plans: what fits together, what does not, and that nothing runs such a contract yet."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.plan_contracts import PATH, plan_contract, plan_document

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.io import load_contract
from physai.sdk.policy.header import PolicyHeader


def refusal(value: dict[str, Any]) -> str:
    with pytest.raises(ContractError) as caught:
        plan_contract(value)
    return str(caught.value)


def test_a_contract_with_a_camera_an_instruction_and_plans_is_read_and_written_without_loss(tmp_path: Path) -> None:
    contract = plan_contract()
    path = tmp_path / "again.json"
    path.write_text(contract.model_dump_json())
    assert load_contract(path) == contract
    assert contract.action.plan is not None
    assert contract.action.plan.length_s == pytest.approx(0.75)


def test_a_contract_without_any_leaves_no_trace_of_them() -> None:
    text = load_contract(PATH).model_dump_json()
    assert not any(f'"{name}"' in text for name in ("cameras", "images", "instructions", "noise", "plan"))


def test_a_policy_for_it_is_refused_by_name_as_nothing_runs_it_yet() -> None:
    with pytest.raises(ContractError, match=r"has action\.plan: policies that see or plan can be described, but"):
        PolicyHeader(plan_contract(), {})


def test_an_older_format_has_none_of_the_fields() -> None:
    value = plan_document() | {"format_version": 2}
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
    ("timing.plan.max_age_s", 0.9, "max_age_s: 0.9 s is more than the 0.75 s from the first to the last step"),
    ("timing.plan.period_s", 0.4, "an image of 0.1 s, deadline_s 0.3 and period_s 0.4 add up to 0.8 s"),
    ("timing.plan", None, "timing.plan: action.plan and timing.plan need each other"),
    ("action.plan", None, "timing.plan: action.plan and timing.plan need each other"),
    ("action.terms.0.kind", "joint_pos_incremental", "a plan is one term of kind joint_pos, got joint_pos_incremental"),
    ("observation.terms.0.history", 3, "plans are computed at irregular times, so no term has a history"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[f"{path}={value}" for path, value, _ in WRONG])
def test_values_that_do_not_fit_are_refused_with_both(path: str, value: object, message: str) -> None:
    whole = plan_document()
    place: Any = whole
    *parents, last = path.split(".")
    for key in parents:
        place = place[int(key)] if key.isdigit() else place[key]
    place[last] = value
    assert message in refusal(whole)


@pytest.mark.parametrize("name", ["images", "instructions", "noise"])
def test_a_policy_of_one_period_reads_no(name: str) -> None:
    whole = plan_document()
    whole["action"]["plan"] = whole["timing"]["plan"] = None
    assert f"observation.{name}: only a policy with action.plan reads it" in refusal(whole)


@pytest.mark.parametrize("twice", ["cameras", "images"])
def test_names_are_unique(twice: str) -> None:
    whole = plan_document()
    entries = whole["robot"]["cameras"] if twice == "cameras" else whole["observation"]["images"]
    entries.append(entries[0])
    assert "occurs twice" in refusal(whole)
