"""Several runs that differ in their seed only."""

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from physai.sdk.base.errors import CheckpointError, PhysaiError
from physai.train.api.options import TrainOptions, default_folder
from physai.train.api.resolution import configured
from physai.train.api.running import train_with
from physai.train.runners.session import TrainingRun
from physai.train.runs.run_config import CHECKPOINT_FILE, load_config
from physai.train.runs.summary import load_outcome
from physai.train.settings.config import TrainConfig

MAX_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class SeedRuns:
    """Result of `train_seeds`."""

    folder: Path
    """Folder of the run folders."""
    runs: tuple[TrainingRun, ...]
    """Runs that were trained or continued in this call, in the order of the seeds."""

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the last run."""
        return any(run.interrupted for run in self.runs)


def parse_seeds(text: str) -> list[int]:
    """Seeds in `0..4`, both ends included, or `0,3,7`.

    Raises:
        PhysaiError: the text is neither, names a seed twice, or too many.
    """
    if found := re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", text):
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < MAX_SEEDS:
            raise PhysaiError(f"`seeds` {text}: must ascend, over at most {MAX_SEEDS} seeds")
        return list(range(first, last + 1))
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text) or text.count(",") >= MAX_SEEDS:
        raise PhysaiError(f"`seeds` {text[:80]}: expected 0..4, or 0,3,7")
    seeds = [int(word) for word in text.split(",")]
    if len(set(seeds)) != len(seeds):
        raise PhysaiError(f"`seeds` {text[:80]}: a seed is named twice")
    return seeds


def train_each_seed(
    seeds: str | Iterable[int],
    options: TrainOptions,
    *,
    say: Callable[[str], None] | None,
    done: Callable[[TrainingRun], None] | None,
) -> SeedRuns:
    """`physai.train.train_seeds` with the options of the runs in one object."""
    _check_options(options)
    named = parse_seeds(seeds if isinstance(seeds, str) else ",".join(map(str, seeds)))
    source, _ = configured(options)
    base = options.out or default_folder(source)
    runs: list[TrainingRun] = []
    for seed in named:
        folder = base / f"seed-{seed}"
        one = replace(options, seed=seed, out=folder)
        state = _state(folder, one)
        if state == "finished":
            if say is not None:
                say(f"{folder} has ended")
            continue
        if state == "interrupted":
            one = _continued(one, folder)
        runs.append(train_with(one, say=say))
        if done is not None:
            done(runs[-1])
        if runs[-1].interrupted:
            break
    return SeedRuns(folder=base, runs=tuple(runs))


def _check_options(options: TrainOptions) -> None:
    for option in ("resume", "seed", "gpus"):
        if getattr(options, option) is not None:
            hint = "run the same command again to continue them" if option == "resume" else "start them one by one"
            raise PhysaiError(f"`seeds` trains several runs and does not go with `{option}`; {hint}")
    if "seed" in options.settings:
        raise PhysaiError("`seeds` names the seeds; leave out `settings` seed")


def _continued(options: TrainOptions, folder: Path) -> TrainOptions:
    """The options with which the run in a folder continues, which keeps its settings."""
    kept = {name: getattr(options, name) for name in ("task", "device", "model", "iterations", "time_budget_s")}
    kept |= {name: getattr(options, name) for name in ("wandb", "mlflow", "generators")}
    return TrainOptions(**kept, resume=folder)


def _state(folder: Path, options: TrainOptions) -> Literal["new", "interrupted", "finished"]:
    """State of the run of one seed.

    Raises:
        CheckpointError: the folder holds a run with other settings.
    """
    if not (folder / CHECKPOINT_FILE).exists():
        return "new"
    before: TrainConfig = load_config(folder)[1]
    now = configured(options)[1]
    for field in dataclasses.fields(before):
        left, right = getattr(before, field.name), getattr(now, field.name)
        if left != right:
            raise CheckpointError(
                f"{folder} holds a run with {field.name} {left}, not {right}; give the same settings to continue it "
                "or another `out`"
            )
    outcome = load_outcome(folder)
    return "finished" if outcome is not None and not outcome.interrupted else "interrupted"
