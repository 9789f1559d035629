"""When the success measured while exploring makes an evaluation without exploration worth its time."""

EPISODES = 128
"""Episodes of such an evaluation."""
EVERY_S = 5.0
"""Least time from one evaluation to the next [s]."""
PATIENCE = 4.0
"""Training time between two evaluations over the time an evaluation takes, so that judging costs a fifth at most."""


class EvalScheduler:
    """Decides when to evaluate; times are those of one clock [s]."""

    def __init__(self, wanted: float | None, promising: float) -> None:
        """Never evaluates where no success is `wanted`, nor below a `promising` share of it while exploring."""
        self._wanted, self._promising = wanted, promising
        self._next_s = 0.0

    def due(self, success: float, now_s: float) -> bool:
        """Whether to evaluate now, at a share of successes while exploring."""
        return self._wanted is not None and success >= self._promising * self._wanted and now_s >= self._next_s

    def judged(self, success: float, start_s: float, end_s: float) -> bool:
        """Takes note of an evaluation from `start_s` to `end_s`; whether its success is the wanted one."""
        self._next_s = end_s + max(EVERY_S, PATIENCE * (end_s - start_s))
        return self._wanted is not None and success >= self._wanted
