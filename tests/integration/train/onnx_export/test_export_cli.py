"""`physai export` on a run folder."""

import json
from pathlib import Path

import pytest

from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.onnx_export.export import ExportReport
from physai.train.runners.checkpoint import save_checkpoint
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource, save_config
from physai.train.settings.config import TrainConfig


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two short iterations."""
    folder = tmp_path_factory.mktemp("run")
    source = RunTaskSource(task="cartpole-swingup")
    config = TrainConfig(num_envs=8, horizon=4, minibatches=2, hidden=(8,), num_threads=1)
    trainer = Trainer(source.load(), config)
    for _ in range(2):
        trainer.train_iteration()
    save_config(folder, source, config, trainer.task.contract)
    save_checkpoint(trainer, folder)
    return folder


def test_the_command_exports_a_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run_folder), "--states", "20"]) == 0
    printed = capsys.readouterr()
    fingerprint = load_contract(run_folder / "export" / "policy.onnx").fingerprint
    assert fingerprint in printed.out
    assert "joint_effort_target" in printed.out
    # On a slow computer it tells its progress.
    assert all(line.startswith("exporting: ") for line in printed.err.splitlines())
    policy = OnnxPolicy.load(run_folder / "export" / "policy.onnx")
    assert policy.header.provenance["seed"] == "0"


def test_the_command_prints_json(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["export", str(run_folder), "--out", str(out), "--states", "20", "--json"]) == 0
    report = ExportReport(**json.loads(capsys.readouterr().out))
    assert report.folder == str(out)
    assert report.states == 20
    assert report.policy_bytes == (out / "policy.onnx").stat().st_size


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_a_leapp_bundle_is_written_as_well(run_folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert main(["export", str(run_folder), "--states", "20", "--leapp", str(bundle)]) == 0
    assert sorted(path.name for path in bundle.iterdir()) == ["leapp.onnx", "leapp.yaml"]
