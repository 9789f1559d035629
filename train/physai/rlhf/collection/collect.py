"""Fills a preference database: segments of a policy, and pairs of them to be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from physai.rlhf.answers.answers import Method
from physai.rlhf.answers.motion_features import with_seen
from physai.rlhf.answers.segment import Segment
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.collection.choose import LED, choose_pairs, with_repeats
from physai.rlhf.collection.draw import draw_segments, layout_of, policy_digest
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.fit import MIN_ANSWERS, fit_store
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.checkpoint import load_run, read_checkpoint
from physai.train.settings.config import TrainConfig

SEGMENTS_PER_PAIR = 20
"""Segments among which the two of each pair are chosen; the others are not stored."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Segments that were added to a database."""

    segments: int
    pairs: int
    repeated: int
    """Those of the pairs that repeat earlier ones."""
    method: Method
    """How the others were chosen."""


def add_questions(
    store: PreferenceStore,
    graph: PolicyGraph,
    task: Task,
    *,
    pairs: int,
    method: Method,
    seed: int,
    origin: Mapping[str, Any],
    std: torch.Tensor | None = None,
    training: bool = False,
    action_repeat: int = 1,
    model: RewardEnsemble | None = None,
    repeats: float = 0.0,
    segments: int | None = None,
) -> Collected:
    """Draws segments of a policy and adds pairs of them, by `uniform` with each other, else with all of the database.

    Args:
        store: where to.
        graph: the policy.
        task: what it plays.
        pairs: how many pairs to choose.
        method: see `choose_pairs`.
        seed: of worlds, exploration and choice.
        origin: what to note of the policy's origin.
        std: see `draw_segments`.
        training: likewise.
        action_repeat: likewise.
        model: see `choose_pairs`.
        repeats: share of the pairs that is added to ask earlier ones again.
        segments: how many to choose from; `SEGMENTS_PER_PAIR` for each pair if None.

    Raises:
        PreferenceError: the policy's episodes are too short, or the database is of another task.
    """
    drawn: list[Segment] = draw_segments(
        graph,
        task,
        store.layout,
        count=segments or max(2, SEGMENTS_PER_PAIR * pairs),
        seed=seed,
        std=std,
        training=training,
        action_repeat=action_repeat,
    )
    versions = {name: metadata.version(name) for name in ("physai-sdk", "mujoco", "torch")}
    # Until they are stored, new segments have negative numbers.
    known = {} if method == "uniform" else store.segments()
    pool = {**known, **{-1 - row: one for row, one in enumerate(drawn)}}
    chosen = choose_pairs(
        list(pool), list(pool.values()), count=pairs, method=method, seed=seed, model=model, newest=len(drawn)
    )
    used = sorted({number for pair in chosen for number in (pair.first, pair.second) if number < 0}, reverse=True)
    about = {**origin, "seed": seed, "versions": versions}
    stored = store.add_segments(policy_digest(graph), about, [pool[number] for number in used])
    place = {**{number: number for number in known}, **dict(zip(used, stored, strict=True))}
    chosen = [replace(pair, first=place[pair.first], second=place[pair.second]) for pair in chosen]
    asked = with_repeats(chosen, store.pairs(), repeats, seed)
    store.add_pairs(asked)
    return Collected(segments=len(used), pairs=len(asked), repeated=len(asked) - pairs, method=method)


def collect(
    run: Path,
    database: Path,
    *,
    pairs: int,
    method: Method,
    seconds: float,
    seed: int,
    repeats: float,
    explore: bool,
    task: str | Path | None = None,
    robot: str | Path | None = None,
) -> Collected:
    """Draws questions from a run's policy into a database, which is begun if there is none.

    Disagreement needs a model, which is fitted to the answers so far; with fewer than `MIN_ANSWERS` the pairs are
    chosen at random.

    Args:
        run: run folder.
        database: SQLite file.
        pairs: how many to add.
        method: how to choose them.
        seconds: length of a segment [s].
        seed: of worlds, exploration and choice.
        repeats: see `add_questions`.
        explore: play with the exploration noise that the run ended with.
        task: see `physai.train.runners.checkpoint.load_run`.
        robot: likewise.
    """
    loaded = load_run(run, task=task, robot=robot)
    seen = with_seen(loaded.task)
    store = PreferenceStore(
        database, layout=layout_of(seen, seconds=seconds, action_repeat=loaded.config.action_repeat)
    )
    try:
        model = None
        if method in LED:
            known = sum(answer.preference != "cannot_tell" for answer in store.answers())
            model = fit_store(store, seed=seed)[0] if known >= MIN_ANSWERS else None
        return add_questions(
            store,
            loaded.graph,
            seen,
            pairs=pairs,
            method="random" if method in LED and model is None else method,
            seed=seed,
            origin={"run": run.resolve().name, "iteration": loaded.provenance["iteration"]},
            std=_std(run) if explore else None,
            action_repeat=loaded.config.action_repeat,
            model=model,
            repeats=repeats,
        )
    finally:
        store.close()


def _std(run: Path) -> torch.Tensor:
    std: torch.Tensor = read_checkpoint(run)["ppo"]["log_std"].exp()
    return std


def without_stops(config: TrainConfig) -> dict[str, Any]:
    """Settings to replace in a run that learns from preferences: it ends neither by the task's success alone, nor do
    worlds step elsewhere.
    """
    return {
        "stop_at_success": None,
        "overlap": False,
        "staleness": 0,
        "segments": 1,
        "engine": "mujoco",
        "reward": "task",
        "advantage": "gae",
        "seed": config.seed,
    }
