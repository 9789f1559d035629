"""Adapters: what a foreign learner sees, when its episodes end, and its policy as a graph."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from physai.sdk.base.errors import ExportError
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, Task
from physai.train.adapters.core import ActionError, TaskWorlds, graph_from_network
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import Trainer
from physai.train.settings.config import ConfigError, TrainConfig

WORLDS = 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def short(cartpole: Task) -> Task:
    """Cartpole in episodes of 5 steps of 0.02 s that nothing but time ends."""
    return replace(cartpole, episode_length_s=0.1, terminations={}, push=None)


def actions_of(worlds: TaskWorlds, steps: int) -> np.ndarray[Any, Any]:
    shape = (steps, worlds.num_worlds, worlds.actions)
    return np.random.default_rng(7).uniform(-1.0, 1.0, shape).astype(np.float32)


def last_step(env: Any, actions: Any) -> Any:
    """What the last of several steps returns."""
    answer: Any = None
    for action in actions:
        answer = env.step(action)
    return answer


@pytest.mark.parametrize("name", ["pendubot-swingup", "ur10e-reach"])
def test_a_foreign_learner_sees_what_ours_sees(name: str) -> None:
    """Our own collector and the adapter, same seed and actions: equal observations, rewards and ends, bit for bit."""
    task = replace(load_task(name), episode_length_s=0.5)
    config = TrainConfig(num_envs=WORLDS, horizon=20, minibatches=1, action_repeat=2, hidden=(8,), seed=3)
    trainer = Trainer(task, config)
    rollout = trainer.collector.collect(trainer.new_rollout())
    worlds = TaskWorlds(task, WORLDS, seed=3, action_repeat=2, num_threads=1)
    observation, critic = worlds.reset()
    ends = 0
    for t in range(config.horizon):
        np.testing.assert_array_equal(observation, rollout.raw_observation[t].numpy())
        np.testing.assert_array_equal(critic, rollout.raw_critic[t].numpy())
        step = worlds.step(rollout.action[t])
        observation, critic = step.observation, step.critic
        np.testing.assert_array_equal(step.reward, rollout.reward[t].numpy())
        np.testing.assert_array_equal(step.terminated | step.truncated, rollout.done[t].numpy() > 0.5)
        ends += int((step.terminated | step.truncated).sum())
    assert ends > 0, "the comparison shall cover resets"


@pytest.mark.parametrize("delay_s", [0.0, 0.04])
def test_the_last_observation_is_what_an_unending_episode_shows(short: Task, delay_s: float) -> None:
    """The same worlds in a longer episode are the reference for what came right after the time ran out."""
    short = replace(short, sensor_delay=Delay(lower_s=0.0, upper_s=delay_s))
    ending = TaskWorlds(short, WORLDS, seed=1, training=False)
    endless = TaskWorlds(replace(short, episode_length_s=10.0), WORLDS, seed=1, training=False)
    first = ending.reset()[0]
    np.testing.assert_array_equal(first, endless.reset()[0])
    actions = actions_of(ending, 5)
    for action in actions[:-1]:
        assert ending.step(action).ended is None
        endless.step(action)
    step, reference = ending.step(actions[-1]), endless.step(actions[-1])
    assert step.ended is not None
    assert step.truncated.all()
    assert step.ended.timed_out.all()
    np.testing.assert_array_equal(step.ended.observation, reference.observation)
    np.testing.assert_array_equal(step.ended.critic, reference.critic)
    assert not np.array_equal(step.observation, reference.observation), "the next episode has begun"


def test_a_failure_is_no_time_out(cartpole: Task) -> None:
    """A full push to one side drives the cart off its rail long before 10 s are over."""
    worlds = TaskWorlds(cartpole, 2, training=False)
    worlds.reset()
    step, steps = worlds.step(np.ones((2, 1))), 1
    while step.ended is None and steps < 200:
        step, steps = worlds.step(np.ones((2, 1))), steps + 1
    assert step.ended is not None
    assert not step.ended.timed_out.any()
    assert step.terminated[step.ended.worlds].all()
    assert (step.ended.lengths == steps).all()
    assert list(worlds.outcomes) == [False] * len(step.ended.worlds)


def test_returns_and_lengths_start_again(short: Task) -> None:
    worlds = TaskWorlds(short, WORLDS, training=False)
    worlds.reset()
    total = np.zeros(WORLDS)
    for index, action in enumerate(actions_of(worlds, 10), start=1):
        step = worlds.step(action)
        total += step.reward
        if index % 5 == 0:
            assert step.ended is not None
            np.testing.assert_allclose(step.ended.returns, total)
            assert step.ended.lengths.tolist() == [5] * WORLDS
            total[:] = 0.0
    assert worlds.steps_taken == 10


def test_a_seed_fixes_everything(cartpole: Task) -> None:
    worlds = TaskWorlds(cartpole, WORLDS)
    actions = actions_of(worlds, 5)
    runs: list[list[np.ndarray[Any, Any]]] = []
    for seed in (5, 6, 5):
        first = worlds.reset(seed)[0]
        runs.append([first, *(worlds.step(action).observation for action in actions)])
    for one, other, again in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, again)
        assert not np.array_equal(one, other)


def test_bad_actions_are_refused(cartpole: Task) -> None:
    worlds = TaskWorlds(cartpole, 2)
    with pytest.raises(ActionError, match="reset before"):
        worlds.step(np.zeros((2, 1)))
    worlds.reset()
    with pytest.raises(ActionError, match=r"shape \(2,\), expected \(2, 1\)"):
        worlds.step(np.zeros(2))
    with pytest.raises(ActionError, match="world 1"):
        worlds.step(np.array([[0.0], [math.nan]]))


def test_repeated_actions_and_histories_do_not_mix(cartpole: Task) -> None:
    terms = [term.model_copy(update={"history": 2}) for term in cartpole.contract.observation.terms]
    observation = cartpole.contract.observation.model_copy(update={"terms": tuple(terms)})
    remembering = replace(cartpole, contract=cartpole.contract.model_copy(update={"observation": observation}))
    assert TaskWorlds(remembering, 2).observations == 10
    with pytest.raises(ConfigError, match="needs action_repeat 1"):
        TaskWorlds(remembering, 2, action_repeat=2)


def test_a_network_that_does_not_fit_is_refused(cartpole: Task) -> None:
    with pytest.raises(ExportError, match="5 observations"):
        graph_from_network(nn.Linear(4, 1), cartpole)
    with pytest.raises(ExportError, match=r"\(2, 3\)"):
        graph_from_network(nn.Linear(5, 3), cartpole)


def assert_graph_answers(graph: PolicyGraph, task: Task, predict: Any) -> None:
    """Along a trajectory the graph commands what the library's own deterministic action becomes in the contract."""
    env = Environment(task, WORLDS, seed=2)
    reference = PolicyGraph(task.contract, nn.Identity())
    policy = GraphPolicy(graph)
    policy.reset(WORLDS)
    now = env.reset()
    spread = 0.0
    for _ in range(30):
        sensors = {name: torch.as_tensor(value) for name, value in now.sensors.items()}
        commands = {name: torch.as_tensor(value) for name, value in now.commands.items()}
        observation = reference.observe(sensors, commands, policy.state)[0]
        expected = reference.command(torch.as_tensor(predict(observation.numpy())), sensors, policy.state)[0]
        answer = policy(now.sensors, now.commands)
        for name, target in expected.items():
            np.testing.assert_allclose(answer[name], target.numpy(), rtol=1e-5, atol=1e-6)
            spread = max(spread, float(np.ptp(answer[name])))
        now = env.step(answer)
    assert spread > 0.0, "a constant policy would prove nothing"


class TestGymnasium:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra bench)")

    @pytest.mark.filterwarnings("ignore:.*Box observation space")
    def test_its_own_checker_is_content(self, cartpole: Task) -> None:
        from gymnasium.utils.env_checker import check_env

        from physai.train.adapters.gymnasium import TaskEnv

        check_env(TaskEnv(cartpole), skip_render_check=True)

    def test_one_world_ends_with_its_last_observation(self, short: Task) -> None:
        from physai.train.adapters.gymnasium import TaskEnv

        env, endless = TaskEnv(short, training=False), TaskEnv(replace(short, episode_length_s=9.0), training=False)
        env.reset(seed=4)
        endless.reset(seed=4)
        pushes = [np.array([0.5], np.float32)] * 5
        seen, reference = last_step(env, pushes), last_step(endless, pushes)
        np.testing.assert_array_equal(seen[0], reference[0])
        assert seen[2:4] == (False, True)
        assert seen[4]["is_success"] is False

    def test_infos_follow_the_same_step_convention(self, short: Task) -> None:
        from gymnasium.wrappers.vector import RecordEpisodeStatistics

        from physai.train.adapters.gymnasium import TaskVectorEnv

        plain: Any = TaskVectorEnv(short, WORLDS, training=False)
        twin = TaskVectorEnv(short, WORLDS, training=False)
        env: Any = RecordEpisodeStatistics(plain)
        observation = env.reset(seed=1)[0]
        assert plain.observation_space.contains(observation)
        actions = actions_of(plain.worlds, 5)
        observation, _, terminated, truncated, infos = last_step(env, actions)
        assert plain.observation_space.contains(observation)
        twin.reset(seed=1)
        total = sum(twin.step(action)[1] for action in actions)
        assert truncated.all()
        assert not terminated.any()
        assert infos["_final_obs"].all()
        assert infos["_final_info"].all()
        final: Any = np.stack(list(infos["final_obs"]))
        assert final.shape == observation.shape
        assert not np.array_equal(final, observation)
        assert infos["final_info"]["critic"].shape == (WORLDS, short.critic_size)
        np.testing.assert_allclose(infos["episode"]["r"], total, rtol=1e-5)
        assert infos["episode"]["l"].tolist() == [5] * WORLDS

    def test_partial_resets_are_refused(self, short: Task) -> None:
        from physai.train.adapters.gymnasium import TaskVectorEnv

        with pytest.raises(ValueError, match="reset in the same step"):
            TaskVectorEnv(short, 2).reset(options={"reset_mask": np.array([True, False])})


class TestStableBaselines:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (extra bench)")

    @pytest.mark.filterwarnings("ignore:.*Box observation space")
    def test_its_own_checker_is_content(self, cartpole: Task) -> None:
        from stable_baselines3.common.env_checker import check_env

        from physai.train.adapters.gymnasium import TaskEnv

        check_env(TaskEnv(cartpole))

    def test_ends_come_with_what_bootstrapping_needs(self, short: Task) -> None:
        from stable_baselines3.common.vec_env import VecCheckNan

        from physai.train.adapters.sb3 import TaskVecEnv

        env: Any = VecCheckNan(TaskVecEnv(short, WORLDS, training=False), raise_exception=True)
        endless: Any = TaskVecEnv(replace(short, episode_length_s=9.0), WORLDS, training=False)
        env.seed(1)
        endless.seed(1)
        np.testing.assert_array_equal(env.reset(), endless.reset())
        actions = actions_of(endless.worlds, 5)
        _, _, done, infos = last_step(env, actions)
        reference = last_step(endless, actions)[0]
        assert done.all()
        for world, info in enumerate(infos):
            assert info["TimeLimit.truncated"] is True
            assert info["is_success"] is False
            assert info["episode"]["l"] == 5
            np.testing.assert_array_equal(info["terminal_observation"], reference[world])

    def test_worlds_share_their_attributes(self, short: Task) -> None:
        from physai.train.adapters.sb3 import TaskVecEnv

        env = TaskVecEnv(short, 3)
        assert env.get_attr("num_envs") == [3, 3, 3]
        assert env.get_attr("num_envs", indices=[0, 2]) == [3, 3]
        env.set_attr("label", "x")
        assert env.get_attr("label", indices=1) == ["x"]
        with pytest.raises(ValueError, match="all of them"):
            env.set_attr("label", "y", indices=[0])

    @pytest.mark.parametrize("kind", ["PPO", "PPO with gSDE", "SAC", "TD3"])
    def test_the_graph_answers_as_its_predict(self, cartpole: Task, kind: str) -> None:
        import stable_baselines3
        from stable_baselines3.common.vec_env import VecNormalize

        from physai.train.adapters.sb3 import TaskVecEnv, graph_from_sb3

        env = VecNormalize(TaskVecEnv(cartpole, WORLDS))
        amount: dict[str, Any] = {"learning_starts": 10, "batch_size": 16}
        if kind.startswith("PPO"):
            amount = {"n_steps": 32, "batch_size": 64, "use_sde": kind != "PPO"}
        policy = {"net_arch": [16]}
        model: Any = getattr(stable_baselines3, kind[:3])("MlpPolicy", env, policy_kwargs=policy, seed=0, **amount)
        model.learn(200)
        env.training = False

        def predict(observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return model.predict(env.normalize_obs(observation), deterministic=True)[0]

        assert_graph_answers(graph_from_sb3(model, cartpole), cartpole, predict)

    def test_a_model_of_another_task_is_refused(self, cartpole: Task) -> None:
        from stable_baselines3 import PPO

        from physai.train.adapters.sb3 import TaskVecEnv, graph_from_sb3

        model = PPO("MlpPolicy", TaskVecEnv(load_task("pendubot-swingup"), 2), n_steps=4, batch_size=8)
        with pytest.raises(ExportError, match="cartpole-swingup has 5 observations"):
            graph_from_sb3(model, cartpole)


class TestRslRl:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("rsl_rl", reason="rsl_rl is not installed (extra bench)")

    def runner(self, task: Task, actor_groups: list[str]) -> Any:
        from rsl_rl.runners import OnPolicyRunner

        from physai.train.adapters.rsl_rl import TaskVecEnv

        network = {"class_name": "MLPModel", "hidden_dims": [16], "activation": "elu", "obs_normalization": True}
        spread = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
        settings: dict[str, Any] = {
            "num_steps_per_env": 32,
            "save_interval": 1000,
            "obs_groups": {"actor": actor_groups, "critic": ["critic"]},
            "actor": {**network, "distribution_cfg": spread},
            "critic": dict(network),
            "algorithm": {"class_name": "PPO", "rnd_cfg": None, "symmetry_cfg": None},
        }
        return OnPolicyRunner(TaskVecEnv(task, WORLDS), settings, log_dir=None, device="cpu")

    def test_groups_time_outs_and_log(self, short: Task) -> None:
        from physai.train.adapters.rsl_rl import TaskVecEnv

        env = TaskVecEnv(short, WORLDS, training=False)
        assert env.max_episode_length == 5
        assert env.get_observations()["policy"].shape == (WORLDS, 5)
        assert env.get_observations()["critic"].shape == (WORLDS, short.critic_size)
        _, reward, done, extras = last_step(env, [torch.zeros(WORLDS, 1)] * 5)
        assert reward.shape == (WORLDS,)
        assert done.tolist() == [1] * WORLDS
        assert extras["time_outs"].tolist() == [True] * WORLDS
        assert extras["log"] == {"/success": 0.0}

    def test_episode_ends_can_be_moved(self, short: Task) -> None:
        from physai.train.adapters.rsl_rl import TaskVecEnv

        env = TaskVecEnv(short, WORLDS, training=False)
        env.episode_length_buf = torch.tensor([4, 0, 4, 0])
        done = env.step(torch.zeros(WORLDS, 1))[2]
        assert torch.equal(done, torch.tensor([1, 0, 1, 0]))
        assert torch.equal(env.episode_length_buf, torch.tensor([0, 1, 0, 1]))

    @pytest.mark.slow
    def test_the_graph_answers_as_its_actor_and_exports(self, cartpole: Task, tmp_path: Path) -> None:
        """Training in inference mode must leave worlds that can be stepped outside of it, too."""
        from tensordict import TensorDict

        from physai.train.adapters.rsl_rl import graph_from_rsl_rl
        from physai.train.onnx_export.export import export_policy

        runner = self.runner(cartpole, ["policy"])
        runner.learn(2, init_at_random_ep_len=True)
        runner.env.step(torch.zeros(WORLDS, 1))
        actor = runner.get_inference_policy()

        def predict(observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            groups = TensorDict({"policy": torch.as_tensor(observation)}, batch_size=[len(observation)])
            return actor(groups).detach().numpy()

        graph = graph_from_rsl_rl(actor, cartpole)
        assert_graph_answers(graph, cartpole, predict)
        report = export_policy(graph, cartpole, tmp_path, provenance={"learner": "rsl_rl"}, states=50)
        assert report.fingerprint == cartpole.contract.fingerprint

    def test_an_actor_that_sees_the_truth_is_refused(self, cartpole: Task) -> None:
        from physai.train.adapters.rsl_rl import graph_from_rsl_rl

        runner = self.runner(cartpole, ["policy", "critic"])
        with pytest.raises(ExportError, match="only 'policy' is available"):
            graph_from_rsl_rl(runner.get_inference_policy(), cartpole)
