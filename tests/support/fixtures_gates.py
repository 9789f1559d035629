"""A cart on a rail, policies for it written by hand, and twins of it: every gate can be asked within a second."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.support.replay_samples import with_sample
from tests.support.vouching import VALIDATORS, keep_keys, vouched_ticks, vouched_twin

from physai.gates.checks.gate import Context, Gate, GateFinding
from physai.gates.execution.subject import ValidationSubject, open_subject
from physai.gates.execution.workers import play
from physai.gates.settings import GateSettings
from physai.sdk.base.files import write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.evidence import origin
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import TaskSource
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter, Interval, LogRecord, Logs, Residuals, SensorNoise, Timing
from physai.twin.rollouts.batch import BatchResult

HERE = Path(__file__).parent
TASK_FILE = HERE / "pusher_task.py"


@pytest.fixture(scope="session")
def task() -> Task:
    return load_task(str(TASK_FILE))


def spring_policy(
    task: Task, *, stiffness: float = 12.0, damping: float = 7.0, push: float = 0.0, **more: Any
) -> bytes:
    """u = clip(push - stiffness · x - damping · v, ±20) as an ONNX policy.

    `nan_above` gives NaN for speeds beyond it; `metadata` replaces the header's entries, `provenance` adds some.
    """
    header = PolicyHeader(task.contract, {}, {"task": str(TASK_FILE), **more.get("provenance", {})})
    nodes = [
        helper.make_node("Concat", ["joint_pos", "joint_vel"], ["seen"], axis=1),
        helper.make_node("Gemm", ["seen", "weight", "bias"], ["force"], transB=1),
    ]
    constants = {"weight": [[-stiffness, -damping]], "bias": [push], "lower": -20.0, "upper": 20.0}
    clipped = "force"
    if "nan_above" in more:
        # √(limit - |v|) is no number beyond the limit, and nothing times itself minus itself elsewhere.
        constants |= {"limit": more["nan_above"], "zero": 0.0}
        nodes += [
            helper.make_node("Abs", ["joint_vel"], ["speed"]),
            helper.make_node("Sub", ["limit", "speed"], ["room"]),
            helper.make_node("Sqrt", ["room"], ["root"]),
            helper.make_node("Mul", ["root", "zero"], ["nothing"]),
            helper.make_node("Add", ["force", "nothing"], ["poisoned"]),
        ]
        clipped = "poisoned"
    nodes.append(helper.make_node("Clip", [clipped, "lower", "upper"], ["joint_effort_target"]))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.outputs.items()],
        [onnx.numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, more.get("metadata", header.metadata()))
    return model.SerializeToString()


def golden(data: bytes, *, error: float = 0.0, rows: int = 64) -> bytes:
    """Golden answers of a policy, off by `error`, in the form the exporter writes."""
    import io

    policy = OnnxPolicy(data, source="test")
    random = np.random.default_rng(0)
    inputs = {n: random.uniform(-1.0, 1.0, (rows, s)).astype(np.float32) for n, s in policy.header.inputs.items()}
    outputs = {n: v + np.float32(error) for n, v in policy.evaluate(inputs).items()}
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**inputs, **outputs, "fingerprint": np.array(policy.fingerprint)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


PolicyWriter = Callable[..., Path]


@pytest.fixture
def write_policy(task: Task, tmp_path: Path) -> PolicyWriter:
    """Writes a policy and its golden answers into a folder of its own; returns the policy's file."""

    def write(name: str = "policy", *, data: bytes | None = None, error: float = 0.0, **options: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        data = spring_policy(task, **options) if data is None else data
        write_atomic(folder / POLICY_FILE, data)
        write_atomic(folder / GOLDEN_FILE, golden(data, error=error))
        return folder / POLICY_FILE

    return write


def fitted(name: str, unit: str, prior: float, value: float, std: float) -> FittedParameter:
    return FittedParameter(
        name=name,
        unit=unit,
        prior=prior,
        prior_std=0.3 * prior,
        lower=0.2 * prior,
        upper=5.0 * prior,
        value=value,
        std=std,
        identified=True,
    )


@pytest.fixture(scope="session")
def credible_twin(task: Task) -> Twin:
    """The pusher with a mass of 2.1 ± 0.05 kg and a friction of 0.25 ± 0.05 N, 10 to 20 ms of delay, well replayed."""
    parameters = (fitted("cart.mass", "kg", 2.0, 2.1, 0.05), fitted("rail.friction", "N", 0.2, 0.25, 0.05))
    of = origin.Origin(kind="robot", robot=task.contract.robot.name)
    error, worse = Interval(value=0.002, lo=0.001, hi=0.003), Interval(value=0.02, lo=0.018, hi=0.022)
    twin = with_sample(
        replace(
            nominal_twin(task.robot),
            parameters=parameters,
            covariance=np.diag([0.05**2, 0.05**2]),
            noise=SensorNoise(joint_pos_std=(0.002,), joint_vel_std=(0.02,)),
            timing=Timing(
                command_lag_mean_s=0.015,
                command_lag_p99_s=0.02,
                period_median_s=0.02,
                period_p99_s=0.021,
                period_max_s=0.03,
            ),
            residuals=Residuals(
                window_s=0.25,
                joint_names=("rail",),
                twin=(error,),
                nominal=(worse,),
                gain=(Interval(value=0.018, lo=0.016, hi=0.02),),
                at_zero=(0.002,),
                gain_at_zero=(Interval(value=0.018, lo=0.016, hi=0.02),),
                motion=(0.2,),
            ),
            logs=Logs(
                train=(LogRecord(name="a", sha256="a" * 64, origin=of),),
                held_out=tuple(LogRecord(name=n, sha256=n * 64, origin=of, duration_s=10.0) for n in ("b", "c")),
            ),
        )
    )
    return vouched_twin(twin)


@dataclass
class Bench:
    """Opens subjects."""

    twin: Twin

    def context(
        self, path: Path, *, baseline: Path | None = None, reference: Path | None = None, **settings: Any
    ) -> Context:
        """A context for a policy; `settings` are sections of a gates file."""
        subject = self.subject(path, baseline=baseline, reference=reference)
        return Context(subject, GateSettings.model_validate(settings), validators=VALIDATORS)

    def subject(self, path: Path, *, baseline: Path | None = None, reference: Path | None = None) -> ValidationSubject:
        origin = TaskSource(task=str(TASK_FILE))
        return open_subject(path, vouched_twin(self.twin), origin=origin, baseline=baseline, reference=reference)


@pytest.fixture
def bench(credible_twin: Twin) -> Bench:
    return Bench(credible_twin)


def evidence(subject: ValidationSubject, tick_s: list[float]) -> str:
    """A signed latency evidence file for a subject."""
    ticks = LatencyEvidence(
        origin=origin.Origin(kind="robot", robot=subject.task.contract.robot.name, machine="test bench"),
        policy_sha256=subject.policy_sha256,
        contract_fingerprint=subject.task.contract.fingerprint,
        device="test bench",
        runtime="none",
        tick_s=tuple(tick_s),
    )
    return canonical_json(vouched_ticks(ticks)).decode()


def find(gate: Gate, context: Context) -> GateFinding:
    """A gate's finding, its batches played right here."""
    generator = gate.play(context)
    answers: list[BatchResult] | None = None
    while True:
        try:
            batches = next(generator) if answers is None else generator.send(answers)
        except StopIteration as stop:
            return stop.value
        answers = [play(context.subject, batch) for batch in batches]


@pytest.fixture(name="find")
def find_fixture() -> Callable[[Gate, Context], GateFinding]:
    return find


@pytest.fixture(name="evidence")
def evidence_fixture() -> Callable[[ValidationSubject, list[float]], str]:
    return evidence


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's keys are those of the validator who signed the twins and ticks of these tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    keep_keys(tmp_path / "config")
