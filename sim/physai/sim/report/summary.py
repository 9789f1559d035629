"""Summary of the gates that block a policy."""

from dataclasses import dataclass

from physai.sdk.evidence.verdict import GateResult, Verdict, VerdictOutcome
from physai.sim.gates.judgement import WOULD_PASS


@dataclass(frozen=True)
class Reasons:
    """The gates behind a verdict that is not a PASS."""

    blocking: tuple[GateResult, ...]
    """Gates that decide the outcome for reasons of their own."""
    waiting: tuple[str, ...]
    """Gates that would pass in a credible twin."""


def reasons(verdict: Verdict) -> Reasons:
    """Return the gates that decide the verdict; none for a PASS."""
    if verdict.outcome is VerdictOutcome.PASS:
        return Reasons((), ())
    deciding = [gate for gate in verdict.gates if gate.outcome is verdict.outcome]
    waiting = tuple(gate.gate for gate in deciding if gate.message.startswith(WOULD_PASS))
    return Reasons(tuple(gate for gate in deciding if gate.gate not in waiting), waiting)
