"""Runs the trials of a sweep with Ray Tune."""

import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from physai.cluster.sweep.folder import LOGS_FOLDER, SweepFolder, SweepTrial
from physai.cluster.sweep.training import TrialOrder
from physai.compute.ray.cluster import TRAINING_PACKAGES, ClusterError, brief, connected, versions
from physai.sdk.base.errors import MissingExtraError
from physai.train.api.options import TrainOptions

MAX_LOSSES = 3
"""How often a trial is continued after its process or worker died."""

_QUIET = {
    # The trials' own files hold what Tune would log again.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # Replayed trials report faster than the rate at which Tune would begin to buffer results.
    "TUNE_RESULT_BUFFER_LENGTH": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}

TrialOptions = Callable[[SweepTrial], tuple[TrainOptions, TrainOptions]]
"""Options of the runs that begin and continue a trial."""


def run_trials(folder: SweepFolder, options: TrialOptions, *, address: str, say: Callable[[str], None]) -> bool:
    """Train what has not been trained yet, until all trials have ended or SIGINT.

    Args:
        folder: the sweep; how its trials end is recorded there.
        options: see `TrialOptions`.
        address: see `physai.compute.ray.cluster.connected`.
        say: told how each trial ended.

    Returns:
        Whether all trials have ended.

    Raises:
        ClusterError: the cluster cannot be joined, or Tune fails.
        MissingExtraError: Ray Tune is not installed.
    """
    folder.forget_failures()
    waiting = [trial for trial in folder.trials if folder.state_of(trial) in ("waiting", "unfinished")]
    if not waiting:
        return True
    # Successive halving compares with trials that are trained already, so it sees their reports again.
    before = [trial for trial in folder.trials if trial not in waiting] if folder.record.sweep.asha is not None else []
    sweep = folder.record.sweep
    orders = [_order(folder, trial, options, replay=trial in before) for trial in (*before, *waiting)]
    for left in folder.path.glob(".tune-*"):
        # Of a sweep that was killed.
        shutil.rmtree(left, ignore_errors=True)
    os.environ.update(_QUIET)
    with connected(address, processors=sweep.concurrent * sweep.cpus) as ray:
        _require_room(ray, folder)
        _fit(ray, folder, orders, say)
    return all(folder.state_of(trial) not in ("waiting", "unfinished") for trial in folder.trials)


def _order(folder: SweepFolder, trial: SweepTrial, options: TrialOptions, *, replay: bool) -> TrialOrder:
    sweep = folder.record.sweep
    begun, resumed = (json.dumps(one.document()) for one in options(trial))
    path = folder.path.resolve()
    return TrialOrder(
        name=trial.name,
        run=str(folder.run(trial).resolve()),
        log=str(path / LOGS_FOLDER / f"{trial.name}.log"),
        begun=begun,
        resumed=resumed,
        clock=sweep.budget.clock,
        metric=sweep.metric,
        rungs=() if sweep.asha is None else sweep.asha.rungs(sweep.budget.end),
        end=sweep.budget.end,
        versions=versions(TRAINING_PACKAGES),
        until=folder.state.stopped.get(trial.name, math.inf) if replay else None,
    )


def _require_room(ray: Any, folder: SweepFolder) -> None:
    sweep, whole = folder.record.sweep, ray.cluster_resources()
    for name, needed in (("CPU", float(sweep.cpus)), ("GPU", sweep.gpus)):
        if not needed <= whole.get(name, 0.0):
            raise ClusterError(
                f"a trial needs {needed:g} {name}, and the cluster has {whole.get(name, 0.0):g}; change "
                f"{name.lower()}s in the sweep file, or add computers with `ray start --address`"
            )


def _fit(ray: Any, folder: SweepFolder, orders: Sequence[TrialOrder], say: Callable[[str], None]) -> None:
    try:
        tune: Any = import_module("ray.tune")
        schedulers: Any = import_module("ray.tune.schedulers")
    except ImportError as error:
        raise MissingExtraError("sweeps need Ray Tune: pip install 'physai-sdk[cluster]'") from error
    from physai.cluster.sweep.trainable import TrialTrainable

    sweep = folder.record.sweep
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    scheduler = None
    if sweep.asha is not None:
        scheduler = schedulers.ASHAScheduler(
            time_attr="time",
            max_t=sweep.budget.end,
            grace_period=sweep.asha.grace_period,
            reduction_factor=sweep.asha.reduction,
            # A trial that reaches its budget ends by itself, and saves its run first.
            stop_last_trials=False,
        )
    trainable = tune.with_parameters(TrialTrainable, orders={order.name: order for order in orders})
    # Tune's own files serve Tune only while it runs.
    with tempfile.TemporaryDirectory(prefix=".tune-", dir=folder.path.resolve(), ignore_cleanup_errors=True) as own:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": sweep.cpus, "gpu": sweep.gpus}),
            param_space={"name": tune.grid_search([order.name for order in orders])},
            tune_config=tune.TuneConfig(
                metric="value",
                mode="max",
                scheduler=scheduler,
                max_concurrent_trials=sweep.concurrent,
                reuse_actors=True,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=own,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=MAX_LOSSES),
                callbacks=[_callback(tune, folder, {order.name for order in orders if order.until is not None}, say)],
            ),
        )
        try:
            tuner.fit()
        except (ray.exceptions.RayError, tune.TuneError) as error:
            raise ClusterError(f"Ray Tune failed: {brief(error)}; continue with `resume` {folder.path}") from error


def _name(trial: Any) -> str:
    return trial.config["name"]


def _callback(tune: Any, folder: SweepFolder, replayed: set[str], say: Callable[[str], None]) -> Any:
    unit = " s" if folder.record.sweep.budget.clock == "seconds" else " iterations"

    class Notes(tune.Callback):
        """Records how trials end."""

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
            name, result = _name(trial), trial.last_result
            if name in replayed:
                return
            stand = f"{folder.record.sweep.metric} {result['value']:.4g} after {result['time']:g}{unit}"
            if result["failure"]:
                folder.note_failed(name, result["failure"])
                say(f"{name}: failed: {result['failure']}")
            elif result["ended"]:
                say(f"{name}: {stand}")
            else:
                folder.note_stopped(name, result["time"])
                say(f"{name}: stopped early, {stand}")

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
            name = _name(trial)
            lines = str(trial.get_error() or "its worker died").strip().splitlines()
            folder.note_failed(name, f"lost {MAX_LOSSES + 1} times: {lines[-1]}")
            say(f"{name}: failed: {lines[-1]}")

    return Notes()
