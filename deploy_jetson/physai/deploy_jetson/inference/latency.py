"""Measures the tick duration of a policy on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from physai.deploy_jetson.inference.engine import InferenceEngine, InferenceError
from physai.sdk.policy.golden import Golden
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX

WARM_UP_TICKS = 20
TICKS = 500
# Ticks between reports of progress, each of which disturbs the tick after it.
REPORT_TICKS = 50


class LatencyError(InferenceError):
    """A policy is too slow for its contract's deadline on this machine."""


@dataclass(frozen=True)
class Latency:
    """Durations of ticks [s]."""

    ticks: int
    p50_s: float
    p99_s: float
    max_s: float


def measure(
    engine: InferenceEngine,
    golden: Golden,
    *,
    ticks: int = TICKS,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    progress: Callable[[float], None] | None = None,
) -> Latency:
    """Time the policy over the golden states, with fed-back memory as in the runtime.

    Args:
        engine: the engine to measure.
        golden: states to compute.
        ticks: number of ticks to time.
        clock_ns: source of time [ns].
        progress: called with the share of the work that is done.

    Raises:
        EngineError: the engine fails.
    """
    header = engine.header
    sensors = [name for name in header.inputs if not name.startswith(STATE_PREFIX)]
    memory = {STATE_PREFIX + name: np.zeros((1, size), np.float32) for name, size in header.state_sizes.items()}
    durations: list[int] = []
    for tick in range(WARM_UP_TICKS + ticks):
        row = tick % golden.rows
        start = clock_ns()
        outputs = engine.run({**{name: golden.inputs[name][row : row + 1] for name in sensors}, **memory})
        # Fed back as in the runtime, within the measured time.
        memory = {STATE_PREFIX + name: outputs[NEXT_PREFIX + name] for name in header.state_sizes}
        durations.append(clock_ns() - start)
        if progress is not None and tick % REPORT_TICKS == 0:
            progress(tick / (WARM_UP_TICKS + ticks))
    # The first ticks load code and data into the caches.
    seconds = np.asarray(durations[WARM_UP_TICKS:]) * 1e-9
    p50, p99 = (float(np.quantile(seconds, share)) for share in (0.5, 0.99))
    return Latency(ticks, p50, p99, float(seconds.max()))


def require_deadline(latency: Latency, deadline_s: float) -> None:
    """Reject a policy whose 99th percentile exceeds the deadline.

    Raises:
        LatencyError: with both numbers.
    """
    # Not the maximum: of a few hundred ticks it depends on chance. The health window checks the running robot.
    if not latency.p99_s <= deadline_s:
        raise LatencyError(
            f"99 of 100 ticks take up to {latency.p99_s * 1e3:.3g} ms here, the contract's deadline is "
            f"{deadline_s * 1e3:.3g} ms; is the machine throttled (nvpmodel, jetson_clocks) or busy?"
        )
