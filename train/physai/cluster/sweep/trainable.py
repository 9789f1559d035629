"""A trial as Ray Tune runs it. Imports Ray."""

from importlib import import_module
from typing import Any

from physai.cluster.sweep.training import Training, TrialOrder

WAIT_S = 2.0
"""How often Tune hears of a trial at least [s], so that it can stop it."""

_tune: Any = import_module("ray.tune")


class TrialTrainable(_tune.Trainable):
    """Trains one trial after another in a worker of Ray; `config["name"]` says which."""

    def setup(self, config: dict[str, Any], orders: dict[str, TrialOrder]) -> None:
        """Starts the first trial."""
        self._orders = orders
        self._training = Training(orders[config["name"]])

    def step(self) -> dict[str, Any]:
        """See `Training.report`."""
        report = self._training.report(WAIT_S)
        return {
            "time": report.time,
            "value": report.value,
            "ended": report.ended,
            "failure": report.failure,
            "done": report.ended,
        }

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Starts the next trial in this worker."""
        self._training.stop()
        self._training = Training(self._orders[new_config["name"]])
        return True

    def cleanup(self) -> None:
        """Ends the training, which can be continued."""
        self._training.stop()
