"""All gates together: one verdict whatever the number of jobs, resumable, and never a PASS without a credible twin."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.vouching import vouched_ticks

from physai.compute.pool import Processes, WorkerError
from physai.compute.ray.ray_pool import RayWorkers
from physai.gates import runner
from physai.gates.checks.gate import Context, GateFinding
from physai.gates.execution import workers
from physai.gates.execution.store import FOLDER, BatchStore
from physai.gates.execution.subject import ValidationSubject
from physai.gates.judgement import WOULD_PASS, judge
from physai.gates.runner import GATES, ProgressLine, ReportProgress, all_gates, find_all
from physai.gates.settings import FAMILY
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import Cause, Verdict, VerdictOutcome
from physai.twin.model.twin import nominal_twin
from physai.twin.rollouts.batch import Batch, BatchResult

Writer = Callable[..., Path]

SETTINGS: dict[str, Any] = {
    "engine": {"episodes": 8},
    "falsification": {"generations": 2, "population": 8, "seeds": 2, "confirmations": 16},
    "robustness": {"measured": {"target": 0.8}},
}


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Its kernels take minutes to compile once; the engine gate has tests of its own."""
    from physai.gates.checks import engine
    from physai.sdk.base.errors import MissingExtraError

    def missing(name: str) -> None:
        raise MissingExtraError("the second engine needs warp: pip install warp-lang mujoco-warp")

    monkeypatch.setattr(engine, "load_engine", missing)


def quiet(lines: Sequence[ProgressLine]) -> None:
    """Tells nobody."""


def ticks(subject: ValidationSubject) -> LatencyEvidence:
    evidence = LatencyEvidence(
        policy_sha256=subject.policy_sha256,
        contract_fingerprint=subject.task.contract.fingerprint,
        origin=Origin(kind="robot", robot=subject.task.contract.robot.name),
        device="bench",
        runtime="none",
        tick_s=(0.001,) * 10_000,
    )
    return vouched_ticks(evidence)


def validated(
    context: Context,
    folder: Path,
    *,
    jobs: int = 1,
    evidence: LatencyEvidence | None = None,
    ray: str | None = None,
    progress: ReportProgress = quiet,
) -> Verdict:
    folder.mkdir(exist_ok=True)
    gates = all_gates(evidence)
    return judge(context, gates, find_all(context, gates, folder, jobs=jobs, progress=progress, ray=ray), folder)


def outcomes(verdict: Verdict) -> dict[str, VerdictOutcome]:
    return {gate.gate: gate.outcome for gate in verdict.gates}


def test_an_honest_policy_passes_every_gate_it_can(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    context = bench.context(write_policy(), **SETTINGS)
    verdict = validated(context, tmp_path / "report", evidence=ticks(context.subject))
    found = outcomes(verdict)
    assert list(found) == [gate.name for gate in GATES]
    assert {name for name, outcome in found.items() if outcome is not VerdictOutcome.PASS} == {"engine"}
    latency = next(gate for gate in verdict.gates if gate.gate == "latency")
    assert latency.method == f"10000 ticks measured on bench with none, by the robot {bench.twin.origin.robot}."
    engine = next(gate for gate in verdict.gates if gate.gate == "engine")
    assert "pip install warp-lang mujoco-warp" in engine.next_step
    assert verdict.outcome is VerdictOutcome.INCONCLUSIVE


def test_in_a_twin_that_is_not_credible_nothing_that_follows_passes(
    bench: Any, write_policy: Writer, tmp_path: Path
) -> None:
    bench.twin = nominal_twin(bench.subject(write_policy()).task.robot)
    context = bench.context(write_policy(), **SETTINGS)
    verdict = validated(context, tmp_path / "report", evidence=ticks(context.subject))
    found = outcomes(verdict)
    assert found.pop("contract") is VerdictOutcome.PASS
    assert set(found.values()) == {VerdictOutcome.INCONCLUSIVE}
    messages = {gate.gate: gate.message for gate in verdict.gates}
    assert messages["success"].startswith(WOULD_PASS)
    assert verdict.outcome.exit_code == 2


def test_a_policy_that_fails_in_such_a_twin_is_undecided_too(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    """What it does in a wrong world decides nothing; what its file computes does not depend on the world."""
    bench.twin = nominal_twin(bench.subject(write_policy()).task.robot)
    verdict = validated(bench.context(write_policy(stiffness=-12.0, error=1.0), **SETTINGS), tmp_path / "report")
    found = outcomes(verdict)
    assert found["success"] is VerdictOutcome.INCONCLUSIVE
    assert found["parity"] is VerdictOutcome.FAIL
    assert verdict.outcome is VerdictOutcome.FAIL


def test_a_broken_contract_ends_it(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    bench.twin = replace(bench.twin, model_sha256="0" * 64)
    verdict = validated(bench.context(write_policy()), tmp_path / "report")
    assert verdict.gates[0].cause is Cause.CONTRACT
    assert all(gate.message == runner.NOT_RUN for gate in verdict.gates[1:])
    assert verdict.outcome is VerdictOutcome.FAIL


def test_a_failure_comes_with_a_recording_that_fails_again(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    from physai.service.view.playing.counterexample import RecordedPlayer, find_counterexample

    folder = tmp_path / "report"
    context = bench.context(write_policy(stiffness=-12.0), **SETTINGS)
    verdict = validated(context, folder)
    success = next(gate for gate in verdict.gates if gate.gate == "success")
    assert success.counterexample is not None
    (folder / "verdict.json").write_text(verdict.model_dump_json())
    case, path = find_counterexample(folder, success.counterexample.index)
    player = RecordedPlayer(path, task=context.subject.origin.task)
    moments = list(player)
    assert moments[0].seed == int(case.episode_seed or 0)
    assert abs(moments[-1].qpos[0]) > 1.9
    assert moments[-1].outcome is not None
    assert (moments[-1].outcome.ended, moments[-1].outcome.succeeded) == ("failure", 0)
    assert len(moments) == round(moments[-1].outcome.length_s / 0.02) + 1


def test_worst_cases_are_different_episodes(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    verdict = validated(bench.context(write_policy(stiffness=-12.0), **SETTINGS), tmp_path / "report")
    shown = [gate.counterexample for gate in verdict.gates if gate.counterexample is not None]
    assert {"success", "robustness"} <= {gate.gate for gate in verdict.gates if gate.counterexample is not None}
    seeds = {case.index: case.episode_seed for case in shown}
    assert sorted(seeds) == list(range(1, len(seeds) + 1))
    assert len(set(seeds.values())) == len(seeds) >= 2


@pytest.mark.parametrize(
    ("outcome", "p_values", "corrected"),
    [
        # Adjusted: 4 · 0.001, 3 · 0.001, 2 · 0.001 and 0.04 · 1, which 0.05 allows.
        (VerdictOutcome.INCONCLUSIVE, (0.04, 0.001, 0.001, 0.001), VerdictOutcome.PASS),
        # 0.04 and 0.03 are the two largest: 2 · 0.03 = 0.06, and no larger p-value is adjusted to less.
        (VerdictOutcome.INCONCLUSIVE, (0.04, 0.03, 0.001, 0.001), VerdictOutcome.INCONCLUSIVE),
        (VerdictOutcome.PASS, (0.04, 0.03, 0.001, 0.001), VerdictOutcome.INCONCLUSIVE),
        # Where another gate has failed, this one's is the third smallest of four: 2 · 0.04.
        (VerdictOutcome.INCONCLUSIVE, (0.04, 0.001, 0.001, 1.0), VerdictOutcome.INCONCLUSIVE),
        (VerdictOutcome.FAIL, (0.04, 0.001, 0.001, 0.001), VerdictOutcome.FAIL),
    ],
)
def test_holms_correction_decides_what_alone_would_be_undecided(
    bench: Any,
    write_policy: Writer,
    tmp_path: Path,
    outcome: VerdictOutcome,
    p_values: Sequence[float],
    corrected: VerdictOutcome,
) -> None:
    context = bench.context(write_policy())
    findings = {gate.name: GateFinding(outcome=VerdictOutcome.PASS, message="as found") for gate in GATES}
    for name, p_value in zip(FAMILY, p_values, strict=True):
        findings[name].p_value = p_value
    findings["success"].outcome, findings["success"].next_step = outcome, "play more"
    findings["success"].cause = Cause.POLICY if outcome is VerdictOutcome.FAIL else None
    success = next(gate for gate in judge(context, all_gates(None), findings, tmp_path).gates if gate.gate == "success")
    assert success.outcome is corrected
    assert ("Holm" in success.message) == (corrected is not outcome)


@pytest.mark.slow
def test_two_processes_find_the_same(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    context = bench.context(write_policy(), **SETTINGS)
    alone = validated(context, tmp_path / "one", evidence=ticks(context.subject))
    together = validated(context, tmp_path / "two", jobs=2, evidence=ticks(context.subject))
    assert together.model_copy(update={"created": alone.created}) == alone


@pytest.mark.slow
def test_on_ray_a_worker_that_is_killed_is_replaced_and_the_verdict_is_the_same(
    bench: Any, write_policy: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    context = bench.context(write_policy(), **SETTINGS)
    alone = validated(context, tmp_path / "one", evidence=ticks(context.subject))
    made: list[RayWorkers[Any, Batch, BatchResult]] = []

    def make(*arguments: Any, **options: Any) -> Any:
        made.append(cast("RayWorkers[Any, Batch, BatchResult]", make_workers(*arguments, **options)))
        return made[0]

    make_workers = runner.make_workers
    monkeypatch.setattr(runner, "make_workers", make)
    killed: list[int] = []

    def kill_one(lines: Sequence[ProgressLine]) -> None:
        if made and not killed and len(made[0].processes) == 2:
            killed.append(next(iter(made[0].processes.values()))[1])
            os.kill(killed[0], signal.SIGKILL)

    report = tmp_path / "two"
    together = validated(context, report, jobs=2, evidence=ticks(context.subject), ray="local", progress=kill_one)
    assert killed
    assert made[0].replaced >= 1
    assert together.model_copy(update={"created": alone.created}) == alone


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_where_it_was(
    bench: Any, write_policy: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = bench.context(write_policy(), **SETTINGS)
    whole = validated(context, tmp_path / "whole", evidence=ticks(context.subject))
    played: list[str] = []

    def until(limit: int) -> Callable[[ValidationSubject, Batch], BatchResult]:
        def play(subject: ValidationSubject, batch: Batch) -> BatchResult:
            if len(played) >= limit:
                raise KeyboardInterrupt
            played.append(batch.key)
            return workers.play_batch(subject.policy(batch.arm), subject.task, subject.twin, batch)

        return play

    monkeypatch.setattr(workers, "play", until(4))
    with pytest.raises(KeyboardInterrupt):
        validated(context, tmp_path / "killed", evidence=ticks(context.subject))
    first = list(played)
    assert len(list((tmp_path / "killed" / FOLDER).glob("*.npz"))) == 4
    monkeypatch.setattr(workers, "play", until(1000))
    again = validated(context, tmp_path / "killed", evidence=ticks(context.subject))
    assert again.model_copy(update={"created": whole.created}) == whole
    assert len(set(played)) == len(played), "no batch was played twice"
    assert played[: len(first)] == first


def test_what_was_played_for_another_policy_is_forgotten(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    context = bench.context(write_policy())
    batch = context.batch(0, context.conditions["calibrated"], count=8)
    store = BatchStore.open(tmp_path, context.subject)
    played = workers.play(context.subject, batch)
    store.put(batch, played)
    assert BatchStore.open(tmp_path, context.subject).resumed == 1
    again = BatchStore.open(tmp_path, context.subject).get(batch)
    assert again is not None
    assert again.to_bytes() == played.to_bytes()
    (file,) = (tmp_path / FOLDER).glob("*.npz")
    file.write_bytes(file.read_bytes()[:-10])
    assert store.get(batch) is None
    other = bench.subject(write_policy("other", stiffness=11.0))
    assert BatchStore.open(tmp_path, other).resumed == 0


def test_progress_is_told_gate_by_gate(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def tell(lines: Sequence[ProgressLine]) -> None:
        seen.append({line.gate.name: (line.episodes, line.finding is not None) for line in lines})

    context = bench.context(write_policy(), **SETTINGS)
    find_all(context, all_gates(None), tmp_path, jobs=1, progress=tell)
    assert list(seen[0]) == [gate.name for gate in GATES]
    done = [sum(found for _, found in state.values()) for state in seen]
    assert done == sorted(done)
    assert done[-1] == len(GATES)
    assert seen[-1]["success"][0] == 64


def test_a_verdict_is_canonical_and_names_what_was_judged(bench: Any, write_policy: Writer, tmp_path: Path) -> None:
    context = bench.context(write_policy(), **SETTINGS)
    verdict = validated(context, tmp_path / "report")
    assert verdict.policy_sha256 == context.subject.policy_sha256
    assert verdict.twin_hash == bench.twin.hash
    assert verdict.gates_sha256 == context.settings.sha256
    assert {"mujoco", "onnxruntime", "numpy"} <= set(verdict.versions)
    record = json.loads(verdict.model_dump_json())
    success = next(gate for gate in record["gates"] if gate["gate"] == "success")
    assert success["seeds"][0]["count"] == success["episodes"] == 64


def test_too_many_jobs_are_refused(bench: Any, write_policy: Writer) -> None:
    from physai.sdk.base.errors import PhysaiError

    for jobs in (0, -1, 1000):
        with pytest.raises(PhysaiError, match=r"`jobs` must be in 1 … 256"):
            workers.make_workers(bench.subject(write_policy()), jobs)


def test_a_worker_that_dies_is_reported(bench: Any, write_policy: Writer) -> None:
    context = bench.context(write_policy())
    with Processes(workers.play, context.subject, 1) as pool:
        for process in pool._processes.values():  # pyright: ignore[reportPrivateUsage]
            process.kill()
            process.join()

        def play() -> None:
            pool.start(context.batch(0, context.conditions["calibrated"], count=8))
            pool.finished()

        with pytest.raises(WorkerError, match="a worker process ended with code -9"):
            play()
