"""Float graph and variant in the same episodes of the twin: does the robot still do its task?

A bound on the commands says little where small errors grow, as in a pendulum that must be caught at the top: a variant
within its contract's bound was seen to lose 7 % of the episodes that the float graph wins.
"""

from collections.abc import Callable
from dataclasses import dataclass

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sim.gates.execution.batch import Batch, Bools, seeds_of, stream_seed
from physai.sim.gates.execution.rollout import play_batch
from physai.sim.gates.settings import GateSettings
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.stats.paired import PairedTest
from physai.sim.tasks.task import Task
from physai.sim.twin.conditions import conditions
from physai.sim.twin.twin import Twin

PAIR_STREAM = 0x5EED_9A125
"""Seeds of the paired episodes; no scale and no verdict rests on them."""


@dataclass(frozen=True)
class Pairs:
    """Episodes that both graphs played."""

    pairs: int
    worse: int
    """Those that only the float graph succeeds in."""
    better: int
    """Those that only the variant succeeds in."""
    outcome: VerdictOutcome
    """PASS: the variant is shown to lose less than the margin; as the gate `non-inferiority` decides it."""

    @property
    def drop(self) -> float:
        """Drop of the success rate as seen."""
        return (self.worse - self.better) / max(1, self.pairs)


class PairedEvaluation:
    """Plays variants of one policy against its float graph; what the float graph did is remembered."""

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
        """Prepares.

        Args:
            data: the float graph's ONNX file.
            task: what it plays.
            twin: where the robot's parameters, noise and delays come from.
            seed: choice of the episodes.
            settings: of the gates, for margin, level and number of episodes; None for the built-in ones.
            progress: gets the share of the most episodes there may be, in each comparison.
        """
        self._float = OnnxPolicy(data, source="the float policy")
        self._task, self._twin = task, twin
        self._stream = stream_seed(PAIR_STREAM, seed)
        self._settings = settings or GateSettings()
        self._progress = progress
        self._condition = conditions(task, twin)["calibrated"]
        self._known: list[Bools] = []

    def compare(self, data: bytes) -> Pairs:
        """Plays a variant until it is known to be as good as the float graph or not, or the episodes are spent.

        Raises:
            PolicyError: the file is refused.
        """
        asked = self._settings.non_inferiority
        policy = OnnxPolicy(data, source="the quantised policy")
        test = PairedTest(asked.margin, alpha=self._settings.gate_alpha)
        number = 0
        while test.outcome is VerdictOutcome.INCONCLUSIVE and test.pairs < asked.max_episodes:
            count = min(self._settings.batch, asked.max_episodes - test.pairs)
            batch = Batch(condition=self._condition, seeds=seeds_of(self._stream, test.pairs, count))
            if number == len(self._known):
                self._known.append(self._play(self._float, batch))
            wanted, found = self._known[number], self._play(policy, batch)
            test.add(int((wanted & ~found).sum()), int((found & ~wanted).sum()), count)
            number += 1
            if self._progress is not None:
                self._progress(test.pairs / asked.max_episodes)
        return Pairs(test.pairs, test.worse, test.better, test.outcome)

    def _play(self, policy: OnnxPolicy, batch: Batch) -> Bools:
        return play_batch(policy, self._task, self._twin, batch).success
