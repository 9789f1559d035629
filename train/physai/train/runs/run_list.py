"""Lists, comparisons and pictures of runs, from their folders; no code of their tasks is run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.train.runs.summary import RunSummary

MAX_RUNS = 10_000
_PICTURES = (".png", ".svg", ".pdf")

Folders = Annotated[Sequence[Path | str], Option(word=True, metavar="FOLDER")]
Warn = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs of the same task, origin and settings that differ in their seed only."""

    runs: tuple[RunSummary, ...]
    settings: dict[str, Any]
    """Settings in which the compared groups differ, and entries of the origin."""

    @property
    def success(self) -> list[float]:
        """Success rates of the runs that have one."""
        return [run.success[0] for run in self.runs if run.success is not None]

    @property
    def explored(self) -> bool:
        """Whether a success rate was measured while exploring."""
        return any(run.success is not None and not run.success[1] for run in self.runs)

    @property
    def name(self) -> str:
        """The run's folder, or that of the runs."""
        first = self.runs[0].folder
        return str(first if len(self.runs) == 1 else first.parent)


def list_runs(folders: Folders = (Path("runs"),), *, warn: Warn | None = None) -> list[RunSummary]:
    """Read the runs in folders.

    Args:
        folders: run folders, or folders of runs.
        warn: receives a line per damaged run, which is left out.

    Raises:
        PhysaiError: there is none, or there are too many.
    """
    from physai.train.runs.summary import find_runs, load_summary

    paths = list(dict.fromkeys(path for folder in several(folders) for path in find_runs(Path(folder))))
    if len(paths) > MAX_RUNS:
        raise PhysaiError(f"{len(paths)} runs, at most {MAX_RUNS} are read; name fewer")
    runs: list[RunSummary] = []
    for path in paths:
        try:
            runs.append(load_summary(path))
        except PhysaiError as error:
            if warn is not None:
                warn(f"left out: {error}")
    if not runs:
        raise PhysaiError(f"no runs in {', '.join(map(str, several(folders)))}; train one with: physai train TASK")
    return runs


def compare_runs(folders: Folders = (Path("runs"),), *, warn: Warn | None = None) -> list[RunGroup]:
    """Group runs that differ in their seed only, with the settings in which the groups differ.

    Args:
        folders: run folders, or folders of runs.
        warn: receives a line per damaged run, which is left out.

    Raises:
        PhysaiError: there is none, or there are too many.
    """
    return _groups(list_runs(folders, warn=warn))


def plot_runs(
    folders: Folders = (Path("runs"),),
    *,
    out: Annotated[Path | str, Option(flags=("-o",))] = Path("runs.png"),
    warn: Warn | None = None,
) -> Path:
    """Draw success over steps, a line per run, a colour per group of seeds.

    Args:
        folders: run folders, or folders of runs.
        out: png, svg or pdf to write.
        warn: receives a line per damaged run, which is left out.

    Returns:
        The picture's file.

    Raises:
        PhysaiError: the file has another ending, or no run has made a step.
    """
    runs, path = list_runs(folders, warn=warn), Path(out)
    if path.suffix.lower() not in _PICTURES:
        raise PhysaiError(f"`out` {path}: the file name must end in {', '.join(_PICTURES)}")
    shown = [run for run in runs if run.progress.env_steps]
    if not shown:
        raise PhysaiError("none of the runs has finished an iteration, there is nothing to draw")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure: Any
    axes: Any
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for number, group in enumerate(_groups(shown)):
        label = ", ".join(f"{name} {setting_text(value)}" for name, value in group.settings.items()) or group.name
        for index, run in enumerate(group.runs):
            steps = [step / 1e6 for step in run.progress.env_steps]
            rates = [100.0 * rate for rate in run.progress.success]
            axes.plot(steps, rates, color=f"C{number % 10}", label=label if index == 0 else None, linewidth=1.5)
    axes.set(xlabel="environment steps [million]", ylabel="success while exploring [%]", ylim=(-2, 102))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    # Labels are text of run folders; matplotlib would read a dollar sign as the begin of a formula.
    for text in axes.legend(frameon=False).get_texts():
        text.set_parse_math(False)
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise PhysaiError(f"`out` {path}: cannot be written: {error.strerror}") from error
    finally:
        pyplot.close(figure)
    return path


def setting_text(value: Any) -> str:
    """A setting's value for a table or a legend."""
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[Any, ...]", value)))
    return "-" if value is None else str(value)


def _groups(runs: Sequence[RunSummary]) -> list[RunGroup]:
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_arm(run), sort_keys=True), []).append(run)
    arms = [_arm(group[0]) for group in groups.values()]
    names = [name for name in arms[0] if any(arm[name] != arms[0][name] for arm in arms)]
    return [
        RunGroup(runs=tuple(group), settings={name: arm[name] for name in names})
        for group, arm in zip(groups.values(), arms, strict=True)
    ]


def _arm(run: RunSummary) -> dict[str, Any]:
    """Inputs of a run, except for the seed."""
    origin = dataclasses.asdict(run.source)
    hashes = {name: run.provenance.get(name) for name in ("init_from", "teacher")}
    settings = {name: value for name, value in dataclasses.asdict(run.config).items() if name != "seed"}
    return {**origin, **hashes, **settings, "task": Path(run.source.task).name}
