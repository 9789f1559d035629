"""Worlds that diverge: ended, counted, dumped and played again; no other world feels it."""

import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.envs import divergence as broken
from physai.sim.envs.divergence_replay import replay_diverged
from physai.sim.envs.environment import Environment
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.registry import load_task, task_names
from physai.sim.tasks.task import Delay, Randomise, Task

TaskMaker = Callable[..., Task]


def push(env: Environment, left_n: float = 1.0, *, nan_in: int | None = None) -> StepResult:
    """One step with that effort on every left mass, and NaN for one world's right mass."""
    effort = np.array([[left_n, 0.0]] * env.num_worlds, np.float32)
    if nan_in is not None:
        effort[nan_in, 1] = math.nan
    return env.step({"joint_effort_target": effort})


def random_action(task: Task, count: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        term.target_name: rng.uniform(term.lower, term.upper, (count, len(term.joints))).astype(np.float32)
        for term in task.contract.action.terms
    }


def is_finite(result: StepResult) -> bool:
    arrays = [*result.sensors.values(), *result.commands.values(), *result.metrics.values()]
    arrays += [result.critic, result.final_critic, result.reward, list(result.reward_terms.values())]
    return all(np.isfinite(array).all() for array in arrays)


@pytest.mark.parametrize("cause", ["position", "speed", "command"])
def test_a_broken_world_ends_alone(slider_task: TaskMaker, cause: str) -> None:
    task = slider_task(action_delay=Delay(lower_s=0.0, upper_s=0.07))
    env, sound = Environment(task, 3, num_threads=1), Environment(task, 3, num_threads=2)
    env.reset()
    sound.reset()
    seed = int(env.episode_seeds[1])
    for _ in range(3):
        push(env)
        push(sound)
    if cause == "position":
        env.view.qpos[1, 1] = math.nan
    if cause == "speed":
        env.view.qvel[1, 0] = 1e11
    now, reference = push(env, nan_in=1 if cause == "command" else None), push(sound)
    assert now.terminated.tolist() == [False, True, False]
    assert now.judged.tolist() == [False, True, False]
    assert not now.succeeded.any()
    assert now.reward[1] == 0.0
    assert is_finite(now)
    (episode,) = env.diverged_episodes
    assert (episode.world, episode.episode_seed, episode.step, episode.file) == (1, seed, 4, None)
    assert episode.target[0] == 1.0
    assert math.isnan(episode.target[1]) == (cause == "command")
    for _ in range(8):
        for name in now.sensors:
            assert np.array_equal(now.sensors[name][[0, 2]], reference.sensors[name][[0, 2]])
        assert np.array_equal(now.reward[[0, 2]], reference.reward[[0, 2]])
        now, reference = push(env), push(sound)
        assert is_finite(now)
    assert len(env.diverged_episodes) == 1
    assert sound.diverged_episodes == []


def test_a_command_is_refused_before_it_arrives(slider_task: TaskMaker) -> None:
    task = slider_task(action_delay=Delay(lower_s=0.08, upper_s=0.08))
    env = Environment(task, 2, num_threads=1, action_repeat=2)
    env.reset()
    good, bad = np.zeros((2, 2), np.float32), np.array([[0.0, 0.0], [math.nan, 0.0]], np.float32)
    now = env.step({"joint_effort_target": bad}, {"joint_effort_target": good})
    assert now.terminated.tolist() == [False, True]
    assert is_finite(now)
    assert len(env.diverged_episodes) == 1


def test_a_broken_world_does_not_colour_the_means(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 4, randomise=False, num_threads=1)
    env.reset()
    start = env.view.qpos[2, 0]
    now = push(env, nan_in=2)
    # Three of four worlds earn 3 - 0.5 · 1²; the fourth counts nothing, and is judged where it was before the step.
    assert now.reward_terms == pytest.approx({"alive": 0.75 * 3.0, "effort": 0.75 * -0.5})
    assert now.metrics["left_m"] == pytest.approx([start])


@pytest.mark.parametrize("name", task_names())
@pytest.mark.parametrize("training", [False, True])
def test_a_broken_step_is_dumped_and_played_again(name: str, training: bool, tmp_path: Path) -> None:
    task = load_task(name)
    env = Environment(task, 3, seed=7, training=training, num_threads=1, dump_folder=tmp_path / "broken")
    env.reset()
    for step in range(6):
        env.step(random_action(task, 3, step))
    assert not (tmp_path / "broken").exists()
    seed, speed = int(env.episode_seeds[2]), env.view.qvel[2].copy()
    action = random_action(task, 3, 6)
    action[task.contract.action.terms[0].target_name][2, 0] = math.nan
    now = env.step(action)
    assert now.terminated[2]
    assert is_finite(now)
    (episode,) = env.diverged_episodes
    assert episode.episode_seed == seed
    assert episode.file is not None
    assert episode.file.parent == tmp_path / "broken"
    assert episode.file.stat().st_size < 100_000
    replay = replay_diverged(episode.file)
    assert replay.reproduced
    assert np.array_equal(replay.qvel, speed)
    assert replay.episode.episode_seed == seed
    assert replay.episode.step == episode.step
    assert np.array_equal(replay.episode.target, episode.target, equal_nan=True)


def stiff(slider_task: TaskMaker) -> Task:
    """Masses on springs that explicit integration cannot hold: they diverge on their own, the lighter the sooner."""
    model = slider_task().robot.model_spec.copy().compile()
    # Semi-implicit Euler holds a spring while h² k / m < 4; here it is 20 / m, and the left mass 1 to 4 kg.
    model.jnt_stiffness[:] = 2e5
    return slider_task(
        model=model,
        episode_length_s=40.0,
        terminations={},
        randomisation=(Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0),),
        action_delay=Delay(lower_s=0.0, upper_s=0.07),
    )


def test_what_diverges_by_itself_diverges_again(slider_task: TaskMaker, tmp_path: Path) -> None:
    task = stiff(slider_task)
    env = Environment(task, 4, num_threads=1, dump_folder=tmp_path, action_repeat=2)
    env.reset()
    targets = {"joint_effort_target": np.ones((4, 2), np.float32)}
    for _ in range(10):
        assert is_finite(env.step(targets, targets))
    assert len(env.diverged_episodes) >= 4
    assert len({episode.step for episode in env.diverged_episodes}) > 1
    for episode in env.diverged_episodes:
        assert episode.file is not None
        replay = replay_diverged(episode.file, task=task)
        assert replay.reproduced
        assert np.isfinite(replay.qpos).all()
        # The dump brings the masses it broke with: those of another range, here stable ones, are not drawn again.
        heavy = replace(task, randomisation=(replace(task.randomisation[0], lower=50.0, upper=50.0),))
        assert replay_diverged(episode.file, task=heavy).reproduced


def test_no_more_than_so_many_dumps_are_written(
    slider_task: TaskMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broken, "MAX_DUMPS", 3)
    env = Environment(slider_task(), 2, num_threads=1, dump_folder=tmp_path)
    env.reset()
    for _ in range(4):
        env.view.qpos[:] = math.nan
        push(env)
    assert len(env.diverged_episodes) == 8
    assert len(list(tmp_path.iterdir())) == 3
    assert [episode.file is None for episode in env.diverged_episodes] == [False] * 3 + [True] * 5


def test_an_unwritable_folder_is_an_error(slider_task: TaskMaker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = Environment(slider_task(), 1, num_threads=1, dump_folder=tmp_path / "file")
    env.reset()
    with pytest.raises(TaskError, match="cannot be written"):
        push(env, nan_in=0)


@pytest.fixture
def dump(slider_task: TaskMaker, tmp_path: Path) -> Path:
    """A dump of the hand-made task."""
    env = Environment(slider_task(), 1, num_threads=1, dump_folder=tmp_path)
    env.reset()
    push(env, nan_in=0)
    (episode,) = env.diverged_episodes
    assert episode.file is not None
    return episode.file


def rewritten(path: Path, **changes: Any) -> Path:
    """The dump with other values in what it says about itself; None takes one out."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    about = {**json.loads(bytes(arrays.pop("about"))), **changes}
    text = json.dumps({name: value for name, value in about.items() if value is not None}).encode()
    changed = path.with_name("changed.npz")
    np.savez(changed, about=np.frombuffer(text, np.uint8), **arrays)
    return changed


def test_a_dump_belongs_to_its_task(slider_task: TaskMaker, dump: Path) -> None:
    assert replay_diverged(dump, task=slider_task()).reproduced
    with pytest.raises(TaskError, match="task 'sliders', which is not built in"):
        replay_diverged(dump)
    with pytest.raises(TaskError, match="written by another variant of task sliders; give the task itself"):
        replay_diverged(dump, task=load_task("cartpole-swingup"))


def test_what_is_no_dump_is_refused(slider_task: TaskMaker, dump: Path, tmp_path: Path) -> None:
    task = slider_task()
    with pytest.raises(TaskError, match="cannot be read"):
        replay_diverged(tmp_path / "none.npz", task=task)
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(TaskError, match="not the dump of a diverged episode"):
        replay_diverged(tmp_path / "text.npz", task=task)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(TaskError, match="not the dump of a diverged episode"):
        replay_diverged(tmp_path / "other.npz", task=task)
    with pytest.raises(TaskError, match="dump of format 2, this physai reads 1"):
        replay_diverged(rewritten(dump, format=2), task=task)
    with pytest.raises(TaskError, match="a damaged dump: 'training'"):
        replay_diverged(rewritten(dump, training=None), task=task)
    with pytest.raises(TaskError, match=r"'past' has shape \(1, 1, 4\) in the snapshot and \(1, 6, 4\) here"):
        replay_diverged(dump, task=slider_task(sensor_delay=Delay(lower_s=0.0, upper_s=0.2)))


def test_a_dump_is_never_unpickled_and_bounded(slider_task: TaskMaker, tmp_path: Path) -> None:
    np.savez(tmp_path / "pickled.npz", about=np.array([{"format": 1}], dtype=object))
    with pytest.raises(TaskError, match="not the dump of a diverged episode"):
        replay_diverged(tmp_path / "pickled.npz", task=slider_task())
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.npy", bytes(broken.MAX_DUMP_BYTES + 1))
    with pytest.raises(TaskError, match=r"67108865 bytes unpacked, a dump has at most 67108864"):
        replay_diverged(tmp_path / "bomb.npz", task=slider_task())
