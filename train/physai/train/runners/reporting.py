"""Logs of a run: a live progress line, a CSV file, TensorBoard events and a plot of the learning curve."""

import contextlib
import csv
import dataclasses
import io
import math
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, cast

from physai.sdk.base.errors import MissingExtraError
from physai.sdk.base.files import write_atomic
from physai.train.runners.runner import IterationStats
from physai.train.runs.summary import CSV_FILE, progress_rows
from physai.train.settings.config import TrainConfig

CURVE_FILE = "learning_curve.png"
_DRAWN = ("env_steps", "seconds", "success", "reward_per_s")


def flat_stats(stats: IterationStats) -> dict[str, float]:
    """All numbers of an iteration by name, nested ones joined with a slash."""
    flat: dict[str, float] = {}
    values: dict[str, Any] = dataclasses.asdict(stats)
    for name, value in values.items():
        if isinstance(value, dict):
            parts = cast("dict[str, float]", value)
            flat |= {f"{name}/{key}": float(item) for key, item in parts.items() if key != "count"}
        else:
            flat[name] = float(value)
    return flat


class StatisticsSink(Protocol):
    """A destination of iteration statistics."""

    def write(self, stats: IterationStats) -> None:
        """Logs one iteration."""
        ...

    def close(self) -> None:
        """Flushes what is buffered."""
        ...


class CsvSink:
    """`progress.csv`: one row per iteration, appended when the run resumes; a new statistic adds a column."""

    def __init__(self, folder: Path, resumed_at: int) -> None:
        """Opens the file and drops rows after iteration `resumed_at`, which the run repeats."""
        self._path = folder / CSV_FILE
        kept = _rows_until(self._path, resumed_at)
        self._start(list(kept[0]) if kept else [], kept)

    def _start(self, columns: list[str], rows: list[dict[str, str]]) -> None:
        """Atomically replaces the file with these columns and rows, and opens it for appending."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="")
        if columns:
            writer.writeheader()
        writer.writerows(rows)
        write_atomic(self._path, text.getvalue().encode())
        self._columns = columns
        self._file: IO[str] = self._path.open("a", newline="", buffering=1)
        self._writer = csv.DictWriter(self._file, columns, restval="")

    def write(self, stats: IterationStats) -> None:
        flat = flat_stats(stats)
        if new := [name for name in flat if name not in self._columns]:
            self._file.close()
            self._start(self._columns + new, _rows_until(self._path, stats.iteration))
        self._writer.writerow({name: f"{value:.7g}" for name, value in flat.items()})

    def close(self) -> None:
        self._file.close()


def logged_seconds(folder: Path) -> float:
    """Training time that a run's `progress.csv` tells of [s]; 0 if it tells none."""
    found = 0.0
    for row in progress_rows(folder / CSV_FILE):
        with contextlib.suppress(KeyError, ValueError, TypeError):
            seconds = float(row["seconds"])
            found = max(found, seconds) if math.isfinite(seconds) else found
    return found


def _rows_until(path: Path, iteration: int) -> list[dict[str, str]]:
    """Rows up to an iteration; damaged ones are left out."""
    kept: list[dict[str, str]] = []
    for row in progress_rows(path) if iteration else ():
        try:
            number, *_ = [float(row[name]) for name in ("iteration", *_DRAWN)]
        except (KeyError, ValueError):
            continue
        if number <= iteration:
            kept.append(row)
    return kept


class TensorBoardSink:
    """TensorBoard event files in `tensorboard/`."""

    def __init__(self, folder: Path, resumed_at: int) -> None:
        """Opens an event file that supersedes events after iteration `resumed_at`."""
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and only a run needs it

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_at + 1)

    def write(self, stats: IterationStats) -> None:
        for name, value in flat_stats(stats).items():
            if name not in ("iteration", "env_steps"):
                self._writer.add_scalar(name if "/" in name else f"run/{name}", value, stats.iteration)

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A Weights & Biases run."""

    def __init__(self, folder: Path, config: TrainConfig, project: str) -> None:
        """Starts a run.

        Raises:
            MissingExtraError: the package wandb is not installed.
        """
        try:
            import wandb  # type: ignore[import-not-found]
        except ModuleNotFoundError as error:
            raise MissingExtraError("`wandb` needs the package wandb: pip install wandb") from error
        module: Any = wandb
        self._run: Any = module.init(project=project, dir=str(folder), config=dataclasses.asdict(config))

    def write(self, stats: IterationStats) -> None:
        self._run.log(flat_stats(stats), step=stats.iteration)

    def close(self) -> None:
        self._run.finish()


class LiveSink:
    """A live progress line on a terminal; otherwise one line every ten seconds."""

    def __init__(self, config: TrainConfig, budget_s: float | None, stream: IO[str] | None = None) -> None:
        """Prints to `stream`, by default to standard error."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(file=stream or sys.stderr)
        self._budget_s = budget_s
        self._iterations = config.iterations
        self._last_print_s = -1e9
        columns = (
            TextColumn("iteration {task.fields[iteration]}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._id = self._bar.add_task("", total=1.0, iteration=0, text="first iteration …")

    def __enter__(self) -> Self:
        """Starts the line."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the line and leaves it on the screen."""
        self._bar.stop()

    def write(self, stats: IterationStats) -> None:
        text = (
            f"{stats.steps_per_s / 1000:.1f} k steps/s  reward {stats.reward_per_s:.3f}/s  success {stats.success:.0%}"
        )
        done = stats.iteration / self._iterations
        if self._budget_s:
            done = max(done, stats.seconds / self._budget_s)
        self._bar.update(self._id, completed=min(1.0, done), iteration=stats.iteration, text=text)
        if not self._console.is_terminal and stats.seconds - self._last_print_s >= 10.0:
            self._last_print_s = stats.seconds
            self._console.print(
                f"iteration {stats.iteration}  {stats.env_steps / 1e6:.2f} M steps  {stats.seconds:.0f} s  {text}",
                highlight=False,
                soft_wrap=True,
            )

    def close(self) -> None:
        self._bar.stop()


def draw_learning_curve(folder: Path, title: str) -> Path | None:
    """Plots success and reward over steps from `progress.csv`; returns the plot's path, None without data."""
    rows = _rows_until(folder / CSV_FILE, 10**9)
    if not rows:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    steps = [float(row["env_steps"]) / 1e6 for row in rows]
    figure: Any
    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    upper.plot(steps, [100.0 * float(row["success"]) for row in rows], color="#1f6fb4", linewidth=2)
    upper.set(ylabel="success while exploring [%]", ylim=(-2, 102), title=title)
    lower.plot(steps, [float(row["reward_per_s"]) for row in rows], color="#d9822b", linewidth=2)
    lower.set(ylabel="reward [1/s]", xlabel="environment steps [million]")
    seconds = lower.secondary_xaxis(-0.28, functions=_axis_map(steps, [float(row["seconds"]) for row in rows]))
    seconds.set_xlabel("training time [s]")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    path = folder / CURVE_FILE
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def _axis_map(steps: list[float], seconds: list[float]) -> tuple[Any, Any]:
    """Steps to seconds and back for the secondary axis, by the run's mean speed."""
    rate = seconds[-1] / steps[-1] if steps[-1] else 1.0

    def to_seconds(step: Any) -> Any:
        return step * rate

    def to_steps(second: Any) -> Any:
        return second / rate

    return to_seconds, to_steps
