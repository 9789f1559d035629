"""The environment: episode boundaries by hand, and the laws of seeds, snapshots, worlds and threads."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, Stream, episode_seeds, uniform
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, Push, Randomise, SensorModel, Success, Task

TaskMaker = Callable[..., Task]

EVERYTHING: dict[str, Any] = {
    "sensors": {"joint_pos": SensorModel(noise_std=0.1, bias=0.2), "joint_vel": SensorModel(noise_std=0.3)},
    "sensor_delay": Delay(lower_s=0.0, upper_s=0.12),
    "action_delay": Delay(lower_s=0.0, upper_s=0.07),
    "randomisation": (Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0),),
    "push": Push(interval_s=0.12, velocity=(1.0, 0.5)),
    "command_interval_s": 0.08,
}
"""All that is random at once, with episodes of 10 steps, commands of 2 and pushes every 3."""


def seeds_of(count: int, seed: int = 0) -> Seeds:
    return episode_seeds(seed, np.arange(count), np.zeros(count, int))


def efforts(count: int, steps: int, seed: int) -> Array:
    """Efforts of two masses [N], shape (steps, count, 2)."""
    return np.random.default_rng(seed).uniform(-20.0, 20.0, (steps, count, 2)).astype(np.float32)


def act(env: Environment, effort: Array) -> StepResult:
    return env.step({"joint_effort_target": effort})


def push(env: Environment, left_n: float = 0.0) -> StepResult:
    """One step with that effort on every left mass."""
    return act(env, np.array([[left_n, 0.0]] * env.num_worlds, np.float32))


def play(env: Environment, actions: Array) -> list[StepResult]:
    return [act(env, effort) for effort in actions]


def rows(result: StepResult, worlds: Any) -> dict[str, Array]:
    """Everything a step brought to the given worlds, by name."""
    found = {**{f"sensor {k}": v for k, v in result.sensors.items()}, **result.commands}
    for entry in fields(result):
        value = getattr(result, entry.name)
        if isinstance(value, np.ndarray):
            found[entry.name] = value
    return {name: value[worlds] for name, value in found.items()}


def assert_equal(a: list[StepResult], b: list[StepResult], of_a: Any = slice(None), of_b: Any = slice(None)) -> None:
    """Bit for bit the same, for the given worlds of each."""
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        left, right = rows(one, of_a), rows(other, of_b)
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert np.array_equal(value, right[name]), name


# Episodes


def test_an_episode_ends_by_time_after_exactly_its_length(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 3, num_threads=1)
    env.reset()
    for step in range(1, 31):
        now = push(env)
        assert (now.truncated == (step % 10 == 0)).all()
        assert np.array_equal(now.done, now.truncated)
        assert np.array_equal(now.judged, now.truncated)
        assert not now.terminated.any()


def test_a_failure_ends_its_own_episode_only(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 3, randomise=False, num_threads=1)
    env.reset(seeds_of(3))
    env.view.qpos[1, 0] = 5.5
    now = push(env)
    assert now.terminated.tolist() == [False, True, False]
    assert now.judged.tolist() == [False, True, False]
    assert not now.truncated.any()
    # Beyond 2 m is success, but not for an episode that failed.
    assert not now.succeeded.any()
    assert now.final_critic[1] == pytest.approx([5.5, 0.0, 0.04])
    assert now.critic[1, 0] < 1.0
    assert now.critic[:, 2] == pytest.approx([0.04, 0.0, 0.04])
    assert now.metrics["left_m"] == pytest.approx([5.5])
    assert (now.sensors["joint_pos"][1] == env.view.qpos[1].astype(np.float32)).all()


def test_a_failure_in_the_last_step_is_no_time_out(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 1, randomise=False, num_threads=1)
    env.reset()
    for _ in range(9):
        assert not push(env).done[0]
    env.view.qpos[0, 0] = 6.0
    now = push(env)
    assert (bool(now.terminated[0]), bool(now.truncated[0])) == (True, False)


def test_the_value_of_a_time_out_is_asked_of_the_state_it_cut_off(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 1, randomise=False, num_threads=1)
    first = env.reset()
    assert first.critic[0] == pytest.approx([env.view.qpos[0, 0], 0.0, 0.0])
    start = float(env.view.qpos[0, 0])
    now = first
    for _ in range(10):
        now = push(env, 5.0)
    # 5 N on 2 kg for 40 steps of 10 ms: v = 1 m/s, x = 2.5 · 0.01² · (1 + … + 40) = 0.205 m.
    assert now.final_critic[0] == pytest.approx([start + 0.205, 1.0, 0.4], abs=1e-6)
    assert now.critic[0] == pytest.approx([env.view.qpos[0, 0], 0.0, 0.0])
    assert env.view.qvel[0, 0] == 0.0


def test_rewards_are_rates_times_the_step(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 2, randomise=False, num_threads=1)
    env.reset()
    now = act(env, np.array([[2.0, 1.0], [0.0, 0.0]], np.float32))
    # 3 - 0.5 · (2² + 1²) = 0.5 and 3 per second, for 0.04 s.
    assert now.reward == pytest.approx([0.02, 0.12])
    assert now.reward_terms == pytest.approx({"alive": 3.0, "effort": -1.25})


def test_the_previous_command_of_a_new_episode_is_rest(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(episode_length_s=0.12), 1, num_threads=1)
    env.reset()
    push(env, 3.0)
    push(env, 4.0)
    assert (env.view.target[0, 0], env.view.previous_target[0, 0]) == (4.0, 3.0)
    push(env, 5.0)
    assert env.view.target.tolist() == env.view.previous_target.tolist() == [[0.0, 0.0]]
    push(env, 7.0)
    assert (env.view.target[0, 0], env.view.previous_target[0, 0]) == (7.0, 0.0)
    assert env.view.episode_time.tolist() == pytest.approx([0.04])


# Success and commands


def test_success_asks_for_an_unbroken_hold(slider_task: TaskMaker) -> None:
    success = Success(condition=lambda view: view.joint_pos[:, 0] > 2.0, hold_s=0.12, text="beyond 2 m for 3 steps")
    env = Environment(slider_task(success=success, episode_length_s=0.24), 5, randomise=False, num_threads=1)
    now = env.reset()
    # Steps in which the condition is met, of six: only the last three in a row count.
    met = ["000111", "111011", "011111", "111110", "001011"]
    for step in range(6):
        env.view.qpos[:, 0] = [3.0 if row[step] == "1" else 0.0 for row in met]
        now = push(env)
    assert now.judged.all()
    assert now.succeeded.tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("commanded", [True, False])
def test_a_hold_does_not_reach_over_a_new_episode(slider_task: TaskMaker, commanded: bool) -> None:
    success = Success(condition=lambda view: view.joint_pos[:, 0] > -9.0, hold_s=0.16, text="4 steps")
    task = slider_task(success=success, episode_length_s=0.12)
    env = Environment(task if commanded else replace(task, command=None), 1, num_threads=1)
    env.reset()
    assert [bool(push(env).succeeded[0]) for _ in range(12)] == [False] * 12


def test_commands_change_when_their_time_is_over(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(command_interval_s=0.16, episode_length_s=0.48), 4, num_threads=1)
    goals = [env.reset().commands["goal"]]
    for step in range(1, 13):
        now = push(env)
        goals.append(now.commands["goal"])
        assert (now.judged == (step % 4 == 0)).all()
        changed = goals[-1] != goals[-2]
        assert (changed == (step % 4 == 0)).all()
    drawn = uniform(env.episode_seeds, Stream.COMMAND, 1)
    assert np.array_equal(goals[-1], drawn.astype(np.float32))
    assert len({float(goal) for goals_now in goals for goal in goals_now[:, 0]}) == 16


def test_one_command_an_episode_without_an_interval(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 2, num_threads=1)
    first = env.reset().commands["goal"]
    for _ in range(9):
        assert np.array_equal(push(env).commands["goal"], first)
    assert (push(env).commands["goal"] != first).all()


def test_a_command_cut_short_is_not_judged_but_a_fall_is(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(command_interval_s=0.16, episode_length_s=0.24), 2, randomise=False, num_threads=1)
    env.reset()
    judged = [push(env).judged.tolist() for _ in range(4)]
    env.view.qpos[1, 0] = 9.0
    fallen, over = push(env), push(env)
    assert judged == [[False, False]] * 3 + [[True, True]]
    assert fallen.judged.tolist() == [False, True]
    # World 0 runs out of time two steps into its second command.
    assert over.truncated.tolist() == [True, False]
    assert over.judged.tolist() == [False, False]


def test_a_hold_does_not_reach_over_a_new_command(slider_task: TaskMaker) -> None:
    success = Success(condition=lambda view: view.joint_pos[:, 0] > -9.0, hold_s=0.16, text="4 steps")
    task = slider_task(success=success, command_interval_s=0.12, episode_length_s=0.48)
    env = Environment(task, 1, num_threads=1)
    env.reset()
    assert [bool(push(env).succeeded[0]) for _ in range(12)] == [False] * 12


def test_a_command_longer_than_the_episode_is_judged_at_its_end(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(command_interval_s=5.0), 1, num_threads=1)
    env.reset()
    assert [bool(push(env).judged[0]) for _ in range(10)] == [False] * 9 + [True]


# Training


def test_the_first_episodes_of_training_are_staggered(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 400, training=True, num_threads=1)
    env.reset()
    ends = np.array([push(env).truncated for _ in range(20)])
    first = ends.argmax(axis=0)
    assert set(first.tolist()) == set(range(10))
    assert (np.bincount(first) > 15).all()
    # From then on each episode lasts ten steps.
    assert np.array_equal(ends[10:], ends[:10])
    steady = Environment(slider_task(), 400, num_threads=1)
    steady.reset()
    assert not any(push(steady).truncated.any() for _ in range(9))


def test_episodes_after_a_failure_are_staggered_again(slider_task: TaskMaker) -> None:
    """Once all have failed together they would else end together for ever."""
    env = Environment(slider_task(), 400, training=True, num_threads=1)
    env.reset()
    env.engine.state("qpos")[:, 0] = 6.0
    assert push(env).terminated.all()
    steps = [push(env) for _ in range(20)]
    assert set(np.array([step.truncated for step in steps]).argmax(axis=0).tolist()) == set(range(10))
    # What was cut short is not judged; the whole episodes that follow are.
    judged = np.array([step.judged for step in steps])
    assert not judged[:9].any()
    assert judged.any(axis=0).all()
    steady = Environment(slider_task(), 4, num_threads=1)
    steady.reset()
    steady.engine.state("qpos")[:, 0] = 6.0
    assert push(steady).terminated.all()
    assert not steady.steps_in_episode.any()


def test_success_while_training_is_that_of_whole_episodes(slider_task: TaskMaker) -> None:
    """Half of the episodes fail in step 5 of 10, the others succeed: a share of 1/2.

    A staggered episode has at least 5 of its steps left with probability 6/10, so it fails with probability 3/10 and is
    followed by another staggered one. Each whole episode that fails brings 0.3/0.7 failures of staggered ones: to count
    those would show 0.5 / (1 + 0.5 · 0.3/0.7) = 0.41.
    """

    def half_fail(draw: Array) -> tuple[Array, Array]:
        """At rest at 3 m, or on the way from 0 m at 30 m/s: at 4.8 m after 4 steps of 0.04 s, at 6 m after 5."""
        fails = draw[:, :1] < 0.5
        return np.where(fails, 0.0, 3.0) * [[1.0, 0.0]], np.where(fails, 30.0, 0.0) * [[1.0, 0.0]]

    env = Environment(slider_task(training_reset=half_fail), 400, training=True, num_threads=1)
    env.reset()
    outcomes: list[bool] = []
    for _ in range(300):
        before = env.steps_in_episode.copy()
        result = push(env)
        outcomes += result.succeeded[result.judged].tolist()
        assert (before[result.judged & result.terminated] == 4).all(), "a failure after 5 steps of a whole episode"
    assert np.mean(outcomes) == pytest.approx(0.5, abs=0.02)


def test_failures_within_commands_that_the_episodes_end_would_cut_short_are_not_judged(slider_task: TaskMaker) -> None:
    """Commands of 3 steps in episodes of 10: the fourth has one step left."""
    env = Environment(slider_task(command_interval_s=0.12), 400, training=True, num_threads=1)
    env.reset()
    for _ in range(12):
        push(env)
    steps = env.steps_in_episode.copy()
    assert set(steps.tolist()) == set(range(10))
    env.engine.state("qpos")[:, 0] = 6.0
    result = push(env)
    assert result.terminated.all()
    assert not result.judged[steps == 9].any(), "entered with one step left"
    assert result.judged[steps == 1].all(), "the first of a whole episode"


def test_training_starts_where_the_task_says(slider_task: TaskMaker) -> None:
    def far(draw: Array) -> tuple[Array, Array]:
        return np.full((len(draw), 2), -1.0), np.zeros((len(draw), 2))

    task = slider_task(training_reset=far)
    train, test = (Environment(task, 3, training=flag, num_threads=1) for flag in (True, False))
    train.reset()
    test.reset()
    assert (train.view.qpos == -1.0).all()
    assert (test.view.qpos >= 0.0).all()


# Randomness


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_an_episode_depends_on_its_seed_alone(slider_task: TaskMaker, order: list[int], seed: int) -> None:
    task = slider_task(**EVERYTHING)
    seeds, actions = seeds_of(6, seed), efforts(6, 10, seed)
    all_six = Environment(task, 6, num_threads=2)
    reference = [all_six.reset(seeds), *play(all_six, actions)]
    shuffled = Environment(task, 6, seed=5, num_threads=1)
    results = [shuffled.reset(seeds[order]), *play(shuffled, actions[:, order])]
    # Up to the end of the episode: the one after has a seed of the environment's own.
    assert_equal(results[:-1], reference[:-1], slice(None), order)
    alone = Environment(task, 1, seed=9, num_threads=1)
    single = [alone.reset(seeds[2:3]), *play(alone, actions[:, 2:3])]
    assert_equal(single[:-1], reference[:-1], slice(None), slice(2, 3))


def test_an_episode_of_a_long_run_can_be_played_again(slider_task: TaskMaker) -> None:
    task = slider_task(**EVERYTHING)
    run, again = Environment(task, 4, seed=3, num_threads=1), Environment(task, 4, num_threads=1)
    run.reset()
    play(run, efforts(4, 30, seed=0))
    actions = efforts(4, 9, seed=1)
    first = again.reset(run.episode_seeds)
    assert np.array_equal(again.view.qpos, run.view.qpos)
    assert (first.critic[:, 2] == 0.0).all()
    assert_equal(play(again, actions), play(run, actions))


@pytest.mark.parametrize("name", ["cartpole-swingup", "go2-velocity"])
def test_results_do_not_depend_on_threads(name: str) -> None:
    task = load_task(name)
    envs = [Environment(task, 7, seed=1, num_threads=n, training=True) for n in (1, 2, 3)]
    firsts = [env.reset() for env in envs]
    rng = np.random.default_rng(0)
    for _ in range(15):
        action = action_of(task, rng, 7)
        results = [env.step(action) for env in envs]
        assert_equal(results[:1] * 2, results[1:])
    assert_equal(firsts[:1] * 2, firsts[1:])


def action_of(task: Task, rng: np.random.Generator, count: int) -> dict[str, Array]:
    """Random commands within the action terms' bounds."""
    return {
        term.target_name: rng.uniform(term.lower, term.upper, (count, len(term.joints))).astype(np.float32)
        for term in task.contract.action.terms
    }


def test_successive_episodes_differ(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 5, num_threads=1)
    seen: set[int] = set()
    for _ in range(4):
        env.reset()
        seen |= set(env.episode_seeds.tolist())
        for _ in range(10):
            push(env)
    assert len(seen) == 20


# Snapshots


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 15), st.integers(1, 15), st.integers(0, 2**32 - 1), st.booleans())
def test_a_restored_environment_continues_bit_for_bit(
    slider_task: TaskMaker, before: int, after: int, seed: int, training: bool
) -> None:
    task = slider_task(**EVERYTHING)
    env = Environment(task, 4, seed=seed, training=training, num_threads=1)
    env.reset()
    play(env, efforts(4, before, seed))
    saved = env.snapshot()
    actions = efforts(4, after, seed + 1)
    reference = play(env, actions)
    fresh = Environment(task, 4, seed=seed, training=training, num_threads=2)
    for other in (env, fresh):
        other.restore(saved)
        assert_equal(play(other, actions), reference)


@pytest.mark.parametrize("name", ["pendubot-swingup", "ur10e-reach", "go2-velocity"])
def test_a_built_in_task_is_restored_bit_for_bit(name: str) -> None:
    task = load_task(name)
    env = Environment(task, 3, seed=2, training=True, num_threads=1)
    env.reset()
    rng = np.random.default_rng(1)
    actions = [action_of(task, rng, 3) for _ in range(20)]
    for action in actions[:8]:
        env.step(action)
    saved = env.snapshot()
    reference = [env.step(action) for action in actions[8:]]
    fresh = Environment(task, 3, seed=2, training=True, num_threads=1)
    fresh.restore(saved)
    assert_equal([fresh.step(action) for action in actions[8:]], reference)
    assert all(len(array) == 3 for array in saved.values())


def test_a_snapshot_is_not_changed_by_going_on(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(**EVERYTHING), 3, num_threads=1)
    env.reset()
    saved = env.snapshot()
    kept = {name: array.copy() for name, array in saved.items()}
    play(env, efforts(3, 12, seed=0))
    assert all(np.array_equal(saved[name], kept[name]) for name in kept)


def test_a_snapshot_of_something_else_is_refused(slider_task: TaskMaker) -> None:
    two = Environment(slider_task(), 2, num_threads=1)
    two.reset()
    saved = two.snapshot()
    with pytest.raises(TaskError, match=r"'state' has shape \(2, .* restore it with the same task"):
        Environment(slider_task(), 3, num_threads=1).restore(saved)
    delayed = slider_task(sensor_delay=Delay(lower_s=0.0, upper_s=0.2))
    with pytest.raises(TaskError, match=r"'past' has shape \(2, 1, 4\) in the snapshot and \(2, 6, 4\) here"):
        Environment(delayed, 2, num_threads=1).restore(saved)
    with pytest.raises(TaskError, match="no '_held'"):
        Environment(slider_task(), 2, num_threads=1).restore({k: v for k, v in saved.items() if k != "own/_held"})


def test_what_a_step_returned_is_the_callers(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(**EVERYTHING), 3, num_threads=1)
    now = env.reset()
    for _ in range(12):
        kept = {name: value.copy() for name, value in rows(now, slice(None)).items()}
        following = act(env, efforts(3, 1, seed=4)[0])
        assert all(np.array_equal(value, kept[name]) for name, value in rows(now, slice(None)).items())
        now = following


# Misuse


def test_misuse_is_refused(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 2, num_threads=1, action_repeat=2)
    with pytest.raises(TaskError, match=r"2 worlds need one seed each, got seeds of shape \(3,\)"):
        env.reset(seeds_of(3))
    with pytest.raises(TaskError, match="step takes 2 control periods of commands, got 1"):
        push(env)
    with pytest.raises(TaskError, match="call reset before the first step"):
        push(Environment(slider_task(), 2, num_threads=1))


def test_reseed_begins_what_a_new_environment_begins() -> None:
    task = load_task("cartpole-swingup")
    force = {"joint_effort_target": np.full((3, 1), 2.0)}
    used, new = Environment(task, 3, seed=1), Environment(task, 3, seed=8)
    used.reset()
    for _ in range(700):
        used.step(force)
    used.reseed(8)
    assert np.array_equal(used.reset().sensors["joint_pos"], new.reset().sensors["joint_pos"])
    # Longer than an episode, so that the following ones count too.
    for _ in range(700):
        here, there = used.step(force), new.step(force)
        assert np.array_equal(here.sensors["joint_vel"], there.sensors["joint_vel"])
        assert np.array_equal(here.reward, there.reward)


def test_worlds_are_those_of_a_larger_environment() -> None:
    task = load_task("cartpole-swingup")
    whole, part = Environment(task, 6, seed=3), Environment(task, 2, seed=3, first_world=4)
    for _ in range(2):
        left, right = whole.reset(), part.reset()
        assert np.array_equal(whole.episode_seeds[4:], part.episode_seeds)
        for name, values in left.sensors.items():
            assert np.array_equal(values[4:], right.sensors[name])


def test_episodes_that_were_played_can_be_left_out() -> None:
    task = load_task("cartpole-swingup")
    first, second = Environment(task, 2, seed=3), Environment(task, 2, seed=3)
    for _ in range(3):
        first.reset()
    assert first.begun == 3
    second.reseed(3, begun=2)
    second.reset()
    assert np.array_equal(first.episode_seeds, second.episode_seeds)
