"""Options of a training run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from physai.sdk.base.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from physai.sim.tasks.task import Task
    from physai.train.collectors.collector import Learner
    from physai.train.runners.runner import RolloutSource
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import TrainConfig

_PATHS = ("out", "resume", "twin", "init_from", "teacher")
_TEXTS = ("task", "model")


class RolloutPool(Protocol):
    """Processes that play rollouts for a trainer, such as `physai.cluster.Generators`."""

    def check(self, config: TrainConfig) -> None:
        """Refuse settings that do not go with the pool.

        Raises:
            PhysaiError: a setting does not, with the way out.
        """
        ...

    def described(self, config: TrainConfig) -> str:
        """Text that follows the number of worlds in the run's first line."""
        ...

    def origin(self) -> dict[str, str]:
        """Entries of the run's provenance."""
        ...

    def opened(
        self, task: Task, source: RunTaskSource, config: TrainConfig
    ) -> AbstractContextManager[Callable[[Learner], RolloutSource]]:
        """Maker of the trainer's collector while the block runs."""
        ...

    def totals(self, collector: RolloutSource) -> dict[str, Any]:
        """Entries of the outcome about the pool's work in this session."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of a training run; `physai.train.train` describes each."""

    task: str | None = None
    out: Path | None = None
    resume: Path | None = None
    device: str = "auto"
    engine: str | None = None
    deterministic: bool = False
    gpus: int | None = None
    num_envs: int | None = None
    staleness: int | None = None
    seed: int | None = None
    iterations: int | None = None
    time_budget_s: float | None = None
    model: str | None = None
    twin: Path | None = None
    preset: str | None = None
    config: TrainConfig | Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    init_from: Path | None = None
    teacher: Path | None = None
    wandb: str | None = None
    mlflow: str | None = None
    generators: RolloutPool | None = None

    @classmethod
    def of(cls, **given: Any) -> TrainOptions:
        """Options from arguments of `train`, whose paths may be texts and whose settings may be numbers.

        Raises:
            UnknownNameError: `train` has no such argument.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_name("argument", name, known)
        for name, kind in {**dict.fromkeys(_PATHS, Path), **dict.fromkeys(_TEXTS, str)}.items():
            if given.get(name) is not None:
                given[name] = kind(given[name])
        if isinstance(given.get("config"), str):
            given["config"] = Path(given["config"])
        settings: Mapping[str, object] = given.get("settings") or {}
        given["settings"] = {name.strip().replace("-", "_"): str(value).strip() for name, value in settings.items()}
        return cls(**given)

    def document(self) -> dict[str, Any]:
        """Arguments of `of` for these options without a pool, as JSON has them."""
        given = {name: value for name, value in vars(self).items() if value is not None and name != "generators"}
        if self.config is not None and not isinstance(self.config, Path):
            from physai.train.settings.config import setting_texts

            given |= {"config": None, "settings": {**setting_texts(self.config), **self.settings}}
        return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}

    @property
    def source(self) -> RunTaskSource:
        """Source of the named task.

        Raises:
            PhysaiError: there is no such task or robot.
        """
        from physai.sim.policies.resolve import named_source
        from physai.train.runs.run_config import RunTaskSource

        twin = str(self.twin.resolve()) if self.twin else None
        named = named_source(str(self.task), robot=self.model, preset=self.preset)
        return RunTaskSource(**asdict(named), twin=twin)


def default_folder(source: RunTaskSource) -> Path:
    """`runs/TASK/DATE-TIME`."""
    name = Path(source.task).stem if source.task.endswith(".py") else source.task
    return Path("runs") / name / time.strftime("%Y%m%d-%H%M%S")
