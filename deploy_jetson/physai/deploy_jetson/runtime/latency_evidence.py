"""Latency evidence from the ticks of a run, for the latency gate of `physai sim validate`."""

from datetime import UTC, datetime

from physai.deploy_jetson.inference.evidence import device_text
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.sdk.base.canonical import sha256_hex
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import utc_text


def tick_evidence(
    ticks_s: tuple[float, ...], candidate: Candidate, *, transport: str, origin: Origin
) -> LatencyEvidence:
    """Return latency evidence from the ticks of a run.

    Args:
        ticks_s: durations of whole ticks [s].
        candidate: the policy that ran.
        transport: name of the transport it used.
        origin: where the measurements come from.
    """
    engine = "onnxruntime" if candidate.plan is None else "TensorRT"
    return LatencyEvidence(
        policy_sha256=sha256_hex(candidate.policy),
        contract_fingerprint=candidate.fingerprint,
        origin=origin,
        device=device_text(),
        runtime=f"{engine}, whole ticks of physai robot run over {transport}"[:200],
        measured_at=utc_text(datetime.now(UTC)),
        tick_s=ticks_s,
    )
