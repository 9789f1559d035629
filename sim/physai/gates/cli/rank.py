"""`physai sim rank`: says how well scores in simulation predict those on the robot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from physai.gates.score_ranks import rank
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.gates.score_ranks import ScoreComparison
    from physai.sdk.stats.rank import Estimate, Trials


@verb(rank, summary="compare scores in simulation with those on the robot")
def command(call: Callable[..., ScoreComparison], *, as_json: AsJson = False) -> int:
    """Print both scores of each policy and how well they agree.

    Compare the scores that the same policies reach on the robot and in simulation.

    The first line of each CSV file names its columns, one of
      policy,successes,trials   a row for each policy
      policy,success            a row for each trial: 0 or 1, true or false
      policy,score              a row for each policy or trial, any number

    pearson   linear correlation of the scores
    spearman  correlation of their ranks
    mmrv      mean maximum rank violation (SIMPLER): for each policy the greatest difference on the robot that the
              simulation orders wrongly, averaged; 0 is best. REAL and SIM are not interchangeable.

    Intervals hold 95 % of a bootstrap over trials where their number is known, otherwise over policies.
    """
    found = call()
    print(json.dumps(_record(found), indent=2) if as_json else printable(_text(found)))
    return 0


def _record(found: ScoreComparison) -> dict[str, Any]:
    def scores(trials: Trials) -> dict[str, Any]:
        return {"score": trials.score, "trials": trials.trials}

    policies = [
        {"policy": name, "real": scores(found.real[name]), "sim": scores(found.sim[name])} for name in found.names
    ]
    return {**asdict(found.validity), "policies": policies, "left_out": list(found.left_out), "remark": found.remark}


def _text(found: ScoreComparison) -> str:
    def cell(trials: Trials) -> str:
        return f"{trials.score:.3g}" + (f" of {trials.trials}" if trials.trials else "")

    real, sim, validity = found.real, found.sim, found.validity
    # The best on the robot first, so that what the simulation orders wrongly is seen in its column.
    ordered = sorted(found.names, key=lambda name: -real[name].score)
    lines = [table(("policy", "real", "sim"), [(name, cell(real[name]), cell(sim[name])) for name in ordered]), ""]
    estimates = (("pearson", validity.pearson), ("spearman", validity.spearman), ("mmrv", validity.mmrv))
    rows = [(name, *_cells(estimate)) for name, estimate in estimates]
    lines.append(table(("", "value", f"95 % over {validity.resampled}"), rows))
    if found.remark:
        lines += ["", found.remark]
    if found.left_out:
        lines += ["", f"only in one file, left out: {', '.join(found.left_out)}"]
    return "\n".join(lines)


def _cells(estimate: Estimate) -> tuple[str, str]:
    if estimate.value is None:
        return "undefined", "all scores of one file are equal"
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"
