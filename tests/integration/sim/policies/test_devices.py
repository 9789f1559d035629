"""`--device`: the same episodes in tensors as in arrays, and no verb that starts on a device that is not there."""

import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from physai.gates import judgement
from physai.gates.checks.gate import Context, GateFinding
from physai.gates.execution import store
from physai.gates.execution.store import BatchStore
from physai.gates.execution.subject import open_subject
from physai.gates.record import RecordError, rederive
from physai.gates.runner import all_gates
from physai.gates.settings import GateSettings
from physai.sdk.cli.main import main
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome, save_verdict
from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.service.database.engine import open_database
from physai.service.jobs.kinds import KINDS
from physai.service.jobs.queue import ENDED, JobQueue
from physai.service.registry.blobs import BlobStore
from physai.service.serving.app import create_app
from physai.service.settings import ServiceSettings, default_database
from physai.sim.policies.device_policy import DevicePolicy
from physai.sim.policies.evaluate import play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin
from physai.sim.tasks.registry import load_task
from physai.twin.model.conditions import Condition
from physai.twin.model.twin import nominal_twin
from physai.twin.rollouts.batch import VERDICT_STREAM, Batch, seeds_of
from physai.twin.rollouts.rollout import play_batch

DATA = Path(__file__).parents[3] / "data" / "policies"
CARTPOLE = DATA / "cartpole-00" / "policy.onnx"
AVAILABLE: list[str] = onnxruntime.get_available_providers()
no_cuda = pytest.mark.skipif("CUDAExecutionProvider" in AVAILABLE, reason="this ONNX Runtime has CUDA")
NOMINAL = Condition(name="nominal", lag_lower_s=0.0, lag_upper_s=0.0)
Captured = pytest.CaptureFixture[str]


def test_an_evaluation_is_the_same_in_tensors() -> None:
    data = CARTPOLE.read_bytes()
    policy = OnnxPolicy(data, source="it")
    task = replace(load_task("cartpole-swingup"), contract=policy.contract)
    arrays = play_episodes(policy, task, episodes=6)
    assert play_episodes(DevicePolicy(data, source="it"), task, episodes=6) == arrays


def test_a_policy_is_loaded_by_its_folder() -> None:
    """`load` passed a number of threads, which `DevicePolicy` did not take."""
    folder = DATA / "reach"
    policy, other = DevicePolicy.load(folder, device=CPU), OnnxPolicy.load(folder, num_threads=2)
    assert policy.source == other.source == str(folder / "policy.onnx")
    assert policy.device.type == "cpu"


@pytest.mark.parametrize("late", [0, 2])
def test_the_gates_episodes_are_the_same_in_tensors(late: int) -> None:
    """With a guard that intervenes, so that samples are taken back and the memory holds what was sent."""
    path = DATA / "reach" / "policy.onnx"
    task = replace(find_origin(path).load(), episode_length_s=2.0)
    twin = nominal_twin(task.robot)
    batch = Batch(condition=replace(NOMINAL, late_periods=late), seeds=seeds_of(VERDICT_STREAM, 0, 6), visits=12)
    data = path.read_bytes()
    arrays, tensors = (play_batch(made(data, source="it"), task, twin, batch) for made in (OnnxPolicy, DevicePolicy))
    assert arrays.to_bytes() == tensors.to_bytes()
    assert (arrays.guard_step >= 0).all()
    assert any(np.abs(value).max() > 0 for name, value in arrays.visits.items() if name.startswith("state."))


def test_episodes_of_another_device_are_not_used_again(tmp_path: Path) -> None:
    origin = find_origin(CARTPOLE)
    twin = nominal_twin(origin.load().robot)
    subject = open_subject(CARTPOLE, twin, origin=origin)
    batch = Batch(condition=NOMINAL, seeds=(1,))
    played = play_batch(subject.policy(), replace(subject.task, episode_length_s=0.1), twin, batch)
    BatchStore.open(tmp_path, subject).put(batch, played)
    assert BatchStore.open(tmp_path, subject).get(batch) is not None
    elsewhere = open_subject(CARTPOLE, twin, origin=origin, device=PolicyDevice("cuda", 1))
    assert BatchStore.open(tmp_path, elsewhere).get(batch) is None


def test_onnxruntime_may_be_the_package_for_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata are those of onnxruntime-gpu, and there are none of onnxruntime."""

    def installed(name: str) -> str:
        if name == "onnxruntime":
            raise PackageNotFoundError(name)
        return version(name)

    for module in (store, judgement):
        monkeypatch.setattr(module, "version", installed)
    origin = find_origin(CARTPOLE)
    subject = open_subject(CARTPOLE, nominal_twin(origin.load().robot), origin=origin)
    BatchStore.open(tmp_path, subject)
    context = Context(subject, GateSettings())
    gates = all_gates(None)
    unplayed = {name: GateFinding(outcome=VerdictOutcome.INCONCLUSIVE, message="m", next_step="n") for name in gates}
    assert judgement.judge(context, gates, unplayed, None).versions["onnxruntime"] == onnxruntime.__version__


@no_cuda
@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", str(CARTPOLE)],
        ["sim", "validate", str(CARTPOLE), "--report", "nothing"],
        ["sim", "serve", "--data", "nothing"],
    ],
    ids=lambda arguments: arguments[-1] if arguments[0] == "eval" else arguments[1],
)
def test_a_device_that_is_not_there_is_refused_at_start(
    arguments: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    has = f"the one installed has {', '.join(AVAILABLE)}"
    for device, message in (
        ("cuda:0", f"--device cuda:0: it needs ONNX Runtime's CUDAExecutionProvider, {has}"),
        ("tensorrt", "--device tensorrt:0: it needs ONNX Runtime's TensorrtExecutionProvider"),
        ("gpu", "--device 'gpu': expected cpu, cuda, cuda:N, tensorrt or tensorrt:N"),
    ):
        assert main([*arguments, "--device", device]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert message in printed.err
    assert not (tmp_path / "nothing").exists()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """An ONNX Runtime with CUDA on a machine with fewer GPUs."""
    import torch

    count = torch.cuda.device_count()
    with_cuda = [*AVAILABLE, "CUDAExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: with_cuda)
    assert main(["eval", str(CARTPOLE), "--device", "cuda:99"]) == 2
    known = f"{', '.join(f'cuda:{index}' for index in range(count))} or " if count else ""
    assert f"--device cuda:99: torch finds {count} GPUs; use {known}cpu" in capsys.readouterr().err


def test_a_server_is_not_told_what_to_compute_on(capsys: Captured) -> None:
    arguments = ["sim", "validate", str(CARTPOLE), "--server", "http://127.0.0.1:9", "--device", "cuda:0"]
    assert main(arguments) == 2
    assert "a service computes where `physai sim serve --device` says" in capsys.readouterr().err


def test_a_verdict_of_another_device_is_not_replayed_here(tmp_path: Path) -> None:
    verdict = Verdict(
        policy_sha256="a" * 64,
        contract_fingerprint="b" * 64,
        twin_hash="c" * 64,
        gates_sha256="d" * 64,
        created="2026-11-21T12:00:00Z",
        gates=(),
        outcome=VerdictOutcome.INCONCLUSIVE,
        versions={},
        physai_version="0.1.0",
        device="cuda:1",
    )
    save_verdict(verdict, tmp_path / "verdict.json")
    with pytest.raises(RecordError, match=r"was computed on cuda:1 and would be replayed on cpu, .*`device` cuda:1"):
        rederive(tmp_path, {})


@no_cuda
def test_a_service_gives_its_device_to_validations(tmp_path: Path) -> None:
    settings = ServiceSettings(data=tmp_path, database=default_database(tmp_path), device="cuda:0")
    app = create_app(settings)
    jobs = JobQueue(open_database(settings.database))
    policy, _ = BlobStore(tmp_path / "blobs").put_file(CARTPOLE)
    job = jobs.submit("validate", {"policy": policy})
    app.state.executor.start()
    try:
        deadline = time.monotonic() + 120.0
        while jobs.get(job)["state"] not in ENDED and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        app.state.executor.stop()
    assert jobs.get(job)["state"] == "failed"
    assert "--device cuda:0: it needs ONNX Runtime's CUDAExecutionProvider" in jobs.get(job)["error"]


def test_no_job_names_a_device() -> None:
    assert [name for name, kind in KINDS.items() if kind.takes_device] == ["validate"]
    assert not any("device" in kind.model_fields for kind in KINDS.values())
