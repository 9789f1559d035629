"""Imitate a teacher: a policy file, for instance a designed one, labels what to do in the task's worlds.

The teacher plays, with noise on its commands as in DART (Laskey et al., 2017), so that there are labels for what to do
after a mistake. In further rounds the network plays and the teacher says what it would have done, as in DAgger (Ross,
Gordon and Bagnell, 2011), so that there are labels for the network's own mistakes. The actor learns by least squares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.contract_diff import require_same
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_policy
from physai.sim.tasks.task import Task
from physai.train.models.numpy_policy import as_tensors, seeded
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.imitation.demonstrations import (
    Demonstrations,
    action_for,
    fit,
    fix_statistics,
    joined,
    require_no_memory,
)
from physai.train.runners.runner import Trainer

WORLDS = 64
SAMPLES = 60_000
"""Control periods to learn from, of each kind of start, in whole episodes."""
NOISE = 0.15
"""Standard deviation of the noise on the teacher's commands, in network outputs, in every second world."""
EPOCHS = 40
CRITIC_ITERATIONS = 20
"""Iterations in which only the critic learns."""
STARTED_STD = 0.1
"""Exploration noise to begin with: a larger one would lose what was learned."""


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """Result of learning from a teacher."""

    samples: int
    error: float
    """Root mean square difference to the teacher, in network outputs (-1 to 1)."""
    teacher_success: float | None
    """Share of the judged commands or episodes that the teacher met, its noise included."""


def require_teachable(task: Task, teacher: OnnxPolicy, graph: PolicyGraph) -> None:
    """Check that a policy can teach a task.

    Raises:
        PhysaiError: its contract differs, or the network has a memory.
    """
    require_no_memory(graph)
    require_same(teacher.contract, task.contract, left="the teacher", right=f"the task {task.name}")


def imitate(trainer: Trainer, teacher: OnnxPolicy, *, rounds: int = 0, critic: bool = True) -> Imitation:
    """Teach a new run's actor and observation statistics, before its first iteration.

    Args:
        trainer: of the new run.
        teacher: what it imitates.
        rounds: further rounds in which the network plays and the teacher corrects it.
        critic: train the critic, too, for the reinforcement learning that follows.

    Raises:
        PhysaiError: see `require_teachable`, or the run is on a GPU.
    """
    if trainer.device.type != "cpu" or trainer.ranks.size > 1:
        raise PhysaiError("`teacher`: imitation runs on the CPU in one process; continue on others with `init_from`")
    graph = trainer.graph
    require_teachable(trainer.task, teacher, graph)
    seed = trainer.config.seed
    # Where episodes begin, and where training begins, which may be anywhere.
    first, success = _played(trainer.task, graph, teacher, seed=seed, training=False)
    further, _ = _played(trainer.task, graph, teacher, seed=seed + 1, training=True)
    pairs = first + further
    fix_statistics(graph, pairs)
    error = fit(graph, pairs, seed=seed, epochs=EPOCHS)
    for number in range(rounds):
        corrected, _ = _played(trainer.task, graph, teacher, seed=seed + 2 + number, training=number % 2 == 1, own=True)
        pairs += corrected
        error = fit(graph, pairs, seed=seed + 2 + number, epochs=EPOCHS)
    if critic:
        _let_critic_catch_up(trainer)
    return Imitation(samples=len(pairs.actions), error=error, teacher_success=success)


def imitate_file(
    trainer: Trainer, path: Path, *, say: Callable[[str], None], rounds: int = 0, critic: bool = True
) -> Imitation:
    """Imitate a policy file or that of a run, and say how well; see `imitate`."""
    say(f"imitating {path}")
    learned = imitate(trainer, OnnxPolicy.load(find_policy(path)), rounds=rounds, critic=critic)
    met = "" if learned.teacher_success is None else f", which succeeded {learned.teacher_success:.0%} of the time"
    say(f"differs from the teacher{met}, by {learned.error:.3f} of its range; {learned.samples} samples")
    return learned


def _let_critic_catch_up(trainer: Trainer) -> None:
    """Train the critic alone: what an untrained one says of the actions would undo the actor's first lessons."""
    ppo = trainer.learner.ppo
    spread = torch.full_like(ppo.log_std.data, float(np.log(STARTED_STD))).minimum(ppo.log_std.data)
    ppo.log_std.data.copy_(spread)
    ppo.actor.requires_grad_(False)
    for _ in range(CRITIC_ITERATIONS):
        trainer.train_iteration()
        ppo.log_std.data.copy_(spread)
    ppo.actor.requires_grad_(True)
    ppo.optimizer.state.pop(ppo.log_std, None)
    ppo.set_learning_rate(trainer.config.learning_rate)


@torch.no_grad()
def _played(
    task: Task, graph: PolicyGraph, teacher: OnnxPolicy, *, seed: int, training: bool, own: bool = False
) -> tuple[Demonstrations, float | None]:
    """Observations, the teacher's answers, and the share of successes; with `own` the network plays, not the
    teacher.
    """
    env = Environment(task, WORLDS, seed=seed, training=training)
    episode = round(task.episode_length_s / task.contract.timing.control_dt)
    generator = seeded(seed)
    noise = torch.zeros(WORLDS, 1)
    noise[1::2] = NOISE
    seen = list[Demonstrations]()
    judged = succeeded = 0
    now, state = env.reset(), graph.initial_state(WORLDS)
    teacher.reset(WORLDS)
    for _ in range(-(-SAMPLES // (WORLDS * episode)) * episode):
        sensors, commands = as_tensors(now.sensors), as_tensors(now.commands)
        observation, histories = graph.observe(sensors, commands, state)
        told = teacher(now.sensors, now.commands)
        _require_finite(told)
        action, wanted = action_for(graph, as_tensors(told), sensors, state)
        seen.append(Demonstrations(observation, action, float((wanted.abs() > 1.0).double().mean())))
        answer = graph.actor(graph.normaliser(observation), observation[:, :0])[0] if own else action
        shaken = answer + noise * torch.randn(action.shape, generator=generator)
        targets, memory = graph.command(shaken, sensors, state)
        now = env.step({name: value.numpy() for name, value in targets.items()})
        state = {**histories, **memory}
        judged, succeeded = judged + int(now.judged.sum()), succeeded + int(now.succeeded[now.judged].sum())
        if now.done.any():
            ended = torch.as_tensor(now.done)[:, None]
            state = {name: torch.where(ended, 0.0, value) for name, value in state.items()}
            teacher.reset_worlds(now.done)
    return joined(seen), succeeded / judged if judged else None


def _require_finite(targets: Mapping[str, Array]) -> None:
    for name, values in targets.items():
        if not np.isfinite(values).all():
            found = values[~np.isfinite(values)][0]
            raise PhysaiError(f"`teacher`: the policy outputs {found} as {name}; physai eval shows how well it does")
