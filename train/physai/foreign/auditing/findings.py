"""Findings of an audit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["agrees", "differs", "undetermined", "absent"]


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """A term of the observation, the targets, the gains or the period."""

    part: str
    outcome: Outcome
    """`undetermined`: the log does not move what would tell; `absent`: the log does not have it."""
    text: str
    """The difference in words, or what is missing."""
    greatest: float | None = None
    """Greatest difference, in the part's own unit."""


@dataclass(frozen=True, kw_only=True)
class PolicyAudit:
    """A log against a contract."""

    log: Path
    fingerprint: str
    rows: int
    findings: tuple[AuditFinding, ...]

    @property
    def agrees(self) -> bool:
        """Whether the observation is compared and nothing differs; other parts may be undetermined or absent."""
        parts = {(finding.part, finding.outcome) for finding in self.findings}
        return ("observation", "absent") not in parts and all(outcome != "differs" for _, outcome in parts)
