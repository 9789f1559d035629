"""`physai robot measure`: time a policy's ticks on this machine, as evidence for its latency gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from physai.deploy_jetson.update.measuring import measure_ticks
from physai.sdk.cli.shared.progress import progress
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.deploy_jetson.update.measuring import TickTimes


@verb(measure_ticks, summary="time a policy's ticks here, for its latency gate")
def measure_verb(call: Callable[..., TickTimes], *, policy: Path, ticks: int, as_json: AsJson = False) -> int:
    """Measure, and print percentiles."""
    import numpy as np

    with progress("measuring", ticks, sys.stderr) as report:
        measured = call(progress=report)
    evidence, deadline = measured.evidence, measured.deadline_s
    times = np.array(evidence.tick_s)
    shares = {f"p{100 * q:g}": float(np.quantile(times, q)) for q in (0.5, 0.99, 0.999)}
    # Written so that NaN counts as missed.
    missed = int((~(times <= deadline)).sum())
    if as_json:
        document = {"evidence": str(measured.path), "ticks": len(times), "missed": missed, **shares}
        print(json.dumps({**document, "max": float(times.max()), "deadline_s": deadline, "device": evidence.device}))
        return 0
    numbers = ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in shares.items())
    print(f"{len(times)} ticks on {evidence.device} with {evidence.runtime}, from {evidence.origin}")
    print(f"{numbers}, maximum {1e3 * times.max():.3g} ms; {missed} beyond the deadline of {1e3 * deadline:g} ms")
    print(f"next: physai sim validate {policy} --latency {measured.path}")
    return 0
