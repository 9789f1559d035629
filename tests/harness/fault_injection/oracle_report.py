"""Result of the checks of a control loop."""

from dataclasses import dataclass, field


@dataclass
class OracleReport:
    """Result of the checks."""

    broken: list[str] = field(default_factory=list[str])
    """Violations, at most 20."""
    violations: int = 0
    commands: int = 0
    changed: int = 0
    """Commands that differ from the previous one."""
    resets: int = 0
    """Resets obeyed."""
    starts: int = 0
    """Starts obeyed, not counting those of activations."""
    stops: int = 0
    """Stops, holds and damps requested."""
    refused: int = 0
    periods_to_safe: int = 0
    """Maximum periods from such a request to the first braking command."""
