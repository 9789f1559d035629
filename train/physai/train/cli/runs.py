"""`physai runs`: lists, compares and plots run folders; no code of their tasks is run."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.runs.summary import RunSummary

MAX_RUNS = 10_000
_PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai runs`."""
    actions = parser.add_subparsers(dest="action", metavar="list|compare|plot")
    listing = actions.add_parser("list", help="list runs (default)", description="List runs.")
    compare = actions.add_parser(
        "compare",
        help="settings in which runs differ, and what they reached",
        description="Compare runs; those that differ in their seed only are one line.",
    )
    plot = actions.add_parser("plot", help="draw learning curves", description="Draw the learning curves of runs.")
    for action in (listing, compare, plot):
        action.add_argument(
            "folders",
            metavar="FOLDER",
            nargs="*",
            type=Path,
            default=[Path("runs")],
            help="run folders, or folders of runs (default: runs)",
        )
    for action in (listing, compare):
        action.add_argument("--json", action="store_true", help="print JSON")
    plot.add_argument("-o", "--out", type=Path, default=Path("runs.png"), help="png, svg or pdf (default: runs.png)")


def run(arguments: argparse.Namespace) -> int:
    """Lists, compares or plots."""
    if arguments.action is None:
        arguments.folders, arguments.json = [Path("runs")], False
    runs = _load(arguments.folders)
    if arguments.action == "plot":
        return _plot(runs, arguments.out)
    if arguments.action == "compare":
        return _compare(runs, as_json=arguments.json)
    return _list(runs, as_json=arguments.json)


def _load(folders: Sequence[Path]) -> list[RunSummary]:
    """The runs in the folders; a damaged one is named on stderr and left out.

    Raises:
        PhysaiError: there is none, or there are too many.
    """
    from physai.train.runs.summary import find_runs, load_summary

    paths = list(dict.fromkeys(path for folder in folders for path in find_runs(folder)))
    if len(paths) > MAX_RUNS:
        raise PhysaiError(f"{len(paths)} runs, at most {MAX_RUNS} are read; name fewer")
    runs: list[RunSummary] = []
    for path in paths:
        try:
            runs.append(load_summary(path))
        except PhysaiError as error:
            print(printable(f"left out: {error}"), file=sys.stderr)
    if not runs:
        raise PhysaiError(f"no runs in {', '.join(map(str, folders))}; train one with: physai train TASK")
    return runs


def _list(runs: Sequence[RunSummary], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([_record(run) for run in runs], indent=2))
        return 0
    rows = [
        (
            str(run.folder),
            Path(run.source.task).name,
            str(run.config.seed),
            run.state,
            _steps(run),
            _success(run),
        )
        for run in runs
    ]
    print(printable(table(("run", "task", "seed", "state", "steps", "success"), rows, indent="")))
    if any("~" in row[-1] for row in rows):
        print(_EXPLORED)
    return 0


def _record(run: RunSummary) -> dict[str, Any]:
    success = run.success
    return {
        "run": str(run.folder),
        "task": run.source.task,
        "robot": run.source.robot,
        "preset": run.source.preset,
        "init_from": run.provenance.get("init_from"),
        "teacher": run.provenance.get("teacher"),
        "state": run.state,
        "reason": None if run.outcome is None else run.outcome.reason,
        "env_steps": _env_steps(run),
        "success": None if success is None else success[0],
        "explored": None if success is None else not success[1],
        "config": dataclasses.asdict(run.config),
    }


def _env_steps(run: RunSummary) -> int:
    steps = run.progress.env_steps
    finite = [step for step in steps if math.isfinite(step)]
    return run.outcome.env_steps if run.outcome is not None else int(finite[-1]) if finite else 0


def _steps(run: RunSummary) -> str:
    return f"{_env_steps(run) / 1e6:.2f} M"


_EXPLORED = "\n~ while exploring; others in an evaluation without exploration"


def _success(run: RunSummary) -> str:
    if run.success is None:
        return "-"
    value, evaluated = run.success
    return f"{'' if evaluated else '~'}{value:.1%}"


def _groups(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Runs of the same task and origin that differ in their seed only."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_arm(run), sort_keys=True), []).append(run)
    return list(groups.values())


def _arm(run: RunSummary) -> dict[str, Any]:
    """Inputs of a run, except for the seed."""
    origin = dataclasses.asdict(run.source)
    hashes = {name: run.provenance.get(name) for name in ("init_from", "teacher")}
    settings = {name: value for name, value in dataclasses.asdict(run.config).items() if name != "seed"}
    return {**origin, **hashes, **settings, "task": Path(run.source.task).name}


def _differing(groups: Sequence[Sequence[RunSummary]]) -> list[str]:
    arms = [_arm(group[0]) for group in groups]
    return [name for name in arms[0] if any(arm[name] != arms[0][name] for arm in arms)]


def _compare(runs: Sequence[RunSummary], *, as_json: bool) -> int:
    groups = _groups(runs)
    names = _differing(groups)
    if as_json:
        print(json.dumps([_compared(group, names) for group in groups], indent=2))
        return 0
    header = ["runs", *names, "seeds", "steps", "success", "least", "most"]
    rows = [
        [
            _common(group),
            *(_text(_arm(group[0])[name]) for name in names),
            str(len(group)),
            f"{sum(map(_env_steps, group)) / len(group) / 1e6:.2f} M",
            *(_spread(group)),
        ]
        for group in groups
    ]
    print(printable(table(header, rows, indent="")))
    if any("~" in row[-3] for row in rows):
        print(_EXPLORED)
    return 0


def _compared(group: Sequence[RunSummary], names: Sequence[str]) -> dict[str, Any]:
    arm, rates = _arm(group[0]), _rates(group)
    return {
        "runs": [str(run.folder) for run in group],
        "seeds": [run.config.seed for run in group],
        "settings": {name: arm[name] for name in names},
        "success": rates,
        "explored": _some_explored(group),
        "mean_success": sum(rates) / len(rates) if rates else None,
    }


def _common(group: Sequence[RunSummary]) -> str:
    first = group[0].folder
    return str(first if len(group) == 1 else first.parent)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, cast("tuple[Any, ...]", value)))
    return "-" if value is None else str(value)


def _some_explored(group: Sequence[RunSummary]) -> bool:
    return any(run.success is not None and not run.success[1] for run in group)


def _rates(group: Sequence[RunSummary]) -> list[float]:
    return [run.success[0] for run in group if run.success is not None]


def _spread(group: Sequence[RunSummary]) -> tuple[str, str, str]:
    rates = _rates(group)
    if not rates:
        return "-", "-", "-"
    mark = "~" if _some_explored(group) else ""
    return f"{mark}{sum(rates) / len(rates):.1%}", f"{min(rates):.1%}", f"{max(rates):.1%}"


def _plot(runs: Sequence[RunSummary], path: Path) -> int:
    """Success over steps, a line per run, a colour per group of seeds.

    Raises:
        PhysaiError: the file has another ending, or no run has made a step.
    """
    if path.suffix.lower() not in _PICTURES:
        raise PhysaiError(f"--out {path}: the file name must end in {', '.join(_PICTURES)}")
    shown = [run for run in runs if run.progress.env_steps]
    if not shown:
        raise PhysaiError("none of the runs has finished an iteration, there is nothing to draw")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure: Any
    axes: Any
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    groups = _groups(shown)
    names = _differing(groups)
    for number, group in enumerate(groups):
        label = ", ".join(f"{name} {_text(_arm(group[0])[name])}" for name in names) or _common(group)
        for index, run in enumerate(group):
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
        raise PhysaiError(f"--out {path}: cannot be written: {error.strerror}") from error
    finally:
        pyplot.close(figure)
    print(printable(str(path)))
    return 0


command = CliCommand(summary="list, compare or plot training runs", add_arguments=add_arguments, run=run)
"""The verb `runs`."""
