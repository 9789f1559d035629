"""`physai preferences`: collects them, answers them by simulated teachers, fits reward models, trains by them."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.rlhf.finetune.preference_api import (
    answer_preferences,
    collect_preferences,
    fit_preferences,
    preference_status,
    train_from_preferences,
)
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, noun, verb

if TYPE_CHECKING:
    from physai.rlhf.collection.collect import Collected
    from physai.rlhf.finetune.preference_api import FittedReward, SimulatedAnswers
    from physai.rlhf.finetune.scratch import ScratchOutcome


@verb(collect_preferences, summary="draw pairs of segments from the policies of runs")
def _collect(
    call: functools.partial[list[Collected]], *, runs: Sequence[Path], out: Path, as_json: AsJson = False
) -> int:
    """Collect."""
    added = [{"run": str(run), **asdict(one)} for run, one in zip(runs, call(), strict=True)]
    lines = [
        f"{one['run']}: {one['pairs']} pairs of {one['segments']} segments, chosen by {one['method']}, "
        f"{one['repeated']} of them repeated"
        for one in added
    ]
    lines.append(f"next: physai sim serve --preferences {out}")
    return _print({"database": str(out), "added": added}, lines, as_json=as_json)


@verb(answer_preferences, summary="let a simulated teacher answer")
def _answer(call: functools.partial[SimulatedAnswers], *, database: Path, as_json: AsJson = False) -> int:
    """Answer."""
    found = call(say=_say)
    text = f"{found.rater} answered {found.answered} pairs"
    if not found.answered:
        # Its name does not say what it likes: with another taste it has answered, too.
        text += f", because it has answered all of {database} already; another --rater answers them again"
    return _print(asdict(found), [text], as_json=as_json)


@verb(preference_status, summary="contents of a database")
def _status(call: functools.partial[dict[str, Any]], *, as_json: AsJson = False) -> int:
    """Print the contents of a database."""
    status = call()
    rows = [
        (name, str(r["answers"]), str(r["open"]), f"{r['consistency']['same']} of {r['consistency']['repeated']}")
        for name, r in status["raters"].items()
    ]
    alpha = status["krippendorff_alpha"]
    lines = [
        f"{status['task']}: {status['pairs']} pairs of {status['segments']} segments of {status['segment_s']:g} s",
        table(("rater", "answers", "open", "same when repeated"), rows, indent=""),
        "agreement of raters: " + ("unknown, no two answered the same pair" if alpha is None else f"α = {alpha:.2f}"),
        f"terms: {', '.join(status['terms'])}",
    ]
    return _print(status, lines, as_json=as_json)


@verb(fit_preferences, summary="fit a reward model")
def _fit(call: functools.partial[FittedReward], *, database: Path, as_json: AsJson = False) -> int:
    """Fit a reward model to the answers."""
    from physai.rlhf.reward_model.fit_report import fit_line

    fitted = call()
    bins = [(str(one.pairs), f"{one.predicted:.2f}", f"{one.observed:.2f}") for one in fitted.report.calibration]
    lines = [
        fit_line(fitted.report),
        table(("held-out pairs", "predicted", "observed"), bins, indent=""),
        f"next: physai finetune RUN --preferences {database}",
    ]
    return _print({"sha256": fitted.sha256, **fitted.facts}, lines, as_json=as_json)


@verb(train_from_preferences, summary="train a policy by preferences of a simulated teacher")
def _train(call: functools.partial[ScratchOutcome], *, as_json: AsJson = False) -> int:
    """Train.

    exit code: 0 when the run ended, 130 when a signal ended it
    """
    outcome = call(say=_say)
    lines = [
        f"{outcome.reason}: {outcome.labels} labels, {outcome.seconds:.0f} s, {outcome.fit_seconds:.0f} s of it fits",
        f"next: physai export {outcome.run}",
    ]
    _print(asdict(outcome), lines, as_json=as_json)
    return 130 if outcome.interrupted else 0


def _print(document: dict[str, Any], lines: list[str], *, as_json: bool) -> int:
    print(json.dumps(document, indent=2) if as_json else printable("\n".join(lines)))
    return 0


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)


command = noun(
    "learn what people like from pairs of motions",
    {"collect": _collect, "answer": _answer, "status": _status, "fit": _fit, "train": _train},
)
