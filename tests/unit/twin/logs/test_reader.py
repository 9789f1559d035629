"""Finding out what a recording is, under which name, and with which map."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, RobotLog, read_log, read_logs
from physai.twin.logs.reader import all_episodes, log_names, robot_of

Motion = dict[str, NDArray[np.float64]]
CsvWriter = Callable[..., Path]


def test_names_are_as_short_as_they_may_be() -> None:
    assert log_names(["/a/b/run1.csv.gz", "/a/b/run2.json"]) == ["run1", "run2"]
    # A name that every recording has gives way to its folder's.
    assert log_names(["/a/143339/trajectory.csv.gz", "/a/143601/trajectory.csv.gz"]) == ["143339", "143601"]
    assert log_names(["/a/x/e1/trajectory.csv", "/a/y/e1/trajectory.csv", "/a/y/e2/trajectory.csv"]) == [
        "x/e1",
        "y/e1",
        "e2",
    ]
    assert log_names(["/a/x/run.csv", "/a/y/run.csv"]) == ["x/run", "y/run"]
    assert log_names(["d.parquet#3", "d.parquet#4"]) == ["d#3", "d#4"]


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "data", "trajectory"]), min_size=1, max_size=4), unique_by=tuple))
def test_different_paths_have_different_names(parts: list[list[str]]) -> None:
    names = log_names(["/" + "/".join([*part, "log.csv"]) for part in parts])
    assert len(set(names)) == len(parts)


def test_several_recordings_keep_their_order(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    first = write(motion, name="b.csv")
    motion["q1"] = motion["q1"] + 0.01
    second = write(motion, name="a.csv")
    assert [log.name for log in read_logs([first, second], arm)] == ["b", "a"]


def test_a_recording_given_twice_is_refused(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion)
    copy = path.with_name("copy.csv")
    copy.write_bytes(path.read_bytes())
    with pytest.raises(LogError, match=r"copy.csv: the same recording as .*log.csv; give each once"):
        read_logs([path, copy], arm)


def test_no_recording_is_an_error(arm: RobotSpec) -> None:
    with pytest.raises(LogError, match="no recordings given"):
        read_logs([], arm)


def test_the_map_beside_a_recording_goes_before_the_folders(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion)
    beside = path.with_name("log.columns.yaml")
    swapped = path.with_name("columns.yaml").read_text().replace("q1", "q0").replace("q2", "q1").replace("q0", "q2")
    # Speeds have to go with their positions.
    beside.write_text(swapped.replace("v1", "v0").replace("v2", "v1").replace("v0", "v2"))
    assert (read_log(path, arm).joint_pos[:, 0] == motion["q2"]).all()
    named = path.with_name("columns.yaml")
    assert (read_log(path, arm, column_map=named).joint_pos[:, 0] == motion["q1"]).all()


def test_without_a_map_the_error_shows_how_to_write_one(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion, column_map=None)
    with pytest.raises(
        LogError, match=r"write log.columns.yaml next to it(.|\n)*joint_pos: q1(.|\n)*columns: t, q1, v1"
    ):
        read_log(path, arm)


def test_the_shipped_maps_know_their_recordings(write: CsvWriter, hinge: RobotSpec) -> None:
    t = np.arange(200) * 0.01
    measured = {"time": t, "position": np.sin(t), "velocity": np.cos(t), "torque": np.cos(t)}
    path = write(measured, column_map=None, name="data_measured.csv")
    write({**measured, "torque": 2 * np.cos(t)}, column_map=None, name="data_desired.csv")
    log = read_log(path, hinge)
    assert (log.joint_effort is not None) & (log.command[0, 0] == 2.0)
    assert robot_of(path) is None
    joints = tuple(hinge.joints[0].model_copy(update={"name": name}) for name in "ab")
    with pytest.raises(LogError, match="for a robot with one joint, this one has 2: a, b"):
        read_log(path, hinge.model_copy(update={"joints": joints}))
    path.with_name("data_desired.csv").unlink()
    with pytest.raises(LogError, match=r"data_desired.csv: cannot be read: no such file"):
        read_log(path, hinge)


def test_a_shipped_map_joins_the_file_of_the_same_run(write: CsvWriter, hinge: RobotSpec) -> None:
    t = np.arange(200) * 0.01
    measured = {"time": t, "position": np.sin(t), "velocity": np.cos(t), "torque": np.cos(t)}
    second = write(measured, column_map=None, name="data_measured_2.csv")
    write({**measured, "torque": 2 * np.cos(t)}, column_map=None, name="data_desired.csv")
    with pytest.raises(LogError, match=r"data_desired_2.csv: cannot be read: no such file"):
        read_log(second, hinge)
    write({**measured, "torque": 3 * np.cos(t)}, column_map=None, name="data_desired_2.csv")
    assert read_log(second, hinge).command[0, 0] == 3.0


def test_a_shipped_map_that_nearly_fits_says_what_is_missing(write: CsvWriter, hinge: RobotSpec) -> None:
    t = np.arange(20) * 0.01
    path = write({"time": t, "position": t, "velocity": t}, column_map=None, name="data_measured.csv")
    with pytest.raises(LogError, match="the shipped map dfki_simple_pendulum would fit except for torque"):
        read_log(path, hinge)


def test_a_robot_may_spell_a_joint_in_other_case(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion)
    text = path.with_name("columns.yaml")
    text.write_text(text.read_text().replace("shoulder", "Shoulder"))
    assert read_log(path, arm).joint_names == ("shoulder", "elbow")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", "none.csv: no such file"),
        ("log.xlsx", "a recording ends in .csv"),
        ("old.bag", "convert a ROS 1 bag with rosbags-convert"),
        ("log.csv#2", "log.csv#2: only Parquet and MCAP files can contain several episodes"),
    ],
)
def test_what_is_no_recording_is_refused(
    write: CsvWriter, motion: Motion, arm: RobotSpec, name: str, message: str
) -> None:
    path = write(motion)
    for other in ("log.xlsx", "old.bag"):
        path.with_name(other).write_text("x")
    with pytest.raises(LogError, match=message):
        read_log(path.with_name(name), arm)


def test_a_file_may_have_a_number_sign_in_its_name(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion, name="run#2.csv")
    assert read_log(path, arm).name == "run#2"
    assert all_episodes([path]) == (str(path),)


def test_a_log_is_consistent_or_refused() -> None:
    def log(**changes: object) -> RobotLog:
        fields: dict[str, object] = {
            "name": "a",
            "joint_names": ("j",),
            "time": np.array([0.0, 0.1, 0.2]),
            "joint_pos": np.zeros((3, 1)),
            "joint_vel": None,
            "joint_effort": None,
            "command": np.zeros((3, 1)),
            "command_kind": "joint_effort",
            "source": "",
            "sha256": "",
        }
        return RobotLog(**{**fields, **changes})  # pyright: ignore[reportArgumentType]

    assert log().duration_s == 0.2
    with pytest.raises(LogError, match=r"joint_vel has shape \(2, 1\), expected \(3, 1\)"):
        log(joint_vel=np.zeros((2, 1)))
    with pytest.raises(LogError, match="joint_pos has 1 values that are not finite"):
        log(joint_pos=np.array([[0.0], [np.nan], [0.0]]))
    for time in ([0.0, 0.1, 0.1], [0.0, 0.2, 0.1], [0.1, 0.2, 0.3], [0.0, np.inf, 1.0]):
        with pytest.raises(LogError, match="finite, start at 0 and be strictly ascending"):
            log(time=np.array(time))
    with pytest.raises(LogError, match="at least 2 samples"):
        log(time=np.zeros(1), joint_pos=np.zeros((1, 1)), command=np.zeros((1, 1)))
