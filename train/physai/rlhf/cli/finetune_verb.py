"""`physai finetune`: improves a run's policy by preferences, on a leash to what it was."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.cluster.cli.generators import add_generator_arguments, add_scoring_argument, generators_of
from physai.rlhf.cli.prefer import add_rater_argument
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from physai.cluster.generators.launch import ScoringPlace
    from physai.rlhf.finetune.finetune import WorldsElsewhere
    from physai.sim.tasks.task import Task
    from physai.train.collectors.collector import Learner
    from physai.train.runners.runner import PlayedSource
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import TrainConfig


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", type=Path, metavar="RUN", help="run folder whose policy is fine-tuned")
    parser.add_argument("--preferences", type=Path, required=True, metavar="DB", help="database of answers")
    add_rater_argument(parser)
    parser.add_argument("--out", type=Path, help="new run folder (default: runs/TASK/DATE-TIME)")
    parser.add_argument("--iterations", type=int, default=60, metavar="N", help="updates of PPO (default: 60)")
    parser.add_argument("--num-envs", type=int, metavar="N", help="worlds simulated in parallel (default: the run's)")
    add_generator_arguments(parser)
    add_scoring_argument(parser)
    parser.add_argument(
        "--weight",
        type=float,
        default=1.0,
        metavar="W",
        help="of the learned reward's advantages, relative to the task's (default: 1)",
    )
    parser.add_argument(
        "--target-kl",
        type=float,
        metavar="NAT",
        help="divergence from the reference per step to aim at; four times it ends the run (default: 0.5 per action)",
    )
    parser.add_argument(
        "--task-loss",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="share of the reference's return that may be lost, besides 3 %% of the successes (default: 0.1)",
    )
    parser.add_argument(
        "--taste", metavar="NAME=WEIGHT,…", help="what the answers came from, if it is known, for the report"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")
    parser.add_argument("--task", help="task of a run whose task is not built in")
    parser.add_argument("--robot", help="robot of a run whose robot is not built in")
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    from physai.rlhf.answers.preferences import parse_taste
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.finetune.constraint import Constraint
    from physai.rlhf.finetune.finetune import FinetuneSettings, change_line, finetune, kept_line

    for name, low, high in (("weight", 0.0, 1e3), ("target_kl", 0.0, 1e3)):
        value = getattr(arguments, name)
        if value is not None and not low < value <= high:
            raise PhysaiError(f"--{name.replace('_', '-')} must lie in ({low:g}, {high:g}], got {value}")
    if not 0.0 <= arguments.task_loss <= 1.0:
        raise PhysaiError(f"--task-loss must lie in [0, 1], got {arguments.task_loss}")
    if not 1 <= arguments.iterations <= 10**6:
        raise PhysaiError(f"--iterations must lie in 1 … 1000000, got {arguments.iterations}")
    elsewhere = _worlds_elsewhere(arguments, "fine-tune RUN again, into another --out")
    store = PreferenceStore(arguments.preferences)
    names, task = store.layout.terms, store.layout.task
    store.close()
    tuned = finetune(
        arguments.reference,
        arguments.preferences,
        arguments.out or Path("runs") / task / time.strftime("%Y%m%d-%H%M%S"),
        settings=FinetuneSettings(
            iterations=arguments.iterations,
            seed=arguments.seed,
            weight=arguments.weight,
            target_kl=arguments.target_kl,
            num_envs=arguments.num_envs,
            constraint=Constraint(reward_loss=arguments.task_loss),
        ),
        raters=arguments.rater,
        taste=None if arguments.taste is None else parse_taste(arguments.taste, names),
        task=arguments.task,
        robot=arguments.robot,
        elsewhere=elsewhere,
        say=lambda text: print(printable(text), file=sys.stderr),
    )
    if arguments.json:
        print(json.dumps(asdict(tuned), indent=2))
    else:
        text = f"{tuned.reason}: {tuned.seconds:.0f} s, KL {tuned.kl:.3g} nat per step"
        print(printable(f"{text}\n{kept_line(tuned)}\n{change_line(tuned)}\nnext: physai export {tuned.run}"))
    return 130 if tuned.interrupted else 0


def _worlds_elsewhere(arguments: argparse.Namespace, way_out: str) -> WorldsElsewhere | None:
    """Worlds of fine-tuning in other processes; None for its own process.

    Args:
        arguments: options.
        way_out: what to do after an error.

    Raises:
        PhysaiError: options do not go together.
    """
    pool = generators_of(arguments)
    scoring = _scoring(arguments)
    if pool is None:
        return None
    from physai.cluster.generators.launch import check_generators, scored_generators
    from physai.rlhf.finetune.finetune import WorldsElsewhere

    placement = pool.placed(scorers=scoring == "apart")

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
            scoring=scoring,
            way_out=way_out,
        )

    return WorldsElsewhere(open=opened, origin={**pool.origin(), "scoring": scoring})


def _scoring(arguments: argparse.Namespace) -> ScoringPlace:
    """Place of scoring; the one that measured best without `--scoring`.

    Raises:
        PhysaiError: `--scoring` names a place that there is not.
    """
    has_generators = arguments.generators is not None or arguments.placement is not None
    if arguments.scoring is None:
        return "generators" if has_generators else "trainer"
    given = {"generators": has_generators, "ray": arguments.ray is not None}
    missing = {"trainer": None, "generators": "generators", "apart": "ray"}[arguments.scoring]
    if missing is not None and not given[missing]:
        raise PhysaiError(
            f"--scoring {arguments.scoring} takes --generators K{' and --ray' if missing == 'ray' else ''}; add "
            f"{'it' if missing == 'generators' else 'them'}, or leave --scoring out"
        )
    scoring: ScoringPlace = arguments.scoring
    return scoring


command = CliCommand(summary="fine-tune a policy by preferences", add_arguments=_add_arguments, run=_run)
