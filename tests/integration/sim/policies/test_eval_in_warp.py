"""Episodes that policy and worlds play on one device are those that the CPU plays."""

import json
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.cli.main import main
from physai.sim.policies.evaluate import EVALUATION_SEED, play_episodes
from physai.sim.policies.onnx import OnnxPolicy, read_policy
from physai.sim.policies.resolve import find_policy
from physai.sim.tasks.registry import load_task

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from tests.support.torch_mujoco import TorchMujoco  # noqa: E402

from physai.sim.envs.device.device_environment import DeviceEnvironment  # noqa: E402
from physai.sim.policies.device_evaluate import play_on_device  # noqa: E402
from physai.sim.policies.device_policy import DevicePolicy  # noqa: E402
from physai.train.runners.checkpoint import save_checkpoint  # noqa: E402
from physai.train.runners.runner import Trainer  # noqa: E402
from physai.train.runs.run_config import RunTaskSource, save_config  # noqa: E402
from physai.train.settings.config import TrainConfig  # noqa: E402


def exported(folder: Path, task: str, actor: Any) -> Path:
    """A policy that has learned for two updates."""
    source = RunTaskSource(task=task)
    config = TrainConfig(num_envs=16, horizon=8, minibatches=2, hidden=(8,), gru_size=4, actor=actor, num_threads=1)
    trainer = Trainer(source.load(), config)
    for _ in range(2):
        trainer.train_iteration()
    save_config(folder, source, config, trainer.task.contract)
    save_checkpoint(trainer, folder)
    assert main(["export", str(folder), "--states", "20"]) == 0
    return find_policy(folder)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("cartpole"), "cartpole-swingup", "gru")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "actor"), [("cartpole-swingup", "gru"), ("ur10e-reach", "mlp")])
def test_with_the_same_physics_the_episodes_are_the_same(name: str, actor: str, tmp_path: Path) -> None:
    path, task = exported(tmp_path, name, actor), load_task(name)
    wanted = play_episodes(OnnxPolicy.load(path), task, episodes=8)
    environment = DeviceEnvironment(task, TorchMujoco(task, 8), seed=EVALUATION_SEED)
    shares: list[float] = []
    policy = DevicePolicy(read_policy(path), source=str(path))
    found = play_on_device(policy, environment, progress=shares.append)
    assert (found.judged, found.succeeded) == (wanted.judged, wanted.succeeded)
    assert found.metrics == pytest.approx(wanted.metrics, rel=1e-3)
    assert found.diverged == wanted.diverged == ()
    assert shares[-1] == 1.0


def evaluate(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["eval", str(path), "--episodes", "16", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_engine_warp_measures_what_mujoco_measures(cartpole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_mujoco, in_warp = evaluate(cartpole, capsys), evaluate(cartpole, capsys, "--engine", "warp")
    assert (in_mujoco["engine"], in_warp["engine"], in_warp["device"]) == ("mujoco", "warp", "cpu")
    assert in_warp["success"] == in_mujoco["success"]
    assert in_warp["metrics"] == pytest.approx(in_mujoco["metrics"], rel=0.2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "warp", "--episodes", "0"], "--episodes"),
        (["--engine", "warp", "--task", "ur10e-reach"], "contract"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: list[str], said: str, cartpole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(cartpole), *options]) != 0
    assert said in capsys.readouterr().err
