"""Schedule of the evaluations without exploration during training."""

EPISODES = 128
"""Episodes per evaluation."""
EVERY_S = 5.0
"""Minimum time between two evaluations [s]."""
PATIENCE = 4.0
"""Minimum ratio of training time to evaluation time, so that evaluations take at most a fifth of the run."""


class EvalScheduler:
    """Decides when to evaluate; all times are of one clock [s]."""

    def __init__(self, target: float | None, min_fraction: float) -> None:
        """Schedules evaluations while the success rate with exploration is at least `min_fraction` of `target`.

        Args:
            target: success rate to reach without exploration; None for no evaluations.
            min_fraction: see `TrainConfig.eval_min_success`.
        """
        self._target, self._min_fraction = target, min_fraction
        self._next_s = 0.0

    def due(self, success: float, now_s: float) -> bool:
        """Whether to evaluate now, given the success rate with exploration."""
        return self._target is not None and success >= self._min_fraction * self._target and now_s >= self._next_s

    def judged(self, success: float, start_s: float, end_s: float) -> bool:
        """Records an evaluation from `start_s` to `end_s`; returns whether its success rate reaches the target."""
        self._next_s = end_s + max(EVERY_S, PATIENCE * (end_s - start_s))
        return self._target is not None and success >= self._target
