"""Learners of other frameworks train in a served twin as they do in one of their own process."""

from collections.abc import Generator
from typing import Any, cast

import numpy as np
import pytest
from agents.sb3_remote import RemoteVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from physai.service import RemoteVectorEnv
from physai.service.serving.process import ServiceProcess, running_service
from physai.sim.tasks.registry import load_task
from physai.train.adapters.sb3 import TaskVecEnv

TASK, WORLDS, STEPS = "cartpole-swingup", 8, 64


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


def learn(environment: VecEnv) -> dict[str, np.ndarray]:
    model = PPO("MlpPolicy", environment, n_steps=STEPS, batch_size=128, n_epochs=2, seed=0, device="cpu")
    cast("Any", model).learn(total_timesteps=3 * STEPS * WORLDS)
    return {name: value.numpy() for name, value in model.policy.state_dict().items()}


@pytest.mark.slow
def test_sb3_learns_the_same_weights_over_the_wire(service: ServiceProcess) -> None:
    here = learn(TaskVecEnv(load_task(TASK), WORLDS, num_threads=1))
    remote = RemoteVecEnv(RemoteVectorEnv(service.url, TASK, WORLDS, training=True))
    there = learn(remote)
    remote.close()
    assert here.keys() == there.keys()
    for name, values in here.items():
        assert np.array_equal(values, there[name]), name


@pytest.mark.slow
def test_what_a_service_does_not_offer(service: ServiceProcess) -> None:
    remote = RemoteVecEnv(RemoteVectorEnv(service.url, TASK, 1))
    with pytest.raises(AttributeError, match="create a session with other options"):
        remote.set_attr("seed", 1)
    with pytest.raises(AttributeError, match="cannot be called in a service"):
        remote.env_method("anything")
    assert remote.env_is_wrapped(object) == [False]
    remote.close()
