"""`physai train --teacher`: a network takes over what a policy file does, and learning goes on from there."""

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from physai.sdk.base.errors import ContractMismatchError, PhysaiError
from physai.sdk.cli.main import main
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train import preset_for, wrap
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.runners.imitation import teacher
from physai.train.runners.runner import Trainer

GAIN = torch.tensor([[3.0, 0.0, 2.0, 1.0]])
SMALL = {"num_envs": 32, "horizon": 8, "minibatches": 2, "epochs": 1, "hidden": (32, 32)}


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def spring(cartpole: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A controller that pulls the cart to the middle: smooth, so that a small network can learn it."""
    folder = tmp_path_factory.mktemp("spring")
    wrap(lambda f: -torch.cat([f["joint_pos"], f["joint_vel"]], 1) @ GAIN.T, cartpole, folder, states=50)
    return folder / "policy.onnx"


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    for name, value in {"WORLDS": 8, "SAMPLES": 4_000, "EPOCHS": 25, "CRITIC_ITERATIONS": 2}.items():
        monkeypatch.setattr(teacher, name, value)
    threads = torch.get_num_threads()
    # As `physai train` does: the matrices are small.
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_network_commands_what_its_teacher_does(brief: None, cartpole: Task, spring: Path) -> None:
    trainer = Trainer(cartpole, replace(preset_for("cartpole-swingup"), **SMALL))
    policy = OnnxPolicy.load(spring)
    learned = teacher.imitate(trainer, policy)
    assert learned.error < 0.05
    assert trainer.iteration == 2, "the critic's iterations count"
    assert trainer.learner.ppo.log_std.exp().max() <= teacher.STARTED_STD + 1e-6
    # Near the middle of the rail at moderate speeds, where the episodes are, and after the critic's iterations.
    random = np.random.default_rng(0)
    pos = np.column_stack([random.uniform(-1, 1, 200), random.uniform(2.6, 3.6, 200)]).astype(np.float32)
    vel = random.uniform(-1, 1, (200, 2)).astype(np.float32)
    sensors = {"joint_pos": pos, "joint_vel": vel, "joint_effort": np.zeros((200, 2), np.float32)}
    student = GraphPolicy(trainer.graph)
    for each in (policy, student):
        each.reset(200)
    told, done = (each(sensors, {})["joint_effort_target"] for each in (policy, student))
    assert np.abs(told).max() > 2.0
    assert np.abs(told - done).mean() < 0.5
    # It goes on learning.
    trainer.train_iteration()
    assert all(parameter.requires_grad for parameter in trainer.graph.actor.parameters())


@pytest.mark.slow
def test_increments_are_learned_from_the_last_command(brief: None, tmp_path: Path) -> None:
    """The teacher's torque follows the elbow; the network commands changes of torque."""
    task = load_task("pendubot-swingup")
    assert task.contract.action.terms[0].kind == "joint_effort_incremental"
    wrap(lambda f: 2.0 * torch.sin(f["joint_pos"][:, 1:]), task, tmp_path, states=50)
    trainer = Trainer(task, replace(preset_for("pendubot-swingup"), **SMALL, action_repeat=1))
    assert teacher.imitate(trainer, OnnxPolicy.load(tmp_path / "policy.onnx")).error < 0.1


def test_a_run_says_who_taught_it(
    brief: None, spring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--num-envs", "32", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "3"]
    run = ["train", "cartpole-swingup", "--out", str(tmp_path / "run"), *sizes]
    assert main([*run, "--teacher", str(spring), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["iterations"] == 3
    assert "imitating" in output.err
    assert "of its range" in output.err
    assert main(["runs", "list", str(tmp_path), "--json"]) == 0
    assert str(spring) in capsys.readouterr().out


@pytest.mark.parametrize("lacking", ["contract", "memory"])
def test_who_cannot_teach(lacking: str, cartpole: Task, spring: Path) -> None:
    policy, config = OnnxPolicy.load(spring), replace(preset_for("cartpole-swingup"), **SMALL)
    if lacking == "contract":
        with pytest.raises(ContractMismatchError):
            teacher.imitate(Trainer(load_task("pendubot-swingup"), config), policy)
    else:
        with pytest.raises(PhysaiError, match="train with `settings` actor=mlp"):
            teacher.imitate(Trainer(cartpole, replace(config, actor="gru")), policy)


def test_a_teacher_that_outputs_nan_is_refused(cartpole: Task, spring: Path, tmp_path: Path) -> None:
    model = onnx.load_from_string(spring.read_bytes())
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.full_like(numpy_helper.to_array(tensor), np.nan)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    (tmp_path / "nan.onnx").write_bytes(model.SerializeToString())
    trainer = Trainer(cartpole, replace(preset_for("cartpole-swingup"), **SMALL))
    with pytest.raises(PhysaiError, match="`teacher`: the policy outputs nan as joint_effort_target"):
        teacher.imitate(trainer, OnnxPolicy.load(tmp_path / "nan.onnx"))
