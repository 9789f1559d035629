"""The zero test: command minus position at rest, against earlier recordings."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.cli.main import main
from physai.sdk.evidence.origin import Origin
from physai.sim.robots import load_robot
from physai.twin.calibration.stand_in.synthetic_robot import SyntheticRecording, write_columns, write_recording
from physai.twin.logs.comparison.still_zero import zero_shifts
from physai.twin.logs.raw_log import RawLog


def held(offset_deg: float, *, seed: int, kind: str = "joint_pos") -> RawLog:
    """An arm that holds four poses for 2 s each; the elbow's readings are off."""
    robot = load_robot("ur10e")
    rng = np.random.default_rng(seed)
    time = 0.01 * np.arange(1000, dtype=np.float64)
    pose = np.array([joint.default_pos for joint in robot.spec.joints])
    steps = np.repeat(rng.uniform(-0.4, 0.4, (4, 6)), 250, axis=0)
    command = pose + steps
    position = command + 1e-5 * rng.standard_normal(command.shape)
    position[:, 2] += np.deg2rad(offset_deg)
    return RawLog(
        name="held",
        joints=robot.spec.joints,
        limits_known=True,
        time=time,
        joint_pos=position,
        joint_vel=None,
        joint_effort=None,
        command=command,
        command_kind="joint_pos" if kind == "joint_pos" else "joint_effort",
        driven=(True,) * 6,
        channels=(),
        source="held",
        sha256="0" * 64,
        notes={},
        origin=Origin(),
    )


def test_the_joint_and_its_shift_are_named_in_degrees_and_at_the_tool() -> None:
    found = {one.joint: one for one in zero_shifts([held(2.0, seed=1)], [held(0.0, seed=2)], load_robot("ur10e"))}
    assert [name for name, one in found.items() if one.moved] == ["elbow_joint"]
    elbow = found["elbow_joint"]
    # The reading rose by 2°, so command minus position fell by it.
    assert np.rad2deg(elbow.shift) == pytest.approx(-2.0, abs=0.01)
    assert elbow.tool_m is not None
    # From the elbow to the end of the stretched-out wrist there are 0.571 m and 0.12 m to each side at most.
    assert 1e3 * elbow.tool_m == pytest.approx(2.0 * np.pi / 180.0 * 600.0, rel=0.25)
    assert elbow.text.startswith("elbow_joint: -2.00° ± 0.0")
    assert elbow.text.endswith("mm at the tool")


def test_an_unmoved_zero_is_not_named_although_poses_differ() -> None:
    found = zero_shifts([held(0.0, seed=1)], [held(0.0, seed=2)], None)
    assert len(found) == 6
    assert not any(one.moved for one in found)
    assert all(one.tool_m is None for one in found)


def test_scatter_at_rest_hides_a_shift_of_its_size() -> None:
    """Stiction leaves the joint up to a degree from its target, so one degree is no news."""
    earlier = [replace(held(deg, seed=k), sha256=f"{k:064x}") for k, deg in enumerate((-1.0, 1.0, -0.5, 0.5))]
    assert not zero_shifts([held(1.0, seed=9)], earlier, None)[2].moved


def test_recordings_without_position_commands_say_nothing() -> None:
    assert zero_shifts([held(2.0, seed=1, kind="joint_effort")], [held(0.0, seed=2)], None) == ()


def test_the_verb_names_the_joint_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    robot = load_robot("ur10e")
    write_columns(robot, tmp_path)
    for name, offset, seed in (("old", 0.0, 1), ("new", 2.0, 2)):
        log = held(offset, seed=seed)
        made = SyntheticRecording(
            time=log.time,
            command=log.command,
            joint_pos=log.joint_pos,
            joint_vel=np.gradient(log.joint_pos, log.time, axis=0),
            joint_effort=np.random.default_rng(seed).standard_normal(log.joint_pos.shape),
        )
        write_recording(made, robot, tmp_path / f"{name}.csv")
    words = ["logs", "check", str(tmp_path / "new.csv"), "--earlier", str(tmp_path / "old.csv"), "--model", "ur10e"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "command minus position at rest, MOVED: elbow_joint: -2.00°" in out
    assert "mm at the tool" in out
    main([*words, "--json"])
    zeros = {one["joint"]: one["moved"] for one in json.loads(capsys.readouterr().out)["zeros"]}
    assert [joint for joint, moved in zeros.items() if moved] == ["elbow_joint"]
