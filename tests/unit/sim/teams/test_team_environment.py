"""Laws of worlds with several robots: apart they are as alone, tied they act on each other, and none is special."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.task import Delay, SensorModel
from physai.sim.teams.cartpoles import tethered_cartpoles
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment, joined, member_seed

APART = tethered_cartpoles(math.inf)
TIED = tethered_cartpoles(0.6)
TARGET = APART.members["left"].contract.action.terms[0].target_name
WORLDS = 6
Forces = npt.NDArray[np.float64]


def push(left: Forces | float, right: Forces | float, worlds: int = WORLDS) -> dict[str, dict[str, Forces]]:
    return {n: {TARGET: np.broadcast_to(f, (worlds, 1)).copy()} for n, f in {"left": left, "right": right}.items()}


def forces(steps: int, seed: int) -> Forces:
    """Random forces that keep carts on the rail for a while, shape (steps, 2, WORLDS, 1)."""
    return np.random.default_rng(seed).uniform(-4.0, 4.0, (steps, 2, WORLDS, 1))


def same(one: StepResult, other: StepResult, worlds: npt.NDArray[np.bool_]) -> None:
    for name in one.sensors:
        assert np.array_equal(one.sensors[name][worlds], other.sensors[name][worlds]), name
    for name in ("critic", "final_critic", "reward", "terminated", "truncated", "judged", "succeeded"):
        assert np.array_equal(getattr(one, name)[worlds], getattr(other, name)[worlds]), name


@pytest.mark.parametrize("randomise", [True, False])
def test_robots_that_nothing_connects_are_as_alone_to_the_last_bit(randomise: bool) -> None:
    team = TeamEnvironment(APART, WORLDS, seed=3, randomise=randomise)
    alone = {
        name: Environment(task, WORLDS, seed=member_seed(3, index), randomise=randomise)
        for index, (name, task) in enumerate(APART.members.items())
    }
    together, apart = team.reset(), {name: env.reset() for name, env in alone.items()}
    running = np.ones(WORLDS, bool)
    for left, right in forces(520, 1):
        for name in alone:
            same(together[name], apart[name], running)
        commands = push(left, right)
        together = team.step(commands)
        apart = {name: env.step(commands[name]) for name, env in alone.items()}
        # In the team one robot's end is the other's.
        running &= ~(together["left"].done | apart["left"].done | apart["right"].done) | together["left"].truncated
    assert running.sum() >= 2
    assert team.members["left"].steps_in_episode[running].tolist() == [20] * int(running.sum())


def play(team: Team, commands: Forces, seeds: Mapping[str, Seeds]) -> list[dict[str, StepResult]]:
    env = TeamEnvironment(team, WORLDS)
    return [env.reset(seeds), *(env.step(push(left, right)) for left, right in commands)]


def seeds(first: int) -> Seeds:
    return episode_seeds(first, np.arange(WORLDS), np.zeros(WORLDS, int))


@pytest.mark.parametrize(("team", "tolerance"), [(APART, 0.0), (TIED, 1e-3)], ids=["apart", "tied"])
def test_robots_can_change_places(team: Team, tolerance: float) -> None:
    # How far MuJoCo's solver goes depends on the order of the robots, in which it adds up what the rope does.
    commands = forces(120, 2)
    exact = copy.copy(team.model)
    exact.opt.tolerance, exact.opt.ls_tolerance, exact.opt.iterations = 0.0, 1e-9, 200
    team = replace(team, model=exact)
    one = play(team, commands, {"left": seeds(1), "right": seeds(2)})
    other = play(team, commands[:, ::-1], {"left": seeds(2), "right": seeds(1)})
    for here, there in zip(one, other, strict=True):
        for name, twin in (("left", "right"), ("right", "left")):
            for sensor, values in here[name].sensors.items():
                assert values == pytest.approx(there[twin].sensors[sensor], rel=0.0, abs=tolerance), sensor
            assert here[name].reward == pytest.approx(there[twin].reward, rel=0.0, abs=tolerance)
            assert np.array_equal(here[name].done, there[twin].done)


@pytest.mark.parametrize(
    "change",
    [
        {"action_delay": Delay(lower_s=0.04, upper_s=0.04)},
        {"sensor_delay": Delay(lower_s=0.06, upper_s=0.06)},
        {"sensors": {"joint_pos": SensorModel(noise_std=0.5, bias=0.3)}},
        {"randomisation": ()},
        {"push": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_delays_and_noise_of_a_robot_are_its_own(change: dict[str, Any]) -> None:
    changed = replace(APART.members["right"], **change)
    other = replace(APART, members={**APART.members, "right": changed})
    commands, drawn = forces(210, 3), {"left": seeds(1), "right": seeds(2)}
    one, two = play(APART, commands, drawn), play(other, commands, drawn)
    assert not all(np.array_equal(a["right"].critic, b["right"].critic) for a, b in zip(one, two, strict=True)) or (
        not np.array_equal(one[-1]["right"].sensors["joint_pos"], two[-1]["right"].sensors["joint_pos"])
    )
    running = np.ones(WORLDS, bool)
    for here, there in zip(one, two, strict=True):
        running &= ~(here["left"].done | there["left"].done)
        same(here["left"], there["left"], running)
    assert running.any()


def test_the_rope_pulls_the_other_cart_and_is_never_longer_than_it_is() -> None:
    envs = {slack: TeamEnvironment(tethered_cartpoles(slack), 1, randomise=False) for slack in (0.6, math.inf)}
    apart: dict[float, list[float]] = {slack: [] for slack in envs}
    for slack, env in envs.items():
        env.reset({"left": seeds(1)[:1], "right": seeds(2)[:1]})
        for _ in range(45):
            env.step(push(6.0, 0.0, worlds=1))
            left, right = (member.view.joint_pos[0, 0] for member in env.members.values())
            apart[slack].append(abs(float(left - right)))
    assert max(apart[0.6]) == pytest.approx(0.6, abs=0.03)
    assert max(apart[math.inf]) > 1.0
    # By hand: both carts and what of the poles moves with them are pulled by one force, so the second moves, too.
    assert envs[0.6].members["right"].view.joint_vel[0, 0] > 0.3
    assert abs(envs[math.inf].members["right"].view.joint_vel[0, 0]) < 0.1


def test_an_episode_ends_for_all_when_one_fails() -> None:
    env = TeamEnvironment(APART, WORLDS, randomise=False)
    results = env.reset()
    while not results["left"].done.any():
        results = env.step(push(10.0, 0.0))
    left, right = results["left"], results["right"]
    assert np.array_equal(left.terminated, right.terminated)
    assert left.terminated.any()
    assert np.array_equal(left.judged, right.judged)
    assert not (left.succeeded | right.succeeded).any()
    ended = left.terminated
    assert all((member.steps_in_episode[ended] == 0).all() for member in env.members.values())


def test_a_command_that_is_not_finite_ends_the_world_of_all() -> None:
    env = TeamEnvironment(TIED, WORLDS)
    env.reset()
    bad = np.zeros((WORLDS, 1))
    bad[2] = math.nan
    results = env.step(push(0.0, bad))
    assert [r.terminated.tolist() for r in results.values()] == [[False, False, True, False, False, False]] * 2
    assert all(np.isfinite(r.critic).all() and np.isfinite(r.reward).all() for r in results.values())
    assert all(np.isfinite(env.step(push(0.0, 0.0))[name].critic).all() for name in env.members)


def test_training_has_one_clock() -> None:
    env = TeamEnvironment(TIED, 64, training=True, seed=1)
    env.reset()
    first, second = (member.steps_in_episode for member in env.members.values())
    assert np.array_equal(first, second)
    assert len(set(first.tolist())) > 16
    for _ in range(120):
        results = env.step(push(10.0, -10.0, worlds=64))
        assert np.array_equal(first, second)
        assert np.array_equal(results["left"].truncated, results["right"].truncated)


def test_a_snapshot_continues_to_the_last_bit() -> None:
    commands = forces(60, 4)
    env, other = TeamEnvironment(TIED, WORLDS, seed=1), TeamEnvironment(TIED, WORLDS, seed=9)
    env.reset()
    for left, right in commands[:30]:
        env.step(push(left, right))
    other.reset()
    other.restore(env.snapshot())
    for left, right in commands[30:]:
        one, two = env.step(push(left, right)), other.step(push(left, right))
        for name in env.members:
            same(one[name], two[name], np.ones(WORLDS, bool))


def test_a_critic_sees_its_own_robot_first() -> None:
    parts = {"a": np.zeros((1, 2)), "b": np.ones((1, 1)), "c": np.full((1, 1), 2.0)}
    assert joined("a", parts).tolist() == [[0.0, 0.0, 1.0, 2.0]]
    assert joined("b", parts).tolist() == [[1.0, 0.0, 0.0, 2.0]]


def test_what_is_missing_is_named() -> None:
    env = TeamEnvironment(APART, WORLDS)
    with pytest.raises(TaskError, match="call reset before the first step"):
        env.step(push(0.0, 0.0))
    env.reset()
    with pytest.raises(TaskError, match="no commands for the member right"):
        env.step({"left": push(0.0, 0.0)["left"]})
    with pytest.raises(TaskError, match="no member named 'middle'; known: left, right"):
        env.step({**push(0.0, 0.0), "middle": {}})
    with pytest.raises(TaskError, match="no seeds for the member right"):
        env.reset({"left": seeds(1)})
    with pytest.raises(TaskError, match="6 worlds need one seed each"):
        env.reset({"left": seeds(1), "right": seeds(2)[:3]})
