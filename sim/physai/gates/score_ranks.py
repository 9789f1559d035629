"""Agreement of scores in simulation with those on the robot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.parameters.arguments import MAX_SEED, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from physai.sdk.stats.rank import RankValidity, Trials


@dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """Scores of the same policies on the robot and in simulation, and their agreement."""

    names: tuple[str, ...]
    """Policies in both files."""
    left_out: tuple[str, ...]
    """Policies in one file only."""
    real: Mapping[str, Trials]
    sim: Mapping[str, Trials]
    validity: RankValidity

    @property
    def remark(self) -> str:
        """Why the agreement says little; empty for at least `FEW` policies."""
        count = len(self.names)
        if count >= FEW:
            return ""
        orders = math.factorial(count)
        return (
            f"{count} policies: in any simulation 1 order of {orders} is the robot's, so at least {FEW} are needed to "
            "say that one predicts it; the intervals contain the scatter of the trials only"
        )


FEW = 5
"""Least number of policies whose order says something: chance finds that of five in 1 of 120 cases."""


def rank(
    real: Annotated[Path | str, Option(metavar="REAL.csv")],
    sim: Annotated[Path | str, Option(metavar="SIM.csv")],
    *,
    resample: Literal["trials", "policies"] | None = None,
    seed: int = 0,
) -> ScoreComparison:
    """Compare the scores that the same policies reach on the robot and in simulation.

    Args:
        real: scores on the robot.
        sim: scores in simulation.
        resample: unit that the bootstrap resamples. None for trials if known.
        seed: seed of the bootstrap.

    Returns:
        Both scores of each policy, and how well they agree.

    Raises:
        RankError: a file is malformed, too few policies are in both, or `resample` asks for trials that are unknown.
    """
    from physai.sdk.stats.rank import RankError, rank_validity
    from physai.sdk.stats.score_file import read_scores

    require_range("seed", seed, 0, MAX_SEED)
    on_robot, in_sim = read_scores(Path(real)), read_scores(Path(sim))
    names = tuple(name for name in on_robot if name in in_sim)
    validity = rank_validity(
        real=[on_robot[name] for name in names],
        sim=[in_sim[name] for name in names],
        seed=seed,
        policies=resample == "policies",
    )
    if resample == "trials" and validity.resampled != "trials":
        raise RankError("`resample` trials: a file has only a score for each policy, without its trials")
    left_out = tuple(name for name in (*on_robot, *in_sim) if name not in names)
    return ScoreComparison(names=names, left_out=left_out, real=on_robot, sim=in_sim, validity=validity)
