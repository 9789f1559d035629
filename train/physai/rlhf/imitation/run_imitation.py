"""A policy from recordings of a robot, or from another policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.train.runners.runner import Trainer

MAX_ROUNDS = 20
WORTH_A_WARNING = 0.01
"""Share of commands beyond the policy's range from which a warning is given."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ImitationRun:
    """Result of an imitation."""

    run: Path
    """Run folder."""
    contract: str
    """Fingerprint of the task's contract."""
    task: str
    """Name of the task, or path of its file."""
    learned: Mapping[str, Any]
    """Figures of what was learned: from recordings those of `Cloned`, from a policy those of `Imitation`."""
    seconds: float
    """Duration of the imitation [s]."""
    success: float | None
    """Success rate without exploration; None if the task judges none."""


def imitate(
    task: str | Path,
    recordings: Annotated[Sequence[Path | str], Option(flags=("--from",))] = (),
    *,
    teacher: Annotated[Path | str | None, Option(metavar="POLICY")] = None,
    rounds: int = 0,
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    seed: int | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    preset: str | None = None,
    settings: Annotated[Mapping[str, object] | None, Option(flags=("--set",), lone="help")] = None,
    say: Say | None = None,
) -> ImitationRun:
    """Teach a network to answer as recordings show (behaviour cloning), or as another policy does (DAgger).

    Args:
        task: task name or Python file.
        recordings: recordings of the robot at the task.
        teacher: imitate this policy.onnx or run instead.
        rounds: rounds in which the network plays and the teacher corrects it, at most 20.
        columns: column map for all recordings.
        out: run folder. None for runs/TASK/DATE-TIME.
        seed: seed of all random numbers. None for 0.
        model: MJCF or URDF file instead of the task's own robot.
        twin: calibrated twin in which the policy is judged.
        preset: variant of the task, if it has any.
        settings: any other setting, as for `physai train`.
        say: receives progress and warnings.

    Returns:
        The run folder, which is one as of `physai.train.train`, and what was learned.

    Raises:
        PhysaiError: recordings or teacher do not fit the task, or the task, a setting or the folder cannot be used.
    """
    if bool(recordings) == (teacher is not None):
        raise PhysaiError("give either `recordings` FILE … or `teacher` POLICY")
    if not 0 <= rounds <= MAX_ROUNDS:
        raise PhysaiError(f"`rounds` must lie in [0, {MAX_ROUNDS}], got {rounds}")
    if rounds and teacher is None:
        raise PhysaiError("`rounds` needs `teacher`: recordings cannot say what to do after the network's own mistakes")

    import torch

    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import resolved
    from physai.train.runners.runner import Trainer, learner_threads
    from physai.train.runs.run_config import begin_run, training_alone

    tell: Say = say or (lambda text: None)
    given = {"task": task, "out": out, "seed": seed, "model": model, "twin": twin, "preset": preset}
    new = resolved(TrainOptions.of(**given, settings=settings, **ON_PROCESSORS))
    loaded = new.source.load()
    torch.set_num_threads(learner_threads(new.config))
    trainer = Trainer(loaded, new.config)
    if teacher is not None:
        learn, origin = _from_policy(trainer, Path(teacher), rounds, tell)
    else:
        learn, origin = _from_recordings(trainer, several(recordings), columns, tell)
    start = time.perf_counter()
    with training_alone(new.folder):
        for note in begin_run(new.folder, new.source, new.config, loaded, origin=origin):
            tell(note)
        learned = learn()
        seconds, success = _finish(trainer, new.folder, start)
    return ImitationRun(
        run=new.folder,
        contract=loaded.contract.fingerprint,
        task=new.source.task,
        learned=learned,
        seconds=seconds,
        success=success,
    )


ON_PROCESSORS = {"device": "cpu", "engine": "mujoco"}
"""Options of a training run that imitation has, too."""

Lesson = Callable[[], "dict[str, Any]"]


def _from_policy(trainer: Trainer, teacher: Path, rounds: int, say: Say) -> tuple[Lesson, Mapping[str, str]]:
    """The lesson of another policy, and entries for the provenance; its errors come before a folder is made."""
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.policies.resolve import find_policy
    from physai.train.runners.imitation.teacher import imitate_file, require_teachable

    require_teachable(trainer.task, OnnxPolicy.load(find_policy(teacher)), trainer.graph)

    def follow() -> dict[str, Any]:
        return vars(imitate_file(trainer, teacher, say=say, rounds=rounds, critic=False))

    return follow, {"teacher": str(teacher)}


def _from_recordings(
    trainer: Trainer, recordings: Sequence[Path | str], columns: Path | str | None, say: Say
) -> tuple[Lesson, Mapping[str, str]]:
    """The lesson of recordings, and entries for the provenance; its errors come before a folder is made."""
    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.train.runners.imitation.demonstrations import cloned, from_logs
    from physai.twin.logs.reader import read_logs

    column_map = None if columns is None else Path(columns)
    logs = read_logs([str(path) for path in recordings], trainer.task.robot.spec, column_map=column_map)
    say(f"learning from {len(logs)} recordings of {sum(log.duration_s for log in logs):.0f} s")
    pairs = from_logs(trainer.graph, logs)
    if pairs.clipped > WORTH_A_WARNING:
        say(
            f"warning: {pairs.clipped:.0%} of the recorded commands lie outside what this policy can give in one "
            "period; it learns the nearest (see the action's scale and limits: physai contract show)"
        )

    def learn() -> dict[str, Any]:
        learned = cloned(trainer.graph, pairs, seed=trainer.config.seed)
        apart = "" if learned.held_out_error is None else f", by {learned.held_out_error:.3f} on what was held out"
        say(f"differs by {learned.error:.3f} of the range{apart}")
        return vars(learned)

    return learn, {"demonstrations": sha256_hex("\n".join(sorted(log.sha256 for log in logs)).encode())}


def _finish(trainer: Trainer, folder: Path, start: float) -> tuple[float, float | None]:
    """Save the run, judge it without exploration, and record its end; return its duration [s] and success rate."""
    from physai.train.runners.checkpoint import save_checkpoint
    from physai.train.runners.eval_scheduler import EPISODES
    from physai.train.runs.summary import Outcome, save_outcome

    seconds = time.perf_counter() - start
    save_checkpoint(trainer, folder)
    success = trainer.evaluate(EPISODES)["success"]
    found = success if 0.0 <= success <= 1.0 else None
    ended = Outcome(reason="imitated", interrupted=False, iterations=0, env_steps=0, seconds=seconds, success=found)
    save_outcome(folder, ended)
    return seconds, found
