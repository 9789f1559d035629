"""`physai runs sweep`: train with many settings on Ray, and find the best."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from physai.cluster.sweep.run_sweep import run_sweep
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.cluster.sweep.folder import SweepFolder
    from physai.cluster.sweep.results import PointResult
    from physai.cluster.sweep.run_sweep import SweepOutcome

MAX_ROWS = 20
"""Points that the table shows."""


@verb(run_sweep, summary="train with many settings on Ray and export the best")
def command(call: functools.partial[SweepOutcome], *, as_json: AsJson = False) -> int:
    """Sweep and report.

    exit code: 0 when the best trial is exported, 1 when no trial trained to the end, 130 when a signal interrupted the
    sweep
    """
    from physai.cluster.sweep.folder import BEST_FOLDER

    found = call(say=_say)
    folder = found.folder
    print(json.dumps(_record(found), indent=2) if as_json else printable(_table(folder, found.points)))
    if found.picture is not None:
        _say(f"picture: {found.picture}")
    if not found.complete:
        file = [] if found.task_file is None else [found.task_file]
        again = ["physai", "runs", "sweep", *file, "--resume", str(folder.path)]
        _say(f"interrupted; continue with: {shlex.join(again)}")
        return 130
    if found.best is None:
        _say("no trial trained to the end")
        return 1
    # The best of many noisy values is too good on average.
    target = str(folder.path / BEST_FOLDER)
    words = ["physai", "eval", target, *(["--task", target] if found.task_file else [])]
    _say(f"best: {found.best.trial.name}, exported; next: {shlex.join(words)}")
    return 0


def _record(found: SweepOutcome) -> dict[str, Any]:
    from physai.cluster.sweep.folder import BEST_FOLDER

    folder = found.folder
    sweep = folder.record.sweep
    return {
        "sweep": str(folder.path),
        "complete": found.complete,
        "metric": sweep.metric,
        "clock": sweep.budget.clock,
        "points": [
            {
                "number": point.number,
                "settings": point.point,
                "mean": point.mean,
                "trials": [
                    {
                        "run": str(folder.run(result.trial)),
                        "seed": result.trial.seed,
                        "state": result.state,
                        "value": result.value,
                        "time": result.time,
                        **({"reason": result.reason} if result.reason else {}),
                    }
                    for result in point.trials
                ],
            }
            for point in found.points
        ],
        "best": None if found.best is None else str(folder.run(found.best.trial)),
        "exported": None if found.exported is None else str(folder.path / BEST_FOLDER),
        "policy_sha256": None if found.exported is None else found.exported.policy_sha256,
    }


def _table(folder: SweepFolder, points: list[PointResult]) -> str:
    names = list(folder.record.sweep.parameters)
    rows = [
        [
            str(point.number),
            *(point.point[name] for name in names),
            "-" if point.mean is None else f"{point.mean:.4g}",
            f"{min(point.values):.4g} … {max(point.values):.4g}" if len(point.values) > 1 else "",
            _states(point),
        ]
        for point in points[:MAX_ROWS]
    ]
    text = table(["trial", *names, folder.record.sweep.metric, "over seeds", "state"], rows, indent="")
    more = len(points) - MAX_ROWS
    return text + (f"\nand {more} more, in {folder.path / 'results.csv'}" if more > 0 else "")


def _states(point: PointResult) -> str:
    states = [result.state for result in point.trials]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    return states[0] if len(states) == 1 else ", ".join(f"{count} {state}" for state, count in counts.items())


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
