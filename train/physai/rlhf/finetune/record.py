"""Files of a run that learned from preferences."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rfc8785

from physai.rlhf.answers.agreement import agreement
from physai.rlhf.answers.segment import REWARD
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.answers.teachers import SIMULATED
from physai.rlhf.finetune.judge import Worth, judge
from physai.rlhf.reward_model.fit_report import FitReport
from physai.rlhf.reward_model.reward import ScoringCollector
from physai.sdk.base.files import write_atomic
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.preferences import Preferences
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import IterationStats

RECORD_FILE = "preferences.json"
EPISODES = 64


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One point of the over-optimisation curve (Gao, Schulman, Hilton 2023), without exploration."""

    iteration: int
    kl: float
    """Divergence from the reference per step, with exploration [nat]; 0 without a reference."""
    learned: float | None
    """Mean of the learned reward, per second."""
    task: float
    """Mean of the task's reward, per second."""
    taste: float | None
    """Mean of the taste that the answers came from, per second; None where it is unknown."""
    success: float | None
    """Share of what was judged that succeeded; None if nothing was judged."""


def point(worth: Worth, *, iteration: int, kl: float, taste: Mapping[str, float] | None) -> CurvePoint:
    """A point of the curve, of a policy that was judged."""
    return CurvePoint(
        iteration=iteration,
        kl=kl,
        learned=worth.learned,
        task=worth.terms[REWARD],
        taste=worth.taste(taste) if taste else None,
        success=worth.success,
    )


@dataclass
class Curve:
    """Judges the policy every few iterations; a destination of a session's statistics."""

    graph: PolicyGraph
    task: Task
    collector: ScoringCollector
    every: int
    taste: Mapping[str, float] | None = None
    points: list[CurvePoint] = field(default_factory=list[CurvePoint])

    def write(self, stats: IterationStats) -> None:
        if stats.iteration % self.every == 0:
            self.add(stats.iteration)

    def add(self, iteration: int) -> Worth:
        """Judges the policy now."""
        repeat = self.collector.config.action_repeat
        worth = judge(self.graph, self.task, episodes=EPISODES, model=self.collector.model, action_repeat=repeat)
        self.points.append(point(worth, iteration=iteration, kl=self.collector.kl, taste=self.taste))
        return worth

    def close(self) -> None:
        """Nothing is buffered."""


def origin(
    store: PreferenceStore, fit: FitReport, *, reward_model: str, reference: str | None, raters: Collection[str] = ()
) -> Preferences:
    """Statement of the preferences that a run learns from.

    Args:
        store: the database.
        fit: of the reward model.
        reward_model: its SHA-256.
        reference: SHA-256 of the policy file that is fine-tuned, if there is one.
        raters: whose answers it learns from; those of all if none is named.
    """
    answers, database = store.answers(raters), store.digest()
    raters = sorted({answer.rater for answer in answers})
    lower, upper = fit.accuracy_interval or (None, None)
    return Preferences(
        database=database,
        raters=sha256_hex(rfc8785.dumps([database, raters])),
        reward_model=reward_model,
        reference=reference,
        answers=len(answers),
        rater_count=len(raters),
        simulated=sum(rater.startswith(SIMULATED) for rater in raters),
        agreement=agreement(answers),
        held_out=fit.held_out,
        accuracy=fit.accuracy,
        accuracy_lower=lower,
        accuracy_upper=upper,
    )


def write_record(folder: Path, stated: Preferences, curve: Curve, facts: Mapping[str, Any]) -> None:
    """Writes `preferences.json`."""
    document = {
        "format_version": 1,
        **stated.model_dump(mode="json"),
        **facts,
        "over_optimisation": [asdict(point) for point in curve.points],
    }
    write_atomic(folder / RECORD_FILE, json.dumps(document, indent=2).encode())
