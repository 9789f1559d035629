"""Why a policy may not be flashed, in as few lines as a screen has."""

from dataclasses import dataclass

from physai.sdk.evidence.verdict import GateResult, Verdict, VerdictOutcome
from physai.sim.gates.judgement import WOULD_PASS


@dataclass(frozen=True)
class Reasons:
    """What stands in the way."""

    blocking: tuple[GateResult, ...]
    """Gates that decide the outcome, each for a reason of its own."""
    waiting: tuple[str, ...]
    """Gates that only wait for a credible twin."""


def reasons(verdict: Verdict) -> Reasons:
    """The gates that make the verdict what it is; none for a PASS."""
    if verdict.outcome is VerdictOutcome.PASS:
        return Reasons((), ())
    deciding = [gate for gate in verdict.gates if gate.outcome is verdict.outcome]
    waiting = tuple(gate.gate for gate in deciding if gate.message.startswith(WOULD_PASS))
    return Reasons(tuple(gate for gate in deciding if gate.gate not in waiting), waiting)
