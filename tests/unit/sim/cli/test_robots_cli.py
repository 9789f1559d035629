"""`physai robots`."""

import argparse
import json
from pathlib import Path

import pytest

from physai.sdk.base.errors import UnknownNameError
from physai.sim.cli.robots import command
from physai.sim.robots import robot_names


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_lists_every_robot(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(line.split()[0] for line in lines[1:-2]) == robot_names()
    assert "15.02" in next(line for line in lines if line.startswith("go2"))


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    records = {record["name"]: record for record in json.loads(capsys.readouterr().out)}
    assert tuple(records) == robot_names()
    assert (records["ur10e"]["joints"], records["ur10e"]["base"]) == (6, "fixed")
    assert records["ur10e"]["mass_kg"] == pytest.approx(29.104)


def test_show_prints_joints_sensors_and_chains(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "ur10e") == 0
    out = capsys.readouterr().out
    elbow = next(line.split() for line in out.splitlines() if "elbow_joint" in line and "revolute" in line)
    assert elbow == [
        "2",
        "elbow_joint",
        "revolute",
        "[-3.14159,",
        "3.14159]",
        "3.14159",
        "150",
        "600",
        "34.641",
        "1.5708",
    ]
    assert "joint_effort  6     N*m" in out
    assert "ee    7" in out


def test_show_as_json_holds_the_whole_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "go2", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["spec"]["base"] == "floating"
    assert len(record["spec"]["joints"]) == 12
    assert record["picture"] is None


def test_show_reads_a_file_and_escapes_what_could_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.xml"
    file.write_text(
        '<mujoco><custom><text name="description" data="a&#x9b;2Jb"/></custom>'
        '<worldbody><body><joint name="j"/><geom size="1" mass="2"/></body></worldbody></mujoco>'
    )
    assert run("show", str(file)) == 0
    out = capsys.readouterr().out
    assert "\x9b" not in out
    assert "moving mass  2 kg" in out


def test_an_unknown_robot_is_refused_with_the_closest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean double_pendulum"):
        run("show", "double-pendulum")
