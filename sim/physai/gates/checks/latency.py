"""Gate `latency`: do complete control ticks on the target meet the deadline?"""

import platform
import time

import numpy as np

from physai.gates.checks.gate import Context, DirectGate, GateFinding, undecided
from physai.gates.checks.parity import probe_inputs
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.safety import Guard
from physai.sim.engines.protocol import Array

WARM_UP = 200
"""Untimed ticks at the start of a measurement on this machine."""
TICKS_HERE = 3000


class LatencyGate(DirectGate):
    """Judges evidence from the target; without it, measures on this machine and stays INCONCLUSIVE."""

    name = "latency"
    question = "Do ticks on the target meet the deadline?"
    rests_on_twin = False

    def __init__(self, evidence: LatencyEvidence | None = None) -> None:
        """`evidence` measured on the target, if available."""
        self.evidence = evidence

    def method(self, context: Context) -> str:
        evidence = self.evidence
        if evidence is None:
            return "No evidence from the target; inference and guard are timed on this machine for orientation."
        return (
            f"{len(evidence.tick_s)} ticks measured on {evidence.device} with {evidence.runtime}, by {evidence.origin}."
        )

    def threshold(self, context: Context) -> str:
        contract, settings = context.subject.task.contract, context.settings.latency
        return (
            f"at most {settings.max_miss_share:.2%} of the ticks beyond {1e3 * contract.timing.deadline_s:g} ms, and "
            f"at most {contract.safety.max_reused_commands} in a row"
        )

    def check(self, context: Context) -> GateFinding:
        evidence = self.evidence
        if evidence is None:
            finding = _judge(context, measure_here(context))
            misses = "meet" if finding.outcome is VerdictOutcome.PASS else "miss"
            finding.outcome, finding.cause = VerdictOutcome.INCONCLUSIVE, None
            finding.message = (
                f"Nothing was measured on the target. On this machine ({platform.machine()}, onnxruntime) the ticks "
                f"{misses} the deadline, which is no evidence about the target."
            )
            finding.next_step = "measure on the target and validate again with --latency EVIDENCE.json"
            return finding
        mismatch = _mismatch(context, evidence)
        if mismatch:
            return undecided(mismatch, "measure this policy on the target and validate again")
        ticks = np.array(evidence.tick_s)
        finding = _judge(context, ticks)
        doubt, remedy = context.doubt("latency", evidence.origin, context.latency_origin(evidence))
        if finding.outcome is VerdictOutcome.PASS and doubt:
            finding.outcome, finding.message, finding.next_step = VerdictOutcome.INCONCLUSIVE, doubt, remedy
        least = context.settings.latency.min_ticks
        if finding.outcome is VerdictOutcome.PASS and len(ticks) < least:
            finding.outcome = VerdictOutcome.INCONCLUSIVE
            finding.message = f"{len(ticks)} ticks are too few to determine the 99.9th percentile."
            finding.next_step = f"measure at least {least} ticks on the target"
        return finding


def _mismatch(context: Context, evidence: LatencyEvidence) -> str:
    """Why evidence does not belong to the subject; empty if it does."""
    subject = context.subject
    if evidence.policy_sha256 != subject.policy_sha256:
        return (
            f"The ticks were measured with the policy {evidence.policy_sha256[:12]}, this one is "
            f"{subject.policy_sha256[:12]}."
        )
    fingerprint = subject.task.contract.fingerprint
    if evidence.contract_fingerprint != fingerprint:
        return (
            f"The ticks were measured under the contract {evidence.contract_fingerprint[:12]}, the task's is "
            f"{fingerprint[:12]}."
        )
    return ""


def _judge(context: Context, ticks: Array) -> GateFinding:
    contract, settings = context.subject.task.contract, context.settings.latency
    deadline, reused = contract.timing.deadline_s, contract.safety.max_reused_commands
    # Not `ticks > deadline`: a NaN must count as a miss.
    missed = ~(ticks <= deadline)
    share, longest = float(missed.mean()), longest_run(missed)
    finding = GateFinding(
        outcome=VerdictOutcome.PASS,
        measured=[
            Measurement(name="missed", value=share, threshold=settings.max_miss_share),
            Measurement(name="missed_in_a_row", value=float(longest), threshold=float(reused)),
            *(
                Measurement(name=f"p{100.0 * q:g}", value=float(np.quantile(ticks, q)), unit="s")
                for q in (0.5, 0.99, 0.999)
            ),
            Measurement(name="max", value=float(ticks.max()), unit="s", threshold=deadline),
        ],
        chart=_chart(ticks, deadline),
    )
    if share > settings.max_miss_share or longest > reused:
        finding.outcome, finding.cause = VerdictOutcome.FAIL, Cause.TIMING
        finding.message = (
            f"{share:.2%} of the ticks end after the deadline of {1e3 * deadline:g} ms, up to {longest} in a row; "
            f"the slowest takes {1e3 * float(ticks.max()):.3g} ms."
        )
        finding.next_step = "quantise, use a smaller network, give the process its own core, or relax the contract"
    return finding


def longest_run(missed: Array) -> int:
    """Return the length of the longest run of True."""
    # The zeros at both ends close runs that touch an end; starts and ends of the runs then alternate.
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missed.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def measure_here(context: Context) -> Array:
    """Time inference and guard for one robot on this machine [s], shape (TICKS_HERE,)."""
    policy = context.subject.policy()
    guard = Guard(policy.contract)
    inputs = probe_inputs(policy.header, WARM_UP + TICKS_HERE)
    joints = len(policy.contract.robot.joints)
    dt = policy.contract.timing.control_dt
    policy.reset(1)
    # Everything the loop needs is allocated before the first tick, so that only inference and guard are timed.
    ticks = np.zeros(WARM_UP + TICKS_HERE)
    rest = np.zeros((1, joints))
    sensors = {sensor.name: np.zeros((1, sensor.size)) for sensor in policy.contract.robot.sensors}
    for tick in range(len(ticks)):
        row = {name: values[tick : tick + 1] for name, values in inputs.items()}
        start = time.perf_counter()
        targets = policy(row, row)
        guard.check(
            now_s=tick * dt, sensor_stamp_s=tick * dt, joint_pos=rest, joint_vel=rest, targets=targets, sensors=sensors
        )
        ticks[tick] = time.perf_counter() - start
    return ticks[WARM_UP:]


def _chart(ticks: Array, deadline: float) -> dict[str, object]:
    # Slower ticks are counted in the last bin, so that a single outlier does not squeeze the histogram.
    top = max(float(np.quantile(ticks, 0.999)), deadline) * 1.1
    counts, edges = np.histogram(np.minimum(ticks, top), bins=60, range=(0.0, top))
    return {"counts": counts.tolist(), "edges_s": edges.tolist(), "deadline_s": deadline}
