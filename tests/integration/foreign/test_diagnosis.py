"""What a file states, what its graph shows, and what is left open, told from a file and on the command line."""

import json
import zipfile
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.integration.foreign.conftest import Models

from physai.foreign import ForeignPolicyError, diagnose, import_policy
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.main import main

helper: Any = onnx.helper


def saved(model: Any, folder: Path) -> Path:
    path = folder / "policy.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_file_without_metadata_leaves_all_twelve_open(model: Models, tmp_path: Path) -> None:
    found = diagnose(saved(model(opset=11, ir_version=6), tmp_path))
    assert found.admitted
    assert found.changes == (
        "documentation, shapes of intermediate values and metadata are left out",
        "operator set 11 became 18",
        "ir version 6 became 8",
        "one row became a batch of any size",
    )
    assert (found.opset, found.ir_version, found.parity) == (11, 6, 0.0)
    assert found.findings == ("actions has 4 numbers, and no operator at its end bounds them",)
    assert len(found.left_open) == 12


def test_what_the_metadata_state_is_not_open(model: Models, tmp_path: Path) -> None:
    names = json.dumps(["a", "b", "c", "d"])
    metadata = {"dof_names": names, "kp": "[1, 2, 3, 4]", "command_ranges": "null", "action_scale": "0.25"}
    found = diagnose(saved(model(metadata=metadata), tmp_path))
    assert found.contradictions == ()
    assert len(found.left_open) == 9
    assert not any(open_.startswith(("order and names", "gains", "scale and offset")) for open_ in found.left_open)
    assert any(open_.startswith("ranges of the commands") for open_ in found.left_open)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("dof_names", '["a", "b", "c"]', "dof_names has 3 names, actions has 4 numbers"),
        ("joint_names", "a,b,c,b", "joint_names has b twice"),
        ("kp", "[1, 2]", "kp has 2 numbers, actions has 4"),
        ("kd", "[1, 2, NaN, 4]", "kd has nan, which is not a finite number"),
        ("default_joint_pos", "0.1,0.2", "default_joint_pos has 2 numbers, actions has 4"),
    ],
)
def test_statements_that_cannot_be_true_together(
    model: Models, tmp_path: Path, key: str, value: str, told: str
) -> None:
    found = diagnose(saved(model(metadata={key: value}), tmp_path))
    assert found.contradictions == (told,)
    assert not found.admitted


def test_what_the_graph_shows(model: Models, tmp_path: Path) -> None:
    """Columns 1, 2 and 5 are cut out; tanh times 2 plus 1 is bounded; a second output of the input's shape."""
    made = model(
        nodes=[
            helper.make_node("Tanh", ["hidden"], ["t"]),
            helper.make_node("Mul", ["t", "two"], ["scaled"]),
            helper.make_node("Identity", ["scaled"], ["actions"]),
        ]
    )
    matrix = onnx.numpy_helper.to_array(made.graph.initializer[0]).copy()
    matrix[[1, 2, 5]] = 0.0
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(matrix, "w"))
    made.graph.initializer.append(helper.make_tensor("two", 1, [], [2.0]))
    made.graph.node.append(helper.make_node("Add", ["memory", "memory"], ["after"]))
    made.graph.input.append(helper.make_tensor_value_info("memory", 1, (1, 8)))
    made.graph.output.append(helper.make_tensor_value_info("after", 1, (1, 8)))
    assert diagnose(saved(made, tmp_path)).findings == (
        "actions has 4 numbers, and a Tanh bounds them",
        "of equal shapes, and perhaps a memory that is fed back: after → memory",
        "3 of 6 numbers of obs have no effect: 1-2, 5",
    )


def test_a_policy_that_ignores_an_input(model: Models, tmp_path: Path) -> None:
    made = model()
    made.graph.input.append(helper.make_tensor_value_info("command", 1, (1, 3)))
    assert "command has no effect" in diagnose(saved(made, tmp_path)).findings


def test_the_verb_tells_and_its_exit_code_says_it(
    model: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = saved(model(opset=11, ir_version=6), tmp_path)
    assert main(["import", str(good), "--doctor"]) == 0
    told = capsys.readouterr().out
    assert "admitted after " in told
    assert "this file does not state:\n  order and names of the joints" in told
    assert main(["import", str(good), "--doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["admitted"] is True
    bad = saved(model(metadata={"dof_names": '["a"]'}), tmp_path)
    assert main(["import", str(bad), "--doctor"]) == 1
    assert "contradictions:\n  dof_names has 1 names" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["none.onnx", "folder", "policy.pt", "junk.onnx"])
def test_what_cannot_be_read_ends_with_a_message(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "policy.pt").write_bytes(b"\x80\x04")
    (tmp_path / "junk.onnx").write_bytes(b"\xff" * 100)
    assert main(["import", str(tmp_path / name), "--doctor"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("physai: error: ")
    assert "Traceback" not in told


def test_a_file_of_no_family_is_not_imported_by_guessing(
    model: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(saved(model(), tmp_path)), "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "no reader knows it (berkeley, booster, " in said
    assert "); describe it in a physai.yaml" in said


def test_the_message_about_weights_alone_has_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "policy.pt").write_bytes(b"weights")
    with pytest.raises(PhysaiError, match=r"torch\.onnx\.export"):
        diagnose(tmp_path / "policy.pt")


@pytest.mark.parametrize("words", [["physai.yaml"], ["policy.onnx", "--set", "activation=elu"]])
def test_the_doctor_reads_networks_alone(
    words: list[str], model: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(model(), tmp_path)
    (tmp_path / "physai.yaml").write_text("network: policy.onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["import", *words, "--doctor"]) == 2
    assert capsys.readouterr().err.endswith(
        f"{words[0]}: --doctor reads a network's file alone, no description and no --set; an import says what they "
        f"leave open: physai import {words[0]}\n"
    )


def test_an_archive_that_was_cut_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model_3.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model_3/data.pkl", bytes(1000))
    whole = file.read_bytes()
    with pytest.raises(ForeignPolicyError, match="no reader knows it"):
        import_policy(file, out=tmp_path / "run")
    file.write_bytes(whole[:500])
    with pytest.raises(ForeignPolicyError) as caught:
        import_policy(file, out=tmp_path / "run")
    assert str(caught.value) == f"{file}: no whole archive, as torch.save and torch.jit.save write it; copy it again"
