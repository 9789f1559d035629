"""What a run folder keeps of its task, and what is refused when it was damaged, changed or made up."""

import json
import logging
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.foreign_arm import box_stl

from physai.sdk.base.errors import TaskError
from physai.sim.policies.resolve import TaskSource, choose_task_source, named_source
from physai.sim.policies.saved_task import keep_task, kept_task
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task

SUPPORT = Path(__file__).parents[3] / "support"


def write_task(folder: Path) -> Path:
    """A task file whose robot is a file in a folder below, and which tells when it is run."""
    (folder / "robots").mkdir(parents=True)
    shutil.copy(SUPPORT / "pusher.xml", folder / "robots")
    text = (SUPPORT / "pusher_task.py").read_text()
    text = text.replace('Path(__file__).with_name("pusher.xml")', 'Path(__file__).parent / "robots" / "pusher.xml"')
    path = folder / "pusher_task.py"
    path.write_text(f'{text}\nPath(__file__).with_name("it-ran").touch()\n')
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder on another computer: nothing is left where it was made."""
    file = write_task(tmp_path / "home")
    assert keep_task(tmp_path / "home" / "run", load_task(str(file)), task=str(file)) == []
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(tmp_path / "home" / "run", tmp_path / "elsewhere" / "run")
    shutil.rmtree(tmp_path / "home")
    return Path(moved)


def source_of(run: Path) -> Path:
    return run / "task" / "source" / "pusher_task.py"


def test_a_moved_run_has_its_task_and_robot(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        named = named_source(str(run))
    assert named == TaskSource(task=str(source_of(run)))
    assert f"running {source_of(run)} (SHA-256 " in caplog.text
    assert named.load().contract.robot.name == "pusher"


def test_nothing_runs_unless_the_user_names_the_folder_as_the_task(run: Path) -> None:
    with pytest.raises(
        TaskError, match=r"no Python file is run because another file names it; read .*`task`"
    ) as caught:
        choose_task_source({"task": "pusher_task.py"}, source="the policy", run=run)
    assert f"`task` {run}" in str(caught.value)
    assert not source_of(run).with_name("it-ran").exists()
    assert choose_task_source({"task": "pusher_task.py"}, source="it", task=str(run), run=run).task == str(
        source_of(run)
    )


def test_a_changed_task_file_is_named_with_both_hashes(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    source_of(run).write_text(source_of(run).read_text() + "# edited\n")
    with pytest.raises(
        TaskError, match=r"was changed after the run began: SHA-256 \w{12}…, recorded \w{12}…"
    ) as caught:
        named_source(str(run))
    assert f"--task {source_of(run)}" in str(caught.value)
    assert not source_of(run).with_name("it-ran").exists()
    with caplog.at_level(logging.WARNING):
        choose_task_source({"task": "pusher_task.py"}, source="it", task=str(source_of(run)), run=run)
    assert "is not the task file that" in caplog.text


def test_a_changed_or_missing_file_of_the_robot_stops_the_task(run: Path) -> None:
    model = source_of(run).with_name("robots") / "pusher.xml"
    model.write_text(model.read_text() + "<!-- edited -->")
    with pytest.raises(TaskError, match=r"pusher\.xml was changed after the run began"):
        named_source(str(run))
    model.unlink()
    with pytest.raises(TaskError, match=r"pusher\.xml: cannot be read"):
        named_source(str(run))


def test_a_robot_from_the_command_line_is_kept_and_used_without_being_named(tmp_path: Path) -> None:
    arm = tmp_path / "my_pole.xml"
    arm.write_bytes(load_robot("double_pendulum").path.read_bytes())
    task = load_task("cartpole-swingup")
    # The task's own robot stands for one that takes another: what is kept depends on the file only.
    robot = load_robot(arm)
    loaded = replace(task, robot=robot, contract=task.contract.model_copy(update={"robot": robot.spec}))
    run = tmp_path / "run"
    assert keep_task(run, loaded, task="cartpole-swingup", robot=str(arm)) == []
    arm.unlink()
    said = {"task": "cartpole-swingup", "robot": str(arm)}
    chosen = choose_task_source(said, source="the policy", run=run)
    assert chosen == TaskSource(task="cartpole-swingup", robot=str(run / "task" / "robot.zip"))
    assert load_robot(chosen.robot or "").spec == robot.spec
    (run / "task" / "robot.zip").unlink()
    with pytest.raises(TaskError, match=r"robot\.zip: cannot be read .*--model FILE"):
        choose_task_source(said, source="the policy", run=run)
    assert choose_task_source(said, source="the policy", robot="mine.xml", run=run).robot == "mine.xml"


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a" / "pusher_task.py"
    file.parent.mkdir()
    shutil.copy(SUPPORT / "pusher.xml", tmp_path)
    text = (SUPPORT / "pusher_task.py").read_text()
    file.write_text(text.replace("Path(__file__).with_name(", "Path(__file__).parents[1].joinpath("))
    notes = keep_task(tmp_path / "run", load_task(str(file)), task=str(file))
    assert len(notes) == 1
    assert "does not lie below" in notes[0]
    assert "put it there and load it from Path(__file__).parent" in notes[0]
    kept = kept_task(tmp_path / "run")
    assert kept is not None
    assert kept.source is not None


def test_a_robot_of_many_files_is_kept_whole_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "arm"
    (folder / "meshes").mkdir(parents=True)
    (folder / "meshes" / "box.stl").write_bytes(box_stl())
    (folder / "meshes" / "unused.stl").write_bytes(box_stl())
    (folder / "notes.txt").write_text("private")
    joint = '<joint name="j" axis="0 0 1" range="-1 1"/>'
    (folder / "link.xml").write_text(
        f'<mujocoinclude><body>{joint}<geom type="mesh" mesh="box" mass="1"/></body></mujocoinclude>'
    )
    (folder / "arm.xml").write_text(
        '<mujoco><compiler meshdir="meshes"/><asset><mesh name="box" file="box.stl"/></asset>'
        '<worldbody><include file="link.xml"/></worldbody></mujoco>'
    )
    robot = load_robot(folder / "arm.xml")
    loaded = replace(load_task("cartpole-swingup"), robot=robot)
    assert keep_task(tmp_path / "run", loaded, task="cartpole-swingup", robot=str(folder / "arm.xml")) == []
    shutil.rmtree(folder)
    kept = kept_task(tmp_path / "run")
    assert kept is not None
    zipped = kept.robot()
    assert zipped is not None
    assert load_robot(zipped).spec == robot.spec
    assert sorted(zipfile.ZipFile(zipped).namelist()) == ["arm.xml", "link.xml", "meshes/box.stl"]


def test_a_robot_in_a_crowded_folder_is_not_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = tmp_path / "my_pole.xml"
    arm.write_bytes(load_robot("double_pendulum").path.read_bytes())
    for number in range(3):
        (tmp_path / f"{number}.txt").touch()
    monkeypatch.setattr("physai.sim.policies.saved_task.MAX_ENTRIES", 3)
    loaded = replace(load_task("cartpole-swingup"), robot=load_robot(arm))
    notes = keep_task(tmp_path / "run", loaded, task="cartpole-swingup", robot=str(arm))
    assert len(notes) == 1
    assert "holds more than 3 files; move the robot to a folder of its own" in notes[0]
    said = {"task": "cartpole-swingup", "robot": str(arm)}
    with pytest.raises(TaskError, match="name it with `model` PATH"):
        choose_task_source(said, source="the policy", run=tmp_path / "run")


def record_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "task" / "task.json").read_text())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "newer than format 1"),
        ({"task": "../../evil.py"}, "is no path inside the folder"),
        ({"task": "/tmp/evil.py"}, "is no path inside the folder"),
        ({"task": "evil.py"}, "has no SHA-256"),
        ({"files": {"source/../../../evil.py": "0" * 64}}, "is no path inside the folder"),
        ({"files": {"source/pusher_task.py": "short"}}, "files"),
        ({"surprise": 1}, "unknown field"),
        ({"preset": 3}, "preset"),
    ],
)
def test_a_made_up_record_is_refused(run: Path, changes: dict[str, Any], message: str) -> None:
    (run / "task" / "task.json").write_text(json.dumps({**record_of(run), **changes}))
    with pytest.raises(TaskError, match=message) as caught:
        named_source(str(run))
    assert "task.json" in str(caught.value)
    assert not source_of(run).with_name("it-ran").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", '{"format_version": NaN}', "[" * 200_000])
def test_a_damaged_record_is_refused(run: Path, text: str) -> None:
    (run / "task" / "task.json").write_text(text)
    with pytest.raises(TaskError, match=r"task\.json"):
        kept_task(run)


def test_a_folder_without_a_task_is_no_task(tmp_path: Path) -> None:
    """Run folders of older versions, and folders that are none."""
    assert kept_task(tmp_path) is None
    with pytest.raises(TaskError, match="is no run folder that keeps its task"):
        named_source(str(tmp_path))


def test_a_folder_with_the_name_of_a_task_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cartpole-swingup").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named_source("cartpole-swingup") == TaskSource(task="cartpole-swingup")


def test_a_task_file_behind_a_pipe_is_not_waited_for(run: Path) -> None:
    import os

    source_of(run).unlink()
    os.mkfifo(source_of(run))
    with pytest.raises(TaskError, match="cannot be read"):
        named_source(str(run))
