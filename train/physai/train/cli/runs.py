"""`physai runs`: lists, compares and plots run folders; no code of their tasks is run."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, noun, verb
from physai.train.runs.run_list import compare_runs, list_runs, plot_runs, setting_text

if TYPE_CHECKING:
    from physai.train.runs.run_list import RunGroup
    from physai.train.runs.summary import RunSummary

_EXPLORED = "\n~ while exploring; others in an evaluation without exploration"


@verb(list_runs, summary="list runs (default)")
def _list(call: functools.partial[list[RunSummary]], *, as_json: AsJson = False) -> int:
    """List runs."""
    runs = call(warn=_warn)
    if as_json:
        print(json.dumps([_record(run) for run in runs], indent=2))
        return 0
    rows = [
        (str(run.folder), Path(run.source.task).name, str(run.config.seed), run.state, _steps(run), _success(run))
        for run in runs
    ]
    _print(("run", "task", "seed", "state", "steps", "success"), rows)
    return 0


@verb(compare_runs, summary="settings in which runs differ, and their success")
def _compare(call: functools.partial[list[RunGroup]], *, as_json: AsJson = False) -> int:
    """Compare runs; those that differ in their seed only are one line."""
    groups = call(warn=_warn)
    if as_json:
        print(json.dumps([_compared(group) for group in groups], indent=2))
        return 0
    rows = [
        [
            group.name,
            *map(setting_text, group.settings.values()),
            str(len(group.runs)),
            f"{sum(run.env_steps for run in group.runs) / len(group.runs) / 1e6:.2f} M",
            *_spread(group),
        ]
        for group in groups
    ]
    _print(["runs", *groups[0].settings, "seeds", "steps", "success", "least", "most"], rows)
    return 0


@verb(plot_runs, summary="draw learning curves")
def _plot(call: functools.partial[Path]) -> int:
    """Draw the learning curves of runs."""
    print(printable(str(call(warn=_warn))))
    return 0


def _warn(text: str) -> None:
    print(printable(text), file=sys.stderr)


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(printable(table(header, rows, indent="")))
    if any(cell.startswith("~") for row in rows for cell in row):
        print(_EXPLORED)


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
        "env_steps": run.env_steps,
        "success": None if success is None else success[0],
        "explored": None if success is None else not success[1],
        "config": dataclasses.asdict(run.config),
    }


def _compared(group: RunGroup) -> dict[str, Any]:
    rates = group.success
    return {
        "runs": [str(run.folder) for run in group.runs],
        "seeds": [run.config.seed for run in group.runs],
        "settings": group.settings,
        "success": rates,
        "explored": group.explored,
        "mean_success": sum(rates) / len(rates) if rates else None,
    }


def _steps(run: RunSummary) -> str:
    return f"{run.env_steps / 1e6:.2f} M"


def _success(run: RunSummary) -> str:
    if run.success is None:
        return "-"
    value, evaluated = run.success
    return f"{'' if evaluated else '~'}{value:.1%}"


def _spread(group: RunGroup) -> tuple[str, str, str]:
    rates = group.success
    if not rates:
        return "-", "-", "-"
    mark = "~" if group.explored else ""
    return f"{mark}{sum(rates) / len(rates):.1%}", f"{min(rates):.1%}", f"{max(rates):.1%}"


command = noun(
    "list, compare or plot training runs", {"list": _list, "compare": _compare, "plot": _plot}, default="list"
)
