"""RLinf's view of served worlds: episodes that end in a chunk are cut, handed over and continued as its workers expect.

`test_frameworks.py` hands the same environment to RLinf's own worker.
"""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from agents.rlinf import ConfigError, TwinEnv

from physai.service import RemoteVectorEnv
from physai.service.serving.process import ServiceProcess, running_service

# Ten periods per action make an episode of 10 s 50 steps long; training staggers the ends of the worlds.
TASK, WORLDS, CHUNK, CHUNKS = "cartpole-swingup", 6, 4, 15
OPTIONS: dict[str, Any] = {"training": True, "action_repeat": 10}


class Config(SimpleNamespace):
    """Attributes that can also be asked for with a default, as in OmegaConf's dictionaries."""

    def get(self, name: str, default: object = None) -> object:
        return getattr(self, name, default)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


def make(service: ServiceProcess, **changes: Any) -> TwinEnv:
    params = {"id": "physai-twin", "url": service.url, "task": TASK, **OPTIONS} | changes.pop("init_params", {})
    settings = {"seed": 7, "auto_reset": True, "ignore_terminations": False, "group_size": 1} | changes
    cfg = Config(**settings, init_params={name: value for name, value in params.items() if value is not None})
    return TwinEnv(cfg, WORLDS, 2, 1, None)


def plain(service: ServiceProcess, chunks: torch.Tensor) -> list[Any]:
    """The same worlds and actions without RLinf: what each step returned."""
    environment = RemoteVectorEnv(service.url, TASK, WORLDS, seed=9, **OPTIONS)
    first, _ = environment.reset(seed=9)
    steps = [environment.step(chunk[:, i].numpy()) for chunk in chunks for i in range(CHUNK)]
    environment.close()
    return [first, *steps]


@pytest.fixture(scope="module")
def chunks() -> torch.Tensor:
    return torch.rand(CHUNKS, WORLDS, CHUNK, 1, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0


def test_chunks_hand_ended_episodes_over(service: ServiceProcess, chunks: torch.Tensor) -> None:
    first, *steps = plain(service, chunks)
    environment = make(service)
    observation, infos = environment.reset()
    assert infos == {}
    assert np.array_equal(observation["states"].numpy(), first)
    total, length, ends = np.zeros(WORLDS), np.zeros(WORLDS, int), 0
    for index, chunk in enumerate(chunks):
        observations, rewards, terminated, truncated, infos_list = environment.chunk_step(chunk)
        assert rewards.shape == terminated.shape == truncated.shape == (WORLDS, CHUNK)
        assert (rewards.dtype, terminated.dtype, truncated.dtype) == (torch.float32, torch.bool, torch.bool)
        assert len(observations) == len(infos_list) == CHUNK
        over, final = np.zeros(WORLDS, bool), np.zeros((WORLDS, first.shape[1]), np.float32)
        timed_out = np.zeros(WORLDS, bool)
        for i in range(CHUNK):
            states, reward, fell, ran_out, more = steps[index * CHUNK + i]
            assert np.array_equal(observations[i]["states"].numpy(), states)
            assert np.array_equal(rewards[:, i].numpy(), np.where(over, 0.0, reward))
            total, length = total + np.where(over, 0.0, reward), length + ~over
            for world in np.flatnonzero((fell | ran_out) & ~over):
                final[world], timed_out[world] = more["final_obs"][world], ran_out[world]
            over |= fell | ran_out
        assert not terminated[:, :-1].any()
        assert not truncated[:, :-1].any()
        assert np.array_equal((terminated | truncated)[:, -1].numpy(), over)
        assert np.array_equal(truncated[:, -1].numpy(), timed_out)
        ended = infos_list[-1]
        assert ("final_info" in ended) == over.any()
        episode = (ended["final_info"] if over.any() else ended)["episode"]
        assert np.array_equal(episode["episode_len"].numpy(), length)
        assert np.allclose(episode["return"].numpy(), total, atol=1e-5)
        if over.any():
            assert np.array_equal(ended["final_observation"]["states"].numpy()[over], final[over])
            assert np.array_equal(ended["_final_observation"].numpy(), over)
        ends += int(over.sum())
        total[over], length[over] = 0.0, 0
    environment.close()
    # 60 steps of 50 with staggered starts: every world ended at least once.
    assert ends >= WORLDS


def test_without_auto_reset_an_ended_world_stays_ended(service: ServiceProcess, chunks: torch.Tensor) -> None:
    environment = make(service, auto_reset=False)
    environment.reset()
    over, lengths = torch.zeros(WORLDS, dtype=torch.bool), torch.zeros(WORLDS)
    for chunk in chunks:
        _, rewards, terminated, truncated, infos = environment.chunk_step(chunk)
        done = terminated | truncated
        # Once a flag is set it stays so, and what follows has no reward and no length.
        assert bool((done[:, 1:] >= done[:, :-1]).all())
        assert bool(done[over].all())
        assert not rewards[over].any()
        assert torch.equal(infos[-1]["episode"]["episode_len"][over].float(), lengths[over])
        assert "final_info" not in infos[-1]
        over, lengths = done[:, -1], infos[-1]["episode"]["episode_len"].float()
    assert bool(over.all())
    environment.is_start = True
    environment.reset()
    *_, infos = environment.step(chunks[0, :, 0])
    assert infos["episode"]["episode_len"].tolist() == [1] * WORLDS
    environment.update_reset_state_ids()
    environment.close()


def test_single_steps_reset_themselves(service: ServiceProcess, chunks: torch.Tensor) -> None:
    _, *steps = plain(service, chunks)
    environment = make(service)
    environment.reset()
    ends = 0
    for actions, (states, _, fell, ran_out, _) in zip(chunks.transpose(1, 2).flatten(0, 1), steps, strict=True):
        observation, _, terminated, truncated, infos = environment.step(actions)
        assert np.array_equal(observation["states"].numpy(), states)
        assert np.array_equal(terminated.numpy(), fell)
        assert np.array_equal(truncated.numpy(), ran_out)
        assert ("final_info" in infos) == bool((fell | ran_out).any())
        ends += int((fell | ran_out).sum())
    assert ends >= WORLDS
    environment.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ignore_terminations": True}, "ignore_terminations to False"),
        ({"group_size": 2}, "group_size is 2"),
        ({"init_params": {"url": None, "task": None}}, "no task and no url"),
    ],
)
def test_what_served_worlds_cannot_do(service: ServiceProcess, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(service, **changes)


@pytest.mark.slow
def test_worlds_are_reset_together(service: ServiceProcess) -> None:
    environment = make(service)
    with pytest.raises(ConfigError, match="reset together"):
        environment.reset(env_idx=[0])
    environment.close()
