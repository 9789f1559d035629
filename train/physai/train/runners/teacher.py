"""Start a run from a teacher (`--teacher`): the network first imitates a policy file, for instance a designed one.

The teacher plays in the task's worlds, with noise on its commands as in DART (Laskey et al., 2017), so that there are
labels for what to do after a mistake; the actor learns them by least squares. Reinforcement learning goes on from
there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.diff import require_same
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.train.models.numpy_policy import as_tensors, seeded
from physai.train.models.policy_graph import PolicyGraph, State
from physai.train.runners.runner import Trainer

WORLDS = 64
SAMPLES = 60_000
"""Control periods to learn from, of each kind of start, in whole episodes."""
SETTLED = 1e7
"""Samples that the observation statistics count as afterwards."""
NOISE = 0.15
"""Standard deviation of the noise on the teacher's commands, in network outputs, in every second world."""
EPOCHS, BATCH, LEARNING_RATE = 40, 512, 1e-3
CRITIC_ITERATIONS = 20
"""Iterations in which only the critic learns."""
STARTED_STD = 0.1
"""Exploration noise to begin with: a larger one would lose what was learned."""


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """What the network took over."""

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
    if int(getattr(graph.actor, "state_size", 0)):
        raise PhysaiError("--teacher: a network with a memory cannot imitate single states; train with actor=mlp")
    require_same(teacher.contract, task.contract, left="the teacher", right=f"the task {task.name}")


def imitate(trainer: Trainer, teacher: OnnxPolicy) -> Imitation:
    """Teach a new run's actor and observation statistics, before its first iteration.

    Raises:
        PhysaiError: see `require_teachable`, or the run is on a GPU.
    """
    if trainer.device.type != "cpu" or trainer.ranks.size > 1:
        raise PhysaiError("--teacher: imitation runs on the CPU in one process; continue on others with --init-from")
    graph = trainer.graph
    require_teachable(trainer.task, teacher, graph)
    seed = trainer.config.seed
    # Where episodes begin, and where training begins, which may be anywhere.
    seen, told, success = _played(trainer.task, graph, teacher, seed=seed, training=False)
    further, also, _ = _played(trainer.task, graph, teacher, seed=seed + 1, training=True)
    observations, actions = torch.cat([seen, further]), torch.cat([told, also])
    graph.normaliser.update(observations)
    # Another scaling of its inputs would be another function: from here on the statistics change slowly.
    graph.normaliser.count.fill_(SETTLED)
    error = _fit(graph, observations, actions, seed=seed)
    _let_critic_catch_up(trainer)
    return Imitation(samples=len(actions), error=error, teacher_success=success)


def _let_critic_catch_up(trainer: Trainer) -> None:
    """Trains the critic alone: what an untrained one says of the actions would undo the actor's first lessons."""
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


def _played(
    task: Task, graph: PolicyGraph, teacher: OnnxPolicy, *, seed: int, training: bool
) -> tuple[Tensor, Tensor, float | None]:
    """Observations (n, observations), the teacher's actions in them (n, actions), and its share of successes."""
    env = Environment(task, WORLDS, seed=seed, training=training)
    episode = round(task.episode_length_s / task.contract.timing.control_dt)
    generator = seeded(seed)
    noise = torch.zeros(WORLDS, 1)
    noise[1::2] = NOISE
    observations, actions = list[Tensor](), list[Tensor]()
    judged = succeeded = 0
    now, state = env.reset(), graph.initial_state(WORLDS)
    teacher.reset(WORLDS)
    for _ in range(-(-SAMPLES // (WORLDS * episode)) * episode):
        sensors, commands = as_tensors(now.sensors), as_tensors(now.commands)
        observation, histories = graph.observe(sensors, commands, state)
        wanted = teacher(now.sensors, now.commands)
        _require_finite(wanted)
        action = _as_action(graph, wanted, sensors, state)
        observations.append(observation)
        actions.append(action)
        shaken = action + noise * torch.randn(action.shape, generator=generator)
        targets, memory = graph.command(shaken, sensors, state)
        now = env.step({name: value.numpy() for name, value in targets.items()})
        state = {**histories, **memory}
        judged, succeeded = judged + int(now.judged.sum()), succeeded + int(now.succeeded[now.judged].sum())
        if now.done.any():
            ended = torch.as_tensor(now.done)[:, None]
            state = {name: torch.where(ended, 0.0, value) for name, value in state.items()}
            teacher.reset_worlds(now.done)
    return torch.cat(observations), torch.cat(actions), succeeded / judged if judged else None


def _require_finite(targets: Mapping[str, Array]) -> None:
    for name, values in targets.items():
        if not np.isfinite(values).all():
            found = values[~np.isfinite(values)][0]
            raise PhysaiError(f"--teacher: the policy outputs {found} as {name}; physai eval shows how well it does")


def _as_action(graph: PolicyGraph, targets: Mapping[str, Array], sensors: State, state: State) -> Tensor:
    """The network outputs that give a policy's commands, clipped to [-1, 1].

    The outputs of an incremental term are measured from what was commanded last, the noise included.
    """
    parts = [
        (torch.as_tensor(targets[term.target_name]) - graph.action.origin(term, sensors, state))
        / torch.tensor(term.scale)
        for term in graph.contract.action.terms
    ]
    return torch.cat(parts, dim=1).clamp(-1.0, 1.0)


def _fit(graph: PolicyGraph, observations: Tensor, actions: Tensor, *, seed: int) -> float:
    """Least squares on the actor; the root mean square error afterwards."""
    generator = seeded(seed)
    inputs, hidden = graph.normaliser(observations).detach(), observations[:, :0]
    optimiser: Any = torch.optim.Adam(graph.actor.parameters(), lr=LEARNING_RATE)
    schedule: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(inputs), BATCH):
            rows = order[start : start + BATCH]
            loss = (graph.actor(inputs[rows], hidden[rows])[0] - actions[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    with torch.no_grad():
        return float((graph.actor(inputs, hidden)[0] - actions).square().mean().sqrt())
