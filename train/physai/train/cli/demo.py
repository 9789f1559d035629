"""`physai demo`: the whole workflow on one computer: calibrate, train, export, validate, sign, install, run, film."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from physai.sdk.cli.verb import AsJson, verb
from physai.train.api.run_demo import DRIVE_S, run_demo


@verb(run_demo, summary="calibrate, train, judge, sign, install, run and film a policy on this computer")
def command(call: functools.partial[dict[str, Any]], *, as_json: AsJson = False) -> int:
    """Run the steps, each of which a user can run alone."""
    summary = call(say=functools.partial(print, file=sys.stderr))
    if as_json:
        print(json.dumps(summary))
    else:
        print_summary(summary)
    return 0


def print_summary(summary: dict[str, Any]) -> None:
    """Print the results for a terminal."""
    from physai.train.api.demo_drive import driven_text

    lower, upper = summary["success_interval_95"]
    print(f"\n{summary['task']}: trained in {summary['training_s']:.0f} s")
    print(
        f"  success         {summary['succeeded']} of {summary['judged']} = {summary['success']:.1%}, "
        f"95 % interval {lower:.1%} to {upper:.1%} ({summary['criterion']})"
    )
    print(f"  verdict         {summary['verdict']}: {summary['gates_passed']}")
    for reason in summary["verdict_reasons"]:
        print(f"                  {reason}")
    for label in ("policy", "bundle", "robot", "fingerprint", "report", "learning_curve", "film"):
        if summary[label]:
            print(f"  {label.replace('_', ' '):<15} {summary[label]}")
    print(f"\nNO ROBOT WAS INVOLVED: {summary['evidence']}")
    if "driven" in summary:
        print(f"\nthe installed policy drove a virtual robot for {DRIVE_S:g} s:\n{driven_text(summary['driven'])}")
