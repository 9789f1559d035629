"""Combine findings into a verdict: credibility of the twin, Holm's correction, counterexamples."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnxruntime

from physai.gates.checks.gate import Context, Gate, GateFinding
from physai.gates.checks.latency import LatencyGate
from physai.gates.counterexample import FOLDER, record_smallest
from physai.sdk.base.errors import ContractError
from physai.sdk.base.process.software import running_software
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import Counterexample, Evidence, GateResult, Verdict, VerdictOutcome, combine, utc_text
from physai.sdk.policy.header import PolicyError
from physai.sdk.stats.statistics import holm

PACKAGES = ("mujoco", "numpy", "warp-lang", "mujoco-warp", "cmaes")

MAX_TEXT = 4000

WOULD_PASS = "It passes in this twin, but the twin is not credible."
WOULD_FAIL = "It fails in this twin, but the twin is not credible."


def judge(
    context: Context, gates: Mapping[str, Gate], findings: dict[str, GateFinding], report: Path | None
) -> Verdict:
    """Return the verdict on a subject and record the counterexamples.

    Args:
        context: subject and settings of the run.
        gates: the gates of the run, whose descriptions become part of the verdict.
        findings: the finding of each gate by name; adjusted in place.
        report: report folder for the recordings; None records nothing.

    Raises:
        RecordingError: a recording cannot be written.
    """
    _correct(findings, context.settings.alpha)
    temper(findings, gates)
    results: list[GateResult] = []
    shown: dict[str, Counterexample] = {}
    for gate in gates.values():
        finding = findings[gate.name]
        counterexample = None
        if finding.outcome is not VerdictOutcome.PASS and finding.cases and report is not None:
            counterexample = _counterexample(context, finding, gate.name, shown, report)
        results.append(_result(context, gate, finding, counterexample))
    return Verdict(
        policy_sha256=context.subject.policy_sha256,
        contract_fingerprint=_fingerprint(context),
        twin_hash=context.subject.twin.hash,
        gates_sha256=context.settings.sha256,
        evidence=_evidence(context, gates),
        created=utc_text(datetime.now(UTC)),
        gates=tuple(results),
        outcome=combine(result.outcome for result in results),
        versions=_versions(),
        physai_version=version("physai-sdk"),
        device=None if context.subject.device.kind == "cpu" else str(context.subject.device),
        run=context.subject.run,
        preferences=context.subject.preferences,
        software=running_software(),
        exam=None if context.subject.exam is None else context.subject.exam.facts,
    )


def _evidence(context: Context, gates: Mapping[str, Gate]) -> Evidence:
    latency = gates.get("latency")
    ticks = latency.evidence if isinstance(latency, LatencyGate) else None
    return Evidence(
        twin=context.twin_origin,
        kinds=context.subject.twin.evidence_kinds,
        latency=Origin() if ticks is None else context.latency_origin(ticks),
        latency_sha256=None if ticks is None else ticks.sha256,
        accepted=context.accept,
    )


def _correct(findings: dict[str, GateFinding], alpha: float) -> None:
    """Apply Holm's correction over the family of tests: significant tests pass, others are undecided.

    A FAIL is not changed.
    """
    # A gate stops early at alpha / (family size), which is significant whatever the others find. A gate that spent its
    # budget may still pass at the milder level that Holm leaves once others have passed. Looking again is sound because
    # the p-values are anytime-valid.
    tested = {name: f.p_value for name, f in findings.items() if f.p_value is not None}
    for name, adjusted in zip(tested, holm(list(tested.values())), strict=True):
        finding, survives = findings[name], adjusted <= alpha
        after = f"its p-value of {tested[name]:.2g} is {adjusted:.2g} after Holm's correction for {len(tested)} tests"
        if finding.outcome is VerdictOutcome.INCONCLUSIVE and survives:
            finding.outcome, finding.cause, finding.next_step = VerdictOutcome.PASS, None, ""
            finding.message = f"The episode budget is spent, but {after}, at most {alpha:g} is allowed."
        elif finding.outcome is VerdictOutcome.PASS and not survives:
            finding.outcome = VerdictOutcome.INCONCLUSIVE
            finding.message = f"The test passes on its own, but {after}, at most {alpha:g} is allowed."
            finding.next_step = "raise max_episodes of this gate"


def temper(findings: Mapping[str, GateFinding], gates: Mapping[str, Gate]) -> None:
    """Make results that rest on a twin without credibility undecided; nothing passes in such a twin."""
    if findings["twin"].outcome is VerdictOutcome.PASS:
        return
    for gate in list(gates.values())[list(gates).index("twin") + 1 :]:
        finding = findings[gate.name]
        undecided = finding.outcome is VerdictOutcome.PASS or (
            gate.rests_on_twin and finding.outcome is VerdictOutcome.FAIL
        )
        if not undecided:
            continue
        prefix = WOULD_PASS if finding.outcome is VerdictOutcome.PASS else WOULD_FAIL
        finding.message = f"{prefix} {finding.message}".strip()
        finding.outcome = VerdictOutcome.INCONCLUSIVE
        finding.next_step = finding.next_step or "calibrate the twin on recordings of the robot, then validate again"


def _counterexample(
    context: Context, finding: GateFinding, gate: str, shown: dict[str, Counterexample], report: Path
) -> Counterexample | None:
    """A failing episode of a gate, if possible one that no other gate shows; those shown by their `episode`."""
    seeds = {case.episode_seed for case in shown.values()}
    # One seed under two conditions mostly looks the same, so another seed is preferred.
    fresh = [case for case in finding.cases if str(case.seed) not in seeds] or [
        case for case in finding.cases if case.episode not in shown
    ]
    if not fresh:
        case = finding.cases[0]
        update = {"description": case.description[:500], "step": case.step}
        return shown[case.episode].model_copy(update=update)
    number = len(shown) + 1
    relative = f"{FOLDER}/{number}.mcap"
    # A case that fails in its batch may not fail on its own; the verdict then describes it without a recording.
    case = record_smallest(context.subject, fresh, report / relative, gate=gate)
    recorded = case is not None
    case = case or fresh[0]
    shown[case.episode] = Counterexample(
        index=number,
        description=case.description[:500],
        episode_seed=str(case.seed),
        step=case.step,
        parameters=case.parameters,
        recording=relative if recorded else None,
    )
    return shown[case.episode]


def _result(context: Context, gate: Gate, finding: GateFinding, counterexample: Counterexample | None) -> GateResult:
    passed = finding.outcome is VerdictOutcome.PASS
    return GateResult(
        gate=gate.name,
        outcome=finding.outcome,
        question=gate.question,
        method=gate.method(context)[:MAX_TEXT],
        threshold=gate.threshold(context)[:MAX_TEXT],
        measured=tuple(finding.measured),
        episodes=finding.episodes,
        seeds=finding.seeds,
        cause=None if passed else finding.cause,
        message=_clean(finding.message),
        next_step=_clean(finding.next_step),
        counterexample=counterexample,
    )


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)[:MAX_TEXT]


def _fingerprint(context: Context) -> str:
    try:
        return context.subject.policy().fingerprint
    except (PolicyError, ContractError):
        return context.subject.task.contract.fingerprint


def _versions() -> dict[str, str]:
    # Of the module: the package may be onnxruntime or onnxruntime-gpu.
    versions: dict[str, str] = {"onnxruntime": onnxruntime.__version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
