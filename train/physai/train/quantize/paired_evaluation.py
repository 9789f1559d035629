"""Paired evaluation of the float graph and a quantised variant in the same episodes of the twin.

A bound on the commands says little where small errors grow, as in an inverted pendulum: one variant within its
contract's bound failed 7 % of the episodes in which the float graph succeeds.
"""

from collections.abc import Callable
from dataclasses import dataclass

from physai.gates.settings import GateSettings
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.paired import PairedTest
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.model.conditions import conditions
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Batch, Bools, seeds_of, stream_seed
from physai.twin.rollouts.rollout import play_batch

PAIR_STREAM = 0x5EED_9A125
"""Seeds of the paired episodes, used neither for calibration nor for a verdict."""


@dataclass(frozen=True)
class Pairs:
    """Outcome of paired episodes."""

    pairs: int
    worse: int
    """Episodes in which only the float graph succeeds."""
    better: int
    """Episodes in which only the variant succeeds."""
    outcome: VerdictOutcome
    """PASS: the variant is not inferior by the margin; decided as in the gate `non-inferiority`."""

    @property
    def drop(self) -> float:
        """Observed drop of the success rate."""
        return (self.worse - self.better) / max(1, self.pairs)


class PairedEvaluation:
    """Evaluates variants of one policy against its float graph, whose results are cached."""

    def __init__(
        self,
        data: bytes,
        task: Task,
        twin: Twin,
        *,
        seed: int = 0,
        settings: GateSettings | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Loads the float graph.

        Args:
            data: the float graph's ONNX file.
            task: its task.
            twin: source of the robot's parameters, noise and delays.
            seed: selects the episodes.
            settings: gate settings, for margin, level and number of episodes; None for the built-in ones.
            progress: called with the fraction of the maximum number of episodes, in each comparison.
        """
        self._float = OnnxPolicy(data, source="the float policy")
        self._task, self._twin = task, twin
        self._stream = stream_seed(PAIR_STREAM, seed)
        self._settings = settings or GateSettings()
        self._progress = progress
        self._condition = conditions(task, twin)["calibrated"]
        self._float_success: list[Bools] = []
        """Success of the float graph in each batch played so far."""

    def compare(self, data: bytes) -> Pairs:
        """Evaluates a variant until the sequential test decides or the episodes are used up.

        Raises:
            PolicyError: the file is refused.
        """
        settings = self._settings.non_inferiority
        policy = OnnxPolicy(data, source="the quantised policy")
        test = PairedTest(settings.margin, alpha=self._settings.gate_alpha)
        number = 0
        while test.outcome is VerdictOutcome.INCONCLUSIVE and test.pairs < settings.max_episodes:
            count = min(self._settings.batch, settings.max_episodes - test.pairs)
            batch = Batch(condition=self._condition, seeds=seeds_of(self._stream, test.pairs, count))
            if number == len(self._float_success):
                self._float_success.append(self._play(self._float, batch))
            expected, actual = self._float_success[number], self._play(policy, batch)
            test.add(int((expected & ~actual).sum()), int((actual & ~expected).sum()), count)
            number += 1
            if self._progress is not None:
                self._progress(test.pairs / settings.max_episodes)
        return Pairs(test.pairs, test.worse, test.better, test.outcome)

    def _play(self, policy: OnnxPolicy, batch: Batch) -> Bools:
        return play_batch(policy, self._task, self._twin, batch).success
