"""Recordings in Parquet, LeRobot's and plain ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log, read_logs
from physai.twin.logs.readers.parquet_file import read_parquet

NAMES = ("elbow.pos", "shoulder.pos", "gripper.pos")


def data_set(root: Path, *, names: Any = NAMES, episodes: Sequence[int] = (0, 1, 2), unit: float = 1.0) -> Path:
    """A data set of LeRobot's format 3: episodes of 30, 31, 32 … frames at 30 Hz in one file, names in info.json."""
    rows: dict[str, list[Any]] = {
        key: [] for key in ("observation.state", "action", "timestamp", "frame_index", "episode_index")
    }
    for episode in episodes:
        for frame in range(30 + episode):
            state = [0.1 * episode + 0.01 * frame, -0.02 * frame, 0.5]
            rows["observation.state"].append([unit * value for value in state])
            rows["action"].append([unit * (value + 0.001) for value in state])
            rows["timestamp"].append(frame / 30)
            rows["frame_index"].append(frame)
            rows["episode_index"].append(episode)
    schema = pa.schema(
        [
            ("observation.state", pa.list_(pa.float32(), 3)),
            ("action", pa.list_(pa.float32())),
            ("timestamp", pa.float32()),
            ("frame_index", pa.int64()),
            ("episode_index", pa.int64()),
        ]
    )
    path = root / "data" / "chunk-000" / "file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(rows, schema=schema), path)
    feature = {"dtype": "float32", "shape": [3], "names": names}
    info = {"codebase_version": "v3.0", "fps": 30, "features": {"observation.state": feature, "action": feature}}
    (root / "meta").mkdir()
    (root / "meta" / "info.json").write_text(json.dumps(info))
    return path


@pytest.mark.parametrize("names", [NAMES, {"motors": ["elbow", "shoulder", "gripper"]}])
def test_each_episode_of_a_data_set_is_one_log(tmp_path: Path, arm: RobotSpec, names: Any) -> None:
    logs = read_logs([data_set(tmp_path, names=names)], arm)
    assert [log.name for log in logs] == ["file-000#0", "file-000#1", "file-000#2"]
    assert [len(log.time) for log in logs] == [30, 31, 32]
    for episode, log in enumerate(logs):
        frames = np.arange(30 + episode)
        assert log.joint_names == ("shoulder", "elbow")
        assert log.time == pytest.approx(frames / 30, abs=1e-6)
        assert log.joint_pos[:, 0] == pytest.approx(-0.02 * frames, abs=1e-6)
        assert log.joint_pos[:, 1] == pytest.approx(0.1 * episode + 0.01 * frames, abs=1e-6)
        assert log.command == pytest.approx(log.joint_pos + 0.001, abs=1e-6)
        assert (log.command_kind, log.joint_vel, log.joint_effort) == ("joint_pos", None, None)


def test_one_episode_by_its_number(tmp_path: Path, arm: RobotSpec) -> None:
    path = data_set(tmp_path, episodes=(4, 7))
    assert len(read_log(f"{path}#7", arm).time) == 37
    with pytest.raises(LogError, match="no episode 5; it contains 4 to 7"):
        read_log(f"{path}#5", arm)
    with pytest.raises(LogError, match=r"contains 2 episodes, 4 to 7; choose one, for instance .*file-000.parquet#4"):
        read_log(path, arm)


def test_episodes_of_one_file_are_told_apart_and_copies_are_not(tmp_path: Path, arm: RobotSpec) -> None:
    """One episode may be fitted and another held out; a copy of the file holds the same ones."""
    path = data_set(tmp_path)
    copy = path.with_name("copy.parquet")
    copy.write_bytes(path.read_bytes())
    first, second = (read_log(f"{path}#{episode}", arm).sha256 for episode in (0, 1))
    assert first != second
    assert read_log(f"{copy}#0", arm).sha256 == first
    with pytest.raises(LogError, match="the same recording as"):
        read_logs([f"{path}#0", f"{copy}#0"], arm)


def test_a_file_with_one_episode_needs_no_number(tmp_path: Path, arm: RobotSpec) -> None:
    assert len(read_log(data_set(tmp_path, episodes=(3,)), arm).time) == 33


def test_degrees_are_refused_and_a_map_sets_them_right(tmp_path: Path, arm: RobotSpec) -> None:
    path = data_set(tmp_path, unit=180 / np.pi)
    with pytest.raises(LogError, match=r"shoulder moves between -33.* with `use_degrees`, set `unit: deg`"):
        read_log(f"{path}#0", arm)
    joints = "\n".join(
        f"  {name}: {{joint_pos: {{column: observation.state.{name}.pos, unit: deg}}, "
        f"command: {{column: action.{name}.pos, unit: deg}}}}"
        for name in ("elbow", "shoulder")
    )
    (path.parent / "columns.yaml").write_text(f"time: timestamp\ncommand_kind: joint_pos\njoints:\n{joints}\n")
    assert read_log(f"{path}#0", arm).joint_pos[:, 0] == pytest.approx(-0.02 * np.arange(30), abs=1e-6)


def test_lists_without_names_are_columns_by_number(tmp_path: Path, arm: RobotSpec) -> None:
    path = data_set(tmp_path, names=None)
    assert "observation.state.2" in read_parquet(path).table.columns
    with pytest.raises(LogError, match=r"cannot assign its columns(.|\n)*observation.state.0"):
        read_log(f"{path}#0", arm)


def test_plain_columns_with_a_map(tmp_path: Path, hinge: RobotSpec) -> None:
    path = tmp_path / "log.parquet"
    table = pa.table(
        {"t": [0, 1, 2, 3], "q": [0.5, 1.0, 1.5, 1.0], "u": pa.array([1, 2, 3, 4], pa.int8()), "s": list("abcd")}
    )
    pq.write_table(table, path)
    (tmp_path / "log.columns.yaml").write_text(
        "time: {column: t, unit: ms}\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q, command: u}}\n"
    )
    log = read_log(path, hinge)
    assert log.time == pytest.approx([0, 0.001, 0.002, 0.003])
    assert log.command[:, 0].tolist() == [1, 2, 3, 4]


def test_missing_values_are_refused(tmp_path: Path, hinge: RobotSpec) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"t": [0.0, 1.0, 2.0], "q": [0.5, None, 1.5], "u": [1.0, 1.0, 1.0]}), path)
    (tmp_path / "columns.yaml").write_text(
        "time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q, command: u}}\n"
    )
    with pytest.raises(LogError, match=r"joint_pos of hinge is missing, not finite .* in 1 of 3 samples"):
        read_log(path, hinge)


def test_what_is_no_table_of_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    with pytest.raises(LogError, match="cannot be read"):
        read_parquet(path)
    path.write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(LogError, match="not a Parquet file"):
        read_parquet(path)
    pq.write_table(pa.table({"s": ["a", "b"]}), path)
    with pytest.raises(LogError, match="no numeric column, only s"):
        read_parquet(path)
    pq.write_table(pa.table({"q": [[1.0], [1.0, 2.0]]}), path)
    with pytest.raises(LogError, match=r"lists of column 'q' have \[1, 2\] elements"):
        read_parquet(path)
    pq.write_table(pa.table({"q": [1.0]}), path)
    with pytest.raises(LogError, match="1 rows, at least 2 are needed"):
        read_parquet(path)


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"q": np.random.default_rng(0).normal(size=5000)}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[40:4000] = bytes(len(data[40:4000]))
    path.write_bytes(data)
    with pytest.raises(LogError, match="damaged Parquet file"):
        read_parquet(path)


def test_a_damaged_description_is_refused(tmp_path: Path, arm: RobotSpec) -> None:
    path = data_set(tmp_path)
    (tmp_path / "meta" / "info.json").write_text('{"features": 3}')
    with pytest.raises(LogError, match="not the description of a LeRobot dataset"):
        read_log(f"{path}#0", arm)
