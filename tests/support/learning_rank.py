"""What each rank of a test does: it learns, as often as a list of jobs says, and saves what it has.

Run as `python learning_rank.py JOBS` with JOBS a JSON list of `Job`s, in as many processes as the environment says.
"""

import dataclasses
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task, WorldView
from physai.train.collectors.collector import Collector
from physai.train.collectors.device_collector import DeviceCollector
from physai.train.collectors.distributed import Ranks, joined
from physai.train.runners.checkpoint import restore_checkpoint, save_checkpoint
from physai.train.runners.reporting import flat_stats
from physai.train.runners.runner import Trainer
from physai.train.settings.config import TrainConfig


@dataclass
class Job:
    """One training."""

    out: str
    """Folder for what it leaves: a checkpoint, the last statistics, and the seeds that each rank's worlds played."""
    worlds: int
    """Worlds of each rank."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    iterations: int = 0
    """Iterations to train."""
    resume: str | None = None
    """Folder to continue from."""


def learn(job: Job, ranks: Ranks) -> None:
    """Does one job."""
    shared: dict[str, Any] = {"horizon": 6, "epochs": 2, "minibatches": 3, "hidden": (16, 16), "gru_size": 8}
    settings: dict[str, Any] = {**shared, "num_threads": 1, "num_envs": job.worlds, **job.settings}
    config = TrainConfig(**settings)
    trainer = Trainer(_task(), config, ranks=ranks)
    if job.resume:
        restore_checkpoint(trainer, Path(job.resume))
    played = [_seeds(trainer)]
    stats: dict[str, float] = {}
    for _ in range(job.iterations):
        stats = flat_stats(trainer.train_iteration())
        played.append(_seeds(trainer))
    folder = Path(job.out)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"seeds-{ranks.rank}.npy", np.stack(played))
    if ranks.leads:
        (folder / "stats.json").write_text(json.dumps(stats))
    save_checkpoint(trainer, folder)


def _task() -> Task:
    """Short episodes, in about half of which an untrained policy succeeds."""
    task = load_task("cartpole-swingup")
    success = replace(task.success, condition=_right_of_the_middle, hold_s=0.0)
    return replace(task, success=success, episode_length_s=1.0)


def _right_of_the_middle(view: WorldView) -> Any:
    return view.qpos[:, 0] > 0.0


def _seeds(trainer: Trainer) -> np.ndarray[Any, Any]:
    # A copy: those of the device environment are live.
    assert isinstance(trainer.collector, Collector | DeviceCollector)
    return np.asarray(trainer.collector.env.episode_seeds).copy()


def as_text(jobs: list[Job]) -> str:
    """The argument of this program."""
    return json.dumps([dataclasses.asdict(job) for job in jobs])


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as together:
        for entry in json.loads(sys.argv[1]):
            learn(Job(**entry), together)
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    # One that is left may abort the process when it ends.
    assert not [name for name in threads if "gloo" in name], threads
