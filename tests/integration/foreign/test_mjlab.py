"""Metadata as mjlab's exporter writes it."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.integration.foreign.test_import import JOINTS, network

from physai.foreign import ForeignPolicyError, import_policy

pytestmark = pytest.mark.slow

OBSERVATIONS = ("base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "actions", "command")
METADATA = {
    "run_path": "team/project/run",
    "joint_names": ",".join(JOINTS),
    "joint_stiffness": ",".join(["20.123"] * 12),
    "joint_damping": ",".join(["0.512"] * 12),
    "default_joint_pos": ",".join(["0.100", "0.900", "-1.800"] * 4),
    "command_names": "twist",
    "observation_names": ",".join(OBSERVATIONS),
    "observation_terms_scale": "0.250,1.000,1.000,0.050,1.000,1.000",
    "observation_terms_flatten_history_dim": ",".join(["True"] * 6),
    "observation_terms_history_length": "0,0,0,0,0,0",
    "observation_terms_clip": ",".join(["-inf;inf"] * 3 + ["-50.000;50.000"] + ["-inf;inf"] * 2),
    "action_scale": ",".join(["0.250"] * 12),
}
ASKED: dict[str, Any] = {"control_dt": 0.02, "command": [[-1, -1, -1], [1, 1, 1]]}


def exported(folder: Path, *, inputs: int = 45, changes: dict[str, str] | None = None) -> Path:
    path = folder / "policy.onnx"
    network(path, inputs=inputs)
    library: Any = onnx
    model = library.load(str(path))
    library.helper.set_model_props(model, {**METADATA, **(changes or {})})
    library.save(model, str(path))
    return path


def test_it_asks_for_the_period_and_the_command_alone(tmp_path: Path) -> None:
    path = exported(tmp_path)
    with pytest.raises(ForeignPolicyError) as caught:
        import_policy(path, model="go2", out=tmp_path / "run")
    asked = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert asked == ["control_dt", "command"]
    found = import_policy(path, model="go2", out=tmp_path / "run", settings=ASKED)
    assert found.family == "mjlab"
    terms = {term.name: (term.kind, term.scale, term.clip) for term in found.contract.observation.terms}
    assert terms == {
        "ang_vel": ("sensor", 0.25, None),
        "gravity": ("projected_gravity", 1.0, None),
        "joint_pos": ("joint_pos_rel", 1.0, None),
        "joint_vel": ("sensor", 0.05, 50.0),
        "last_action": ("previous_action", 1.0, None),
        "command": ("command", 1.0, None),
    }
    assert list(found.contract.observation_slices) == list(terms)
    joint = next(joint for joint in found.contract.robot.joints if joint.name == JOINTS[0])
    assert (joint.stiffness, joint.damping) == (20.123, 0.512)
    assert "rounded to three decimals" in found.sources["stiffness"]


def test_a_history_is_laid_out_term_by_term(tmp_path: Path) -> None:
    path = exported(tmp_path, inputs=45 + 6, changes={"observation_terms_history_length": "3,0,0,0,0,1"})
    found = import_policy(path, model="go2", out=tmp_path / "run", settings=ASKED)
    assert [term.history for term in found.contract.observation.terms] == [3, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"observation_names": "base_lin_vel,projected_gravity,joint_pos,joint_vel,actions,command"}, "no sensor of a"),
        ({"observation_names": "height_scan,projected_gravity,joint_pos,joint_vel,actions,command"}, "'height_scan'"),
        ({"observation_terms_scale": "1.0"}, "observation_terms_scale has 1 entries for 6"),
        ({"observation_terms_clip": ",".join(["-1.000;2.000"] * 6)}, "which is not symmetric"),
        ({"observation_terms_scale": "1.0,1.0,1.0,1.0,1.0,2.0;2.0;0.25"}, "a scale for each element"),
        ({"joint_stiffness": "20.0,x"}, "not as the reader mjlab expects it"),
        ({"joint_damping": "0.5,0.5"}, "damping has 2 numbers, joints has 12 names"),
    ],
)
def test_what_is_not_read_is_refused(tmp_path: Path, changes: dict[str, str], phrase: str) -> None:
    with pytest.raises(ForeignPolicyError, match=phrase):
        import_policy(exported(tmp_path, changes=changes), model="go2", out=tmp_path / "run", settings=ASKED)
