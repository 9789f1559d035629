"""Metrics of the runtime in the Prometheus text exposition format, version 0.0.4.

Names, units and types follow https://prometheus.io/docs/practices/naming/: seconds, `_total` for counters. The bounds
of the histograms are edges of the underlying buckets, so the counts are exact.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from physai.deploy_jetson.telemetry.meter import Meter
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.sdk.safety import GuardState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upper bounds of the histograms, 4 µs to 0.4 s, two per octave [ns].
BOUNDS_NS = tuple(bound for exponent in range(12, 29) for bound in (1 << exponent, 3 << (exponent - 1)))

# Fields of the runtime's status, with the names and help texts of their metrics.
_COUNTERS = {
    "ticks": ("ticks", "Control periods with a tick."),
    "missed": ("deadlines_missed", "Control periods without a timely command of the policy."),
    "skipped": ("ticks_skipped", "Control periods without a tick; also counted as missed."),
    "interventions": ("interventions", "Ticks with an invalid command of the policy, or a failure to compute."),
    "rises": ("guard_rises", "Times the guard's state rose."),
    "swaps": ("policy_swaps", "Policies that took over while the robot was active."),
    "repeated": ("samples_repeated", "Ticks without a new sample."),
}


def exposition(meter: Meter, status: Mapping[str, Any], *, steal_s: float | None) -> str:
    """Return the exposition.

    Args:
        meter: of the run.
        status: see `Runtime.status`.
        steal_s: steal time of the hypervisor during the run [s]; None if unknown.
    """
    lines: list[str] = []
    for field, (name, text) in _COUNTERS.items():
        if field in status:
            lines += _family(f"physai_{name}_total", "counter", text, [({}, status[field])])
    lines += _reasons(meter)
    lines += _states(status)
    if "version" in status:
        # Labels rather than metrics, because texts cannot be values in Prometheus.
        about = ("version", "slot", "contract", "bundle_sha256", "transport")
        labels = {name: str(status[name]) for name in about if name in status}
        lines += _family("physai_policy_info", "gauge", "The running policy; always 1.", [(labels, 1)])
        lines += _family("physai_policy_version", "gauge", "Version of the running policy.", [({}, status["version"])])
        text = "Control rate of the contract."
        lines += _family("physai_control_rate_hertz", "gauge", text, [({}, status["rate_hz"])])
    if steal_s is not None:
        text = "Steal time of the hypervisor over all cores during this run."
        lines += _family("physai_machine_steal_seconds_total", "counter", text, [({}, steal_s)])
    lines += _stages(meter)
    return "\n".join(lines) + "\n"


def _reasons(meter: Meter) -> list[str]:
    text = "Ticks by reason for an intervention or a withheld command; one tick may have several."
    rows = [({"reason": name}, count) for name, count in meter.reasons.items()]
    lines = _family("physai_tick_reasons_total", "counter", text, rows)
    changes = [({"state": name}, count) for name, count in meter.rises.items()]
    lines += _family("physai_guard_changes_total", "counter", "Changes of the guard's state, by the new one.", changes)
    text = "Ticks that were overwritten before they were counted; missing from the stages."
    return lines + _family("physai_ticks_uncounted_total", "counter", text, [({}, meter.lost)])


def _states(status: Mapping[str, Any]) -> list[str]:
    guard = [({"state": state.name}, int(status.get("guard") == state.name)) for state in GuardState]
    text = "1 for the state of the runtime, 0 for the others."
    life = [({"state": state.value}, int(status["lifecycle"] == state.value)) for state in Lifecycle]
    return [
        *_family("physai_lifecycle_state", "gauge", text, life),
        *_family("physai_guard_state", "gauge", "1 for the guard's state, 0 for the others.", guard),
    ]


def _stages(meter: Meter) -> list[str]:
    # A histogram in Prometheus's sense: cumulative counts per bound, then sum and count.
    name = "physai_tick_stage_seconds"
    lines = _head(name, "histogram", "Time in each stage of a tick; sensor_age and wake_up are delays, whole is all.")
    longest: list[tuple[Mapping[str, str], float]] = []
    for stage, histogram in meter.stages.items():
        label = stage.replace(" ", "_").replace("-", "_")
        counts = histogram.cumulative(BOUNDS_NS)
        # In seconds with 12 digits, so that 1e-9 · 2^n is written without rounding noise.
        for bound, count in zip((*(f"{b * 1e-9:.12g}" for b in BOUNDS_NS), "+Inf"), counts, strict=True):
            lines.append(_sample(f"{name}_bucket", {"stage": label, "le": bound}, count))
        lines.append(_sample(f"{name}_sum", {"stage": label}, histogram.total_ns * 1e-9))
        lines.append(_sample(f"{name}_count", {"stage": label}, counts[-1]))
        longest.append(({"stage": label}, histogram.max_ns * 1e-9))
    return lines + _family("physai_tick_stage_max_seconds", "gauge", "Longest time of the run by stage.", longest)


def _family(name: str, kind: str, text: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    return [*_head(name, kind, text), *(_sample(name, labels, value) for labels, value in rows)]


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value!r}" if inner else f"{name} {value!r}"


def _escaped(text: str) -> str:
    # The order matters: backslashes first, as the other two replacements add some.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
