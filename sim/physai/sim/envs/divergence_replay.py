"""Plays again the step in which a world diverged."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.envs.divergence import DivergedEpisode, Dump, read_dump
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import built_in_task, load_task
from physai.sim.tasks.task import Task


@dataclass(frozen=True)
class DivergenceReplay:
    """A diverged step, played once more."""

    episode: DivergedEpisode
    """What the dump says of it."""
    reproduced: bool
    """Whether the world broke again."""
    qpos: Array
    """MuJoCo's generalised positions before the step, shape (nq,)."""
    qvel: Array
    """MuJoCo's generalised velocities before the step, shape (nv,)."""


def replay_diverged(path: Path | str, *, task: Task | None = None) -> DivergenceReplay:
    """Puts one world into the state of a dump, with its model, lags and noise, and plays the step that broke.

    Args:
        path: a file from `Environment(..., dump_folder=...)`.
        task: the task it was written by; the built-in one of its name if None.

    Raises:
        TaskError: the file is no dump, was written by another task, or by one that is not built in.
    """
    path = Path(path)
    dump = read_dump(path)
    try:
        task = task or load_task(built_in_task(dump.about["task"], source=str(path)))
        if task.contract.fingerprint != dump.about["fingerprint"]:
            raise TaskError(f"{path} was written by another variant of task {dump.about['task']}; give the task itself")
        env, episode = _environment(dump, task), _episode(dump, path)
        env.restore(dump.state)
    except (KeyError, TypeError) as error:
        raise TaskError(f"{path}: a damaged dump: {error}") from error
    qpos, qvel = env.view.qpos[0].copy(), env.view.qvel[0].copy()
    names = [(term.target_name, len(term.joints)) for term in task.contract.action.terms]
    ends = np.cumsum([size for _, size in names])[:-1]
    periods = [
        {name: part[None] for (name, _), part in zip(names, np.split(row, ends), strict=True)} for row in dump.targets
    ]
    env.step(*periods)
    return DivergenceReplay(episode, bool(env.diverged_episodes), qpos, qvel)


def _environment(dump: Dump, task: Task) -> Environment:
    about = dump.about
    env = Environment(
        task,
        1,
        seed=about["seed"],
        training=about["training"],
        randomise=about["randomise"],
        # `control_repeat` is the name that 0.1 wrote.
        action_repeat=about["action_repeat" if "action_repeat" in about else "control_repeat"],
        num_threads=1,
    )
    # The reset allocates and draws everything; `restore` then overwrites what the dump holds.
    env.reset(np.array([int(about["episode_seed"])], np.uint64))
    return env


def _episode(dump: Dump, path: Path) -> DivergedEpisode:
    return DivergedEpisode(
        world=dump.about["world"],
        episode_seed=int(dump.about["episode_seed"]),
        step=dump.about["step"],
        target=tuple(dump.targets[-1].tolist()),
        file=path,
    )
