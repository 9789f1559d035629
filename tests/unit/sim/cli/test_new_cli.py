"""`physai new`: what it writes loads, and nothing is overwritten."""

import ast
from pathlib import Path

import pytest

from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task

Captured = pytest.CaptureFixture[str]


def test_the_file_is_a_task_of_that_name(tmp_path: Path, capsys: Captured) -> None:
    assert main(["new", "my-pole", "--out", str(tmp_path)]) == 0
    file = tmp_path / "my-pole.py"
    assert capsys.readouterr().out == f"{file}\nnext: physai train {file}\n"
    task = load_task(str(file))
    assert (task.name, task.contract.task) == ("my-pole", "my-pole")
    assert task.training["discount_s"] == 1.0
    # Every function says what it is for.
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    assert all(ast.get_docstring(function) for function in functions)


def test_an_existing_file_is_left_alone(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.py").write_text("precious")
    assert main(["new", "mine", "--out", str(tmp_path)]) == 2
    assert "exists; choose another name" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["", "../x", "a b", "1st", "x" * 64, "a.py", 'q"', "ur10e-reach"])
def test_names_that_are_none(name: str, tmp_path: Path, capsys: Captured) -> None:
    assert main(["new", name, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    assert main(["new", "mine", "--out", str(tmp_path / "nothing")]) == 2
    assert "cannot be written" in capsys.readouterr().err
