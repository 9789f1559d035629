"""`physai train` as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.train.api.options import RolloutPool
    from physai.train.api.seeds import SeedRuns
    from physai.train.runners.session import TrainingRun
    from physai.train.settings.config import TrainConfig

Say = Callable[[str], None]


def train(
    task: Annotated[str | Path | None, Option(word=True)] = None,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    resume: Annotated[Path | str | None, Option(metavar="RUN")] = None,
    init_from: Annotated[Path | str | None, Option(metavar="RUN")] = None,
    teacher: Annotated[Path | str | None, Option(metavar="POLICY")] = None,
    engine: Literal["mujoco", "warp"] | None = None,
    device: str = "auto",
    deterministic: bool = False,
    gpus: int | None = None,
    generators: RolloutPool | None = None,
    staleness: int | None = None,
    num_envs: int | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    time_budget_s: float | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    preset: str | None = None,
    config: TrainConfig | Annotated[Path | str, Option(metavar="YAML")] | None = None,
    settings: Annotated[Mapping[str, object] | None, Option(flags=("--set",), lone="help")] = None,
    wandb: Annotated[str | None, Option(metavar="PROJECT")] = None,
    mlflow: Annotated[str | None, Option(metavar="EXPERIMENT")] = None,
    say: Say | None = None,
) -> TrainingRun:
    """Train a policy and write the run into a folder.

    Ctrl-C saves a checkpoint and returns; `train(resume=FOLDER)` continues from it. In a program that torchrun started,
    each process is one rank of the run.

    Args:
        task: task name, Python file, or run folder whose copy of the task is to be run; with `resume` only if the run's
            task is not built in.
        out: run folder, created if missing. None for runs/TASK/DATE-TIME.
        resume: continue this run folder from its checkpoint.
        init_from: start a new run from the weights of this run folder.
        teacher: start by imitating this policy.onnx or run, for instance a designed one, on the CPU.
        engine: physics engine: mujoco on the CPU, or warp where the policy learns. None for warp on a GPU, else mujoco.
        device: device to learn on: auto (a GPU if there is one), cpu, cuda or cuda:N.
        deterministic: make runs on one GPU equal, which is slower.
        gpus: learn on N GPUs of this computer, a process each; with `device` cpu in N processes. On several computers
            start `-m physai.sdk.cli train …` with torchrun instead.
        generators: processes that step the worlds, such as `physai.cluster.Generators`. None for this process.
        staleness: let generators play on while the trainer learns, with weights at most N updates older than those that
            learn from it. None for 0, they take turns.
        num_envs: number of worlds simulated in parallel, on each GPU.
        seed: seed of all random numbers. None for 0.
        iterations: number of updates after which to stop.
        time_budget_s: training time after which to stop [s]; earlier sessions of a resumed run count.
        model: MJCF or URDF file to train with instead of the task's own robot.
        twin: train with the model, delay and noise of this calibrated twin.
        preset: variant of the task, if it has any.
        config: file of settings, such as `discount_s: 2.0`, which go over the task's, or complete settings; `settings`
            goes over it.
        settings: any other setting, such as learning_rate=3e-4; `TASK --set help` lists them with this task's values.
        wandb: log to this Weights & Biases project, too.
        mlflow: log to this MLflow experiment, too, at MLFLOW_TRACKING_URI or locally.
        say: receives notes and warnings, and lets progress be shown on stderr. None for the module's logger.

    Returns:
        The result, whose `interrupted` is true if a signal ended the run.

    Raises:
        PhysaiError: the task, robot, twin, a setting or the folder cannot be used.
    """
    given = {name: value for name, value in locals().items() if name != "say"}
    from physai.train.api.options import TrainOptions
    from physai.train.api.running import train_with

    return train_with(TrainOptions.of(**given), say=say)


def train_seeds(
    seeds: str | Iterable[int],
    task: str | Path | None = None,
    out: str | Path | None = None,
    *,
    say: Say | None = None,
    done: Callable[[TrainingRun], None] | None = None,
    **options: Any,
) -> SeedRuns:
    """Train once per seed, one run after another, each in the folder `seed-N`.

    Runs that have ended are left alone, interrupted ones are continued: the same call goes on after Ctrl-C, which ends
    the run and the call.

    Args:
        seeds: seeds of the runs, or a text such as `0..4` (both ends included) or `0,3,7`.
        task: as in `train`.
        out: folder of the runs. None for runs/TASK/DATE-TIME.
        say: receives progress and warnings. None for the module's logger.
        done: called with the result of each run.
        options: further arguments of `train`; not `resume`, `seed` and `gpus`.

    Returns:
        The folder and the runs of this call.

    Raises:
        PhysaiError: see `train`; or a folder holds a run with other settings.
    """
    from physai.train.api.options import TrainOptions
    from physai.train.api.seeds import train_each_seed

    return train_each_seed(seeds, TrainOptions.of(task=task, out=out, **options), say=say, done=done)


def resolve_config(**options: Any) -> TrainConfig:
    """Settings that a new run of `train` with these arguments has.

    Args:
        options: arguments of `train`.

    Raises:
        PhysaiError: see `train`.
    """
    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import configured

    return configured(TrainOptions.of(**options))[1]
