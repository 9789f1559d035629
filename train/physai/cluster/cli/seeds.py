"""Several runs that differ in their seed only: `physai train --seeds`."""

import argparse
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from physai.sdk.base.errors import CheckpointError, PhysaiError

if TYPE_CHECKING:
    from physai.train.settings.config import TrainConfig

MAX_SEEDS = 1000


def parse_seeds(text: str) -> list[int]:
    """Seeds in `0..4`, both ends included, or `0,3,7`.

    Raises:
        PhysaiError: the text is neither, names a seed twice, or too many.
    """
    if found := re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", text):
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < MAX_SEEDS:
            raise PhysaiError(f"--seeds {text}: must ascend, over at most {MAX_SEEDS} seeds")
        return list(range(first, last + 1))
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text) or text.count(",") >= MAX_SEEDS:
        raise PhysaiError(f"--seeds {text[:80]}: expected 0..4, or 0,3,7")
    seeds = [int(word) for word in text.split(",")]
    if len(set(seeds)) != len(seeds):
        raise PhysaiError(f"--seeds {text[:80]}: a seed is named twice")
    return seeds


def check_options(arguments: argparse.Namespace) -> None:
    """Raises PhysaiError for options that mean nothing for several runs."""
    for option in ("resume", "seed", "gpus"):
        if getattr(arguments, option) is not None:
            hint = "run the same command again to continue them" if option == "resume" else "start them one by one"
            raise PhysaiError(f"--seeds trains several runs and does not go with --{option}; {hint}")
    if any(text.partition("=")[0].strip() == "seed" for text in arguments.options):
        raise PhysaiError("--seeds names the seeds; leave out --set seed")


def unfinished(folder: Path, wanted: Callable[[], "TrainConfig"]) -> Literal["new", "interrupted", "finished"]:
    """State of the run of one seed.

    Args:
        folder: its run folder.
        wanted: makes the settings that it is to have.

    Raises:
        CheckpointError: the folder holds a run with other settings.
    """
    from physai.train.runners.checkpoint import CHECKPOINT_FILE
    from physai.train.runs.run_config import load_config
    from physai.train.runs.summary import load_outcome

    if not (folder / CHECKPOINT_FILE).exists():
        return "new"
    before, now = load_config(folder)[1], wanted()
    for field in dataclasses.fields(before):
        left, right = getattr(before, field.name), getattr(now, field.name)
        if left != right:
            raise CheckpointError(
                f"{folder} holds a run with {field.name} {left}, not {right}; give the same settings to continue it "
                "or another --out"
            )
    outcome = load_outcome(folder)
    return "finished" if outcome is not None and not outcome.interrupted else "interrupted"
