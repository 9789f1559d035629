"""Logs a run to MLflow: settings as parameters, statistics as metrics, the run's identity as tags."""

import dataclasses
import logging
import time
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.policy.run_identity import ID_KEY
from physai.train.runners.reporting import flat_stats
from physai.train.runners.runner import IterationStats
from physai.train.runs.run_config import load_config
from physai.train.settings.config import TrainConfig

logger = logging.getLogger(__name__)

RUN_TAG = "physai.run"
"""Tag with the id of the run; a resumed run continues the MLflow run that has it."""

FLUSH_S = 5.0
"""How long metrics are collected before they are sent [s]."""

_MAX_BATCH = 1000
"""Metrics that MLflow takes at once."""
_MAX_KEPT = 200_000
"""Metrics kept while the server does not answer; the oldest are dropped."""
_STEP_METRIC = "env_steps"


class MlflowSink:
    """A run in an MLflow experiment, at MLFLOW_TRACKING_URI or else in MLflow's local default."""

    def __init__(self, folder: Path, config: TrainConfig, experiment: str) -> None:
        """Starts a run, or continues that of the same run folder.

        Raises:
            MissingExtraError: the package mlflow-skinny is not installed.
            PhysaiError: the tracking server cannot be used.
        """
        try:
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient
        except ModuleNotFoundError as error:
            raise MissingExtraError("`mlflow` needs the package mlflow: pip install 'physai-sdk[mlflow]'") from error
        self._metric: Any = Metric
        self._waiting: list[Any] = []
        self._sent_s = time.monotonic()
        self._failed = False
        try:
            self._client: Any = MlflowClient()
            self._run: str = self._found(folder, config, experiment)
            history: list[Any] = self._client.get_metric_history(self._run, _STEP_METRIC)
        except Exception as error:  # MLflow's own, those of its HTTP client and of its database
            raise PhysaiError(
                f"`mlflow` {experiment}: the tracking server cannot be used: {' '.join(str(error).split())[:300]}; "
                "correct MLFLOW_TRACKING_URI, or unset it to log to a local file"
            ) from error
        # Iterations repeated after a kill have the same numbers.
        self._logged = max((int(point.step) for point in history), default=0)

    def _found(self, folder: Path, config: TrainConfig, experiment: str) -> str:
        """Id of the MLflow run, a new one with parameters and tags if there is none."""
        client, (source, _, provenance) = self._client, load_config(folder)
        known = client.get_experiment_by_name(experiment)
        number: str = client.create_experiment(experiment) if known is None else known.experiment_id
        identity = provenance.get(ID_KEY, str(folder.absolute()))
        runs: list[Any] = client.search_runs([number], f"tags.`{RUN_TAG}` = '{_quoted(identity)}'", max_results=1)
        if runs:
            client.update_run(runs[0].info.run_id, status="RUNNING")
            return runs[0].info.run_id
        tags = {RUN_TAG: identity, "physai.task": Path(source.task).name, "physai.folder": str(folder)}
        tags |= {f"physai.{name}": provenance[name] for name in ("git_commit", "image") if provenance.get(name)}
        run: str = client.create_run(number, tags=tags, run_name=folder.absolute().name).info.run_id
        for name, value in dataclasses.asdict(config).items():
            client.log_param(run, name, str(value)[:6000])
        return run

    def write(self, stats: IterationStats) -> None:
        if stats.iteration <= self._logged:
            return
        now_ms = int(time.time() * 1000)
        self._waiting += [
            self._metric(name, value, now_ms, stats.iteration)
            for name, value in flat_stats(stats).items()
            if name != "iteration"
        ]
        if time.monotonic() - self._sent_s >= FLUSH_S:
            self._send()

    def _send(self) -> None:
        """Sends what waits; if that fails, it waits for the next time, because training goes on."""
        self._sent_s = time.monotonic()
        try:
            while self._waiting:
                self._client.log_batch(self._run, metrics=self._waiting[:_MAX_BATCH])
                del self._waiting[:_MAX_BATCH]
            self._failed = False
        except Exception as error:
            if not self._failed:
                logger.warning("MLflow does not take the metrics, which wait: %s", " ".join(str(error).split())[:300])
            self._failed = True
            del self._waiting[:-_MAX_KEPT]

    def close(self) -> None:
        self._send()
        if self._failed:
            logger.warning("MLflow lacks %d metrics of this run; progress.csv has all", len(self._waiting))
            return
        self._client.set_terminated(self._run)


def _quoted(text: str) -> str:
    return text.replace("'", "")
