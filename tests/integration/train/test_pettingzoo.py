"""A team under PettingZoo's own tests, and what an agent sees and does there."""

import math

import numpy as np
import pytest

from physai.sim.teams.cartpoles import tethered_cartpoles
from physai.train.adapters.core import ActionError, Floats
from physai.train.adapters.gymnasium import TaskEnv

pettingzoo_test = pytest.importorskip("pettingzoo.test", reason="needs PettingZoo: pip install 'physai-sdk[bench]'")

from physai.train.adapters.pettingzoo import TeamParallelEnv  # noqa: E402

TEAM = tethered_cartpoles()
APART = tethered_cartpoles(math.inf)


@pytest.mark.filterwarnings("error")
def test_pettingzoo_finds_nothing_wrong_with_it() -> None:
    # Two episodes of ten seconds at most, and the start of a third.
    pettingzoo_test.parallel_api_test(TeamParallelEnv(TEAM), num_cycles=1100)


@pytest.mark.filterwarnings("error")
def test_a_seed_decides_all_that_follows() -> None:
    pettingzoo_test.parallel_seed_test(lambda: TeamParallelEnv(TEAM))
    first = [TeamParallelEnv(TEAM).reset(seed=seed)[0]["left"] for seed in (7, 7, 8)]
    assert np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])


def episode(env: TeamParallelEnv, actions: np.random.Generator) -> list[tuple[dict[str, Floats], dict[str, float]]]:
    observations, _ = env.reset(seed=1)
    steps = [(observations, dict.fromkeys(env.agents, 0.0))]
    while env.agents:
        acts = {agent: actions.uniform(-1.0, 1.0, 1).astype(np.float32) for agent in env.agents}
        observations, rewards, terminated, truncated, infos = env.step(acts)
        steps.append((observations, rewards))
        assert terminated["left"] == terminated["right"]
        assert truncated["left"] == truncated["right"]
        ended = terminated["left"] or truncated["left"]
        assert (env.agents == []) == ended
        assert ("is_success" in infos["right"]) == ended
        own = np.concatenate([infos[agent]["critic"] for agent in env.possible_agents])
        assert np.array_equal(env.state(), own)
    return steps


def test_an_agent_that_nothing_ties_sees_what_it_sees_alone() -> None:
    """The same observations, rewards and end as of the gymnasium environment, with the seeds of the member."""
    env = TeamParallelEnv(APART, randomise=False, training=False)
    alone = TaskEnv(APART.members["left"], randomise=False, training=False)
    observations, infos = env.reset(seed=1)
    observation, info = alone.reset(seed=env.environment.members["left"].seed)
    assert np.array_equal(observations["left"], observation)
    still = np.zeros(1, np.float32)
    cut = False
    for step in range(500):
        # To and fro, to stay on the rail.
        push = still + 0.3 * math.cos(0.5 * math.pi * step)
        observations, rewards, _, truncated, infos = env.step({"left": push, "right": still})
        observation, reward, _, cut, info = alone.step(push)
        assert np.array_equal(observations["left"], observation)
        assert rewards["left"] == reward
        assert truncated["left"] == cut
        assert np.array_equal(infos["left"]["critic"], info["critic"])
    assert cut
    assert infos["left"]["is_success"] == info["is_success"] is False


def test_episodes_follow_each_other() -> None:
    env = TeamParallelEnv(TEAM)
    for seed in range(2):
        steps = episode(env, np.random.default_rng(seed))
        assert 1 < len(steps) <= 501
    with pytest.raises(ActionError, match="call reset before the first step, and after an episode's end"):
        env.step({})


def test_wrong_actions_change_nothing() -> None:
    env, same = TeamParallelEnv(TEAM), TeamParallelEnv(TEAM)
    with pytest.raises(ActionError, match="call reset before state"):
        env.state()
    good = {agent: np.full(1, 0.5, np.float32) for agent in env.possible_agents}
    for one in (env, same):
        one.reset(seed=3)
    with pytest.raises(ActionError, match=r"actions are for \['left'\], the agents are \['left', 'right'\]"):
        env.step({"left": good["left"]})
    with pytest.raises(ActionError, match="the action of world 0 is"):
        env.step({**good, "right": np.array([math.nan], np.float32)})
    with pytest.raises(ActionError, match=r"actions have shape \(1, 2\)"):
        env.step({**good, "right": np.zeros(2, np.float32)})
    seen, expected = env.step(good)[0], same.step(good)[0]
    assert all(np.array_equal(seen[agent], expected[agent]) for agent in env.possible_agents)
