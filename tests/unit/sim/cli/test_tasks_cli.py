"""`physai tasks`."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.errors import UnknownNameError
from physai.sim.cli.tasks import command
from physai.sim.tasks.registry import load_task, task_names


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run("show", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_lists_every_task_and_its_criterion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(task_names())]] == list(task_names())
    reach = [line.split() for line in lines if line.lstrip().startswith("ur10e-reach")]
    assert reach[0][:4] == ["ur10e-reach", "ur10e", "31.25", "12"]
    assert " ".join(reach[1][1:]) == "within 2 cm and 0.1 rad when 4 s are over"


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    records = {record["name"]: record for record in json.loads(capsys.readouterr().out)}
    assert tuple(records) == task_names()
    assert records["pendubot-swingup"]["control_rate_hz"] == 500.0
    assert records["cartpole-swingup"]["success"]["hold_s"] == 2.0


def test_show_prints_terms_weights_and_disturbances(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "go2-velocity") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gravity", "3", "projected_gravity", "-", "1", "-", "1"] in lines
    assert ["FL_hip_joint", "joint_pos", "0.5", "0.1", "[-1.0472,", "1.0472]"] in lines
    assert ["velocity_command", "2", "[-1,", "1]", "rad/s", "b"] in lines
    assert ["track_velocity", "+2"] in lines
    assert any(line[:2] == ["geom_friction", "FL_foot,"] for line in lines)
    assert any(line[:1] == ["push"] and "0.5" in line for line in lines)


@pytest.mark.parametrize("name", task_names())
def test_show_as_json_holds_the_whole_task(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    task, record = load_task(name), shown(capsys, name)
    assert record["fingerprint"] == task.contract.fingerprint
    assert record["rewards"] == {key: term.weight for key, term in task.rewards.items()}
    assert record["terminations"] == list(task.terminations)
    assert len(record["randomisation"]) == len(task.randomisation)
    assert record["observation"] == [term.model_dump(mode="json") for term in task.contract.observation.terms]
    assert record["timing"]["control_dt"] == task.contract.timing.control_dt
    assert record["sensors"].keys() == task.sensors.keys()


def test_presets_change_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "pendubot-swingup")["rewards"]["power"] == -0.002
    assert shown(capsys, "pendubot-swingup", "--preset", "realaigym-v2")["rewards"]["power"] == -0.075


def test_a_task_file_is_shown_without_letting_it_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "import dataclasses\n"
        "from physai.sim.tasks.registry import load_task\n"
        "def make_task():\n"
        "    return dataclasses.replace(load_task('cartpole-swingup'), name='mine', summary='red \\x1b[31m')\n"
    )
    assert run("show", str(tmp_path / "mine.py")) == 0
    assert capsys.readouterr().out.startswith("task         mine: red \\x1b[31m\n")


def test_unknown_tasks_get_a_hint() -> None:
    with pytest.raises(UnknownNameError, match="no task named 'ur10e'; did you mean ur10e-reach"):
        run("show", "ur10e")
