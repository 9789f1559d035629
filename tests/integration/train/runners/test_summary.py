"""What run folders say about themselves, whole, killed or damaged."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.errors import CheckpointError, TaskError
from physai.sdk.cli.main import main
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.train.runs import summary
from physai.train.runs.run_config import RunTaskSource, load_config, save_config, training_alone
from physai.train.runs.summary import Outcome, find_runs, load_outcome, load_summary, save_outcome
from physai.train.settings.config import TrainConfig
from physai.twin.model.twin import nominal_twin, save_twin

Captured = pytest.CaptureFixture[str]
ENDED = Outcome(reason="all iterations done", interrupted=False, iterations=2, env_steps=80, seconds=1.5, success=0.75)
PROGRESS = "iteration,env_steps,seconds,success,reward_per_s\n1,40,0.5,nan,1.0\n2,80,1.0,0.25,2.0\n"


def write_run(folder: Path, *, outcome: Outcome | None = ENDED, progress: str = PROGRESS, **settings: Any) -> Path:
    contract = load_task("cartpole-swingup").contract
    save_config(folder, RunTaskSource(task="cartpole-swingup"), TrainConfig(**settings), contract)
    (folder / "progress.csv").write_text(progress)
    if outcome is not None:
        save_outcome(folder, outcome)
    return folder


def test_a_run_that_ended(tmp_path: Path) -> None:
    run = load_summary(write_run(tmp_path / "run"))
    assert (run.state, run.success) == ("ended", (0.75, True))
    assert run.progress.env_steps == [40.0, 80.0]
    assert math.isnan(run.progress.success[0])


def test_a_run_that_was_killed_in_a_line(tmp_path: Path) -> None:
    run = load_summary(write_run(tmp_path / "run", outcome=None, progress=f"{PROGRESS}3,120"))
    assert (run.state, run.success) == ("unfinished", (0.25, False))
    assert len(run.progress.env_steps) == 2


DAMAGE = {
    "blocks that never reached the disk": b"\0" * 600 + b"\n",
    "no text": b"\xff\xfe3,\xe9\n",
    "a cell of 200 kB": b"x" * 200_000 + b"\n",
    "cells too many": b"3,120,1.5,0.5,3.0,7\n",
    "words": b"3,120,many,0.5,3.0\n",
}
"""What a power cut or a full disk leaves behind, or a careless editor."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_rows_are_left_out(damage: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with (folder / "progress.csv").open("ab") as file:
        file.write(DAMAGE[damage] + b"4,160,2.0,0.75,4.0\n")
    progress = load_summary(folder).progress
    assert progress.env_steps == [40.0, 80.0, 160.0]
    assert progress.success[1:] == [0.25, 0.75]


def test_a_log_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    monkeypatch.setattr(summary, "MAX_ROWS", 2)
    with pytest.raises(CheckpointError, match=r"progress\.csv: more than 2 rows"):
        load_summary(folder)
    monkeypatch.setattr(summary, "MAX_PROGRESS_BYTES", len(PROGRESS) - 1)
    with pytest.raises(CheckpointError, match=rf"progress\.csv: more than {len(PROGRESS) - 1} bytes"):
        load_summary(folder)


def test_one_process_trains_in_a_folder(tmp_path: Path, capsys: Captured) -> None:
    """Two that are started in the same second have the same folder; two that resume a run would both write it."""
    folder = tmp_path / "new" / "run"
    with training_alone(folder):
        assert main(["train", "cartpole-swingup", "--out", str(folder), "--num-envs", "4"]) == 2
        error = capsys.readouterr().err
        assert f"another process trains in {folder}; wait for its end" in error
        assert error.count("\n") == 1
        assert not (folder / "config.json").exists()
    with training_alone(folder):
        pass


def test_a_configuration_opens_no_twin_by_its_path(tmp_path: Path) -> None:
    """The path is one of the computer that trained; in a folder from somebody else it may be any file."""
    folder, pipe = tmp_path / "run", tmp_path / "twin.json"
    os.mkfifo(pipe)  # opening it would wait
    source = RunTaskSource(task="cartpole-swingup", twin=str(pipe))
    save_config(folder, source, TrainConfig(), load_task("cartpole-swingup").contract)
    recorded = load_config(folder)[0]
    with pytest.raises(TaskError, match=rf"was trained in the twin '{pipe}', and no file is opened.*copy that twin to"):
        recorded.chosen(folder, task=None, robot=None)
    (folder / "task").mkdir()
    save_twin(nominal_twin(load_robot("cartpole")), folder / "task" / "twin.json")
    assert recorded.chosen(folder, task=None, robot=None).twin == str(folder / "task" / "twin.json")


def test_a_lock_is_no_link_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "other")
    with pytest.raises(CheckpointError, match="cannot write run folder"), training_alone(tmp_path):
        pass
    assert (tmp_path / "other").read_text() == "mine"


def test_a_run_that_did_nothing(tmp_path: Path) -> None:
    run = load_summary(write_run(tmp_path / "run", outcome=None, progress=""))
    assert (run.state, run.success, run.progress.seconds) == ("unfinished", None, [])


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format_version": 1, "success": NaN}', '{"format_version": 9}', '{"format_version": 1}']
)
def test_a_damaged_outcome_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "outcome.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"outcome\.json"):
        load_outcome(tmp_path)


def test_runs_are_found_below_and_not_inside_of_runs(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a" / "one"), write_run(tmp_path / "b")
    write_run(first / "task" / "inside")
    (tmp_path / "c").symlink_to(tmp_path / "b")
    assert find_runs(tmp_path) == [first, second]
    assert find_runs(second) == [second]
    with pytest.raises(CheckpointError, match="is no folder"):
        find_runs(tmp_path / "nothing")


def test_seeds_of_the_same_settings_are_one_line(tmp_path: Path, capsys: Captured) -> None:
    for seed, success in ((0, 0.5), (1, 1.0)):
        write_run(tmp_path / "small" / f"seed-{seed}", outcome=ENDED.model_copy(update={"success": success}), seed=seed)
    write_run(tmp_path / "large", horizon=48)
    assert main(["runs", "compare", str(tmp_path), "--json"]) == 0
    large, small = json.loads(capsys.readouterr().out)
    assert small["settings"] == {"horizon": 24}
    assert large["settings"] == {"horizon": 48}
    assert (small["seeds"], small["mean_success"]) == ([0, 1], 0.75)
    assert main(["runs", "compare", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["runs", "horizon", "seeds", "steps", "success", "least", "most"]
    assert lines[2].split()[1:] == ["24", "2", "0.00", "M", "75.0%", "50.0%", "100.0%"]


def test_success_while_exploring_is_not_compared_as_if_it_were_evaluated(tmp_path: Path, capsys: Captured) -> None:
    write_run(tmp_path / "ended")
    write_run(tmp_path / "running", outcome=None, horizon=48)
    assert main(["runs", "compare", str(tmp_path)]) == 0
    header, *rows, empty, note = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["success", "least", "most"]
    assert sorted(row.split()[-3] for row in rows) == ["75.0%", "~25.0%"]
    assert (empty, note[:17]) == ("", "~ while exploring")
    assert main(["runs", "compare", str(tmp_path), "--json"]) == 0
    assert sorted(group["explored"] for group in json.loads(capsys.readouterr().out)) == [False, True]


def test_the_list_and_a_damaged_run_in_it(tmp_path: Path, capsys: Captured) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad").joinpath("config.json").write_text("{")
    assert main(["runs", "list", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == [
        *(str(tmp_path / "good"), "cartpole-swingup", "0", "ended", "0.00", "M", "75.0%")
    ]
    assert f"left out: {tmp_path / 'bad' / 'config.json'}" in printed.err
    assert main(["runs", "list", str(tmp_path / "good"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["config"]["num_envs"] == 1024


def test_a_plot_of_runs(tmp_path: Path, capsys: Captured) -> None:
    write_run(tmp_path / "$\\frac$")
    picture = tmp_path / "curves.svg"
    assert main(["runs", "plot", str(tmp_path), "--out", str(picture)]) == 0
    assert picture.read_text().startswith("<?xml")
    assert main(["runs", "plot", str(tmp_path), "--out", str(tmp_path / "curves.txt")]) == 2
    assert "must end in .png" in capsys.readouterr().err


def test_no_runs(tmp_path: Path, capsys: Captured) -> None:
    assert main(["runs", "list", str(tmp_path)]) == 2
    assert f"no runs in {tmp_path}; train one with: physai train TASK" in capsys.readouterr().err
