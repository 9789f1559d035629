"""`physai imitate`: a policy from recordings, or from another policy that corrects it."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from physai.sdk.cli.main import main
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_policy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train import wrap
from physai.train.runners.imitation.demonstrations import from_logs
from physai.train.runners.runner import Trainer
from physai.train.settings.presets import preset_for
from physai.twin.logs.reader import read_logs

GAIN = torch.tensor([[3.0, 0.0, 2.0, 1.0]])
COLUMNS = """\
robot: cartpole
time: time
command_kind: joint_effort
joints:
  slider: {joint_pos: pos_0, joint_vel: vel_0, command: command_0}
  pole: {joint_pos: pos_1, joint_vel: vel_1}
"""


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def spring(cartpole: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A controller that pulls the cart to the middle."""
    folder = tmp_path_factory.mktemp("spring")
    wrap(lambda f: -torch.cat([f["joint_pos"], f["joint_vel"]], 1) @ GAIN.T, cartpole, folder, states=50)
    return folder / "policy.onnx"


def record(task: Task, policy: OnnxPolicy, folder: Path, *, recordings: int, periods: int) -> list[str]:
    """What a robot's recorder would write: what was measured, and the command that answered it."""
    env = Environment(task, recordings, seed=3, training=True)
    rows: list[list[list[float]]] = [[] for _ in range(recordings)]
    now, going = env.reset(), np.ones(recordings, bool)
    policy.reset(recordings)
    for period in range(periods):
        told = policy(now.sensors, now.commands)["joint_effort_target"]
        for world in np.flatnonzero(going):
            measured = [*now.sensors["joint_pos"][world], *now.sensors["joint_vel"][world]]
            rows[world].append([period * task.contract.timing.control_dt, *measured, told[world, 0]])
        now = env.step({"joint_effort_target": told})
        going &= ~now.done
    for world, written in enumerate(rows):
        with (folder / f"log{world}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["time", "pos_0", "pos_1", "vel_0", "vel_1", "command_0"], *written])
    (folder / "columns.yaml").write_text(COLUMNS)
    return [str(folder / f"log{world}.csv") for world in range(recordings)]


@pytest.fixture(scope="module")
def recorded(cartpole: Task, spring: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return record(cartpole, OnnxPolicy.load(spring), tmp_path_factory.mktemp("logs"), recordings=24, periods=250)


def test_a_recording_is_what_the_policy_saw_and_answered(cartpole: Task, recorded: list[str], spring: Path) -> None:
    graph = Trainer(cartpole, preset_for("cartpole-swingup")).graph
    logs = read_logs(recorded[:2], cartpole.robot.spec)
    pairs = from_logs(graph, logs)
    count = len(logs[0].time)
    assert pairs.observations.shape == (sum(len(log.time) for log in logs), graph.observation.size)
    assert pairs.clipped == 0.0
    # The graph's own answer to a period's sensors is the recorded command.
    (term,) = cartpole.contract.action.terms
    told = pairs.actions * torch.tensor(term.scale) + torch.tensor(term.offset)
    # One recording after another: what is held out in blocks is a stretch of a recording, however many there are.
    np.testing.assert_allclose(told[:, 0], np.concatenate([log.command[:, 0] for log in logs]), atol=1e-5)
    # cartpole sees sine and cosine of the pole's angle, among others.
    assert any(
        np.allclose(pairs.observations[:count, column], np.sin(logs[0].joint_pos[:count, 1]), atol=1e-5)
        for column in range(pairs.observations.shape[1])
    )


@pytest.mark.slow
def test_a_network_answers_as_recorded(
    cartpole: Task, spring: Path, recorded: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert (
        main(["imitate", "cartpole-swingup", "--from", *recorded, "--out", str(run), "--json", "--set", "hidden=32,32"])
        == 0
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    whole = sum(len(Path(file).read_text().splitlines()) - 1 for file in recorded)
    assert found["samples"] == pytest.approx(0.9 * whole, abs=50)
    assert found["held_out_error"] < 0.05
    assert found["clipped"] == 0.0
    assert main(["export", str(run)]) == 0
    capsys.readouterr()
    # On the states of another recording, which neither of them made.
    random = np.random.default_rng(0)
    pos = np.column_stack([random.uniform(-0.5, 0.5, 200), random.uniform(2.8, 3.4, 200)]).astype(np.float32)
    vel = random.uniform(-0.5, 0.5, (200, 2)).astype(np.float32)
    sensors = {"joint_pos": pos, "joint_vel": vel, "joint_effort": np.zeros((200, 2), np.float32)}
    told, done = (OnnxPolicy.load(find_policy(path)) for path in (spring, run))
    for policy in (told, done):
        policy.reset(200)
    expected, answered = (policy(sensors, {})["joint_effort_target"] for policy in (told, done))
    assert np.abs(expected).max() > 1.0
    assert np.abs(expected - answered).mean() < 0.3
    provenance = json.loads((run / "config.json").read_text())["provenance"]
    assert len(provenance["demonstrations"]) == 64


@pytest.mark.slow
def test_corrections_reach_states_that_the_teacher_avoids(cartpole: Task, spring: Path, tmp_path: Path) -> None:
    """With as many epochs on its own states the network differs less from its teacher there."""
    from physai.train.runners.imitation import teacher

    policy = OnnxPolicy.load(spring)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"WORLDS": 8, "SAMPLES": 3000, "EPOCHS": 15}.items():
            patch.setattr(teacher, name, value)
        learned = teacher.imitate(Trainer(cartpole, preset_for("cartpole-swingup")), policy, rounds=2, critic=False)
    # Two kinds of start, then two rounds, each of at least 3,000 samples in whole episodes.
    assert learned.samples >= 4 * 3000
    assert learned.error < 0.1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give either --from FILE"),
        (["--from", "a.csv", "--teacher", "x"], "give either --from FILE"),
        (["--from", "a.csv", "--rounds", "2"], "--rounds needs --teacher"),
        (["--teacher", "x", "--rounds", "21"], "--rounds must lie in [0, 20], got 21"),
        (["--from", "missing.csv"], "missing.csv"),
    ],
)
def test_what_cannot_be_imitated(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["imitate", "cartpole-swingup", *words, "--out", str(out)]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def test_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["imitate", "cartpole-swingup", "--set", "help", "--set", "hidden=8"]) == 0
    listed = capsys.readouterr().out
    assert main(["train", "cartpole-swingup", "--set", "help", "--set", "hidden=8"]) == 0
    assert capsys.readouterr().out == listed
    assert "hidden                 8 " in listed


def test_recordings_that_do_not_fit(
    cartpole: Task, recorded: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Path(recorded[0]).read_text().splitlines()
    (tmp_path / "columns.yaml").write_text(COLUMNS)
    (tmp_path / "gap.csv").write_text("\n".join([*rows[:50], *rows[90:]]))
    imitate = ["imitate", "cartpole-swingup", "--out", str(tmp_path / "run")]
    assert main([*imitate, "--from", str(tmp_path / "gap.csv")]) == 2
    assert "no sample for" in capsys.readouterr().err
    (tmp_path / "columns.yaml").write_text(COLUMNS.replace("joint_effort\n", "joint_pos\n", 1))
    (tmp_path / "log.csv").write_text("\n".join(rows))
    assert main([*imitate, "--from", str(tmp_path / "log.csv")]) == 2
    assert "its commands are joint_pos, the policy's are joint_effort" in capsys.readouterr().err
    assert main(["imitate", "ur10e-reach", "--from", recorded[0], "--out", str(tmp_path / "run")]) == 2
    assert main([*imitate, "--from", recorded[0], "--set", "actor=gru"]) == 2
    assert "a network with a memory cannot imitate single states" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
