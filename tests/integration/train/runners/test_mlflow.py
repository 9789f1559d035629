"""MLflow's own client reads back what a run logged."""

import csv
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.cli.main import main
from physai.sdk.policy.run_identity import ID_KEY
from physai.train.runs.run_config import load_config

mlflow: Any = pytest.importorskip("mlflow")

SMALL = ["--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--mlflow", "swing-up"]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the tracking database that MLFLOW_TRACKING_URI names."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/tracking.db")
    monkeypatch.chdir(tmp_path)
    return mlflow.tracking.MlflowClient()


def runs_of(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("swing-up")
    return client.search_runs([experiment.experiment_id])


def progress(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_metrics_and_parameters_are_those_of_the_run(client: Any, tmp_path: Path) -> None:
    assert main(["train", "cartpole-swingup", *SMALL, "--iterations", "3", "--seed", "5", "--out", "run"]) == 0
    (run,) = runs_of(client)
    assert run.info.status == "FINISHED"
    _, config, provenance = load_config(tmp_path / "run")
    assert run.data.params["seed"] == "5"
    assert run.data.params["learning_rate"] == str(config.learning_rate)
    assert run.data.tags["physai.run"] == provenance[ID_KEY]
    rows = progress(tmp_path / "run")
    assert len(rows) == 3
    for name in ("env_steps", "reward_per_s", "success"):
        logged = client.get_metric_history(run.info.run_id, name)
        assert [point.step for point in logged] == [1, 2, 3]
        for point, row in zip(logged, rows, strict=True):
            expected = float(row[name])
            assert point.value == pytest.approx(expected, rel=1e-6, nan_ok=True)

    # A resumed run is the same run of MLflow.
    assert main(["train", "--resume", "run", "--iterations", "5", "--mlflow", "swing-up"]) == 0
    (run,) = runs_of(client)
    assert [point.step for point in client.get_metric_history(run.info.run_id, "env_steps")] == [1, 2, 3, 4, 5]


def test_a_server_that_is_not_there_is_named_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["train", "cartpole-swingup", *SMALL, "--iterations", "1", "--out", "run"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("physai: error: --mlflow swing-up: the tracking server cannot be used")
    assert error.endswith("correct MLFLOW_TRACKING_URI, or unset it to log to a local file")
