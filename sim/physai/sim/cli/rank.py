"""`physai sim rank`: says how well scores in simulation predict those on the robot."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import MAX_SEED, require_range
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from physai.sdk.stats.rank import Estimate, RankValidity, Trials

_DESCRIPTION = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim rank`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.add_argument("real", metavar="REAL.csv", type=Path, help="scores on the robot")
    parser.add_argument("sim", metavar="SIM.csv", type=Path, help="scores in simulation")
    parser.add_argument(
        "--resample", choices=("trials", "policies"), help="what the bootstrap resamples (default: trials if known)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Prints both scores of each policy and how well they agree."""
    from physai.sdk.stats.rank import RankError, rank_validity
    from physai.sdk.stats.score_file import read_scores

    require_range("--seed", arguments.seed, 0, MAX_SEED)
    real, sim = read_scores(arguments.real), read_scores(arguments.sim)
    common = [name for name in real if name in sim]
    left_out = [name for name in (*real, *sim) if name not in common]
    validity = rank_validity(
        real=[real[name] for name in common],
        sim=[sim[name] for name in common],
        seed=arguments.seed,
        policies=arguments.resample == "policies",
    )
    if arguments.resample == "trials" and validity.resampled != "trials":
        raise RankError("--resample trials: a file has only a score for each policy, without its trials")
    if arguments.json:
        print(json.dumps(_record(common, left_out, real, sim, validity), indent=2))
    else:
        print(printable(_text(common, left_out, real, sim, validity)))
    return 0


def _record(
    names: list[str], left_out: list[str], real: Mapping[str, Trials], sim: Mapping[str, Trials], validity: RankValidity
) -> dict[str, Any]:
    def scores(trials: Trials) -> dict[str, Any]:
        return {"score": trials.score, "trials": trials.trials}

    policies = [{"policy": name, "real": scores(real[name]), "sim": scores(sim[name])} for name in names]
    return {**asdict(validity), "policies": policies, "left_out": left_out}


def _text(
    names: list[str], left_out: list[str], real: Mapping[str, Trials], sim: Mapping[str, Trials], validity: RankValidity
) -> str:
    def cell(trials: Trials) -> str:
        return f"{trials.score:.3g}" + (f" of {trials.trials}" if trials.trials else "")

    # The best on the robot first, so that what the simulation orders wrongly is seen in its column.
    ordered = sorted(names, key=lambda name: -real[name].score)
    lines = [table(("policy", "real", "sim"), [(name, cell(real[name]), cell(sim[name])) for name in ordered]), ""]
    rows = [
        (name, *_cells(estimate))
        for name, estimate in (
            ("pearson", validity.pearson),
            ("spearman", validity.spearman),
            ("mmrv", validity.mmrv),
        )
    ]
    lines.append(table(("", "value", f"95 % over {validity.resampled}"), rows))
    if left_out:
        lines += ["", f"only in one file, left out: {', '.join(left_out)}"]
    return "\n".join(lines)


def _cells(estimate: Estimate) -> tuple[str, str]:
    if estimate.value is None:
        return "undefined", "all scores of one file are equal"
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"


command = CliCommand(
    summary="compare scores in simulation with those on the robot", add_arguments=add_arguments, run=run
)
"""The verb `sim rank`."""
