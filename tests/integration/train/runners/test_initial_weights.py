"""`--init-from`: what is taken over, and from which runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from physai.rlhf.answers.motion_features import with_seen
from physai.sdk.base.errors import CheckpointError, ContractMismatchError
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task, WorldView
from physai.train.runners.checkpoint import read_checkpoint, save_checkpoint
from physai.train.runners.initial_weights import load_initial_weights, require_same_network
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource, save_config
from physai.train.settings.config import TrainConfig

CONFIG = TrainConfig(num_envs=8, horizon=4, epochs=2, minibatches=2, hidden=(8, 8), num_threads=1)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def run(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    trainer = Trainer(task, CONFIG)
    for _ in range(2):
        trainer.train_iteration()
    save_config(folder, RunTaskSource(task="cartpole-swingup"), CONFIG, task.contract)
    save_checkpoint(trainer, folder)
    return folder


def changed(task: Task, path: str, value: Any) -> Task:
    """The task with another value at a path of its contract."""
    part, _, name = path.partition(".")
    inner = getattr(task.contract, part).model_copy(update={name: value})
    return replace(task, contract=task.contract.model_copy(update={part: inner}))


def test_weights_statistics_and_noise_are_taken_over_and_nothing_else(task: Task, run: Path) -> None:
    trainer = Trainer(task, replace(CONFIG, seed=5, learning_rate=2e-4))
    load_initial_weights(trainer, run)
    saved = read_checkpoint(run)
    for own, before in (
        (trainer.graph.state_dict(), saved["graph"]),
        (trainer.learner.ppo.state_dict(), saved["ppo"]),
        (trainer.learner.critic_normaliser.state_dict(), saved["critic_normaliser"]),
    ):
        assert all(torch.equal(own[name], before[name]) for name in before)
    assert (trainer.iteration, trainer.env_steps, trainer.learner.ppo.learning_rate) == (0, 0, pytest.approx(2e-4))
    assert trainer.train_iteration().iteration == 1


def test_a_critic_that_lacks_what_people_see_values_states_as_before(task: Task, run: Path) -> None:
    seen = with_seen(task)
    trainer = Trainer(seen, CONFIG)
    assert load_initial_weights(trainer, run) == len(seen.seen) > 0
    before = Trainer(task, CONFIG)
    assert load_initial_weights(before, run) == 0
    states = torch.randn(50, seen.critic_size)
    with torch.no_grad():
        values = trainer.learner.value(states), before.learner.value(states[:, : task.critic_size])
    torch.testing.assert_close(*values)


def test_a_critic_of_another_size_begins_anew(task: Task, run: Path) -> None:
    def critic(view: WorldView) -> Any:
        return view.xp.concat([task.critic(view), view.joint_pos], axis=1)

    trainer = Trainer(replace(task, critic=critic, critic_size=7), CONFIG)
    load_initial_weights(trainer, run)
    name = "actor.layers.0.weight"
    assert torch.equal(trainer.graph.state_dict()[name], read_checkpoint(run)["graph"][name])
    assert float(trainer.learner.critic_normaliser.count) == 0.0
    trainer.train_iteration()


def test_other_limits_and_masses_are_what_fine_tuning_is_for(task: Task, run: Path) -> None:
    load_initial_weights(Trainer(changed(task, "safety.parity_tolerance", 0.4), CONFIG), run)


def test_other_observations_are_refused(task: Task, run: Path) -> None:
    terms = list(task.contract.observation.terms)
    terms[-1] = terms[-1].model_copy(update={"scale": 0.3})
    trainer = Trainer(changed(task, "observation.terms", tuple(terms)), CONFIG)
    with pytest.raises(ContractMismatchError, match=r"for other observations or actions:\n.*joint_vel.*scale"):
        load_initial_weights(trainer, run)
    other = Trainer(load_task("pendubot-swingup"), CONFIG)
    with pytest.raises(ContractMismatchError, match="for other observations or actions"):
        load_initial_weights(other, run)


def test_another_network_is_refused(run: Path) -> None:
    require_same_network(replace(CONFIG, learning_rate=1e-4), run)
    with pytest.raises(CheckpointError, match=r"hidden is \(16,\), but .* was trained with \(8, 8\); leave hidden out"):
        require_same_network(replace(CONFIG, hidden=(16,)), run)


def test_weights_that_are_not_finite_are_refused(task: Task, run: Path, tmp_path: Path) -> None:
    state = read_checkpoint(run)
    state["ppo"]["log_std"] = torch.full_like(state["ppo"]["log_std"], torch.nan)
    torch.save(state, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="log_std is not finite"):
        load_initial_weights(Trainer(task, CONFIG), tmp_path)


def test_a_run_without_a_checkpoint_is_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no checkpoint\.pt"):
        load_initial_weights(Trainer(task, CONFIG), tmp_path)
