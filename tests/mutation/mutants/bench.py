"""Robots, tasks, twins and honest policies of the mutation suite, and how they are validated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutation.mutants import springs
from tests.mutation.mutants.edits import golden_of
from tests.mutation.mutants.twins import credible_twin, with_tested_lag
from tests.support.vouching import VALIDATOR, VALIDATORS, vouched_ticks, vouched_twin

from physai.gates.checks.gate import Context, Gate, Play, undecided
from physai.gates.execution.subject import ValidationSubject, open_subject
from physai.gates.judgement import judge
from physai.gates.runner import GATES, ProgressLine, all_gates, find_all
from physai.gates.settings import GateSettings
from physai.sdk.evidence import origin as evidence_origin
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.verdict import GateResult, Verdict, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
from physai.sdk.signing.exam import open_exam
from physai.sim.policies.resolve import TaskSource
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import SensorNoise, Timing

TESTS = Path(__file__).parents[2]
POLICIES = TESTS / "data" / "policies"

TASKS = {
    "pusher": str(TESTS / "support" / "pusher_task.py"),
    "settle": str(Path(__file__).with_name("settle_task.py")),
    "cartpole": str(Path(__file__).with_name("cartpole_task.py")),
    "reach": str(Path(__file__).with_name("reach_task.py")),
}

NOT_ASKED = "engine"
"""The gate the suite leaves out."""


@cache
def task(base: str) -> Task:
    """The task of a base."""
    return load_task(TASKS[base])


@cache
def twin(base: str) -> Twin:
    """A credible twin of a base's robot."""
    robot = task(base).robot
    joints = len(robot.spec.joint_names)
    spreads = {
        "pusher": {"cart.mass": 0.02, "rail.friction": 0.2},
        "cartpole": {"cart.mass": 0.02, "pole.mass": 0.02, "slider.damping": 0.2, "slider.effort_gain": 0.02},
        "reach": {f"{joint}.kp": 0.05 for joint in robot.spec.joint_names[:3]},
    }
    noise = {"pusher": (2e-3, 2e-2), "cartpole": (2e-3, 2e-2), "reach": (2e-4, 5e-3)}
    lag = {"pusher": (0.015, 0.02), "cartpole": (0.002, 0.005), "reach": (0.008, 0.012)}
    period = task(base).contract.timing.control_dt
    twin = credible_twin(
        robot,
        spreads[base],
        noise=SensorNoise(joint_pos_std=(noise[base][0],) * joints, joint_vel_std=(noise[base][1],) * joints),
        timing=Timing(
            command_lag_mean_s=lag[base][0],
            command_lag_p99_s=lag[base][1],
            period_median_s=period,
            period_p99_s=1.05 * period,
        ),
    )
    return twin if base == "reach" else with_tested_lag(twin, robot)


@cache
def honest(base: str, number: int = 0) -> tuple[bytes, bytes]:
    """An honest policy and its golden answers."""
    if base in ("pusher", "settle"):
        data = springs.spring(task(base)) if base == "pusher" else springs.spring(task(base), **SETTLE)
        return data, golden_of(data, b"")
    folder = POLICIES / ("reach" if base == "reach" else f"cartpole-{number:02d}")
    return (folder / POLICY_FILE).read_bytes(), (folder / GOLDEN_FILE).read_bytes()


SETTLE = {"stiffness": 2.0, "damping": 0.3, "limit": 5.0}
"""The spring that brings the double pendulum to rest [N·m/rad, N·m·s/rad, N·m]."""


def write(folder: Path, data: bytes, golden: bytes | None) -> Path:
    """Writes a policy and its golden answers; returns the policy's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / POLICY_FILE
    path.write_bytes(data)
    if golden is not None:
        (folder / GOLDEN_FILE).write_bytes(golden)
    return path


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is validated."""

    path: Path
    base: str
    twin: Twin
    robot: str | None = None
    """File of a robot to use in place of the task's own."""
    baseline: Path | None = None
    ticks: tuple[float, ...] = (0.0005,) * 10_000
    """Measured on the target [s]."""
    ticks_of: str | None = None
    """SHA-256 of the policy they were measured with; this one's if None."""
    settings: dict[str, Any] | None = None
    exam: bool = False
    """Whether it is played in an exam, not in a rehearsal."""


def subject_of(trial: Trial) -> ValidationSubject:
    """A trial's subject, in a rehearsal."""
    origin = TaskSource(task=TASKS[trial.base], robot=trial.robot)
    return open_subject(trial.path, vouched_twin(trial.twin), origin=origin, baseline=trial.baseline)


def validate(trial: Trial, folder: Path, *, last: str = GATES[-1].name) -> Verdict:
    """The verdict, with a short search and everything else as by default; gates after `last` play nothing."""
    subject = subject_of(trial)
    search = {"falsification": {"generations": 2, "population": 8, "seeds": 2, "confirmations": 16}}
    context = Context(subject, GateSettings.model_validate({**search, **(trial.settings or {})}), validators=VALIDATORS)
    folder.mkdir(parents=True, exist_ok=True)
    if trial.exam:
        exam = open_exam(context.examined, VALIDATOR, folder / "journal", now=datetime.now(UTC))
        context = replace(context, subject=replace(subject, exam=exam))
    evidence = LatencyEvidence(
        policy_sha256=trial.ticks_of or subject.policy_sha256,
        contract_fingerprint=subject.task.contract.fingerprint,
        origin=evidence_origin.Origin(kind="robot", robot=subject.task.contract.robot.name),
        device="bench",
        runtime="none",
        tick_s=trial.ticks,
    )
    gates = all_gates(vouched_ticks(evidence))
    for gate in GATES[[gate.name for gate in GATES].index(last) + 1 :]:
        gates[gate.name] = type(f"Unasked{gate.__name__}", (gate,), {"play": _unasked})()
    return judge(context, gates, find_all(context, gates, folder, jobs=1, progress=_nobody), folder)


def _unasked(_gate: Gate, _context: Context) -> Play:
    """No gate's result depends on those after it, and a mutant is judged by the first that blocks it."""
    yield from ()
    return undecided("not asked", "ask it")


def _nobody(lines: Sequence[ProgressLine]) -> None:
    """Progress is shown to nobody."""


def blocking(verdict: Verdict) -> list[GateResult]:
    """Gates that do not pass, in order, the one left out not counted."""
    return [g for g in verdict.gates if g.gate != NOT_ASKED and g.outcome is not VerdictOutcome.PASS]


def honest_trial(folder: Path, base: str, number: int = 0) -> Trial:
    """An honest policy, as it is."""
    data, golden = honest(base, number)
    return Trial(path=write(folder, data, golden), base=base, twin=twin(base))
