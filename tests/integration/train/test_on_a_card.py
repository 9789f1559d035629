"""On a GPU: steps are one CUDA graph that plays what separate launches play, nothing waits, and runs repeat."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tests.support.devices import CARD

from physai.sdk.cli.main import main
from physai.sdk.onnx.device import PolicyDevice
from physai.sim.envs.device import device_rng
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.envs.device.graph import CapturedEnvironment
from physai.sim.envs.rng import Stream
from physai.sim.policies.device_policy import DevicePolicy
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train.runners.checkpoint import CHECKPOINT_FILE
from physai.train.runners.runner import Trainer, device_engine
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

pytestmark = [CARD, pytest.mark.slow]
GPU = torch.device("cuda:0")
WORLDS = 32
TASKS = ["cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity"]
PARTS = ("critic", "reward", "terminated", "truncated", "succeeded")
POLICIES = Path(__file__).parents[2] / "data" / "policies"


def environment(task: Task) -> DeviceEnvironment:
    config = replace(preset_for(task.name), num_envs=WORLDS, engine="warp", deterministic=True)
    return DeviceEnvironment(task, device_engine(task, config, GPU), seed=3, training=True)


def commands(task: Task, random: np.random.Generator) -> Mapping[str, Any]:
    terms = task.contract.action.terms
    drawn = {t.target_name: np.array(t.offset) + 0.3 * random.uniform(-1, 1, (WORLDS, len(t.joints))) for t in terms}
    return {name: torch.tensor(value, dtype=torch.float32, device=GPU) for name, value in drawn.items()}


@pytest.mark.parametrize("name", TASKS)
def test_a_replayed_graph_plays_what_separate_launches_play(name: str) -> None:
    """To the last bit without contacts. With them MuJoCo Warp adds in no fixed order, and rounding grows."""
    task, random = load_task(name), np.random.default_rng(1)
    contacts = name == "go2-velocity"
    plain, replayed = environment(task), CapturedEnvironment(environment(task))
    plain.reset()
    replayed.reset()
    for number in range(10 if contacts else 60):
        targets = commands(task, random)
        left, right = plain.step(targets), replayed.step(targets)
        parts = {part: (getattr(left, part), getattr(right, part)) for part in PARTS}
        parts |= {name: (value, right.sensors[name]) for name, value in left.sensors.items()}
        for part, (value, other) in parts.items():
            near = 1e-3 if contacts else 0.0
            torch.testing.assert_close(value, other, rtol=near, atol=near, msg=f"{number} {part}")
    assert replayed.why_not is None


def waits(name: str, actor: Any, steps: int) -> int:
    """How often the host waits for the card in a rollout whose steps are launched one by one, as torch counts it."""
    config = TrainConfig(num_envs=WORLDS, horizon=steps, minibatches=1, hidden=(8,), engine="warp", actor=actor)
    trainer = Trainer(load_task(name), config, device=str(GPU))
    rollout = trainer.new_rollout()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trainer.collector.collect(rollout)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in said)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("actor", ["mlp", "gru"])
def test_no_step_of_a_rollout_waits(name: str, actor: Any) -> None:
    """Policy, physics, rewards, resets, storage and statistics; the host looks once, after the last step."""
    # The first step of a process waits for what is made once.
    waits(name, actor, 1)
    one = waits(name, actor, 1)
    assert one > 0
    assert waits(name, actor, 2) == one


def test_draws_are_those_of_the_processor() -> None:
    worlds = torch.arange(512)
    seeds = [
        device_rng.episode_seeds(device_rng.base_of(7), worlds.to(place), torch.full_like(worlds, 5).to(place))
        for place in ("cpu", GPU)
    ]
    assert torch.equal(seeds[0], seeds[1].cpu())
    steps = torch.tensor(2**33 + 1)
    left = device_rng.uniform(seeds[0], Stream.STATE, 9, steps=steps)
    right = device_rng.uniform(seeds[1], Stream.STATE, 9, steps=steps.to(GPU))
    assert torch.equal(left, right.cpu())
    noise = [device_rng.normal(s, Stream.EXPLORATION, 9, steps=steps.to(s.device)).cpu() for s in seeds]
    # Logarithm and cosine round otherwise.
    torch.testing.assert_close(noise[0], noise[1], rtol=1e-5, atol=1e-6)


def weights(run: Path) -> dict[str, Any]:
    return torch.load(run / CHECKPOINT_FILE, weights_only=True, map_location="cpu")["graph"]


SIZES = ["--num-envs", "64", "--set", "horizon=8", "--set", "minibatches=2", "--deterministic", "--device", "cuda:0"]


@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach"])
def test_a_run_is_repeatable_and_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    def train(out: str, iterations: int) -> Path:
        assert main(["train", name, *SIZES, "--iterations", str(iterations), "--out", str(tmp_path / out)]) == 0
        return tmp_path / out

    first, again, parts = train("first", 4), train("again", 4), train("parts", 2)
    assert main(["train", "--resume", str(parts), "--iterations", "4"]) == 0
    for run in (again, parts):
        for key, value in weights(first).items():
            assert torch.equal(weights(run)[key], value), (run.name, key)
    assert main(["export", str(first)]) == 0


def test_a_walking_robot_repeats_itself_or_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [tmp_path / "first", tmp_path / "again"]
    codes = [main(["train", "go2-velocity", *SIZES, "--iterations", "2", "--out", str(run)]) for run in runs]
    if codes == [0, 0]:
        left, right = (weights(run) for run in runs)
        assert all(torch.equal(right[key], value) for key, value in left.items())
    else:
        assert "go2-velocity does not repeat itself on cuda:0" in capsys.readouterr().err


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("learned") / "run"
    options = ["--device", "cuda:0", "--num-envs", "1024", "--time-budget-s", "120"]
    assert main(["train", "cartpole-swingup", *options, "--out", str(run)]) == 0
    assert main(["export", str(run)]) == 0
    return run


def evaluated(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "128", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_learned_on_a_card_succeeds_in_mujoco(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(learned, capsys)["success"] >= 0.95


def test_a_robot_learns_to_walk_in_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """72 s on an H200; evaluations are in MuJoCo."""
    options = ["--device", "cuda:0", "--num-envs", "4096", "--set", "stop_at_success=0.9", "--time-budget-s", "600"]
    assert main(["train", "go2-velocity", *options, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["success"] >= 0.9


HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.skipif(not HAS_CUDA, reason="this ONNX Runtime has no CUDA")
@pytest.mark.parametrize("policy", sorted(POLICIES.glob("*/policy.onnx")), ids=lambda path: path.parent.name)
def test_a_policy_on_a_card_computes_what_it_computes_on_the_processor(policy: Path) -> None:
    data = policy.read_bytes()
    host, card = OnnxPolicy(data, source="it"), DevicePolicy(data, source="it", device=PolicyDevice("cuda", 0))
    random = np.random.default_rng(0)
    for subject in (host, card):
        subject.reset(WORLDS)
    for _ in range(50):
        fields = {
            name: random.uniform(-1, 1, (WORLDS, size)).astype(np.float32)
            for name, size in host.header.inputs.items()
            if not name.startswith("state.")
        }
        left, right = host(fields, {}), card(fields, {})
        for name, value in left.items():
            np.testing.assert_allclose(right[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not HAS_CUDA, reason="this ONNX Runtime has no CUDA")
@pytest.mark.parametrize("engine", ["mujoco", "warp"])
def test_an_evaluation_names_the_card_and_agrees(
    engine: str, learned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, card = (evaluated(learned, capsys, "--engine", engine, "--device", place) for place in ("cpu", "cuda:0"))
    assert (host["device"], card["device"]) == ("cpu", "cuda:0")
    assert card["judged"] == host["judged"] == 128
    # Sums in another order may end single episodes differently.
    assert abs(card["succeeded"] - host["succeeded"]) <= 6


@pytest.mark.skipif(not HAS_CUDA, reason="this ONNX Runtime has no CUDA")
def test_libraries_that_are_missing_are_named(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TensorRT's provider comes with the package, its libraries do not."""
    code = main(["eval", str(learned), "--episodes", "2", "--device", "tensorrt"])
    said = capsys.readouterr().err
    assert code == 0 or ("--device tensorrt:0" in said and "use --device cpu" in said and "Traceback" not in said)
