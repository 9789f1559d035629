"""`physai finetune` as a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from physai.cluster.generators.launch import Generators, ScoringPlace
    from physai.rlhf.finetune.finetune import Finetuned, WorldsElsewhere
    from physai.sim.tasks.task import Task
    from physai.train.collectors.collector import Learner
    from physai.train.runners.runner import PlayedSource
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import TrainConfig

Raters = Annotated[Sequence[str], Option(flags=("--rater",), repeat=True, metavar="NAME")]
"""Type of the option `--rater`, which may be repeated."""

MAX_ITERATIONS = 10**6


def fine_tune(
    run: Path | str,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    preferences: Annotated[Path | str, Option(metavar="DB")],
    raters: Raters = (),
    iterations: int = 60,
    num_envs: int | None = None,
    weight: float = 1.0,
    target_kl: Annotated[float | None, Option(metavar="NAT")] = None,
    task_loss: Annotated[float, Option(metavar="SHARE")] = 0.1,
    taste: Annotated[str | Mapping[str, float] | None, Option(metavar="NAME=WEIGHT,…")] = None,
    seed: int = 0,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    generators: Generators | None = None,
    scoring: Literal["trainer", "generators", "apart"] | None = None,
    say: Callable[[str], None] | None = None,
) -> Finetuned:
    """Fit a reward model to answers and fine-tune a run's policy with it, with a penalty on the divergence from it.

    Args:
        run: run folder whose policy is fine-tuned.
        out: new run folder. None for runs/TASK/DATE-TIME.
        preferences: database of answers.
        raters: learn from the answers of this rater only; may be repeated. None for all raters.
        iterations: updates of PPO.
        num_envs: number of worlds simulated in parallel. None for the run's.
        weight: weight of the learned reward's advantages, relative to the task's.
        target_kl: divergence from the reference per step to aim at [nat]; four times it ends the run. None for half a
            nat per action.
        task_loss: share of the reference's return that may be lost, besides 3 % of the successes.
        taste: source of the answers, if it is known, for the report.
        seed: seed of all random numbers.
        task: task of a run whose task is not built in.
        model: MJCF or URDF file of a run whose robot is not built in.
        generators: processes that step the worlds. None for this process.
        scoring: where reward model and reference score the rollouts: in this process, in the generators as each share
            of the worlds ends, or then in actors of their own on Ray. None for generators, if there are any.
        say: receives progress and warnings.

    Returns:
        The new run, and the policy before and after.

    Raises:
        PhysaiError: an option is out of range, or run, database or folder cannot be used.
        ClusterError: the generators cannot be started.
    """
    for name, value in (("weight", weight), ("target-kl", target_kl)):
        if value is not None and not 0.0 < value <= 1e3:
            raise PhysaiError(f"--{name} must lie in (0, 1000], got {value}")
    if not 0.0 <= task_loss <= 1.0:
        raise PhysaiError(f"`task_loss` must lie in [0, 1], got {task_loss}")
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise PhysaiError(f"`iterations` must lie in 1 … {MAX_ITERATIONS}, got {iterations}")
    elsewhere = _worlds_elsewhere(generators, scoring, "fine-tune RUN again, into another --out")

    from physai.rlhf.answers.preferences import parse_taste
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.finetune.constraint import Constraint
    from physai.rlhf.finetune.finetune import FinetuneSettings, finetune

    store = PreferenceStore(Path(preferences))
    layout = store.layout
    store.close()
    return finetune(
        Path(run),
        Path(preferences),
        Path("runs") / layout.task / time.strftime("%Y%m%d-%H%M%S") if out is None else Path(out),
        settings=FinetuneSettings(
            iterations=iterations,
            seed=seed,
            weight=weight,
            target_kl=target_kl,
            num_envs=num_envs,
            constraint=Constraint(reward_loss=task_loss),
        ),
        raters=raters,
        taste=None if taste is None else parse_taste(taste, layout.terms),
        task=task,
        robot=model,
        elsewhere=elsewhere,
        say=say or (lambda text: None),
    )


def _worlds_elsewhere(pool: Generators | None, scoring: ScoringPlace | None, way_out: str) -> WorldsElsewhere | None:
    """Worlds of fine-tuning in other processes; None for its own process.

    Raises:
        PhysaiError: options do not go together.
    """
    place = _scoring(pool, scoring)
    if pool is None:
        return None
    from physai.cluster.generators.launch import check_generators, scored_generators
    from physai.rlhf.finetune.finetune import WorldsElsewhere

    placement = pool.placed(scorers=place == "apart")

    def opened(
        task: Task, source: RunTaskSource, config: TrainConfig
    ) -> AbstractContextManager[Callable[[Learner], PlayedSource]]:
        check_generators(config, pool.count, pool.ray)
        return scored_generators(
            task,
            source,
            config,
            generators=pool.count,
            address=pool.ray,
            placement=placement,
            scoring=place,
            way_out=way_out,
        )

    return WorldsElsewhere(open=opened, origin={**pool.origin(), "scoring": place})


def _scoring(pool: Generators | None, scoring: ScoringPlace | None) -> ScoringPlace:
    """Place of scoring; the one that measured best if none was chosen.

    Raises:
        PhysaiError: the chosen place does not exist.
    """
    if scoring is None:
        return "trainer" if pool is None else "generators"
    if scoring == "generators" and pool is None:
        raise PhysaiError("`scoring` generators takes `generators` K; add it, or leave `scoring` out")
    if scoring == "apart" and (pool is None or pool.ray is None):
        raise PhysaiError("`scoring` apart takes `generators` K and `ray`; add them, or leave `scoring` out")
    return scoring
