"""`physai preferences train` as a function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.rlhf.answers.teacher_choice import (
    MAX_PAIRS,
    MethodName,
    Taste,
    TeacherName,
    TeacherParameters,
    chosen_teacher,
    require_seed,
)
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.parameter import Option

if TYPE_CHECKING:
    from physai.rlhf.finetune.scratch import ScratchOutcome

MIN_LABELS = 12


def train_from_preferences(
    task: str | Path,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    simulated: Annotated[TeacherName, Option(metavar="TEACHER", old=("--teacher",))],
    parameters: Annotated[TeacherParameters | None, Option(flatten=True)] = None,
    taste: Taste = None,
    labels: int = 200,
    method: MethodName = "best",
    segment_s: float = 0.5,
    iterations: int = 180,
    num_envs: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> ScratchOutcome:
    """Train a policy by preferences of a simulated teacher alone: ask, fit and learn in turn.

    Args:
        task: task name or Python file.
        out: run folder. None for runs/TASK/DATE-TIME.
        simulated: teacher: perfect, noisy, myopic, mistaken, skipping or equal.
        parameters: other parameters of the teacher.
        taste: terms that it likes, as joint_speed=-1. None for the task's own reward.
        labels: answers to ask for.
        method: how to choose pairs: mostly among those that the reward models so far like best, by their disagreement,
            at random, or every segment equally often; the first pairs are random.
        segment_s: length of a segment [s].
        iterations: updates of PPO.
        num_envs: number of worlds simulated in parallel. None for the task's.
        seed: seed of all random numbers.
        say: receives progress.

    Returns:
        The run, whose `interrupted` is true if a signal ended it.

    Raises:
        PhysaiError: an option is out of range, or the task or the folder cannot be used.
    """
    require_seed(seed)
    if not MIN_LABELS <= labels <= MAX_PAIRS:
        raise PhysaiError(f"--labels must lie in {MIN_LABELS} … {MAX_PAIRS}, got {labels}")
    from physai.rlhf.answers.preferences import parse_taste, term_names
    from physai.rlhf.answers.teachers import SIMULATED
    from physai.rlhf.finetune.scratch import ScratchSettings, train_by_preferences
    from physai.sim.policies.resolve import named_source
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import with_options
    from physai.train.settings.presets import settings_of

    source = RunTaskSource(**asdict(named_source(str(task), robot=None, preset=None)), twin=None)
    loaded = source.load()
    options = {"seed": str(seed), "iterations": str(iterations)}
    options |= {} if num_envs is None else {"num_envs": str(num_envs)}
    config = with_options(settings_of(loaded, source.task, source.preset), options)
    default = Path("runs") / Path(source.task).stem / time.strftime("%Y%m%d-%H%M%S")
    return train_by_preferences(
        source,
        config,
        default if out is None else Path(out),
        teacher=chosen_teacher(simulated, parameters),
        rater=SIMULATED + simulated,
        settings=ScratchSettings(labels=labels, method=method, segment_s=segment_s),
        taste=None if taste is None else parse_taste(taste, term_names(loaded)),
        say=say or (lambda text: None),
    )
