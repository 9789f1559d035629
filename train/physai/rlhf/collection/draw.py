"""Draws segments from a policy: it plays the task's worlds, and each episode is cut into stretches of equal length."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from physai.rlhf.answers.preferences import DERIVED, measures, term_names
from physai.rlhf.answers.segment import REWARD, PreferenceError, Segment, SegmentLayout
from physai.sim.engines.protocol import Array, Stage
from physai.sim.envs.environment import Environment
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.task import RewardTerm, Task, Term, WorldView
from physai.train.models.numpy_policy import as_tensors, seeded
from physai.train.models.policy_graph import PolicyGraph


def layout_of(task: Task, *, seconds: float, action_repeat: int = 1) -> SegmentLayout:
    """The layout of a task's segments of a length [s].

    Raises:
        PreferenceError: the length is not between one step and an episode, or a segment would be too large.
    """
    step_dt = task.contract.timing.control_dt * action_repeat
    if not step_dt <= seconds <= task.episode_length_s:
        raise PreferenceError(
            f"segments of {task.name} last {step_dt:g} to {task.episode_length_s:g} s, got {seconds:g}"
        )
    try:
        return SegmentLayout(
            task=task.name,
            fingerprint=task.contract.fingerprint,
            step_dt=step_dt,
            steps=round(seconds / step_dt),
            qpos=int(task.model.nq),
            critic=task.critic_size,
            actions=task.contract.action.size,
            terms=term_names(task),
            seen=task.seen,
        )
    except ValidationError as error:
        raise PreferenceError(f"segments of {task.name} of {seconds:g} s: {error.errors()[0]['msg']}") from error


def policy_digest(graph: PolicyGraph) -> str:
    """SHA-256 of a policy's weights and statistics."""
    sha256 = hashlib.sha256()
    for name, value in sorted(graph.state_dict().items()):
        sha256.update(f"{name} {tuple(value.shape)} ".encode())
        sha256.update(value.detach().cpu().numpy().tobytes())
    return sha256.hexdigest()


class _Tap:
    """A term that keeps its last values: the worlds show the next episode after a step that ends one."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self.last: Array = np.zeros(0)

    def __call__(self, view: WorldView) -> Array:
        self.last = self._term(view).copy()
        return self.last


def _tapped(task: Task) -> tuple[Task, dict[str, _Tap]]:
    """The task with all of its segments' terms noted, in the layout's order but the reward itself."""
    rewards = {
        f"{REWARD}.{name}": RewardTerm(term=_Tap(entry.term), weight=entry.weight)
        for name, entry in task.rewards.items()
    }
    extra = {name: RewardTerm(term=_Tap(term), weight=0.0) for name, term in measures(task).items()}
    everything = {**rewards, **extra}
    taps: dict[str, Any] = {name: entry.term for name, entry in everything.items()}
    tapped = replace(
        task,
        rewards=everything,
        stage=max(task.stage, Stage.POSITION),
        derived=tuple(dict.fromkeys((*task.derived, *DERIVED))),
    )
    return tapped, taps


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Behaviour of a policy; T steps of N worlds."""

    qpos: Array
    critic: Array
    action: Array
    terms: Array
    """(T, N, K)."""
    done: Array
    """Whether an episode ended with the step, (T, N)."""
    seeds: Array
    """Seed of the episode, (T, N)."""
    steps: Array
    """Step of the episode, (T, N)."""
    failed: Array
    """Whether it ended by failure, (T, N)."""
    judged: Array
    """Whether success was judged after the step, (T, N)."""
    succeeded: Array
    """Whether it was one, (T, N)."""


@torch.no_grad()
def play(
    graph: PolicyGraph,
    task: Task,
    *,
    worlds: int,
    steps: int,
    seed: int,
    std: Tensor | None = None,
    training: bool = False,
    action_repeat: int = 1,
    num_threads: int = 0,
) -> Behaviour:
    """Plays a policy, with exploration if a standard deviation is given, and notes what segments hold."""
    tapped, taps = _tapped(task)
    env = Environment(
        tapped, worlds, seed=seed, training=training, action_repeat=action_repeat, num_threads=num_threads
    )
    weights = np.array([entry.weight for name, entry in tapped.rewards.items() if name.startswith(f"{REWARD}.")])
    generator = seeded(seed)
    now, state = env.reset(), graph.initial_state(worlds)
    rows: dict[str, list[Array]] = {name: [] for name in Behaviour.__dataclass_fields__}
    for _ in range(steps):
        rows["qpos"].append(env.view.qpos.astype(np.float32))
        rows["critic"].append(now.critic.copy())
        rows["seeds"].append(env.episode_seeds)
        rows["steps"].append(env.steps_in_episode.copy())
        now, state, action = _step(env, graph, now, state, std, generator, action_repeat)
        values = np.stack([tap.last for tap in taps.values()], axis=1)
        values[:, : len(weights)] *= weights
        reward = now.reward[:, None] / env.step_dt
        rows["action"].append(action.clamp(-1.0, 1.0).numpy())
        rows["terms"].append(np.concatenate([reward, values], axis=1).astype(np.float32))
        rows["done"].append(now.done.copy())
        rows["failed"].append(now.terminated.copy())
        rows["judged"].append(now.judged.copy())
        rows["succeeded"].append(now.succeeded.copy())
    return Behaviour(**{name: np.stack(parts) for name, parts in rows.items()})


def _step(
    env: Environment,
    graph: PolicyGraph,
    now: StepResult,
    state: dict[str, Tensor],
    std: Tensor | None,
    generator: torch.Generator,
    action_repeat: int,
) -> tuple[StepResult, dict[str, Tensor], Tensor]:
    sensors, commands = as_tensors(now.sensors), as_tensors(now.commands)
    observation, histories = graph.observe(sensors, commands, state)
    hidden = state.get("hidden", observation[:, :0])
    action, hidden = graph.actor(graph.normaliser(observation), hidden)
    if std is not None:
        action = action + std * torch.randn(action.shape, generator=generator)
    periods: list[dict[str, Any]] = []
    after = state
    for _ in range(action_repeat):
        targets, changed = graph.command(action, sensors, after)
        periods.append({name: target.numpy() for name, target in targets.items()})
        after = {**after, **changed}
    after = {**after, **histories, **({"hidden": hidden} if "hidden" in state else {})}
    result = env.step(*periods)
    if result.done.any():
        ended = torch.as_tensor(result.done)[:, None]
        after = {name: value.masked_fill(ended, 0.0) for name, value in after.items()}
    return result, after, action


def cut(played: Behaviour, layout: SegmentLayout) -> list[Segment]:
    """All segments without overlap; those of an episode that ended are counted back from its end, so that none is lost
    for ending in a failure.
    """
    found: list[Segment] = []
    total, worlds = played.done.shape
    for world in range(worlds):
        start = 0
        for end in (*np.flatnonzero(played.done[:, world]) + 1, total):
            for last in range(int(end), start + layout.steps - 1, -layout.steps):
                rows = slice(last - layout.steps, last)
                found.append(
                    Segment(
                        episode_seed=int(played.seeds[rows.start, world]),
                        start_step=int(played.steps[rows.start, world]),
                        qpos=played.qpos[rows, world],
                        critic=played.critic[rows, world],
                        action=played.action[rows, world],
                        terms=played.terms[rows, world],
                    )
                )
            start = int(end)
    return found


def draw_segments(
    graph: PolicyGraph,
    task: Task,
    layout: SegmentLayout,
    *,
    count: int,
    seed: int,
    std: Tensor | None = None,
    training: bool = False,
    action_repeat: int = 1,
) -> list[Segment]:
    """Segments of a policy, drawn at random from a few episodes of many worlds.

    Args:
        graph: the policy.
        task: what it plays.
        layout: shape of the segments.
        count: how many.
        seed: of worlds, exploration and choice.
        std: standard deviation of the exploration, (A,); None for none.
        training: play the task's training states, which are more various.
        action_repeat: control periods per step.

    Raises:
        PreferenceError: the policy's episodes are shorter than a segment.
    """
    # Whole episodes: what a policy does at the end of them is asked about as often as what it does at first.
    steps = max(4 * layout.steps, round(task.episode_length_s / layout.step_dt))
    worlds = max(16, -(-2 * count // (steps // layout.steps)))
    played = play(
        graph,
        task,
        worlds=worlds,
        steps=steps,
        seed=seed,
        std=std,
        training=training,
        action_repeat=action_repeat,
    )
    segments = cut(played, layout)
    if len(segments) < count:
        raise PreferenceError(
            f"{worlds} worlds gave {len(segments)} of {count} segments of {layout.steps} steps; episodes end earlier, "
            "so ask for shorter segments"
        )
    chosen = np.random.default_rng(seed).choice(len(segments), count, replace=False)
    return [segments[index] for index in np.sort(chosen)]
