"""`physai sim field`: scheduled recordings of a policy become field episodes, and others do not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.closed_loop_runs import HiddenRobot, recorded_run

from physai.gates import field_episodes
from physai.sdk.base.formats.column_blocks import encode_block
from physai.sdk.cli.main import main
from physai.sdk.evidence.field_episodes import FieldEpisodesError, load_field_episodes
from physai.sdk.evidence.recording_channels import (
    JOINT_STATE,
    JOINTS_TOPIC,
    ORIGIN_METADATA_KEY,
    TARGET_TOPIC,
    ChannelWriter,
)
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, save_twin

TASK = str(Path(__file__).parents[2] / "support" / "pusher_task.py")
COUNT, UNIT = 20, "pusher/cell-3"
Writer = Callable[..., Path]


def write(path: Path, log: RobotLog, *, segment: str = "scheduled", origin: str = f"robot {UNIT}") -> Path:
    """A segment as the flight recorder writes it."""
    assert log.joint_vel is not None
    stamps = 1_790_000_000 * 10**9 + np.rint(1e9 * log.time).astype(np.int64)
    topics = {
        JOINTS_TOPIC: {"position.rail": log.joint_pos[:, 0], "velocity.rail": log.joint_vel[:, 0]},
        f"{TARGET_TOPIC}joint_effort_target": {"effort.rail": log.command[:, 0]},
    }
    with path.open("wb") as stream:
        writer = ChannelWriter(stream)
        for topic, columns in topics.items():
            steps = dict.fromkeys(columns, 1e-6) | {"log_ns": 1000.0}
            block = encode_block({"log_ns": stamps, "delay_ns": np.zeros(len(stamps), np.int64), **columns}, steps)
            writer.add_block(topic, JOINT_STATE, int(stamps[0]), block)
        writer.add_metadata("physai.flight", {"segment": segment, ORIGIN_METADATA_KEY: origin})
        writer.finish()
    return path


@pytest.fixture
def recordings(write_policy: Writer, task: Task, tmp_path: Path) -> list[Path]:
    """20 runs of a policy, the last two of which ended early."""
    policy = OnnxPolicy(write_policy().read_bytes(), source="test")
    robot = HiddenRobot(values={"cart.mass": 2.1, "rail.friction": 0.25})
    (tmp_path / "runs").mkdir()
    found: list[Path] = []
    for number in range(COUNT):
        log = recorded_run(task, policy, robot, seed=number)
        if number >= COUNT - 2:
            rows = slice(0, 60)
            names = ("time", "joint_pos", "joint_vel", "command")
            cut: dict[str, Any] = {name: getattr(log, name)[rows] for name in names}
            log = RobotLog(**{**{field: getattr(log, field) for field in log.__dataclass_fields__}, **cut})
        found.append(write(tmp_path / "runs" / f"run{number:02}-scheduled.mcap", log))
    return found


def test_scheduled_recordings_become_pairs_that_a_validation_reads(
    recordings: list[Path], task: Task, credible_twin: Twin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pusher.xml").write_bytes(Path(TASK).with_name("pusher.xml").read_bytes())
    save_twin(credible_twin, tmp_path / "twin.json")
    policy = tmp_path / "policy" / "policy.onnx"
    words = [str(tmp_path / "twin.json"), str(policy), *map(str, recordings), "--task", TASK]
    assert main(["sim", "field", *words, "-o", str(tmp_path / "field.json"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["episodes"], shown["successes"], shown["robot"]) == (COUNT, COUNT - 2, UNIT)
    found = load_field_episodes(tmp_path / "field.json")
    assert found.sha256 == shown["sha256"]
    found.require_subject(found.policy_sha256, task.contract.fingerprint, "pusher")
    assert [one.success for one in found.episodes] == [True] * (COUNT - 2) + [False] * 2
    # Their replays are complete: what ended these runs is not in the twin.
    assert sum(one.replay_success for one in found.episodes) >= COUNT - 1
    # A person saw otherwise.
    told = field_episodes(credible_twin, policy, recordings, out=None, task=TASK, success={"run00-scheduled": "no"})
    assert [one.success for one in told.episodes][:2] == [False, True]


@pytest.mark.parametrize(
    ("changes", "success", "message"),
    [
        ({"segment": "incident"}, {}, r"state the segment 'incident', not 'scheduled': recordings that an event"),
        ({"origin": "stand-in pusher"}, {}, "are from a stand-in for pusher, the robot pusher/cell-3"),
        ({}, {"run77": "yes"}, "`success` run77=yes: give RECORDING=yes or =no for one of run00"),
        ({}, {"run00-scheduled": "maybe"}, "`success` run00-scheduled=maybe"),
    ],
)
def test_what_is_no_random_sample_of_one_robot_is_refused(
    recordings: list[Path],
    task: Task,
    credible_twin: Twin,
    tmp_path: Path,
    changes: dict[str, str],
    success: dict[str, str],
    message: str,
) -> None:
    policy = tmp_path / "policy" / "policy.onnx"
    log = recorded_run(task, OnnxPolicy(policy.read_bytes(), source="x"), HiddenRobot(values={}), seed=99)
    write(recordings[3], log, **changes)
    with pytest.raises(FieldEpisodesError, match=message):
        field_episodes(credible_twin, policy, recordings, out=None, task=TASK, success=success)


def test_too_few_recordings_and_other_files_are_refused(
    recordings: list[Path], credible_twin: Twin, tmp_path: Path
) -> None:
    policy = tmp_path / "policy" / "policy.onnx"
    with pytest.raises(FieldEpisodesError, match="19 episodes; at least 20 are needed"):
        field_episodes(credible_twin, policy, recordings[1:], out=None, task=TASK)
    recordings[0].write_bytes(b"no recording")
    with pytest.raises(FieldEpisodesError, match=r"run00-scheduled\.mcap: no readable MCAP file"):
        field_episodes(credible_twin, policy, recordings, out=None, task=TASK)
