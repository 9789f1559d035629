"""`physai train TEAM`: a run folder for each robot, exported and evaluated with the usual verbs."""

import csv
import json
import shutil
import signal
import subprocess
from pathlib import Path

import av
import pytest
import torch
from tests.support.opengl import needs_opengl
from tests.support.patience import until

from physai.rlhf.finetune.finetune import FinetuneSettings, finetune
from physai.sdk.base.errors import TaskError
from physai.sdk.cli.main import main
from physai.sim import load_team
from physai.train.api.demo_drive import verb_command
from physai.train.runners.checkpoint import read_checkpoint, read_state
from physai.train.runners.reporting import CsvSink
from physai.train.runs.summary import find_runs, load_summary
from physai.train.settings.config import TrainConfig
from physai.train.teams.train import train_team

NAME = "cartpoles-tethered"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("team") / "pair"
    words = ["--iterations", "2", "--num-envs", "32", "--seed", "3", "--set", "hidden=8,8", "--out", str(path)]
    assert main(["train", NAME, *words]) == 0
    for member in ("left", "right"):
        assert main(["export", str(path / member), "--states", "50"]) == 0
    return path


@pytest.mark.slow
def test_each_robot_has_a_usual_run_folder(folder: Path) -> None:
    assert [run.name for run in find_runs(folder)] == ["left", "right"]
    for member in ("left", "right"):
        summary = load_summary(folder / member)
        assert summary.source.task == "cartpole-swingup"
        assert summary.provenance["team"] == NAME
        assert summary.provenance["member"] == member
        assert summary.config.hidden == (8, 8)
        assert summary.config.activation == "tanh"  # the team's own settings
        assert (summary.config.seed, summary.config.num_envs) == (3, 32)
        assert summary.state == "ended"
        assert len(summary.progress.reward_per_s) == 2
    first, second = ((folder / member / "export" / "policy.onnx").read_bytes() for member in ("left", "right"))
    assert first != second


@pytest.mark.slow
def test_the_folder_is_evaluated_as_a_team_and_each_robot_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["eval", str(folder), "--episodes", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["team"], found["episodes"]) == (NAME, 8)
    assert {name: member["judged"] for name, member in found["members"].items()} == {"left": 8, "right": 8}
    assert main(["eval", str(folder), "--episodes", "8", "--nominal"]) == 0
    text = capsys.readouterr().out
    assert "cartpoles-tethered: all robots succeeded in 0 of 8 episodes" in text
    assert "  right: 0 of 8 succeeded" in text
    assert not caplog.messages
    assert main(["eval", str(folder / "left"), "--episodes", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "cartpole-swingup"
    (warning,) = caplog.messages
    assert warning.endswith(
        f"learned in the team '{NAME}'; here its robot is alone, and physai eval of the team's folder plays all"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "2"], "--gpus is for one robot; cartpoles-tethered is a team"),
        (["--generators", "2"], "--generators is for one robot"),
        (["--resume", "x"], "x does not hold the runs of a team"),
        (["--init-from", "x"], "--init-from is for one robot"),
        (["--seeds", "0..2"], "--seeds is for one robot"),
        (["--model", "ur10e"], "--model is for one robot"),
        (["--engine", "warp"], "learns on the CPU with engine mujoco only"),
        (["--device", "cuda:0"], "learns on the CPU with engine mujoco only"),
        (["--deterministic"], "--deterministic is for one robot"),
        (["--set", "overlap=true"], "overlap is True, but a team learns with overlap=False only"),
        (["--set", "nothing=1"], "no training option named 'nothing'"),
        (["--time-budget-s", "-1"], "must be a positive number of seconds"),
    ],
)
def test_what_a_team_does_not_have_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", NAME, "--out", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_folders_that_hold_runs_are_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NAME, "cartpole-swingup"):
        assert main(["train", name, "--out", str(folder)]) == 2
        assert capsys.readouterr().err == (
            f"physai: error: {folder} already holds the runs of a team; continue it with --resume {folder}, or give "
            "another --out\n"
        )
    assert main(["train", NAME, "--out", str(folder / "left")]) == 2
    assert f"{folder / 'left'} already holds a run; continue it with" in capsys.readouterr().err


def test_one_robot_of_a_team_goes_on_with_it_or_begins_anew(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--resume", str(folder / "left")]) == 2
    said = capsys.readouterr().err
    assert f"continue all its robots with --resume {folder}, or this one alone in a new run with --init-from" in said
    alone = ["--iterations", "1", "--num-envs", "16", "--out", str(tmp_path / "alone")]
    assert main(["train", "cartpole-swingup", "--init-from", str(folder / "left"), *alone]) == 0


SMALL = ["--num-envs", "8", "--set", "hidden=8", "--set", "horizon=8", "--set", "stop_at_success=none"]


@pytest.mark.slow
def test_a_team_that_was_killed_continues_to_the_last_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = tmp_path / "killed"
    settings = [*SMALL, "--set", "checkpoint_every_s=1e-6"]
    words = ["train", NAME, *settings, "--iterations", "100000", "--out", str(killed)]
    with subprocess.Popen(verb_command(words, torch=True), stderr=subprocess.DEVNULL) as process:
        until(lambda: (killed / "right" / "checkpoint.pt").exists() and read_state(killed / "team.pt")["iteration"] > 0)
        process.kill()
    reached = read_state(killed / "team.pt")["iteration"]
    capsys.readouterr()
    more = ["--iterations", str(reached + 3)]
    assert main(["train", NAME, *settings, *more, "--out", str(tmp_path / "other")]) == 0
    assert main(["train", "--resume", str(killed), *more, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["iterations"] == reached + 3
    assert f"from iteration {reached}" in printed.err
    for member in ("left", "right"):
        one, other = (read_checkpoint(path / member) for path in (killed, tmp_path / "other"))
        for part in ("graph", "ppo", "critic_normaliser"):
            for name, value in one[part].items():
                assert torch.equal(value, other[part][name]), (member, part, name)
        assert len(load_summary(killed / member).progress.reward_per_s) == reached + 3


def test_a_signal_ends_a_team_which_is_then_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(sink: CsvSink, stats: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    run = str(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(CsvSink, "write", signalled)
        assert main(["train", NAME, *SMALL, "--iterations", "2", "--out", run]) == 130
    assert "stopped by a signal; continue with --resume" in capsys.readouterr().err
    for words, message in (
        (["--num-envs", "16"], "a resumed run keeps its settings; leave out --num-envs"),
        (["--set", "hidden=4"], "leave out --set hidden=4"),
        (["--gpus", "2"], "--gpus is for one robot"),
        (["cartpole-swingup"], f"holds the runs of the team {NAME}, not of cartpole-swingup"),
    ):
        assert main(["train", *words, "--resume", run]) == 2
        assert message in capsys.readouterr().err
    assert main(["train", NAME, "--resume", run]) == 0
    assert load_summary(tmp_path / "run" / "left").state == "ended"


def test_what_cannot_be_continued_says_why(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", NAME, "--resume", str(tmp_path)]) == 2
    assert f"{tmp_path} does not hold the runs of a team, and {NAME} is one" in capsys.readouterr().err
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.copytree(copy / "left", copy / "right", dirs_exist_ok=True)
    assert main(["train", "--resume", str(copy)]) == 2
    assert "is of other runs than the folders of left, right" in capsys.readouterr().err
    (copy / "team.pt").write_bytes(b"")
    assert main(["train", "--resume", str(copy)]) == 2
    assert "team.pt: damaged" in capsys.readouterr().err
    (copy / "team.pt").unlink()
    assert main(["train", "--resume", str(copy)]) == 2
    assert "has no team.pt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["export", "RUN"],
        ["policy", "quantize", "RUN"],
        ["sim", "validate", "RUN"],
        ["bundle", "pack", "RUN"],
        ["preferences", "collect", "RUN", "--out", "RUN/answers.db"],
        ["imitate", "cartpole-swingup", "--teacher", "RUN"],
        ["play", "RUN/left", "--task", "RUN"],
        ["train", "RUN"],
        ["train", "cartpole-swingup", "--init-from", "RUN"],
    ],
)
def test_verbs_for_one_robot_name_the_runs_of_a_team(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main([word.replace("RUN", str(folder)) for word in words]) == 2
    assert capsys.readouterr().err == (
        f"physai: error: {folder} holds the runs of a team, {NAME}; name the run of one robot, {folder / 'left'} or "
        f"{folder / 'right'} (physai play and eval take {folder} and play all together)\n"
    )
    assert sorted(folder.rglob("*")) == before


def test_fine_tuning_names_the_runs_of_a_team(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"name the run of one robot, {folder / 'left'} or"):
        finetune(folder, tmp_path / "answers.db", tmp_path / "tuned", settings=FinetuneSettings())


@pytest.mark.parametrize(
    "words",
    [["imitate", NAME, "--teacher", "x"], ["preferences", "train", NAME, "--simulated", "perfect"]],
)
def test_verbs_for_one_robot_say_that_a_team_is_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"{NAME} is a team of several robots: physai train {NAME} trains it" in capsys.readouterr().err


def test_torch_uses_half_of_the_processors_as_in_other_runs(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        config = TrainConfig(num_envs=8, horizon=4, minibatches=1, hidden=(4,), iterations=1, num_threads=6)
        train_team(load_team(NAME), tmp_path / "run", config)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_evaluation_says_what_is_wrong(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(folder), "--task", "cartpole-swingup"]) == 2
    assert "--task is for one robot" in capsys.readouterr().err
    assert main(["eval", str(folder), "--episodes", "0"]) == 2
    assert "--episodes" in capsys.readouterr().err
    (tmp_path / "team.json").write_bytes((folder / "team.json").read_bytes())
    (tmp_path / "left").mkdir()
    assert main(["eval", str(tmp_path)]) == 2
    assert "create one with: physai export" in capsys.readouterr().err


@needs_opengl
@pytest.mark.parametrize("trained", [True, False])
def test_a_team_is_filmed(trained: bool, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = tmp_path / "pair.mp4"
    what = [str(folder)] if trained else [NAME, "--agent", "random"]
    assert main(["play", *what, "--video", str(film), "--duration-s", "0.4", "--width", "64", "--json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert (played["team"], [*played["members"]]) == (NAME, ["left", "right"])
    assert played["played_by"] == (str(folder) if trained else "random")
    assert played["members"]["left"]["fingerprint"] == load_team(NAME).members["left"].contract.fingerprint
    with av.open(str(film)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 10
    assert main(["play", *what, "--video", str(film), "--duration-s", "0.1", "--width", "64"]) == 0
    assert f"{NAME}, {played['played_by']}: stopped before the first success check" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--record", "a.mcap"],
            "--record is for one robot, and PAIR is a team; omit it, or name the run of one robot",
        ),
        (["--model", "ur10e"], "--model is for one robot, and PAIR is a team"),
        (["--agent", "zero"], "--agent is for one robot, and PAIR is a team"),
        (["--preset", "position"], "--preset is for one robot, and PAIR is a team"),
    ],
)
def test_playing_a_team_refuses_what_is_of_one_robot(
    options: list[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(folder), *options, "--video", str(tmp_path / "pair.mp4")]) == 2
    assert message.replace("PAIR", str(folder)) in capsys.readouterr().err
    assert main(["play", NAME, "--agent", "sleep", "--video", str(tmp_path / "pair.mp4")]) == 2
    assert "no agent named 'sleep'" in capsys.readouterr().err


def test_the_settings_of_a_team_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", NAME, "--set", "help"]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["num_envs"]]
    assert row[1:3] == ["512", str(TrainConfig().num_envs)]


@pytest.mark.exhaustive
def test_both_learn_to_balance_with_the_settings_of_the_team(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", NAME, "--seed", "0", "--out", str(tmp_path / "pair")]) == 0
    for member in ("left", "right"):
        assert main(["export", str(tmp_path / "pair" / member)]) == 0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "pair"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["success"] > 0.93


def test_a_team_keeps_to_its_time_budget_over_several_sessions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    seconds = load_summary(run / "left").progress.seconds[-1]
    # What a kill left: rows of one robot of iterations that no checkpoint has.
    log = run / "right" / "progress.csv"
    rows = list(csv.DictReader(log.read_text().splitlines()))
    lost = {**rows[-1], "iteration": "9", "seconds": repr(seconds + 5.0)}
    log.write_text(log.read_text() + ",".join(lost.values()) + "\n")
    for _ in range(2):
        words = ["--iterations", "9", "--time-budget-s", repr(seconds + 5.0), "--json"]
        assert main(["train", "--resume", str(run), *words]) == 0
        outcome = json.loads(capsys.readouterr().out)
        assert outcome["iterations"] == len(load_summary(folder / "left").progress.seconds)
        assert outcome["seconds"] == pytest.approx(seconds + 5.0)
        assert outcome["reason"].endswith("of training before this session count, so give more")


def test_a_team_that_was_killed_before_its_first_checkpoint_begins_anew(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    for path in ("team.pt", "left/checkpoint.pt", "right/checkpoint.pt"):
        (run / path).unlink()
    assert main(["train", "--resume", str(run)]) == 2
    assert f"has no team.pt; the run ended before the first one was saved; start it again with --out {run}" in (
        capsys.readouterr().err
    )
    assert main(["train", NAME, *SMALL, "--iterations", "1", "--out", str(run)]) == 0
    assert load_summary(run / "left").state == "ended"
