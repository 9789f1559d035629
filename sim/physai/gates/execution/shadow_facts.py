"""Facts of shadow runs: how the policy answered on robots that another policy drove."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from physai.gates.execution.subject import ValidationSubject
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.origin import OriginKind
from physai.sdk.evidence.shadow import ShadowEvidence, ShadowEvidenceError, distinct_runs, load_shadow_evidence
from physai.sdk.evidence.verdict import Measurement

MAX_FACTS = 200
"""Measurements of shadow runs in a verdict; a gate has room for 256."""
MAX_RUNS = 64
MOST = 1e9
"""Greatest number in a verdict."""


def shadow_facts(runs: Sequence[ShadowEvidence]) -> list[Measurement]:
    """Return measurements of runs on robots; they have no threshold, as no outcome depends on them.

    Counts are summed over the runs. Of differences between the policy's commands and those sent, it is the greatest
    root mean square of any joint and run, and the greatest difference.

    Args:
        runs: distinct runs of the policy.
    """
    facts = dict(_facts(runs))
    names = list(facts)[:MAX_FACTS]
    return [Measurement(name=name, value=min(facts[name], MOST)) for name in names]


def told_shadows(runs: Sequence[ShadowEvidence]) -> str:
    """Return a sentence with the number of runs and the SHA-256 of all of them, after a space; empty without any."""
    if not runs:
        return ""
    digest = sha256_hex("".join(run.sha256 for run in runs).encode())
    return f" {len(runs)} shadow runs, SHA-256 {digest}, inform only."


def _facts(runs: Sequence[ShadowEvidence]) -> Iterator[tuple[str, float]]:
    if not runs:
        return
    for name in ("ticks", "starts", "unanswered", "late", "stops"):
        yield f"shadow.{name}", float(sum(getattr(run, name) for run in runs))
    yield "shadow.command_share", max(run.command_share for run in runs)
    differences: dict[str, float] = {}
    for part in (part for run in runs for part in run.divergence):
        for kind, value in (("rms", part.rms), ("greatest", part.greatest)):
            name = f"shadow.{kind}.{part.output}"[:64]
            differences[name] = max(differences.get(name, 0.0), value)
    yield from differences.items()
    counts: Counter[str] = Counter()
    for run in runs:
        for cause, ticks in run.interventions.items():
            counts[f"shadow.intervention.{cause}"[:64]] += ticks
        for one in run.beyond:
            counts[f"shadow.beyond.{one.field}.{one.element}"[:64]] += one.ticks
    yield from ((name, float(count)) for name, count in counts.items())


def read_shadows(given: Sequence[str | Path] | Sequence[ShadowEvidence]) -> tuple[ShadowEvidence, ...]:
    """Read shadow evidence in the order of its runs; of copies of one run the newest counts.

    Raises:
        ShadowEvidenceError: a file cannot be read or is malformed, or there are too many.
    """
    if len(given) > MAX_RUNS:
        raise ShadowEvidenceError(f"{len(given)} files of shadow evidence; at most {MAX_RUNS} go into a verdict")
    found = [one if isinstance(one, ShadowEvidence) else load_shadow_evidence(one) for one in given]
    return tuple(sorted(distinct_runs(found), key=lambda run: run.run))


def require_shadows_of(
    runs: Sequence[ShadowEvidence], subject: ValidationSubject, accept: Sequence[OriginKind]
) -> None:
    """Require that shadow runs are of the bytes that are judged, under their contract, on a robot of their model.

    Raises:
        ShadowEvidenceError: a run is of something else, or of an origin that is not accepted.
    """
    for run in runs:
        contract = subject.task.contract
        run.require_subject(subject.policy_sha256, contract.fingerprint, contract.robot.name)
        if run.origin.kind not in accept:
            raise ShadowEvidenceError(
                f"the shadow run {run.run} is from {run.origin}, which is no evidence of a robot; leave it out, or "
                f"accept it: `accept` {run.origin.kind}"
            )
