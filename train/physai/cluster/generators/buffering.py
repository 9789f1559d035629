"""Makes a rollout of generators' chunks."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from physai.cluster.generators.generator import Chunk, as_tensors
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Learner, StepRecords, add_values
from physai.train.models.numpy_policy import as_tensor


def fill(rollout: Rollout, chunks: Sequence[Chunk], learner: Learner, *, metrics: Iterable[str]) -> StepRecords:
    """Puts chunks side by side into a rollout, values of the learner's critic to them, and the summary of them.

    Args:
        rollout: of as many steps as each chunk and as many worlds as all together.
        chunks: in the order of the rollout's worlds.
        learner: whose critic estimates the values.
        metrics: names of the task's metrics.
    """
    for name in chunks[0].columns:
        worlds = 0 if name == "hidden" else 1
        joined = np.concatenate([chunk.columns[name] for chunk in chunks], axis=worlds)
        getattr(rollout, name).copy_(as_tensor(joined))
    played = joined_played([StepRecords(**as_tensors(chunk.played)) for chunk in chunks])
    add_values(rollout, played, learner)
    counts = [chunk.columns["reward"].shape[1] for chunk in chunks]
    rollout.reward_terms = {
        name: sum(chunk.reward_terms[name] * count for chunk, count in zip(chunks, counts, strict=True)) / sum(counts)
        for name in chunks[0].reward_terms
    }
    values = {name: played.metrics[name] for name in metrics if name in played.metrics}
    rollout.metrics = {name: float(x.sum()) / len(x) for name, x in values.items()}
    return played


def joined_played(parts: Sequence[StepRecords]) -> StepRecords:
    """Steps of all worlds, joined from those of each share of them, in their order."""
    outcomes = [part.outcomes for part in parts]
    judged = [x >= 0.0 for x in outcomes]
    names = sorted({name for part in parts for name in part.metrics})
    metrics = {name: _in_order(judged, [part.metrics.get(name) for part in parts]) for name in names}
    return StepRecords(
        outcomes=torch.cat(outcomes, dim=1),
        metrics=metrics,
        cut=torch.cat([part.cut for part in parts], dim=1),
        final_critic=_in_order([part.cut for part in parts], [part.final_critic for part in parts]),
        last_critic=torch.cat([part.last_critic for part in parts]),
        scores={name: torch.cat([part.scores[name] for part in parts], dim=1) for name in parts[0].scores},
    )


def _in_order(masks: Sequence[Tensor], values: Sequence[Tensor | None]) -> Tensor:
    """Values of marked steps and worlds, by steps, then by worlds, given those of each share in that order.

    Args:
        masks: which steps and worlds each share has values of, bool, (T, N).
        values: the values, (number marked, …); None for a share that has none.
    """
    present = next(x for x in values if x is not None)
    whole = torch.cat(list(masks), dim=1)
    table = torch.zeros((*whole.shape, *present.shape[1:]), dtype=present.dtype)
    first = 0
    for mask, value in zip(masks, values, strict=True):
        if value is not None:
            table[:, first : first + mask.shape[1]][mask] = value
        first += mask.shape[1]
    return table[whole]
