"""Result of a training run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physai.train.runners.session import TrainingOutcome


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingOutcome):
    """Result of a run, and its folder."""

    run: Path
    """Run folder."""
    contract: str
    """Fingerprint of the task's contract."""
    task: str
    """Name of the task, or path of its file."""
    leads: bool = True
    """Whether this process is the first of several ranks, which writes the run folder."""
    diverged_episodes: int = 0
    """Episodes that ended because the physics diverged."""
    totals: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Work of the generators in this session."""

    def save(self, path: Path) -> None:
        """Write the result for the process that started this one."""
        path.write_text(json.dumps({**vars(self), "run": str(self.run)}))

    @classmethod
    def load(cls, path: Path) -> "TrainingRun":
        """Read what `save` wrote."""
        document: dict[str, Any] = json.loads(path.read_text())
        run = Path(document.pop("run"))
        return cls(run=run, **document)
