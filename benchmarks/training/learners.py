"""PPO of physai, Stable-Baselines3 and rsl_rl on the same task, with the same network, batch sizes and worlds.

The peers keep their own learning rate schedules (Stable-Baselines3 a fixed one, rsl_rl its adaptive one) and get the
same observations through our adapters. They do not normalise observations, which only makes them faster.
"""

import contextlib
import io
import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import WorkloadError
from physai.sdk.base.errors import MissingExtraError
from physai.sim.tasks.task import Task
from physai.train.adapters.core import TaskWorlds
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import Trainer
from physai.train.settings.config import TrainConfig


class Contender(Protocol):
    """A learner in the comparison."""

    def learn(self, iterations: int) -> None:
        """Runs iterations of one rollout and one update."""
        ...

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        ...

    def graph(self) -> PolicyGraph:
        """The current policy, without exploration."""
        ...

    def check(self, iterations: int) -> None:
        """Raises WorkloadError unless all iterations ran, the physics stayed finite and so did the weights."""
        ...


class Ours:
    """physai's learner."""

    def __init__(self, task: Task, config: TrainConfig, *, device: str = "cpu") -> None:
        """Builds worlds and learner."""
        self._trainer = Trainer(task, config, device=device)

    def learn(self, iterations: int) -> None:
        for _ in range(iterations):
            self._trainer.train_iteration()

    @property
    def success(self) -> float:
        return self._trainer.collector.success

    def graph(self) -> PolicyGraph:
        return self._trainer.graph

    def check(self, iterations: int) -> None:
        if self._trainer.iteration != iterations:
            raise WorkloadError(f"physai ran {self._trainer.iteration} iterations, expected {iterations}")
        if self._trainer.collector.diverged:
            raise WorkloadError(f"physai: the physics diverged in {self._trainer.collector.diverged} episodes")
        _check_finite("physai", self._trainer.learner.parameters())


class StableBaselines:
    """PPO of Stable-Baselines3."""

    def __init__(self, task: Task, config: TrainConfig) -> None:
        """Builds worlds and learner.

        Raises:
            MissingExtraError: Stable-Baselines3 is not installed.
        """
        try:
            from stable_baselines3 import PPO
            from stable_baselines3.common.logger import Logger

            from physai.train.adapters.sb3 import TaskVecEnv, graph_from_sb3
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        self._task, self._to_graph, self._config = task, graph_from_sb3, config
        env = TaskVecEnv(task, config.num_envs, **_worlds(config))
        self._worlds = env.worlds
        self._model: Any = PPO(
            "MlpPolicy",
            env,
            learning_rate=3e-4,
            n_steps=config.horizon,
            batch_size=config.num_envs * config.horizon // config.minibatches,
            n_epochs=config.epochs,
            gamma=config.gamma(task.contract.timing.control_dt),
            gae_lambda=config.gae_lambda,
            clip_range=config.clip,
            ent_coef=config.entropy_weight,
            max_grad_norm=config.max_grad_norm,
            seed=config.seed,
            device="cpu",
            policy_kwargs={
                "net_arch": {"pi": list(config.hidden), "vf": list(config.hidden)},
                "activation_fn": {"tanh": torch.nn.Tanh, "elu": torch.nn.ELU, "relu": torch.nn.ReLU}[config.activation],
                "log_std_init": math.log(config.initial_std),
            },
        )

        # Its own default makes a folder in /tmp for each learner.
        self._model.set_logger(Logger(None, []))

    def learn(self, iterations: int) -> None:
        steps = iterations * self._config.num_envs * self._config.horizon
        self._model.learn(steps, reset_num_timesteps=self._model.num_timesteps == 0)

    @property
    def success(self) -> float:
        return _share(self._worlds)

    def graph(self) -> PolicyGraph:
        return self._to_graph(self._model, self._task)

    def check(self, iterations: int) -> None:
        _check_worlds("Stable-Baselines3", self._worlds, iterations * self._config.horizon)
        _check_finite("Stable-Baselines3", self._model.policy.parameters())


class RslRl:
    """PPO of rsl_rl."""

    def __init__(self, task: Task, config: TrainConfig) -> None:
        """Builds worlds and learner.

        Raises:
            MissingExtraError: rsl_rl is not installed.
        """
        try:
            from rsl_rl.runners import OnPolicyRunner

            from physai.train.adapters.rsl_rl import TaskVecEnv, graph_from_rsl_rl
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        self._task, self._to_graph, self._config = task, graph_from_rsl_rl, config
        torch.default_generator.manual_seed(config.seed)
        env = TaskVecEnv(task, config.num_envs, **_worlds(config))
        self._worlds = env.worlds
        # The runner prints its networks.
        with contextlib.redirect_stdout(io.StringIO()):
            self._runner = OnPolicyRunner(env, _rsl_rl_settings(task, config), log_dir=None, device="cpu")

    def learn(self, iterations: int) -> None:
        self._runner.learn(iterations)

    @property
    def success(self) -> float:
        return _share(self._worlds)

    def graph(self) -> PolicyGraph:
        graph = self._to_graph(self._runner.get_inference_policy(), self._task)
        self._runner.alg.train_mode()
        return graph

    def check(self, iterations: int) -> None:
        _check_worlds("rsl_rl", self._worlds, iterations * self._config.horizon)
        _check_finite("rsl_rl", (*self._runner.alg.actor.parameters(), *self._runner.alg.critic.parameters()))


CONTENDERS: dict[str, Callable[[Task, TrainConfig], Contender]] = {
    "physai": Ours,
    "sb3": StableBaselines,
    "rsl_rl": RslRl,
}


def _rsl_rl_settings(task: Task, config: TrainConfig) -> dict[str, Any]:
    from physai.train.adapters.rsl_rl import OBS_GROUPS

    network = {"class_name": "MLPModel", "hidden_dims": list(config.hidden), "activation": config.activation}
    spread = {"class_name": "GaussianDistribution", "init_std": config.initial_std, "std_type": "log"}
    return {
        "num_steps_per_env": config.horizon,
        "save_interval": 10**9,
        "obs_groups": dict(OBS_GROUPS),
        "actor": {**network, "obs_normalization": False, "distribution_cfg": spread},
        "critic": {**network, "obs_normalization": False},
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": config.epochs,
            "num_mini_batches": config.minibatches,
            "clip_param": config.clip,
            "gamma": config.gamma(task.contract.timing.control_dt),
            "lam": config.gae_lambda,
            "value_loss_coef": config.value_weight,
            "entropy_coef": config.entropy_weight,
            "learning_rate": config.learning_rate,
            "max_grad_norm": config.max_grad_norm,
            "desired_kl": config.desired_kl,
            "rnd_cfg": None,
            "symmetry_cfg": None,
        },
    }


def _worlds(config: TrainConfig) -> dict[str, Any]:
    return {"seed": config.seed, "action_repeat": config.action_repeat, "num_threads": config.num_threads}


def _share(worlds: TaskWorlds) -> float:
    return float(np.mean(worlds.outcomes)) if worlds.outcomes else 0.0


def _check_worlds(name: str, worlds: TaskWorlds, steps: int) -> None:
    if worlds.steps_taken != steps:
        raise WorkloadError(f"{name} took {worlds.steps_taken} steps, expected {steps}")
    if worlds.environment.diverged_episodes:
        raise WorkloadError(f"{name}: the physics diverged: {worlds.environment.diverged_episodes[0]}")


def _check_finite(name: str, parameters: Iterable[Tensor]) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
        raise WorkloadError(f"{name}: a weight is not finite")


def _missing(error: ModuleNotFoundError) -> MissingExtraError:
    return MissingExtraError(
        f"this benchmark needs {error.name}, which is not installed: pip install 'physai-sdk[bench]'"
    )
