"""Order of the samples in histories, and what stands in them before the first sample."""

from collections.abc import Collection

import numpy as np

from physai.foreign.auditing.audited_policy import AuditedPolicy
from physai.foreign.auditing.deployment_log import Floats
from physai.foreign.auditing.findings import AuditFinding
from physai.foreign.auditing.hypotheses import EXCITED, agrees, spread

FILL = "first_fill"
"""Part of an audit: samples before the first one."""
_MEASURED = ("sensor", "joint_pos_rel", "sin_cos", "projected_gravity", "function")
"""Kinds of terms that are not 0 before the policy begins; a command may be."""
_WORDS = {"repeat": "copies of the first sample", "zero": "zeros"}


def longest(policy: AuditedPolicy) -> int:
    """Return the number of samples in the longest history."""
    return max(term.history for term in policy.contract.observation.terms)


def newest_elsewhere(policy: AuditedPolicy, term: str, block: Floats) -> Floats:
    """Return a term's block with its samples in the opposite order of time."""
    history = next(one.history for one in policy.contract.observation.terms if one.name == term)
    return block.reshape(len(block), history, -1)[:, ::-1].reshape(block.shape)


def other_layout(policy: AuditedPolicy, expected: Floats, logged: Floats) -> str:
    """Name another layout of the whole observation that explains it; empty if none does."""
    terms, spec = policy.contract.observation.terms, policy.contract.observation
    if policy.motion is not None or longest(policy) == 1 or len({term.history for term in terms}) > 1:
        return ""
    blocks = {term.name: expected[:, policy.columns[term.name]] for term in terms}
    by_time = spec.layout == "time"
    words = "all samples of a term, then the next term" if by_time else "all terms of a sample, then the next sample"
    for turned in (False, True):
        parts = [newest_elsewhere(policy, name, block) if turned else block for name, block in blocks.items()]
        if not by_time:
            length = terms[0].history
            parts = [np.concatenate([part.reshape(len(part), length, -1) for part in parts], axis=2)]
        if agrees(np.hstack([part.reshape(len(part), -1) for part in parts]), logged):
            other = "first" if (spec.newest == "last") == turned else "last"
            return f"in another layout: {words}, the newest sample {other}"
    return ""


def first_fill(policy: AuditedPolicy, expected: Floats, logged: Floats, right: Collection[str]) -> AuditFinding | None:
    """Return the finding of the samples before the first one; None without histories.

    Args:
        policy: of the log.
        expected: observation of all rows, as the contract has it if the log begins with the policy.
        logged: as logged.
        right: terms that agree in later rows, where only samples of the log count.
    """
    spec = policy.contract.observation
    if longest(policy) == 1:
        return None
    own, other = ("repeat", "zero") if spec.first_fill == "repeat" else ("zero", "repeat")
    made: dict[str, list[Floats]] = {"logged": [], own: [], other: []}
    moves = False
    for term in spec.terms:
        if term.history == 1 or term.kind not in _MEASURED or term.name not in right:
            continue
        seen, block = (
            values[:, policy.columns[term.name]][: term.history - 1].reshape(
                -1, term.history, policy.contract.term_width(term)
            )
            for values in (logged, expected)
        )
        if spec.newest == "last":
            seen, block = seen[:, ::-1], block[:, ::-1]
        # Sample a of row r is before the first one if a > r.
        before = np.arange(term.history) > np.arange(len(block))[:, None]
        made["logged"].append(seen[before])
        first = np.broadcast_to(block[:1, :1], block.shape)[before]
        made["repeat"].append(first)
        made["zero"].append(np.zeros_like(first))
        moves = moves or spread(block[:, 0]) > EXCITED

    def holds(fill: str) -> bool:
        return all(agrees(one, seen) for one, seen in zip(made[fill], made["logged"], strict=True))

    if not made["logged"] or (holds(own) and holds(other)):
        text = "no history tells its first samples from others: log from the policy's first period on"
        return AuditFinding(part=FILL, outcome="undetermined", text=text)
    if holds(own):
        return AuditFinding(part=FILL, outcome="agrees", text="")
    # A robot that rests before the log has copies of the first sample in its histories, too.
    if holds(other) and (moves or other == "zero"):
        text = f"{_WORDS[other]} before the first sample, the contract has {_WORDS[own]}"
        return AuditFinding(part=FILL, outcome="differs", text=text)
    text = "the log begins after the policy's first period, so that the first samples are not tested"
    return AuditFinding(part=FILL, outcome="undetermined", text=text)
